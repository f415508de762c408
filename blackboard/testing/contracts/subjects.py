"""What records about one subject promise on every server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from blackboard.memory.memory import Memory
from blackboard.memory.new import New
from blackboard.store.client import Store
from blackboard.testing.contracts.memory import MemoryContract

__all__ = ["SubjectsContract"]


class SubjectsContract(MemoryContract):
    """Records about one subject supersede each other, and keep their history."""

    async def chain(self, memory: Memory, subject: str = "s") -> list[tuple[str, int, int | None]]:
        """Read a history, and find each record bounded by the next."""
        found = await memory.history(subject)
        for newer, older in pairwise(found):
            assert (older.valid_until, older.superseded_by) == (newer.valid_from, newer.id)
        if found:
            assert (found[0].valid_until, found[0].superseded_by) == (None, None)
        for record in found:
            assert await memory.get(record.id) == record
        return [(record.text, record.valid_from, record.valid_until) for record in found]

    async def test_the_newest_counts(self, memory: Memory) -> None:
        first = await memory.remember("Oslo", subject="s")
        second = await memory.remember("Bergen", subject="s")
        assert second.valid_from > first.valid_from
        assert await self.chain(memory) == [
            ("Bergen", second.valid_from, None), ("Oslo", first.valid_from, second.valid_from),
        ]  # fmt: skip
        older = await memory.get(first.id)
        assert older is not None
        assert (older.version, older.text) == (2, "Oslo")
        assert older.token > second.token
        assert [change.seq for change in (await memory.changes()).changes] == [1, 2, 3]

    @pytest.mark.parametrize("order", [(1, 2, 3, 4), (4, 3, 2, 1), (2, 4, 1, 3), (3, 1, 4, 2)])
    async def test_an_older_one_finds_its_place(self, memory: Memory, order: Sequence[int]) -> None:
        for at in order:
            await memory.remember(str(at), subject="s", valid_from=at)
        assert await self.chain(memory) == [("4", 4, None), ("3", 3, 4), ("2", 2, 3), ("1", 1, 2)]

    async def test_of_equal_times_the_later_write_counts(self, memory: Memory) -> None:
        for text in ("a", "b", "c"):
            await memory.remember(text, subject="s", valid_from=5)
        await memory.remember("old", subject="s", valid_from=1)
        assert await self.chain(memory) == [("c", 5, None), ("b", 5, 5), ("a", 5, 5), ("old", 1, 5)]

    async def test_what_was_superseded_is_no_duplicate(self, memory: Memory) -> None:
        texts = ["Oslo", "Bergen", "Oslo"]
        records = [await memory.remember(text, subject="s") for text in texts]
        assert [record.duplicate for record in records] == [False] * 3
        assert (await memory.remember("Oslo", subject="s")).id == records[2].id
        assert [text for text, _, _ in await self.chain(memory)] == texts

    @pytest.mark.parametrize("gone", [0, 1, 2])
    async def test_forgetting_closes_the_gap(self, memory: Memory, gone: int) -> None:
        records = [await memory.remember(str(at), subject="s", valid_from=at) for at in range(3)]
        await memory.records.forget([records[gone].id])
        left = [str(at) for at in (2, 1, 0) if at != gone]
        assert [text for text, _, _ in await self.chain(memory)] == left
        last = (await memory.changes()).changes[-1]
        assert (last.op, last.id) == (("put", records[gone - 1].id) if gone else ("forget", records[0].id))

    async def test_a_record_moves(self, memory: Memory) -> None:
        """To another time, and to another subject."""
        for at in (1, 2, 3):
            await memory.remember(str(at), id=f"r{at}", subject="s", valid_from=at * 10)
        await memory.remember("other", subject="t", valid_from=5)
        await memory.update("r1", expected=2, valid_from=25)
        assert [text for text, _, _ in await self.chain(memory)] == ["3", "1", "2"]
        await memory.update("r1", expected=3, valid_from=26)
        assert [text for text, _, _ in await self.chain(memory)] == ["3", "1", "2"]
        await memory.remember("3", id="r3", subject="s", valid_from=1)
        assert [text for text, _, _ in await self.chain(memory)] == ["1", "2", "3"]
        await memory.remember("moved", id="r1", subject="t", valid_from=1)
        assert [text for text, _, _ in await self.chain(memory)] == ["2", "3"]
        assert [text for text, _, _ in await self.chain(memory, "t")] == ["other", "moved"]
        await memory.remember("free", id="r2")
        assert [text for text, _, _ in await self.chain(memory)] == ["3"]
        assert await memory.count() == 4

    async def test_writers_of_one_subject_at_once(self, memory: Memory, store: Store) -> None:
        others = [self.open(store, "/".join(memory.path)) for _ in range(6)]
        await asyncio.gather(*(other.remember(str(at), subject="s") for at, other in enumerate(others)))
        assert {text for text, _, _ in await self.chain(memory)} == {str(at) for at in range(6)}

    async def test_many_about_one_subject_in_one_batch(self, memory: Memory) -> None:
        await memory.remember_all([New(str(at), subject="s", valid_from=at) for at in range(30)])
        assert [text for text, _, _ in await self.chain(memory)] == [str(at) for at in reversed(range(30))]

    async def test_expired_ones_are_passed_over(self, memory: Memory, store: Store) -> None:
        """They leave rows behind, which the next write about the subject takes away; what they ended stays ended."""
        await memory.remember("stays", subject="s", valid_from=1)
        await memory.remember_all(
            [New(str(at), id=f"r{at}", subject="s", valid_from=at, ttl=0.2) for at in range(2, 42)]
        )
        for _ in range(200):
            if await memory.count() == 1:
                break
            await asyncio.sleep(0.01)
        last = await memory.remember("new", subject="s", valid_from=100)
        assert await store.command("ZCARD", memory.records.keys.subject("s")) == 2
        new, stays = await memory.history("s")
        assert (new, new.valid_until) == (last, None)
        assert (stays.text, stays.valid_until, stays.superseded_by) == ("stays", 2, "r2")
        await memory.records.forget([last.id])
        assert await memory.history("s") == [stays], "it was not the last one that ended it"

    async def test_a_subject_of_expiring_records_ends(self, memory: Memory, store: Store) -> None:
        key = memory.records.keys.subject("s")
        lives = list[int]()
        for ttl in (60, 30, 90, None, 10):
            await memory.remember(str(ttl), subject="s", ttl=ttl)
            lives.append(await store.command("PTTL", key))
        assert [0 < life <= most * 1000 for life, most in zip(lives[:3], (60, 60, 90), strict=True)] == [True] * 3
        assert lives[2] > 60_000
        assert lives[3:] == [-1, -1]
