"""What refers to an artifact: a small value that a state can hold, and how it is found in stored bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from blackboard.errors import ConfigError

__all__ = ["SPELLED", "ArtifactRef", "digest_of", "mentions"]

SPELLED = "artifact:sha256:"
"""What the text of a reference begins with; 64 hex digits follow."""

_MARK = SPELLED.encode()
_URI = re.compile(r"artifact:sha256:([0-9a-f]{64})")
_MENTION = re.compile(rb"artifact:sha256:([0-9a-f]{64})(?![0-9a-fA-F])")


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """An artifact by its content: `uri` is `artifact:sha256:` and 64 hex digits, `size` its bytes.

    A plain value: a state, a record or an effect's result can hold it, and its text (`str`) means the same artifact
    everywhere. `media_type` and `name` say what the caller said; they are no part of what is stored once.
    """

    uri: str
    size: int
    media_type: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        digest_of(self.uri)

    def __str__(self) -> str:
        return self.uri

    @property
    def digest(self) -> str:
        """The SHA-256 of the content, 64 hex digits."""
        return self.uri.removeprefix(SPELLED)


def digest_of(ref: ArtifactRef | str) -> str:
    """Return the digest that a reference or its text names; ConfigError for any other text."""
    if isinstance(ref, ArtifactRef):
        return ref.digest
    found = _URI.fullmatch(str(ref))
    if found is None:
        raise ConfigError(f"an artifact is named by {SPELLED} and 64 hex digits, got {ref!r:.100}", value=ref)
    return found[1]


def mentions(data: bytes) -> set[str]:
    """Return the digests of all artifacts whose text stands in the bytes, in whatever form those are encoded."""
    if _MARK not in data:
        return set()
    return {digest.decode() for digest in _MENTION.findall(data)}
