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

    @pytest.mark.parametrize("ttl", [None, 60])
    async def test_a_record_that_is_kept_longer_stays_in_its_history(self, memory: Memory, ttl: int | None) -> None:
        """At the same place; when the time is over that it was given first, it is still what the next one supersedes."""
        await memory.remember("short", id="a", subject="s", valid_from=1, ttl=0.05)
        kept = await memory.remember("kept", id="a", subject="s", valid_from=1, ttl=ttl)
        await self.over(memory, 0.05)
        assert await memory.history("s") == [kept]
        await memory.remember("new", subject="s", valid_from=3)
        await memory.remember("between", subject="s", valid_from=2)
        assert await self.chain(memory) == [("new", 3, None), ("between", 2, 3), ("kept", 1, 2)]

    async def test_an_update_keeps_a_record_longer_and_shorter(self, memory: Memory) -> None:
        await memory.remember("older", subject="s", valid_from=0)
        await memory.remember("a", id="a", subject="s", valid_from=1, ttl=0.05)
        await memory.update("a", expected=1, ttl=None)
        await self.over(memory, 0.05)
        assert await self.chain(memory) == [("a", 1, None), ("older", 0, 1)]
        await memory.update("a", expected=2, ttl=0.001)
        await self.passed(memory, "a")
        assert [record.text for record in await memory.history("s")] == ["older"]
        await self.emptied(memory)

    async def test_a_record_that_comes_to_expire_leaves_nothing(self, memory: Memory) -> None:
        await memory.remember("for ever", id="a", subject="s", valid_from=1)
        await memory.remember("brief", id="a", subject="s", valid_from=1, ttl=0.001)
        await self.passed(memory, "a")
        assert await memory.history("s") == []
        await self.emptied(memory)

    @pytest.mark.parametrize("swept_first", [True, False])
    async def test_a_sweep_takes_the_row_of_a_subject(self, memory: Memory, store: Store, *, swept_first: bool) -> None:
        """Whether records about it that stay are there or are gone."""
        key = memory.records.keys.subject("s")
        stays = await memory.remember("stays", subject="s", valid_from=1)
        await memory.remember("brief", id="a", subject="s", valid_from=2, ttl=0.001)
        await self.passed(memory, "a")
        if swept_first:
            await self.swept(memory)
            assert await store.command("ZRANGE", key, 0, -1) == [stays.id.encode()]
        await memory.records.forget([stays.id])
        await self.emptied(memory)

    @pytest.mark.parametrize("subject", [None, "s", "t"])
    async def test_an_expired_id_leaves_its_subject(self, memory: Memory, store: Store, subject: str | None) -> None:
        """It is remembered anew before a sweep has come by."""
        await memory.remember("stays", id="stays", subject="s", valid_from=1)
        await memory.remember("brief", id="a", subject="s", valid_from=2, ttl=0.001)
        await self.passed(memory, "a")
        again = await memory.remember("again", id="a", subject=subject, valid_from=3)
        rows = await store.command("ZRANGE", memory.records.keys.subject("s"), 0, -1, "WITHSCORES")
        assert rows == [b"stays", b"1", *([b"a", b"3"] if subject == "s" else [])]
        assert again in await memory.history("s" if subject is None else subject) or subject is None
        await memory.records.forget(["stays", "a"])
        assert await self.standing(memory) == {"head", "log", "ops"}

    async def test_a_record_of_another_subject_is_swept_from_that(self, memory: Memory, store: Store) -> None:
        where = memory.records.keys
        await memory.remember("one", id="a", subject="s", valid_from=1, ttl=60)
        await memory.remember("two", id="a", subject="t", valid_from=1, ttl=60)
        assert await store.command("HGETALL", where.subjects) == [b"a", b"t"]
        assert await store.command("EXISTS", where.subject("s")) == 0
        await memory.remember("three", id="a", subject="t", valid_from=1)
        assert await store.command("EXISTS", where.subjects) == 0
        await memory.remember("four", id="a", subject="t", valid_from=1, ttl=0.001)
        await self.passed(memory, "a")
        await self.emptied(memory)

    async def test_a_history_looks_beyond_what_expired(self, memory: Memory) -> None:
        await memory.remember_all([New(f"old {at}", subject="s", valid_from=at) for at in range(3)])
        await memory.remember_all(
            [New(f"{at}", id=f"r{at}", subject="s", valid_from=at, ttl=0.05) for at in range(10, 17)]
        )
        await self.passed(memory, "r16")
        assert [record.text for record in await memory.history("s", 2)] == ["old 2", "old 1"]
        assert [record.text for record in await memory.history("s", 3)] == ["old 2", "old 1", "old 0"]

    async def test_a_list_that_was_to_end_stays(self, memory: Memory, store: Store) -> None:
        """As lists of records that expire once did, when nothing said what these were about."""
        where = memory.records.keys
        await memory.remember("kept", id="kept", subject="s", valid_from=1, ttl=60)
        await memory.remember("brief", id="brief", subject="s", valid_from=2, ttl=0.001)
        await self.passed(memory, "brief")
        await store.command("DEL", where.subjects)
        await store.command("ZADD", where.subject("s"), 3, "swept")
        await store.command("PEXPIRE", where.subject("s"), 60_000)
        await memory.remember("new", id="new", subject="s", valid_from=0)
        assert await store.command("PTTL", where.subject("s")) == -1
        assert await store.command("ZRANGE", where.subject("s"), 0, -1) == [b"new", b"kept", b"brief"]
        assert [record.text for record in await memory.history("s")] == ["kept", "new"]
        await memory.records.forget(["new", "kept"])
        await self.emptied(memory)

    async def test_rows_that_nothing_names_are_left_to_their_list(self, memory: Memory, store: Store) -> None:
        """Of a path that was written before records that expire were listed with their subjects."""
        where = memory.records.keys
        await memory.remember("brief", id="a", subject="s", valid_from=1, ttl=0.05)
        await memory.remember("kept", id="b", subject="s", valid_from=2, ttl=60)
        await store.command("DEL", where.subjects)
        await self.passed(memory, "a")
        await self.swept(memory)
        assert [record.text for record in await memory.history("s")] == ["kept"]
        assert [one.id for one in await memory.records.forget(["b"])] == ["b"]
        assert await self.standing(memory) == {"head", "log", "ops"}, "it was passed over, and so taken away"
