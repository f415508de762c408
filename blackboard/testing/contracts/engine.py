"""What every server must let the engine promise: run `EngineContract` over yours.

A subclass needs the fixtures `store` (a connected Store) and `thread` (an id that nobody used before).
"""

from __future__ import annotations

import asyncio

import pytest

from blackboard import keys
from blackboard.checkpoints.channels import Channel, Items, Keep, Value
from blackboard.checkpoints.commit import Committed
from blackboard.checkpoints.engine import Engine, Write
from blackboard.claims.lease import Leases
from blackboard.errors import (
    CheckpointConflict,
    CheckpointMissing,
    CorruptValue,
    EncodeError,
    LeaseLost,
    ServerRefused,
    StoreRegressed,
)
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.contracts.thread import NAMESPACE, ThreadContract, log, step
from blackboard.testing.model import cut

__all__ = ["EngineContract"]


class EngineContract(ThreadContract):
    """Commit, read, conflict; what is lost or corrupt is said."""

    async def test_nothing_is_none(self, engine: Engine, thread: str) -> None:
        assert await engine.latest(thread) is None
        assert await engine.history(thread) == []
        assert (await engine.meta(thread)).status == "none"

    async def test_a_commit_comes_back(self, engine: Engine, thread: str) -> None:
        big = b"b" * 100_000
        channels: dict[str, Channel] = {
            "small": Value(b'"x"'),
            "big": Value(big),
            "list": log([b"1", b"2"]),
            "none": log([]),
            "имя": Value(b"\x00\n:"),
        }
        done = await engine.commit(thread, step(channels, next="work", cursors=b"{}", pending=b"[]", extra=b"\x00x"))
        found = await engine.latest(thread)
        assert found is not None
        assert found.contents == {"small": b'"x"', "big": big, "list": [b"1", b"2"], "none": [], "имя": b"\x00\n:"}
        manifest = found.manifest
        assert (manifest.next, manifest.cursors, manifest.pending, manifest.extra) == ("work", b"{}", b"[]", b"\x00x")
        assert (manifest.checkpoint, manifest.step, manifest.parent, manifest.time) == (
            done.checkpoint,
            0,
            None,
            done.time,
        )
        assert manifest.refs == done.refs

    async def test_every_step_stays_readable(self, engine: Engine, thread: str) -> None:
        done = await self.grow(engine, thread, 20)
        for number, committed in enumerate(done):
            found = await engine.at(thread, committed.checkpoint)
            assert found is not None
            assert found.contents == {"items": [b'"%d"' % i for i in range(number + 1)], "n": b"%d" % number}
        assert done[-1].refs["items"].segments[0][1] == 20
        assert len(done[-1].refs["items"].segments) == 1

    async def test_history_is_newest_first_and_pages(self, engine: Engine, thread: str) -> None:
        ids = [c.checkpoint for c in await self.grow(engine, thread, 7)]
        assert [m.checkpoint for m in await engine.history(thread)] == ids[::-1]
        assert [m.checkpoint for m in await engine.history(thread, limit=2, before=ids[5])] == [ids[4], ids[3]]
        assert [m.checkpoint for m in await engine.history(thread, before=ids[2] + "x")] == [ids[2], ids[1], ids[0]]

    async def test_an_unknown_checkpoint_is_missing(self, engine: Engine, thread: str) -> None:
        await self.grow(engine, thread, 1)
        with pytest.raises(CheckpointMissing) as caught:
            await engine.at(thread, "nowhere")
        assert caught.value.checkpoint == "nowhere"

    async def test_a_stale_parent_conflicts_and_writes_nothing(self, engine: Engine, thread: str) -> None:
        first, second = await self.grow(engine, thread, 2)
        with pytest.raises(CheckpointConflict) as caught:
            await engine.commit(thread, step({"n": Value(b"9")}, first), sequence=second.sequence)
        assert (caught.value.expected, caught.value.found) == (first.checkpoint, second.checkpoint)
        assert [m.checkpoint for m in await engine.history(thread)] == [second.checkpoint, first.checkpoint]

    async def test_of_racing_commits_on_one_parent_one_wins(self, engine: Engine, thread: str) -> None:
        (first,) = await self.grow(engine, thread, 1)
        racing = [
            engine.commit(thread, step({"n": Value(b"%d" % i)}, first), sequence=first.sequence) for i in range(16)
        ]
        answers = await asyncio.gather(*racing, return_exceptions=True)
        won = [a for a in answers if isinstance(a, Committed)]
        assert len(won) == 1
        assert sum(isinstance(a, CheckpointConflict) for a in answers) == 15
        assert len(await engine.history(thread)) == 2

    async def test_a_change_inside_the_prefix_keeps_both_states(self, engine: Engine, thread: str) -> None:
        items = [b"%d" % i for i in range(10)]
        first = await engine.commit(thread, step({"l": log(items)}))
        changed = [*items[:4], b"99"]
        kept = ((first.refs["l"].segments[0][0], 4),)
        second = await engine.commit(
            thread, step({"l": Items("log", kept, changed[4:], lambda: changed)}, first), sequence=first.sequence
        )
        before, after = await engine.at(thread, first.checkpoint), await engine.latest(thread)
        assert before is not None
        assert after is not None
        assert (before.contents["l"], after.contents["l"]) == (items, changed)
        assert [count for _, count in second.refs["l"].segments] == [4, 1]

    async def test_many_segments_are_compacted(self, engine: Engine, thread: str) -> None:
        items = [b"0"]
        last = await engine.commit(thread, step({"l": log(items)}))
        for number in range(1, 30):
            items = [*items, b"%d" % number, b"x"]
            ref = last.refs["l"]
            kept = cut(ref.segments, ref.count - (ref.segments[-1:][0][1] > 1))
            known = sum(count for _, count in kept)
            new, whole = items[known:], list(items)
            commit = step({"l": Items("log", kept, new, lambda whole=whole: whole)}, last)  # type: ignore[misc]
            last = await engine.commit(thread, commit, sequence=last.sequence)
            assert len(last.refs["l"].segments) <= 9
            found = await engine.latest(thread)
            assert found is not None
            assert found.contents["l"] == items

    async def test_a_kept_channel_costs_a_reference(self, engine: Engine, thread: str) -> None:
        first = await engine.commit(thread, step({"big": Value(b"v" * 5000), "l": log([b"1"])}))
        kept: dict[str, Channel] = {name: Keep(ref) for name, ref in first.refs.items()}
        second = await engine.commit(thread, step(kept, first), sequence=first.sequence)
        assert second.refs == first.refs
        found = await engine.latest(thread)
        assert found is not None
        assert found.contents == {"big": b"v" * 5000, "l": [b"1"]}
        size = await engine.store.command("STRLEN", keys.ThreadKeys.of(NAMESPACE, thread).checkpoint(second.checkpoint))
        assert size < 400

    async def test_a_value_is_stored_once(self, engine: Engine, thread: str) -> None:
        last = await engine.commit(thread, step({"v": Value(b"v" * 5000)}))
        for _ in range(5):
            last = await engine.commit(thread, step({"v": Value(b"v" * 5000)}, last), sequence=last.sequence)
        assert await engine.store.command("HLEN", keys.ThreadKeys.of(NAMESPACE, thread).values) == 1

    async def test_what_the_store_lacks_is_sent_again(self, engine: Engine, thread: str) -> None:
        first = await engine.commit(thread, step({"v": Value(b"v" * 500), "l": log([b"1", b"2"])}))
        where = keys.ThreadKeys.of(NAMESPACE, thread)
        await engine.store.command("DEL", where.values, where.log("l", first.refs["l"].segments[0][0]))
        items = [b"1", b"2", b"3"]
        commit = step({"v": Value(b"v" * 500), "l": log(items, first.refs["l"])}, first)
        await engine.commit(thread, commit, sequence=first.sequence)
        found = await engine.latest(thread)
        assert found is not None
        assert found.contents == {"v": b"v" * 500, "l": items}

    async def test_a_lost_value_is_said(self, engine: Engine, thread: str) -> None:
        await engine.commit(thread, step({"v": Value(b"v" * 500)}))
        await engine.store.command("DEL", keys.ThreadKeys.of(NAMESPACE, thread).values)
        with pytest.raises(StoreRegressed):
            await engine.latest(thread)

    async def test_a_cut_log_is_said(self, engine: Engine, thread: str) -> None:
        done = await self.grow(engine, thread, 3)
        where = keys.ThreadKeys.of(NAMESPACE, thread)
        await engine.store.command("RPOP", where.log("items", done[0].refs["items"].segments[0][0]))
        with pytest.raises(StoreRegressed):
            await engine.latest(thread)

    async def test_a_corrupt_manifest_is_said(self, engine: Engine, thread: str) -> None:
        (done,) = await self.grow(engine, thread, 1)
        key = keys.ThreadKeys.of(NAMESPACE, thread).checkpoint(done.checkpoint)
        whole = await engine.store.command("GET", key)
        for size in range(0, len(whole), 7):
            await engine.store.command("SET", key, whole[:size])
            with pytest.raises((CorruptValue, StoreRegressed)):
                await engine.latest(thread)

    async def test_lost_meta_is_said(self, engine: Engine, thread: str) -> None:
        (done,) = await self.grow(engine, thread, 1)
        await engine.store.command("DEL", keys.ThreadKeys.of(NAMESPACE, thread).meta)
        with pytest.raises(StoreRegressed):
            await engine.commit(thread, step({"n": Value(b"1")}, done), sequence=1)
        with pytest.raises(StoreRegressed):
            await engine.latest(thread)

    async def test_a_long_log_comes_in_a_second_trip(self, engine: Engine, thread: str) -> None:
        items = [b"%d" % i for i in range(10_000)]
        await engine.commit(thread, step({"l": log(items), "m": log([b"7"]), "v": Value(b"v" * 300)}))
        found = await engine.latest(thread)
        assert found is not None
        assert found.contents == {"l": items, "m": [b"7"], "v": b"v" * 300}

    async def test_a_value_over_the_limit_is_refused(self, store: Store, thread: str) -> None:
        engine = Engine(store, NAMESPACE, CheckpointNamespace(value_limit=1000))
        with pytest.raises(EncodeError) as caught:
            await engine.commit(thread, step({"v": Value(b"v" * 1001)}))
        assert caught.value.path == "v"
        assert await engine.latest(thread) is None

    async def test_a_stale_fence_is_refused(self, engine: Engine, thread: str) -> None:
        leases = Leases(engine.store, NAMESPACE)
        old = await leases.acquire(thread, "a", ttl=30)
        done = await engine.commit(thread, step({"n": Value(b"0")}), token=old.token)
        await engine.store.command("DEL", keys.ThreadKeys.of(NAMESPACE, thread).lock)
        new = await leases.acquire(thread, "b", ttl=30)
        assert new.fence > old.fence
        for refused in (
            engine.commit(thread, step({"n": Value(b"1")}, done), token=old.token, sequence=1),
            engine.put_writes(thread, done.checkpoint, [Write("t", 0, b"w")], token=old.token),
            engine.retention.close(thread, status="finished", ttl=1, token=old.token),
        ):
            with pytest.raises(LeaseLost):
                await refused
        assert (await engine.meta(thread)).status == "running"

    async def test_ids_are_never_patterns(self, engine: Engine, thread: str) -> None:
        names = [
            f"{thread}{tail}" for tail in ("1", "2", "[12]", "*", "?", ":a", "{x}", "%2A", "ключ", " ", "\n", "a'b\"")
        ]
        for name in names:
            await engine.commit(name, step({"n": Value(name.encode())}))
        for name in (f"{thread}[12]", f"{thread}*"):
            assert await engine.retention.delete(name)
            names.remove(name)
        for name in names:
            found = await engine.latest(name)
            assert found is not None
            assert found.contents["n"] == name.encode()

    async def test_a_retry_makes_up_for_a_crash_after_the_commit_point(
        self, engine: Engine, thread: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where scripts are not atomic in a crash, all that follows `latest` may be missing when the call is repeated."""
        (first,) = await self.grow(engine, thread, 1)
        op = engine.store.op_id()
        monkeypatch.setattr(engine.store, "op_id", lambda: op)
        commit = step({"n": Value(b"1")}, first)
        done = await engine.commit(thread, commit, sequence=1)
        where, id_ = keys.ThreadKeys.of(NAMESPACE, thread), done.checkpoint
        await engine.store.command("ZREM", where.history(), id_)
        await engine.store.command("HSET", where.meta, "sequence", 1)
        again = await engine.commit(thread, commit, sequence=1)
        assert (again.repeated, again.checkpoint, again.refs, again.sequence) == (True, id_, done.refs, 2)
        assert [m.checkpoint for m in await engine.history(thread)] == [id_, first.checkpoint]
        assert (await engine.meta(thread)).sequence == 2

    async def test_a_thread_whose_first_commit_was_cut_is_empty(self, engine: Engine, thread: str) -> None:
        await self.grow(engine, thread, 1)
        where = keys.ThreadKeys.of(NAMESPACE, thread)
        await engine.store.command("DEL", where.latest(), where.history())
        await engine.store.command("HDEL", where.meta, "sequence", "updated", "takeovers", "opener")
        assert await engine.latest(thread) is None
        done = await self.grow(engine, thread, 2)
        assert [m.checkpoint for m in await engine.history(thread)] == [c.checkpoint for c in done[::-1]]

    async def test_ten_thousand_values_come_in_one_read(self, engine: Engine, thread: str) -> None:
        channels = {f"c{i}": Value(b"%d" % i * 40) for i in range(10_000)}
        await engine.commit(thread, step({name: Value(value.data[:200]) for name, value in channels.items()}))
        found = await engine.latest(thread)
        assert found is not None
        assert found.contents == {name: value.data[:200] for name, value in channels.items()}

    async def test_a_foreign_type_is_refused_before_anything_is_written(self, engine: Engine, thread: str) -> None:
        """Every key that a commit writes to is looked at first: nothing of a refused one stands."""
        first = await engine.commit(thread, step({"v": Value(b"v" * 500), "l": log([b"0"])}))
        where = keys.ThreadKeys.of(NAMESPACE, thread)
        backup = where.prefix + ":backup"
        for name in (where.latest(), where.history(), where.values, where.parts):
            await engine.store.command("RENAME", name, backup)
            wrong = ("RPUSH", name, "x") if name == where.latest() else ("SET", name, "x")
            await engine.store.command(*wrong)
            stood = await self.standing(engine, thread)
            with pytest.raises(ServerRefused) as caught:
                await engine.commit(thread, step({"v": Value(b"w" * 500), "l": log([b"1"])}, first), sequence=1)
            assert caught.value.ids["code"] == "WRONGTYPE"
            assert await self.standing(engine, thread) == stood
            await engine.store.command("RENAME", backup, name)
        assert (await engine.commit(thread, step({"n": Value(b"1")}, first), sequence=1)).sequence == 2
