"""What every server must let the end of threads promise: run `EndingsContract` over yours.

A subclass needs the fixtures `store` (a connected Store) and `thread` (an id that nobody used before).
"""

from __future__ import annotations

import pytest

from blackboard import keys
from blackboard.checkpoints.channels import Value
from blackboard.checkpoints.engine import Engine, Write
from blackboard.claims.effect import Done, Effects, Start
from blackboard.claims.lease import Leases, Token
from blackboard.errors import AlreadyFinished, StoreRegressed, ThreadGone, UnresolvedEffects
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.contracts.thread import NAMESPACE, ThreadContract, log, step

__all__ = ["EndingsContract"]


class EndingsContract(ThreadContract):
    """Finish, fail, idle time, deletion, and ids that are used anew."""

    async def test_finish_gives_every_key_an_expiry(self, engine: Engine, thread: str) -> None:
        done = await self.grow(engine, thread, 3)
        await engine.put_writes(thread, done[-1].checkpoint, [Write("t", 0, b"w")])
        await engine.put_writes(thread, "later", [Write("t", 0, b"w")])
        last = await engine.commit(
            thread, step({"n": Value(b"v" * 500)}, done[-1], status="finished", ttl=60.0), sequence=3
        )
        assert last.expires is not None
        assert await self.without_expiry(engine, thread) == set()
        with pytest.raises(AlreadyFinished):
            await engine.commit(thread, step({"n": Value(b"2")}, last), sequence=4)
        with pytest.raises(AlreadyFinished):
            await engine.put_writes(thread, last.checkpoint, [Write("t", 1, b"w")])
        assert await engine.latest(thread) is not None

    async def test_half_a_second_is_honoured(self, engine: Engine, thread: str) -> None:
        (done,) = await self.grow(engine, thread, 1)
        last = await engine.commit(thread, step({"n": Value(b"1")}, done, status="finished", ttl=0.5), sequence=1)
        assert last.expires is not None
        assert 400 <= last.expires - last.time // 1000 <= 500
        await self.until_gone(engine, thread)
        for _ in range(100):  # a server counts expiry in whole ms of its own
            if not await self.standing(engine, thread):
                break
        assert await self.standing(engine, thread) == set()
        await self.swept(engine, thread)

    async def test_delete_leaves_a_tombstone_that_expires(self, engine: Engine, thread: str) -> None:
        done = await self.grow(engine, thread, 3)
        await engine.put(thread, "x", step({"l": log([b"1"])}), lineage="sub")
        await engine.put_writes(thread, done[-1].checkpoint, [Write("t", 0, b"w")])
        await engine.put_writes(thread, "never", [Write("t", 0, b"w")])
        assert await engine.retention.delete(thread)
        assert not await engine.retention.delete(thread)
        assert await self.standing(engine, thread) == {"meta"}
        assert await self.without_expiry(engine, thread) == set()
        assert await engine.latest(thread) is None

    @pytest.mark.parametrize("lost", ["meta", "latest", "values", "checkpoint:000000000003"])
    async def test_a_thread_that_was_lost_in_part_is_deleted(self, engine: Engine, thread: str, lost: str) -> None:
        """It is the way out of StoreRegressed: all that is left goes, and the driver of before writes no more."""
        lease = await Leases(engine.store, NAMESPACE).acquire(thread, "a", ttl=30)
        done = [await engine.commit(thread, step({"n": Value(b"0" * 500)}), token=lease.token)]
        lease.opened(done[0].incarnation)
        for number in (1, 2):
            grown = step({"n": Value(b"%d" % number * 500), "items": log([b"1"])}, done[-1])
            done.append(await engine.commit(thread, grown, token=lease.token, sequence=number))
        if lost == "meta":
            begun = Effects(engine.store, NAMESPACE).begin(
                lease.token, "pay", semantics="at-most-once", fingerprint="f"
            )
            assert isinstance(await begun, Start)
        await engine.store.command("DEL", f"{keys.ThreadKeys.of(NAMESPACE, thread).prefix}:{lost}")
        with pytest.raises(StoreRegressed):
            await engine.latest(thread)
        assert await engine.retention.delete(thread)
        assert await self.standing(engine, thread) == {"meta"}
        assert await self.without_expiry(engine, thread) == set()
        tombstone = await engine.meta(thread)
        assert (tombstone.status, tombstone.fence > lease.fence) == ("deleted", True)
        for token in (lease.token, None):
            with pytest.raises(ThreadGone):
                await engine.commit(thread, step({"n": Value(b"4")}, done[-1]), token=token, sequence=3)
        assert not await engine.retention.delete(thread)
        assert (await engine.commit(thread, step({"n": Value(b"7")}))).incarnation > done[0].incarnation

    async def test_nothing_brings_a_deleted_thread_back(self, engine: Engine, thread: str) -> None:
        lease = await Leases(engine.store, NAMESPACE).acquire(thread, "a", ttl=30)
        done = await engine.commit(thread, step({"n": Value(b"0")}), token=lease.token)
        lease.opened(done.incarnation)
        token = lease.token
        await engine.retention.delete(thread)
        for late in (
            engine.put_writes(thread, done.checkpoint, [Write("t", 0, b"w")]),
            engine.put_writes(thread, done.checkpoint, [Write("t", 0, b"w")], token=token),
            engine.put(thread, "zz", step({"n": Value(b"1")}, done)),
            engine.put(thread, "zz", step({"n": Value(b"1")}), lineage="sub"),
            engine.commit(thread, step({"n": Value(b"1")}, done), token=token, sequence=1),
        ):
            with pytest.raises(ThreadGone):
                await late
        assert await self.standing(engine, thread) == {"meta"}

    async def test_an_id_used_anew_does_not_meet_the_old_thread(self, engine: Engine, thread: str) -> None:
        lease = await Leases(engine.store, NAMESPACE).acquire(thread, "a", ttl=30)
        old = await engine.commit(thread, step({"n": Value(b"0"), "l": log([b"old"])}), token=lease.token)
        await engine.retention.delete(thread)
        new = await engine.commit(thread, step({"n": Value(b"1")}))
        assert int(new.incarnation) > int(old.incarnation)
        lease.opened(old.incarnation)
        with pytest.raises(ThreadGone):
            await engine.commit(thread, step({"n": Value(b"2")}, old), token=lease.token, sequence=1)
        found = await engine.latest(thread)
        assert found is not None
        assert found.contents == {"n": b"1"}
        assert "meta" in await self.without_expiry(engine, thread)

    async def test_an_idle_thread_expires_and_its_id_is_free(self, store: Store, thread: str) -> None:
        engine = Engine(store, NAMESPACE, CheckpointNamespace(idle_ttl=0.3))
        done = await self.grow(engine, thread, 2)
        await self.until_gone(engine, thread)
        stale = Token(NAMESPACE, thread, "a", done[-1].fence, done[-1].incarnation)
        with pytest.raises(ThreadGone):
            await engine.commit(thread, step({"n": Value(b"3")}, done[-1]), token=stale, sequence=2)
        new = await engine.commit(thread, step({"n": Value(b"7")}))
        assert new.sequence == 1
        found = await engine.latest(thread)
        assert found is not None
        assert found.contents == {"n": b"7"}
        assert len(await engine.history(thread)) == 1

    async def test_a_late_repetition_of_the_first_commit_does_not_bring_it_back(
        self, engine: Engine, thread: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        op, op_id = engine.store.op_id(), engine.store.op_id
        monkeypatch.setattr(engine.store, "op_id", lambda: op)
        first = step({"n": Value(b"0")})
        await engine.commit(thread, first)
        await engine.retention.delete(thread)
        with pytest.raises(ThreadGone):
            await engine.commit(thread, first)
        assert await self.standing(engine, thread) == {"meta"}
        monkeypatch.setattr(engine.store, "op_id", op_id)
        assert not (await engine.commit(thread, first)).repeated

    async def test_failed_is_final(self, engine: Engine, thread: str) -> None:
        """What was given an expiry is not kept for ever afterwards by name only."""
        await self.grow(engine, thread, 1)
        await engine.retention.close(thread, status="failed", ttl=60.0)
        failed = await engine.meta(thread)
        await engine.retention.close(thread, status="failed", ttl=5.0)
        with pytest.raises(AlreadyFinished):
            await engine.retention.close(thread, status="finished", ttl=None)
        assert await engine.meta(thread) == failed
        assert await self.without_expiry(engine, thread) == set()

    async def test_only_what_this_commit_leaves_open_is_named(self, engine: Engine, thread: str) -> None:
        lease = await Leases(engine.store, NAMESPACE).acquire(thread, "a", ttl=30)
        done = await engine.commit(thread, step({"n": Value(b"0")}), token=lease.token)
        lease.opened(done.incarnation)
        effects, begun = Effects(engine.store, NAMESPACE), dict[str, Start]()
        for name in ("settled", "open"):
            start = await effects.begin(lease.token, name, semantics="at-least-once", fingerprint="f")
            assert isinstance(start, Start)
            begun[name] = start
        finish = step(
            {"n": Value(b"1")}, done, status="finished", settlements=[effects.settlement(begun["settled"], b"1")]
        )
        with pytest.raises(UnresolvedEffects) as caught:
            await engine.commit(thread, finish, token=lease.token, sequence=1)
        assert caught.value.ids["effects"] == ("open",)
        assert [effect.key for effect in await effects.open(thread)] == ["settled", "open"]

    async def test_an_interrupted_removal_is_finished_by_anybody(
        self, engine: Engine, thread: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The tombstone stays until the parts are gone; a sweep or a new writer of the id removes them."""
        for again in ("sweep", "commit"):
            await self.grow(engine, thread, 3)
            await engine.put(thread, "x", step({"l": log([b"1"])}), lineage="sub")
            with monkeypatch.context() as patch:
                patch.setattr(engine.retention, "_slices", _dies)
                with pytest.raises(ConnectionError):
                    await engine.retention.delete(thread)
            assert await engine.latest(thread) is None
            left = await self.standing(engine, thread)
            assert {"meta", "history", "history@sub", "values", "latest@sub"} <= left | {"values"}
            assert "meta" in await self.without_expiry(engine, thread)
            if again == "sweep":
                await self.swept(engine, thread)
                assert await self.standing(engine, thread) == {"meta"}
                assert await self.without_expiry(engine, thread) == set()
            else:
                await Engine(engine.store, NAMESPACE, CheckpointNamespace()).commit(thread, step({"n": Value(b"7")}))
                assert len(await engine.history(thread)) == 1
                assert await engine.history(thread, lineage="sub") == []
                assert (await self.listed(engine, thread) or 0) > engine.store.server_time() // 1000

    async def test_a_thread_after_an_expired_one_is_listed(self, store: Store, thread: str) -> None:
        """Whoever removes the old thread drops its row; the new one has one all the same."""
        await self.grow(Engine(store, NAMESPACE, CheckpointNamespace(idle_ttl=0.05)), thread, 1)
        engine = Engine(store, NAMESPACE, CheckpointNamespace())
        await self.until_gone(engine, thread)
        await engine.commit(thread, step({"n": Value(b"0")}))
        assert (await self.listed(engine, thread) or 0) > engine.store.server_time() // 1000

    async def test_an_idle_thread_is_found_by_the_sweep(self, store: Store, thread: str) -> None:
        engine = Engine(store, NAMESPACE, CheckpointNamespace(idle_ttl=0.2))
        done = await self.grow(engine, thread, 3)
        row = await self.listed(engine, thread)
        assert row is not None
        assert 0 < row <= (done[-1].expires or 0)
        await self.until_gone(engine, thread)
        await self.swept(engine, thread)
        assert await self.standing(engine, thread) == {"meta"}

    async def test_a_new_thread_does_not_inherit_failures(self, engine: Engine, thread: str) -> None:
        lease = await Leases(engine.store, NAMESPACE).acquire(thread, "a", ttl=30)
        done = await engine.commit(thread, step({"n": Value(b"0")}), token=lease.token)
        lease.opened(done.incarnation)
        await engine.count_failure(thread, lease.token)
        assert (await engine.meta(thread)).failures == 1
        await engine.retention.delete(thread)
        await self.grow(engine, thread, 1)
        assert (await engine.meta(thread)).failures == 0

    async def test_no_effect_begins_on_a_closed_thread(self, engine: Engine, thread: str) -> None:
        """Its record would have no expiry; what is settled already is still told."""
        lease = await Leases(engine.store, NAMESPACE).acquire(thread, "a", ttl=30)
        done = await engine.commit(thread, step({"n": Value(b"0")}), token=lease.token)
        lease.opened(done.incarnation)
        effects = Effects(engine.store, NAMESPACE)
        start = await effects.begin(lease.token, "mail", semantics="at-most-once", fingerprint="f")
        assert isinstance(start, Start)
        await effects.complete(start, b"1")
        await engine.retention.close(thread, status="finished", ttl=60.0, token=lease.token)
        assert await effects.begin(lease.token, "mail", semantics="at-most-once", fingerprint="f") == Done(b"1", 1)
        with pytest.raises(AlreadyFinished):
            await effects.begin(lease.token, "other", semantics="at-least-once", fingerprint="f")
        assert await self.without_expiry(engine, thread) == set()

    async def test_closing_what_has_expired_says_that_it_is_gone(self, store: Store, thread: str) -> None:
        engine = Engine(store, NAMESPACE, CheckpointNamespace(idle_ttl=0.05))
        await self.grow(engine, thread, 1)
        await self.until_gone(engine, thread)
        with pytest.raises(ThreadGone) as caught:
            await engine.retention.close(thread, status="finished", ttl=60.0)
        assert caught.value.ids["why"] == "expired"

    async def test_closing_over_a_lapsed_lease_leaves_no_holder(self, engine: Engine, thread: str) -> None:
        lease = await Leases(engine.store, NAMESPACE).acquire(thread, "a", ttl=30)
        await engine.commit(thread, step({"n": Value(b"0")}), token=lease.token)
        await engine.store.command("DEL", keys.ThreadKeys.of(NAMESPACE, thread).lock)
        await engine.retention.close(thread, status="failed", ttl=None)
        meta = await engine.meta(thread)
        assert (meta.status, meta.holder, meta.expires) == ("failed", None, None)
        assert meta.fence > lease.fence


def _dies(*_: object, **__: object) -> None:
    raise ConnectionError("died in the middle of a removal")
