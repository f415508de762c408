"""What every server must let the engine promise: run `EngineContract` over yours.

A subclass needs the fixtures `store` (a connected Store) and `thread` (an id that nobody used before).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from blackboard import keys
from blackboard.checkpoints.channels import Channel, Items, Keep, Ref, Value
from blackboard.checkpoints.commit import Commit, Committed
from blackboard.checkpoints.engine import Engine, Write
from blackboard.claims.lease import Leases, Token
from blackboard.errors import (
    AlreadyFinished,
    CheckpointConflict,
    CheckpointMissing,
    CorruptValue,
    EncodeError,
    LeaseHeld,
    LeaseLost,
    StoreRegressed,
    ThreadGone,
)
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store

__all__ = ["EngineContract", "log", "step"]

NAMESPACE = "checkpoint"


def log(items: Sequence[bytes], stored: Ref | None = None) -> Items:
    """Give the whole list of a log, of which `stored` stands already."""
    base = stored.segments if stored else ()
    return Items("log", base, items[sum(count for _, count in base) :], lambda: items)


def step(channels: Mapping[str, Channel], after: Committed | None = None, **more: object) -> Commit:
    """Make the commit that follows `after`."""
    if after is None:
        return Commit(0, channels, **more)  # type: ignore[arg-type]
    return Commit(after.step + 1, channels, base=after.refs, parent=after.checkpoint, **more)  # type: ignore[arg-type]


class EngineContract:
    """Commit, read, conflict, adapter mode, pending writes, expiry and deletion."""

    @pytest.fixture
    def engine(self, store: Store) -> Engine:
        return Engine(store, NAMESPACE, CheckpointNamespace())

    async def grow(self, engine: Engine, thread: str, steps: int) -> list[Committed]:
        """Commit a log that grows by one item a step."""
        done: list[Committed] = []
        for number in range(steps):
            items = [b'"%d"' % i for i in range(number + 1)]
            last = done[-1] if done else None
            commit = step({"items": log(items, last.refs["items"] if last else None), "n": Value(b"%d" % number)}, last)
            done.append(await engine.commit(thread, commit, sequence=number))
        return done

    async def test_nothing_is_none(self, engine: Engine, thread: str) -> None:
        assert await engine.latest(thread) is None
        assert await engine.history(thread) == []
        assert (await engine.meta(thread)).status == "none"

    async def test_a_commit_comes_back(self, engine: Engine, thread: str) -> None:
        big = b"b" * 100_000
        channels = {
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
            base = last.refs["l"].segments
            cut = (*base[:-1], (base[-1][0], base[-1][1] - 1)) if base[-1][1] > 1 else base
            known = sum(count for _, count in cut)
            new, whole = items[known:], list(items)
            commit = step({"l": Items("log", cut, new, lambda whole=whole: whole)}, last)  # type: ignore[misc]
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
        for cut in range(0, len(whole), 7):
            await engine.store.command("SET", key, whole[:cut])
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

    async def test_an_unfenced_write_over_a_lapsed_lease_raises_the_fence(self, engine: Engine, thread: str) -> None:
        lease = await Leases(engine.store, NAMESPACE).acquire(thread, "a", ttl=30)
        done = await engine.commit(thread, step({"n": Value(b"0")}), token=lease.token)
        await engine.store.command("DEL", keys.ThreadKeys.of(NAMESPACE, thread).lock)
        other = await engine.commit(thread, step({"n": Value(b"1")}, done), sequence=1)
        assert other.fence > lease.fence
        with pytest.raises(LeaseLost):
            await engine.commit(thread, step({"n": Value(b"2")}, done), token=lease.token, sequence=1)

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
        assert await self.standing(engine, thread) == set()
        await engine.retention.sweep()
        shard = keys.threads(NAMESPACE, keys.shard(thread))
        assert await engine.store.command("ZSCORE", shard, thread) is None

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

    async def standing(self, engine: Engine, thread: str) -> set[str]:
        """List what stands of a thread, without the thread's own prefix."""
        prefix = keys.ThreadKeys.of(NAMESPACE, thread).prefix + ":"
        return {key.removeprefix(prefix) for key in await all_keys(engine.store) if key.startswith(prefix)}

    async def without_expiry(self, engine: Engine, thread: str) -> set[str]:
        """List what stands of a thread and never expires."""
        prefix = keys.ThreadKeys.of(NAMESPACE, thread).prefix + ":"
        return {n for n in await self.standing(engine, thread) if await engine.store.command("PTTL", prefix + n) == -1}

    async def until_gone(self, engine: Engine, thread: str) -> None:
        """Wait until the thread has expired, at most five seconds."""
        for _ in range(500):
            if await engine.latest(thread) is None:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{thread} did not expire")


async def all_keys(store: Store) -> list[str]:
    """List every key of the backend, on all of its primaries."""
    found: list[str] = []
    for primary in await store.primaries():
        cursor = 0
        while True:
            reply = await primary.command("SCAN", cursor, "COUNT", 1000)
            cursor = int(reply[0])
            found += [key.decode() for key in reply[1]]
            if cursor == 0:
                break
    return found
