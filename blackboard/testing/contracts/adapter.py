"""What every server must let drivers with ids of their own promise: run `AdapterContract` over yours.

A subclass needs the fixtures `store` (a connected Store) and `thread` (an id that nobody used before).
"""

from __future__ import annotations

import asyncio

import pytest

from blackboard import keys
from blackboard.checkpoints.channels import Value
from blackboard.checkpoints.commit import Commit
from blackboard.checkpoints.engine import Engine, Write
from blackboard.claims.lease import Leases
from blackboard.errors import LeaseHeld, LeaseLost
from blackboard.testing.contracts.thread import NAMESPACE, ThreadContract, log, step

__all__ = ["AdapterContract"]


class AdapterContract(ThreadContract):
    """Own ids in any order, lineages, pending writes, and who may write without a lease."""

    async def test_latest_is_the_largest_id(self, engine: Engine, thread: str) -> None:
        await engine.put(thread, "b", step({"n": Value(b"1")}))
        await engine.put(thread, "c", Commit(1, {"n": Value(b"2")}, parent="b"))
        await engine.put(thread, "a", Commit(2, {"n": Value(b"3")}, parent="zz"))
        found = await engine.latest(thread)
        assert found is not None
        assert found.manifest.checkpoint == "c"
        assert [m.checkpoint for m in await engine.history(thread)] == ["c", "b", "a"]

    async def test_a_put_again_replaces(self, engine: Engine, thread: str) -> None:
        for text in (b"1", b"2"):
            await engine.put(thread, "a", step({"n": Value(text), "l": log([text])}))
        found = await engine.latest(thread)
        assert found is not None
        assert found.contents == {"n": b"2", "l": [b"2"]}
        assert len(await engine.history(thread)) == 1

    async def test_siblings_share_a_prefix(self, engine: Engine, thread: str) -> None:
        first = await engine.put(thread, "a", step({"l": log([b"0"])}))
        for name in ("b", "c"):
            items = [b"0", b'"%s"' % name.encode()]
            await engine.put(thread, name, step({"l": log(items, first.refs["l"])}, first))
        for name in ("b", "c"):
            found = await engine.at(thread, name)
            assert found is not None
            assert found.contents["l"] == [b"0", b'"%s"' % name.encode()]

    async def test_lineages_are_apart(self, engine: Engine, thread: str) -> None:
        await engine.put(thread, "a", step({"l": log([b"1"])}))
        await engine.put(thread, "b", step({"l": log([b"2"])}), lineage="child:1|x")
        root, child = await engine.latest(thread), await engine.latest(thread, lineage="child:1|x")
        assert root is not None
        assert child is not None
        assert (root.contents["l"], child.contents["l"]) == ([b"1"], [b"2"])
        assert await engine.latest(thread, lineage="child:1") is None

    async def test_parallel_writes_are_all_kept(self, engine: Engine, thread: str) -> None:
        await engine.put(thread, "a", step({"n": Value(b"0")}))
        calls = [engine.put_writes(thread, "a", [Write(f"task{i % 64}", 0, b"%d" % (i % 64))]) for i in range(128)]
        assert sum(await asyncio.gather(*calls)) == 64
        found = await engine.latest(thread)
        assert found is not None
        assert found.writes == {f"task{i}:0": b"%d" % i for i in range(64)}

    async def test_writes_may_come_first(self, engine: Engine, thread: str) -> None:
        assert await engine.put_writes(thread, "a", [Write("t", 0, b"w"), Write("t", -1, b"1", overwrite=True)]) == 2
        assert await engine.latest(thread) is None
        await engine.put_writes(thread, "a", [Write("t", 0, b"x"), Write("t", -1, b"2", overwrite=True)])
        await engine.put(thread, "a", step({"n": Value(b"0")}))
        found = await engine.latest(thread)
        assert found is not None
        assert found.writes == {"t:0": b"w", "t:-1": b"2"}
        assert await self.without_expiry(engine, thread) == await self.standing(engine, thread) - {"ops"}

    async def test_a_live_lease_refuses_the_others(self, engine: Engine, thread: str) -> None:
        leases = Leases(engine.store, NAMESPACE)
        lease = await leases.acquire(thread, "a", ttl=30)
        with pytest.raises(LeaseHeld) as caught:
            await engine.commit(thread, step({"n": Value(b"0")}))
        assert caught.value.holder == "a"
        done = await engine.commit(thread, step({"n": Value(b"0")}), token=lease.token)
        assert done.fence == lease.fence
        with pytest.raises(LeaseHeld):
            await engine.put_writes(thread, done.checkpoint, [Write("t", 0, b"w")])

    async def test_an_unfenced_write_over_a_lapsed_lease_raises_the_fence(self, engine: Engine, thread: str) -> None:
        lease = await Leases(engine.store, NAMESPACE).acquire(thread, "a", ttl=30)
        done = await engine.commit(thread, step({"n": Value(b"0")}), token=lease.token)
        await engine.store.command("DEL", keys.ThreadKeys.of(NAMESPACE, thread).lock)
        other = await engine.commit(thread, step({"n": Value(b"1")}, done), sequence=1)
        assert other.fence > lease.fence
        with pytest.raises(LeaseLost):
            await engine.commit(thread, step({"n": Value(b"2")}, done), token=lease.token, sequence=1)

    async def test_writes_for_a_later_checkpoint_stay(self, engine: Engine, thread: str) -> None:
        """What was reserved before the thread began stays for good once its own checkpoint has come."""
        for name in ("a", "b"):
            await engine.put_writes(thread, name, [Write("t", 0, name.encode())])
        assert await self.without_expiry(engine, thread) == set()
        await engine.put(thread, "a", step({"n": Value(b"0")}))
        await engine.put(thread, "b", Commit(1, {"n": Value(b"1")}, parent="a"))
        assert await self.without_expiry(engine, thread) == await self.standing(engine, thread) - {"ops"}

    async def test_writes_before_any_checkpoint_raise_the_fence_of_a_lapsed_lease(
        self, engine: Engine, thread: str
    ) -> None:
        lease = await Leases(engine.store, NAMESPACE).acquire(thread, "a", ttl=30)
        await engine.store.command("DEL", keys.ThreadKeys.of(NAMESPACE, thread).lock)
        await engine.put_writes(thread, "a", [Write("t", 0, b"w")])
        meta = await engine.meta(thread)
        assert (meta.status, meta.holder) == ("new", None)
        assert meta.fence > lease.fence
        with pytest.raises(LeaseLost):
            await engine.put(thread, "a", step({"n": Value(b"0")}), token=lease.token)

    async def test_a_late_repetition_does_not_undo_a_later_put(
        self, engine: Engine, thread: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        op, op_id = engine.store.op_id(), engine.store.op_id
        monkeypatch.setattr(engine.store, "op_id", lambda: op)
        early = step({"n": Value(b"1")})
        await engine.put(thread, "a", early)
        monkeypatch.setattr(engine.store, "op_id", op_id)
        await engine.put(thread, "a", step({"n": Value(b"2")}))
        monkeypatch.setattr(engine.store, "op_id", lambda: op)
        assert (await engine.put(thread, "a", early)).repeated
        found = await engine.latest(thread)
        assert found is not None
        assert found.contents == {"n": b"2"}

    async def test_history_pages_by_any_id(self, engine: Engine, thread: str) -> None:
        names = sorted(["a:b", "a b", "ключ", "a%3Ab", "z", "1"], key=keys.encode, reverse=True)
        for name in names:
            await engine.put(thread, name, step({"n": Value(name.encode())}))
        assert [m.checkpoint for m in await engine.history(thread)] == names
        for place, name in enumerate(names):
            page = await engine.history(thread, before=name, limit=2)
            assert [m.checkpoint for m in page] == names[place + 1 : place + 3]

    async def test_a_stale_fence_is_told_whatever_the_parent(self, engine: Engine, thread: str) -> None:
        """A parent under an own id need not be stored, so that its absence is no sign of a loss."""
        leases = Leases(engine.store, NAMESPACE)
        old = await leases.acquire(thread, "a", ttl=30)
        await engine.store.command("DEL", keys.ThreadKeys.of(NAMESPACE, thread).lock)
        await leases.acquire(thread, "b", ttl=30)
        with pytest.raises(LeaseLost):
            await engine.put(thread, "b", Commit(1, {"n": Value(b"0")}, parent="never"), token=old.token)
