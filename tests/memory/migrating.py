"""Paths to migrate, models that differ, and what holds when one has been brought from one to another."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import pytest

from blackboard.memory import migration
from blackboard.memory.embedder import Metric, Space, pack
from blackboard.memory.memory import Memory
from blackboard.memory.new import New
from blackboard.points import watch
from blackboard.store.client import Store
from tests.memory.recalling import memory_of

COLOURS = ("red", "blue", "green", "black", "white")
FACTS = [f"fact {number}: the {COLOURS[number % 5]} box is on shelf {number % 5}" for number in range(20)]


class Model:
    """An embedder of this name, with a direction of its own for every text."""

    metric: Metric = "cosine"

    def __init__(self, name: str, dimension: int, metric: Metric = "cosine") -> None:
        self.name, self.dimension, self.metric = name, dimension, metric
        self.asked: list[str] = []
        self.breaks_after: int | None = None

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        if self.breaks_after is not None and len(self.asked) >= self.breaks_after:
            raise OSError("no model")
        self.asked += texts
        return np.stack([self.vector(text) for text in texts])

    def vector(self, text: str) -> Any:
        seed = int.from_bytes(hashlib.sha256(f"{self.name} {text}".encode()).digest()[:8], "big")
        return np.random.default_rng(seed).standard_normal(self.dimension)


A, B, C = ("model-a", 4), ("model-b", 3), ("model-c", 4)


async def filled(store: Store, **policy: Any) -> Memory:
    memory = memory_of(store, Model(*A), **policy)
    await memory.remember_all([New(text, id=str(number)) for number, text in enumerate(FACTS)])
    return memory


def opened(memory: Memory, embedder: Model) -> Memory:
    """The same path, as another process with another embedder has it."""
    return memory_of(memory.records.store, embedder, path="/".join(memory.path))


async def found(memory: Memory, count: int = 20, record: Callable[[int], str] = FACTS.__getitem__) -> None:
    """Each record is found first by its own vector, and all are there."""
    for number in range(count):
        hits = await memory.recall(record(number), k=count, lexical=0.0)
        assert (len(hits), hits[0].record.text) == (count, record(number))


async def vectors(memory: Memory, model: Model) -> None:
    """What stands of every record is the vector that a model makes of its text, and the records are what verifying says they are."""
    space = Space.of(model)
    async for page in memory.records.walk():
        for one in page:
            made = model.vector(one.record.text)
            unit = (made / np.linalg.norm(made)).astype(np.float32)
            assert one.vector == (pack(unit[None], space)[0]), one.record.text
    assert (await memory.verify()).findings == ()


def cut(moment: str, times: int = 1) -> Any:
    left = times

    def stop(point: str) -> None:
        nonlocal left
        left -= point == moment
        if left <= 0 and point == moment:
            raise RuntimeError(moment)

    return watch(stop)


def meanwhile(moment: str, act: Callable[[], Awaitable[object]], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have something done once, just before a script of the migration is sent."""
    ask, done = migration._Change._ask, list[int]()

    async def asked(self: Any, script: Any, names: Any, args: Any) -> Any:
        if script.name == moment and not done:
            done.append(1)
            await act()
        return await ask(self, script, names, args)

    monkeypatch.setattr(migration._Change, "_ask", asked)
    return done
