"""What records promise on every server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any, cast

import pytest
from pydantic import BaseModel

from blackboard.errors import EmbedderMismatch, RecordConflict, RecordMissing, StoreRegressed
from blackboard.memory.memory import Memory
from blackboard.memory.new import Body, New
from blackboard.memory.paths import Paths
from blackboard.memory.record import Metadata, Record, Token
from blackboard.store.client import Store
from blackboard.testing.contracts.memory import NAMESPACE, MemoryContract

__all__ = ["Pet", "RecordsContract"]


class Pet(BaseModel):
    """A model to remember."""

    name: str
    toys: tuple[str, ...] = ()


class SameOps:
    """A store that gives out op ids which were given out before."""

    def __init__(self, store: Store, ops: Sequence[str]) -> None:
        self._store, self._ops = store, iter(ops)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def op_id(self) -> str:
        """Give the next of them."""
        return next(self._ops)


class RecordsContract(MemoryContract):
    """Remember, read, replace, forget; versions, duplicates, expiry, the log."""

    async def test_nothing_is_none(self, memory: Memory) -> None:
        assert await memory.get("x") is None
        assert await memory.count() == 0
        assert tuple(await memory.list()) == ()
        assert await memory.history("x") == []
        assert (await memory.changes()).token is None
        assert await memory.records.forget(["x"]) == []
        with pytest.raises(RecordMissing) as missing:
            await memory.update("x", expected=1, what="y")
        assert missing.value.record == "x"
        assert await self.standing(memory) == set()

    async def test_a_record_comes_back(self, memory: Memory) -> None:
        labels: Metadata = {"s": "имя\n", "i": 2**60, "f": 0.1, "b": True, "n": None, "many": ("a", 1, None)}
        done = await memory.remember(
            "a text\x00", id="{x}*", metadata=labels, importance=0.25, valid_from=-5, pinned=True, ttl="1h"
        )
        assert await memory.get("{x}*") == done
        assert (done.text, dict(done.metadata), done.importance, done.pinned) == ("a text\x00", labels, 0.25, True)
        assert (done.version, done.valid_from, done.valid_until, done.subject) == (1, -5, None, None)
        assert done.expires == done.updated // 1000 + 3_600_000
        assert done.created == done.updated == done.token.incarnation
        assert await self.stored(memory) == [done]

    async def test_a_model_comes_back(self, memory: Memory) -> None:
        done = await memory.remember(Pet(name="Rex", toys=("ball", "bone")))
        found = await memory.get(done.id)
        assert found == done
        assert found is not None
        assert found.text == "name: Rex\ntoys: ball, bone"
        assert found.parsed(Pet) == Pet(name="Rex", toys=("ball", "bone"))

    async def test_the_same_again_is_the_first(self, memory: Memory) -> None:
        first = await memory.remember("a", metadata={"x": 1, "y": 2})
        again = await memory.remember("a", metadata={"y": 2, "x": 1}, importance=0.9)
        assert (again.id, again.duplicate, again.importance, again.token) == (first.id, True, 0.5, first.token)
        others = [await memory.remember("a", metadata=more) for more in ({"x": True, "y": 2}, {"x": 1.0, "y": 2}, {})]
        assert [other.duplicate for other in others] == [False] * 3
        assert (await memory.remember("a", metadata={"x": 1, "y": 2}, subject="s")).duplicate is False
        assert len(await self.stored(memory)) == 5

    async def test_duplicates_in_one_batch(self, memory: Memory) -> None:
        found = await memory.remember_all([str(number % 70) for number in range(300)])
        assert [record.text for record in found] == [str(number % 70) for number in range(300)]
        assert [record.duplicate for record in found] == [False] * 70 + [True] * 230
        assert all(found[number].id == found[number % 70].id for number in range(300))
        assert [record.text for record in await self.stored(memory)] == [str(number) for number in range(70)]

    async def test_racing_writers_of_one_text_find_one_record(self, memory: Memory, store: Store) -> None:
        others = [self.open(store, "/".join(memory.path)) for _ in range(20)]
        found = await asyncio.gather(*(other.remember("the same") for other in others))
        assert len({record.id for record in found}) == 1
        assert sum(not record.duplicate for record in found) == 1
        assert await memory.count() == 1

    async def test_an_id_of_ones_own_is_the_identity(self, memory: Memory) -> None:
        first = await memory.remember("a", id="x")
        second = await memory.remember("b", id="x", metadata={"n": 1})
        assert (second.version, second.created, second.text) == (2, first.created, "b")
        third = await memory.remember("b", id="y", metadata={"n": 1})
        assert (third.version, third.duplicate) == (1, False)
        assert await self.stored(memory) == [second, third]
        assert (await memory.remember("a")).duplicate is False, "what x said before says nothing any more"
        again = await memory.remember("b", metadata={"n": 1})
        assert (again.id, again.duplicate) == ("x", True), "the first of those that say it"

    async def test_an_update_needs_the_version(self, memory: Memory) -> None:
        first = await memory.remember("a", id="x", metadata={"n": 1}, importance=0.1, ttl=60)
        second = await memory.update("x", expected=1, what="b")
        assert (second.version, second.text, second.metadata, second.importance) == (2, "b", {"n": 1}, 0.1)
        assert second.expires == second.updated // 1000 + 60_000
        third = await memory.update("x", expected=2, metadata={}, pinned=True, ttl=None)
        assert (third.text, third.metadata, third.pinned, third.expires) == ("b", {}, True, None)
        assert (third.created, third.valid_from) == (first.created, first.valid_from)
        for expected in (1, 2, 4):
            with pytest.raises(RecordConflict) as conflict:
                await memory.update("x", expected=expected, what="c")
            assert conflict.value.version == 3
        assert await self.stored(memory) == [third]
        assert {name for name in await self.standing(memory) if name.startswith("content:")} == {
            f"content:{Body('b').digest}"
        }

    async def test_racing_updates_have_one_winner(self, memory: Memory, store: Store) -> None:
        await memory.remember("0", id="x")
        for version in range(1, 6):
            others = [self.open(store, "/".join(memory.path)) for _ in range(8)]
            answers = await asyncio.gather(
                *(other.update("x", expected=version, what=f"{version} {at}") for at, other in enumerate(others)),
                return_exceptions=True,
            )
            won = [answer for answer in answers if isinstance(answer, Record)]
            assert len(won) == 1
            assert sum(isinstance(answer, RecordConflict) for answer in answers) == 7
            assert await memory.get("x") == won[0]

    async def test_what_is_forgotten_is_gone(self, memory: Memory) -> None:
        kept, gone = await memory.remember_all(["kept", "gone"])
        (forgotten,) = await memory.records.forget([gone.id, "nobody", gone.id])
        assert (forgotten.id, forgotten.version, forgotten.content) == (gone.id, 1, Body("gone").digest)
        assert await memory.get(gone.id) is None
        assert await self.stored(memory) == [kept]
        assert await memory.records.forget([gone.id]) == []
        again = await memory.remember("gone")
        assert (again.duplicate, again.id == gone.id) == (False, False)
        assert again.token.seq > forgotten.token.seq > gone.token.seq

    async def test_forgetting_a_version_spares_a_newer_one(self, memory: Memory) -> None:
        await memory.remember("a", id="x")
        await memory.update("x", expected=1, what="b")
        assert await memory.records.forget(["x"], versions={"x": 1}) == []
        assert [one.version for one in await memory.records.forget(["x"], versions={"x": 2})] == [2]

    async def test_forgetting_all_leaves_the_log_alone(self, memory: Memory) -> None:
        records = await memory.remember_all([New("a", ttl=60), New("b", subject="s"), New("c", id="x")])
        await memory.records.forget([record.id for record in records])
        assert await self.standing(memory) == {"head", "log", "ops"}
        assert (await memory.remember("d")).token == Token(records[0].token.incarnation, 7)

    async def test_time_takes_a_record(self, memory: Memory) -> None:
        short = await memory.remember("short", id="x", ttl=0.05, subject="s", metadata={"n": 1})
        long = await memory.remember("long")
        await self.passed(memory, "x")
        assert await memory.get("x") is None
        assert await memory.history("s") == []
        assert await self.stored(memory) == [long]
        with pytest.raises(RecordMissing):
            await memory.update("x", expected=1, what="y")
        assert await memory.records.forget(["x"]) == []
        again = await memory.remember("short", subject="s", metadata={"n": 1})
        assert (again.duplicate, again.version, again.id == short.id) == (False, 1, False)
        assert await memory.history("s") == [again]

    async def test_an_expired_id_is_used_anew(self, memory: Memory) -> None:
        old = await memory.remember("a", id="x", ttl=0.05, metadata={"n": 1})
        await memory.remember("between")
        await self.passed(memory, "x")
        new = await memory.remember("a", id="x")
        assert (new.version, new.expires, new.metadata) == (1, None, {})
        assert new.created > old.created
        assert [record.text for record in await self.stored(memory)] == ["between", "a"]
        assert await memory.records.forget(["x"], expired=True) == [], "it was remembered again"
        assert await memory.get("x") == new

    async def test_what_time_took_is_cleared_away(self, memory: Memory) -> None:
        await memory.remember_all(
            [New(str(number), id=str(number), ttl=0.05, subject=str(number)) for number in range(5)]
        )
        await self.passed(memory, "4")
        assert await memory.count() == 0
        assert sorted(await memory.records.expired(3)) == ["0", "1", "2"]
        gone = await memory.records.forget(await memory.records.expired(), expired=True)
        assert sorted((one.id, one.version, one.content) for one in gone) == [
            (str(number), 0, "") for number in range(5)
        ]
        assert await self.standing(memory) == {"head", "log", "ops"}
        assert [change.op for change in (await memory.changes()).changes] == ["put"] * 5 + ["forget"] * 5

    async def test_the_log_tells_every_change(self, memory: Memory) -> None:
        first = await memory.remember("a", id="x")
        await memory.update("x", expected=1, what="b")
        await memory.remember("c", id="y")
        await memory.records.forget(["x"])
        told = await memory.changes()
        assert [(one.seq, one.op, one.id, one.version) for one in told.changes] == [
            (1, "put", "x", 1), (2, "put", "x", 2), (3, "put", "y", 1), (4, "forget", "x", 2),
        ]  # fmt: skip
        assert (told.token, told.gap, told.more) == (Token(first.token.incarnation, 4), False, False)
        page = await memory.changes(first.token, limit=2)
        assert ([one.seq for one in page.changes], page.token, page.more) == (
            [2, 3],
            Token(first.token.incarnation, 3),
            True,
        )
        last = await memory.changes(told.token)
        assert (last.changes, last.token, last.more) == ((), told.token, False)

    async def test_a_trimmed_log_is_a_gap(self, memory: Memory, store: Store) -> None:
        records = await memory.remember_all(["a", "b", "c"])
        await store.command("XTRIM", memory.records.keys.log, "MINID", "3-0")
        assert (await memory.records.tail(0)).gap
        assert (await memory.records.tail(1)).gap
        assert not (await memory.records.tail(2)).gap
        assert not (await memory.changes(records[2].token)).gap
        await store.command("XTRIM", memory.records.keys.log, "MINID", "4-0")
        assert (await memory.changes(records[0].token)).gap

    async def test_a_store_that_lost_the_path_is_noticed(self, memory: Memory, store: Store) -> None:
        done = await memory.remember("a")
        where = memory.records.keys
        ahead = Token(done.token.incarnation, done.token.seq + 1)
        for wrong in (ahead, Token(1, 1), Token(done.token.incarnation + 1, 1)):
            with pytest.raises(StoreRegressed):
                await self.open(store, "/".join(memory.path)).changes(wrong)
        await store.command("HSET", where.head, "seq", 0)
        await self.regressed(memory, "seq")
        await store.command("HSET", where.head, "seq", 1, "incarnation", 1)
        await self.regressed(memory, "incarnation")
        await store.command("DEL", where.head)
        await self.regressed(memory, "head")
        with pytest.raises(StoreRegressed):
            await self.open(store, "/".join(memory.path)).remember("the order is left over")

    async def regressed(self, memory: Memory, lost: str) -> None:
        """Find that whatever is done says that the path was lost, and writes nothing."""
        before = await memory.records.store.command("ZCARD", memory.records.keys.order)
        for act in (
            memory.remember("b"), memory.changes(), memory.get("x"), memory.records.forget(["x"]),
            memory.update("x", expected=1), memory.records.set_vector("x", 1, b"12", "space"),
        ):  # fmt: skip
            with pytest.raises(StoreRegressed) as error:
                await act
            assert error.value.lost == lost
        assert await memory.records.store.command("ZCARD", memory.records.keys.order) == before

    async def test_a_write_sent_again_is_answered_as_before(self, memory: Memory, store: Store) -> None:
        """Whatever happened to the record since: the op id decides, and nothing is applied twice."""
        ops = [store.op_id() for _ in range(3)]
        memory.records.store = cast("Store", SameOps(store, ops))
        first = await memory.remember("a", id="x")
        memory.records.store = cast("Store", SameOps(store, ops))
        other = self.open(store, "/".join(memory.path))
        await other.update("x", expected=1, what="b")
        assert await memory.remember("a", id="x") == first
        (gone,) = await memory.records.forget(["x"])
        await other.remember("c", id="x")
        memory.records.store = cast("Store", SameOps(store, ops[1:]))
        assert await memory.records.forget(["x"]) == [gone]
        found = await other.get("x")
        assert found is not None
        assert (found.text, found.version, found.token.seq) == ("c", 1, 4)

    async def test_a_vector_comes_later(self, memory: Memory, store: Store) -> None:
        records, where = memory.records, memory.records.keys
        first = await records.put(Body("a", id="x"))
        assert not first.embedded
        assert await store.command("SMEMBERS", where.pending) == [b"x"]
        assert await records.set_vector("x", 2, b"12", "space") is False
        assert await records.set_vector("y", 1, b"12", "space") is False
        assert await records.set_vector("x", 1, b"12", "space") is True
        (stored,) = await records.fetch(["x"], vectors=True)
        assert stored is not None
        assert (stored.vid, stored.vector, stored.record.version, stored.record.embedded) == (2, b"12", 1, True)
        assert await store.command("EXISTS", where.pending) == 0
        tail = await records.tail(1)
        assert ([change.op for change in tail.changes], tail.space) == (["vector", "space"], "space")
        with pytest.raises(EmbedderMismatch) as mismatch:
            await records.set_vector("x", 1, b"12", "other")
        assert (mismatch.value.stored, mismatch.value.offered) == ("space", "other")

    async def test_a_vector_stays_as_long_as_its_text(self, memory: Memory, store: Store) -> None:
        records = memory.records
        done = await records.put(Body("a", id="x", vector=b"keep", space="space"))
        assert done.embedded
        kept = await records.put(Body("a", id="x", importance=1.0, without="keep"))
        assert kept.embedded
        (stored,) = await records.fetch(["x"], vectors=True)
        assert stored is not None
        assert (stored.vid, stored.vector, stored.record) == (1, b"keep", kept)
        with pytest.raises(EmbedderMismatch):
            await records.put(Body("b", id="x", vector=b"1", space="other"))
        lost = await records.put(Body("b", id="x"), over=stored)
        (stored,) = await records.fetch(["x"], vectors=True)
        assert stored is not None
        assert (stored.vid, stored.vector, stored.record.embedded, lost.embedded) == (None, None, False, False)
        assert await store.command("SMEMBERS", records.keys.pending) == [b"x"]
        await records.put(Body("b", id="x", without="none"))
        assert await store.command("EXISTS", records.keys.pending) == 0

    async def test_pages_follow_each_other(self, memory: Memory) -> None:
        records = await memory.remember_all([New(str(at), metadata={"odd": at % 2 == 1, "at": at}) for at in range(25)])
        found: list[Record] = []
        after: int | None = 0
        while after is not None:
            page = await memory.list({"odd": True}, limit=4, after=after)
            after = page.after
            found += page
        assert found == records[1::2]
        assert await memory.count({"odd": True}) == 12
        assert await memory.count({"at": {"gte": 20}}) == 5
        assert list(await memory.list({"at": {"gte": 20}}, limit=3)) == records[20:23]

    async def test_paths_do_not_see_each_other(self, store: Store) -> None:
        run = uuid.uuid4().hex
        paths = [
            f"{run}{end}" for end in ("/user1", "/user10", "/User1", "/user1/x", "/a%2Fb", "/the", "/a,b", "/*", "")
        ]
        for path in paths:
            await self.open(store, path).remember(path, id="x")
        for path in paths:
            found = await self.open(store, path).get("x")
            assert found is not None
            assert (found.text, "/".join(found.path)) == (path, path)
            assert await self.open(store, path).count() == 1

    async def test_paths_are_listed(self, store: Store) -> None:
        top, listing = f"t{uuid.uuid4().hex}", Paths(store, NAMESPACE)
        for path in (f"{top}/user1", f"{top}/user1/b", f"{top}/user1/a", f"{top}/user10", top, f"{top}0"):
            await self.open(store, path).remember("x")
        assert await listing.below(f"{top}/user1") == [f"{top}/user1/a", f"{top}/user1/b"]
        assert await listing.below(top) == [f"{top}/{end}" for end in ("user1", "user1/a", "user1/b", "user10")]
        assert await listing.below(top, 2, after=f"{top}/user1") == [f"{top}/user1/a", f"{top}/user1/b"]
        assert await listing.below(f"{top}/user") == []
        assert {top, f"{top}0"} <= set(await listing.tops(100_000))
