"""What is stored of an artifact besides its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

from blackboard import keys
from blackboard.artifacts.ref import SPELLED, ArtifactRef
from blackboard.errors import CorruptValue

__all__ = ["CHECK", "Head", "check_of"]

CHECK = 16
"""Bytes of a chunk's own digest."""


def check_of(chunk: bytes | memoryview) -> bytes:
    """Digest one chunk: BLAKE2b of 128 bits (RFC 7693)."""
    return blake2b(chunk, digest_size=CHECK).digest()


@dataclass(frozen=True, slots=True)
class Head:
    """A stored artifact: its size, the size and the digests of its chunks, and where they stand.

    `upload` names the put that stored it, `file` where its bytes stand on the file system (empty: in the backend).
    `stored`, `touched` and `marked` (found without references, 0 if not) are server time in µs; `revision` grows with
    every put of the content and every reference.
    """

    digest: str
    size: int
    chunk: int
    checks: bytes
    upload: str
    file: str
    stored: int
    touched: int
    marked: int
    revision: str
    media_type: str | None
    name: str | None

    @classmethod
    def of(cls, digest: str, flat: Sequence[bytes]) -> Self | None:
        """Read the reply of HGETALL; None for an empty one, CorruptValue for fields that make no sense."""
        if not flat:
            return None
        found = {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}
        try:
            head = cls(
                digest, int(found["size"]), int(found["chunk"]), found["checks"], found["upload"].decode(),
                found["file"].decode(), int(found["stored"]), int(found["touched"]), int(found.get("marked", 0)),
                found["revision"].decode(), found["media_type"].decode() or None, found["name"].decode() or None,
            )  # fmt: skip
        except (KeyError, ValueError) as error:
            raise CorruptValue(f"the head of artifact {digest} is not readable: {error!r}", key=digest) from error
        if len(head.checks) != head.count * CHECK:
            raise CorruptValue(f"the head of artifact {digest} names other chunks than its size has", key=digest)
        return head

    @property
    def count(self) -> int:
        """Number of chunks."""
        return -(-self.size // self.chunk)

    @property
    def ref(self) -> ArtifactRef:
        """The reference to it, with what the put that stored it said."""
        return ArtifactRef(f"{SPELLED}{self.digest}", self.size, self.media_type, self.name)

    @property
    def chunks(self) -> list[str]:
        """The keys of its chunks in the backend; none if they stand in a file."""
        where = keys.ArtifactKeys(self.digest)
        return [] if self.file else [where.chunk(self.upload, number) for number in range(self.count)]

    def length(self, number: int) -> int:
        """Bytes of a chunk: the last one may be shorter."""
        return min(self.chunk, self.size - number * self.chunk)

    def check(self, number: int, data: bytes) -> bytes:
        """Return a chunk that was read; CorruptValue if it is not what was written."""
        written = self.checks[number * CHECK : (number + 1) * CHECK]
        if len(data) != self.length(number) or check_of(data) != written:
            raise CorruptValue(
                f"chunk {number} of artifact {self.digest} is torn or was altered: restore it from a backup",
                key=f"{self.digest} chunk {number}", digest=self.digest, chunk=number,
            )  # fmt: skip
        return data
