"""Paths whose vectors the server searches: a server that can, an embedder of given vectors, and what a set holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from blackboard.memory.embedder import Metric
from blackboard.memory.memory import Memory
from blackboard.memory.sets import members
from blackboard.store.client import Store
from blackboard.testing.servers import binaries
from tests.memory.recalling import memory_of

REDIS = binaries().get("redis")
DIMENSION = 16


class Drawn:
    """Vectors drawn by the text: equal texts have equal ones, all others point anywhere."""

    name, dimension = "drawn", DIMENSION
    metric: Metric = "cosine"

    def __init__(self) -> None:
        self.failing = False

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        if self.failing:
            raise OSError("no model")
        return np.array([drawn(text) for text in texts])


def drawn(text: str) -> Any:
    """The vector of a text, as it comes back from the store: of unit length, 16 bits a number."""
    vector = np.random.default_rng(list(text.encode())).normal(size=DIMENSION)
    return (vector / np.linalg.norm(vector)).astype(np.float16).astype(np.float64)


def served(store: Store, embedder: Any = None, *, path: str = "", **policy: Any) -> Memory:
    """A path that the server searches, in a namespace with this policy."""
    return memory_of(store, embedder or Drawn(), path=path, **{"index": "server", **policy})


async def agrees(memory: Memory) -> set[str]:
    """Return the ids of the records; fail unless those that have a vector are the elements of the set, and no others."""
    found = [one async for page in memory.records.walk() for one in page]
    held = await members(memory.records)
    with_vector = {one.record.id for one in found if one.vector is not None}
    assert set(held or ()) == with_vector
    assert await memory.records.store.command("VCARD", memory.records.keys.vectors) == len(with_vector)
    return {one.record.id for one in found}
