"""Memories to recall from: an embedder whose meanings are known, and paths of their own."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np

from blackboard.memory.embedder import Embedder, Metric
from blackboard.memory.memories import Memories
from blackboard.memory.memory import Memory
from blackboard.settings import Settings
from blackboard.store.client import Store

TOPICS = {"cat": 0, "kitten": 0, "dog": 1, "puppy": 1, "money": 2, "cash": 2, "rain": 3, "storm": 3}


class Topics:
    """Vectors by topic: cats and kittens are one thing, money and cash another; all else has a direction of its own."""

    name, dimension = "topics", 5
    metric: Metric = "cosine"

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, ...], bool]] = []
        self.failing: Exception | None = None

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        self.asked.append((tuple(texts), query))
        if self.failing is not None:
            raise self.failing
        vectors = np.zeros((len(texts), 5))
        for vector, text in zip(vectors, texts, strict=True):
            for word in text.lower().replace("?", "").split():
                vector[TOPICS.get(word, 4)] += 1 if word in TOPICS else 0.1
            vector[4] += 0.01
        return vectors


class Plane:
    """The space of vectors in the plane, by distance; texts have none of their own."""

    name, dimension = "plane", 2
    metric: Metric = "l2"

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        raise OSError("no model")


def memory_of(store: Store, embedder: Embedder | None = None, *, path: str = "", **policy: Any) -> Memory:
    """A path that no other test uses, in a namespace with this policy."""
    policy.setdefault("embedding", {"kind": "none"})
    settings = Settings(namespaces={"memory": {"kind": "memory", **policy}})
    return Memories(store, settings).open(path or f"recall/{uuid.uuid4().hex}", "memory", embedder)


def texts(hits: Any) -> list[str]:
    return [hit.record.text for hit in hits]
