"""Who refers to an artifact, and how it is asked whether it still does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

from blackboard import keys
from blackboard.errors import CorruptValue

__all__ = ["PIN", "Owner", "Referrer"]

PIN = "pin"
"""Kind of the owners outside the library: what they hold is kept until they say otherwise."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who refers: a thread of a namespace, a record, or a name that somebody outside has pinned it under."""

    kind: str
    namespace: str
    id: str

    def __str__(self) -> str:
        return ":".join(
            (keys.encode(self.kind, "kind"), keys.encode(self.namespace, "namespace"), keys.encode(self.id))
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read one as it is spelled in an artifact's references."""
        parts = text.split(":")
        if len(parts) != 3:
            raise CorruptValue(f"{text!r} is no owner of an artifact", key=text)
        return cls(*(keys.decode(part) for part in parts))


class Referrer(Protocol):
    """Answers for the owners of one kind; see `ArtifactStore.register`."""

    async def refers(self, owner: Owner, digest: str) -> bool:
        """Tell whether the owner stands and refers to the artifact; what cannot be asked raises."""
        ...
