"""What a checkpoint holds: channels, and where each one's content stands in the store."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Channel", "Items", "Keep", "Kind", "Ref", "Segments", "Value", "digest"]

Kind = Literal["value", "log", "map"]
Segments = tuple[tuple[str, int], ...]
"""Prefixes of log segments, in order: (segment, how many of its first items)."""


@dataclass(frozen=True, slots=True)
class Ref:
    """Where the content of a channel stands: inline in the manifest, by digest, or as prefixes of segments."""

    kind: Kind
    inline: bytes | None = None
    digest: str | None = None
    segments: Segments = ()

    @property
    def count(self) -> int:
        """Number of items of a log or map."""
        return sum(count for _, count in self.segments)


@dataclass(frozen=True, slots=True)
class Value:
    """A channel given whole: stored once under its digest, or inline if it is small."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Items:
    """A channel given as what is stored already and what is new.

    `whole` is asked only if the stored part is missing or must be compacted; it returns every item.
    """

    kind: Literal["log", "map"]
    base: Segments
    new: Sequence[bytes]
    whole: Callable[[], Sequence[bytes]]


@dataclass(frozen=True, slots=True)
class Keep:
    """A channel that is unchanged since the checkpoint that `ref` comes from."""

    ref: Ref


Channel = Value | Items | Keep


def digest(data: bytes) -> str:
    """Name bytes by their content: BLAKE2b of 192 bits (RFC 7693), 32 characters."""
    return base64.urlsafe_b64encode(hashlib.blake2b(data, digest_size=24).digest()).decode()
