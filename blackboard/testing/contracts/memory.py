"""What the contracts of records share."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from blackboard import keys
from blackboard.memory.memory import Memory
from blackboard.memory.paths import Paths
from blackboard.memory.record import Record
from blackboard.memory.records import Records
from blackboard.settings import MemoryNamespace
from blackboard.store.client import Store
from blackboard.testing.contracts.thread import all_keys

__all__ = ["NAMESPACE", "MemoryContract"]

NAMESPACE = "memory"


class MemoryContract:
    """What the contracts of records need: a memory of a path of its own, and a look at what stands there."""

    @pytest.fixture
    def memory(self, store: Store) -> Memory:
        return self.open(store, f"tenant-{uuid.uuid4().hex}/place")

    def open(self, store: Store, path: str) -> Memory:
        """Open a path as a process would that knows nothing of it."""
        return Memory(Records(store, NAMESPACE, keys.path_text(path), MemoryNamespace()), Paths(store, NAMESPACE), None)

    async def standing(self, memory: Memory) -> set[str]:
        """List what stands of a path, without its own prefix."""
        prefix = memory.records.keys.prefix + ":"
        return {key.removeprefix(prefix) for key in await all_keys(memory.records.store, prefix)}

    async def stored(self, memory: Memory) -> list[Record]:
        """Read every record, and find the counts and the listing to agree with that."""
        found = [one.record async for page in memory.records.walk(3) for one in page]
        assert await memory.count() == len(found)
        assert list(await memory.list(limit=1000)) == found
        return found

    async def passed(self, memory: Memory, id: str) -> None:
        """Wait until a record's time is over."""
        for _ in range(200):
            if await memory.get(id) is None and id in await memory.records.expired(1000):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{id!r} does not expire")

    async def over(self, memory: Memory, seconds: float) -> None:
        """Wait until so much time has passed on the server, and leave nothing behind."""
        mark = await memory.remember("mark", id="mark", ttl=seconds)
        await self.passed(memory, mark.id)
        await memory.records.forget([mark.id], expired=True)

    async def swept(self, memory: Memory) -> None:
        """Clear away what is left of records whose time is over."""
        overdue = await memory.records.expired()
        assert sorted(one.id for one in await memory.records.forget(overdue, expired=True)) == sorted(overdue)

    async def emptied(self, memory: Memory) -> None:
        """Sweep and forget everything, and find nothing left but what is never given out twice."""
        await self.swept(memory)
        await memory.records.forget([record.id for record in await self.stored(memory)])
        assert await self.standing(memory) == {"head", "log", "ops"}
