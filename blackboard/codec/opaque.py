"""A stored value whose class is not known here: kept byte for byte."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Opaque"]


@dataclass(frozen=True, slots=True)
class Opaque:
    """A stored value whose class nobody declared, with the bytes that were read.

    `name` is the class's `module:qualname` as it was when written, `data` the encoding of the value. It is equal to
    another by both, and encoding it again yields exactly `data`, so a process that does not know a class can carry
    its values from checkpoint to checkpoint without touching them. To open one, declare the class (`Types.register`)
    and `decode(opaque.data, types=...)`.
    """

    name: str
    data: bytes

    def __repr__(self) -> str:
        return f"<Opaque {self.name} ({len(self.data)} bytes): class not declared>"
