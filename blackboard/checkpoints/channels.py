"""What a checkpoint holds: channels, and where each one's content stands in the store."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from blackboard.artifacts.ref import ArtifactRef

__all__ = ["Channel", "Items", "Keep", "Kind", "Moved", "Ref", "Segments", "Value", "digest"]

Kind = Literal["value", "log", "map"]
Segments = tuple[tuple[str, int], ...]
"""Prefixes of log segments, in order: (segment, how many of its first items)."""


@dataclass(frozen=True, slots=True)
class Ref:
    """Where the content of a channel stands: inline in the manifest, by digest, or as prefixes of segments.

    The digest of a value that was moved out is followed by `@` and that of its artifact (SHA-256 in hex).
    """

    kind: Kind
    inline: bytes | None = None
    digest: str | None = None
    segments: Segments = ()

    @property
    def count(self) -> int:
        """Number of items of a log or map."""
        return sum(count for _, count in self.segments)

    @property
    def named(self) -> str | None:
        """The digest of the value itself."""
        return None if self.digest is None else self.digest.partition("@")[0]

    @property
    def artifact(self) -> str | None:
        """The digest of the artifact that the value was moved to; None if it stands in the thread."""
        return None if self.digest is None else self.digest.partition("@")[2] or None


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


@dataclass(frozen=True, slots=True)
class Moved:
    """A channel whose value stands in an artifact; `pointer` is empty if the thread refers to it already."""

    ref: Ref
    pointer: bytes

    @classmethod
    def to(cls, named: str, artifact: ArtifactRef) -> Self:
        """Spell one: `named` is the digest of the value itself."""
        return cls(Ref("value", digest=f"{named}@{artifact.digest}"), artifact.uri.encode())


Channel = Value | Items | Keep | Moved


def digest(data: bytes) -> str:
    """Name bytes by their content: BLAKE2b of 192 bits (RFC 7693), 32 characters."""
    return base64.urlsafe_b64encode(hashlib.blake2b(data, digest_size=24).digest()).decode()
