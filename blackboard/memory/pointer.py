"""The pointer to the newest snapshot of a path's index: which chunks it is made of, and how far it has seen."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from blackboard.errors import CorruptValue
from blackboard.memory.chunks import Chunk
from blackboard.memory.record import Token

__all__ = ["Pointer"]

FORMAT = "snapshot-1"


@dataclass(frozen=True, slots=True)
class Pointer:
    """One snapshot. Every write up to the watermark `token` is in its chunks; some later ones may be, too.

    `generation` is the op id of its build, so that no two share a key. `space` is the embedding space of the path when it
    was built, None while it had no vector.
    """

    generation: str
    token: Token
    space: str | None
    chunks: tuple[Chunk, ...]

    @property
    def rows(self) -> int:
        """How many records its chunks hold."""
        return sum(chunk.rows for chunk in self.chunks)

    @property
    def size(self) -> int:
        """How many bytes its chunks have."""
        return sum(chunk.size for chunk in self.chunks)

    def names(self) -> list[str]:
        """Name its chunks, in their order, as the set of chunks does."""
        return [f"{self.generation}:{chunk.number}" for chunk in self.chunks]

    def text(self) -> str:
        """Spell it as it is stored."""
        chunks = [[chunk.number, chunk.digest, chunk.rows, chunk.size] for chunk in self.chunks]
        fields = {
            "generation": self.generation, "watermark": str(self.token), "space": self.space, "chunks": chunks,
        }  # fmt: skip
        return json.dumps({FORMAT: fields}, separators=(",", ":"))

    @classmethod
    def parse(cls, data: bytes) -> Pointer:
        """Read one; CorruptValue for anything that `text` of this version did not write."""
        try:
            fields: dict[str, Any] = json.loads(data)[FORMAT]
            chunks: Iterable[tuple[int, str, int, int]] = fields["chunks"]
            told = tuple(Chunk(int(number), str(digest), int(rows), int(size)) for number, digest, rows, size in chunks)
            space: str | None = fields["space"]
            return cls(str(fields["generation"]), Token.parse(fields["watermark"]), space, told)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptValue(f"not a pointer to a snapshot: {error}") from error
