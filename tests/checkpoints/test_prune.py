"""Pruning drops old checkpoints and what only they held; everything else stays readable as it was."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from blackboard import keys
from blackboard.checkpoints.channels import Channel, Items, Value
from blackboard.checkpoints.commit import Committed
from blackboard.checkpoints.engine import Engine, Write
from blackboard.checkpoints.manifest import Manifest
from blackboard.checkpoints.prune import Pruned, Pruner
from blackboard.checkpoints.retention import Retention
from blackboard.errors import CheckpointMissing, ConfigError
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.store.script import Script
from blackboard.testing.contracts.thread import NAMESPACE, log, step


@pytest.fixture
def engine(store: Store) -> Engine:
    return Engine(store, NAMESPACE, CheckpointNamespace())


@pytest.fixture
def pruner(store: Store) -> Pruner:
    return Pruner(store, NAMESPACE)


async def grow(engine: Engine, thread: str, steps: int) -> list[Committed]:
    """A value of its own in every step, and a list that is rewritten from the middle every third."""
    done: list[Committed] = []
    items: list[bytes] = []
    for number in range(steps):
        last = done[-1] if done else None
        base = last.refs["l"].segments if last else ()
        if number % 3 == 2 and base:
            items = [*items[:1], b'"changed %d"' % number]
            base = ((base[0][0], 1),)
        else:
            items = [*items, b'"%d"' % number]
        whole = list(items)
        new = whole[sum(count for _, count in base) :]
        channels: dict[str, Channel] = {
            "v": Value(b"%d" % number * 200),
            "l": Items("log", base, new, whole.copy),
        }
        done.append(await engine.commit(thread, step(channels, last), sequence=number))
        await engine.put_writes(thread, done[-1].checkpoint, [Write("t", 0, b"w")])
    return done


async def contents(engine: Engine, thread: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for manifest in await engine.history(thread):
        snapshot = await engine.at(thread, manifest.checkpoint)
        assert snapshot is not None
        found[manifest.checkpoint] = (snapshot.contents, snapshot.writes)
    return found


async def test_the_newest_stay_as_they_were(engine: Engine, pruner: Pruner, thread: str) -> None:
    done = await grow(engine, thread, 12)
    before = await contents(engine, thread)
    pruned = await pruner.prune(thread, keep_last=3)
    after = await contents(engine, thread)
    assert list(after) == [c.checkpoint for c in done[:-4:-1]]
    assert after == {name: before[name] for name in after}
    assert (pruned.checkpoints, pruned.values) == (9, 9)
    where = keys.ThreadKeys.of(NAMESPACE, thread)
    assert await engine.store.command("HLEN", where.values) == 3
    assert (
        await engine.store.command("EXISTS", where.checkpoint(done[0].checkpoint), where.writes(done[0].checkpoint))
        == 0
    )


async def test_shared_segments_stay(engine: Engine, pruner: Pruner, thread: str) -> None:
    done = await grow(engine, thread, 12)
    standing = {segment for c in done[-3:] for segment, _ in c.refs["l"].segments}
    others = {segment for c in done for segment, _ in c.refs["l"].segments} - standing
    pruned = await pruner.prune(thread, keep_last=3)
    where = keys.ThreadKeys.of(NAMESPACE, thread)
    for segment in standing:
        assert await engine.store.command("EXISTS", where.log("l", segment)) == 1
    for segment in others:
        assert await engine.store.command("EXISTS", where.log("l", segment)) == 0
    assert pruned.segments == len(others) > 0
    parts = {part.decode() for part in await engine.store.command("SMEMBERS", where.parts)}
    assert parts == {where.log("l", segment)[len(where.prefix) + 1 :] for segment in standing}


async def test_a_pinned_one_stays(engine: Engine, pruner: Pruner, thread: str) -> None:
    done = await grow(engine, thread, 10)
    before = await contents(engine, thread)
    await pruner.pin(thread, done[1].checkpoint)
    await pruner.prune(thread, keep_last=1)
    after = await contents(engine, thread)
    assert after == {name: before[name] for name in (done[9].checkpoint, done[1].checkpoint)}
    assert await pruner.unpin(thread, done[1].checkpoint)
    assert not await pruner.unpin(thread, done[1].checkpoint)
    await pruner.prune(thread, keep_last=1)
    assert list(await contents(engine, thread)) == [done[9].checkpoint]


async def test_what_is_not_stored_cannot_be_pinned(engine: Engine, pruner: Pruner, thread: str) -> None:
    await grow(engine, thread, 1)
    with pytest.raises(CheckpointMissing):
        await pruner.pin(thread, "nowhere")


@pytest.mark.parametrize("keep_last", [0, -1])
async def test_nothing_is_pruned_to_nothing(pruner: Pruner, thread: str, keep_last: int) -> None:
    with pytest.raises(ConfigError):
        await pruner.prune(thread, keep_last=keep_last)


async def test_pruning_less_than_there_is(engine: Engine, pruner: Pruner, thread: str) -> None:
    assert await pruner.prune(thread, keep_last=2) == Pruned()
    await grow(engine, thread, 2)
    assert await pruner.prune(thread, keep_last=2) == Pruned()
    assert len(await engine.history(thread)) == 2


async def test_the_thread_goes_on_after_a_prune(engine: Engine, pruner: Pruner, thread: str) -> None:
    last = (await grow(engine, thread, 8))[-1]
    await pruner.prune(thread, keep_last=1)
    found = await engine.latest(thread)
    assert found is not None
    items = [*found.contents["l"], b'"more"']
    commit = step({"v": Value(b"1"), "l": log(items, last.refs["l"])}, last)
    await engine.commit(thread, commit, sequence=last.sequence)
    after = await engine.latest(thread)
    assert after is not None
    assert after.contents["l"] == items


async def test_pruning_while_it_is_written(engine: Engine, pruner: Pruner, thread: str) -> None:
    """Old values come back while they are collected: nothing that a checkpoint refers to is lost."""
    stop = asyncio.Event()

    async def write() -> None:
        last = None
        for number in range(300):
            body = b"%d" % (number % 3) * 200
            last = await engine.commit(thread, step({"v": Value(body)}, last), sequence=number)
        stop.set()

    async def prune() -> int:
        dropped = 0
        while not stop.is_set():
            dropped += (await pruner.prune(thread, keep_last=2)).checkpoints
            await asyncio.sleep(0)
        return dropped

    _, dropped = await asyncio.gather(write(), prune())
    assert dropped > 0
    await pruner.prune(thread, keep_last=2)
    assert len(await contents(engine, thread)) == 2


async def test_branches_of_a_dropped_checkpoint_are_sent_whole(engine: Engine, pruner: Pruner, thread: str) -> None:
    first = await engine.put(thread, "a", step({"l": log([b"1", b"2"]), "v": Value(b"v" * 300)}))
    await engine.put(thread, "b", step({"l": log([b"7"]), "v": Value(b"w" * 300)}))
    await pruner.prune(thread, keep_last=1)
    branch = step({"l": log([b"1", b"2", b"3"], first.refs["l"]), "v": Value(b"v" * 300)}, first)
    await engine.put(thread, "c", branch)
    found = await engine.latest(thread)
    assert found is not None
    assert found.contents == {"l": [b"1", b"2", b"3"], "v": b"v" * 300}


async def test_lineages_are_pruned_apart(engine: Engine, pruner: Pruner, thread: str) -> None:
    body = b"v" * 300
    for name in ("a", "b"):
        await engine.put(thread, name, step({"v": Value(body)}))
        await engine.put(thread, name, step({"v": Value(body)}), lineage="sub")
    pruned = await pruner.prune(thread, keep_last=1)
    assert (pruned.checkpoints, pruned.values) == (1, 0)
    assert len(await engine.history(thread, lineage="sub")) == 2
    found = await engine.latest(thread)
    assert found is not None
    assert found.contents["v"] == body


async def test_a_later_prune_finds_what_a_killed_one_left(engine: Engine, pruner: Pruner, thread: str) -> None:
    await grow(engine, thread, 6)

    class Killed(Exception):
        pass

    async def die(*_: object) -> Pruned:
        raise Killed

    whole = pruner._collect
    pruner._collect = die  # type: ignore[method-assign, assignment]
    with pytest.raises(Killed):
        await pruner.prune(thread, keep_last=2)
    where = keys.ThreadKeys.of(NAMESPACE, thread)
    assert await engine.store.command("HLEN", where.values) == 6
    pruner._collect = whole  # type: ignore[method-assign]
    assert (await pruner.prune(thread, keep_last=2)).values == 4
    assert await engine.store.command("HLEN", where.values) == 2


async def test_a_pin_of_a_closed_thread_ends_with_it(engine: Engine, pruner: Pruner, thread: str) -> None:
    (done,) = await grow(engine, thread, 1)
    where = keys.ThreadKeys.of(NAMESPACE, thread)
    await engine.retention.close(thread, status="finished", ttl=60.0)
    await pruner.pin(thread, done.checkpoint)
    assert await engine.store.command("PEXPIRETIME", where.pins()) == (await engine.meta(thread)).expires
    await engine.retention.delete(thread)
    with pytest.raises(CheckpointMissing):
        await pruner.pin(thread, done.checkpoint)
    assert await engine.store.command("EXISTS", where.pins()) == 0


async def test_garbage_of_a_long_thread_waits_until_it_is_worth_the_look(
    engine: Engine, pruner: Pruner, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blackboard.checkpoints.prune.ALWAYS", 4)
    await grow(engine, thread, 20)
    where = keys.ThreadKeys.of(NAMESPACE, thread)
    assert await pruner.prune(thread, keep_last=19) == Pruned(1, deferred=True)
    assert await engine.store.command("HLEN", where.values) == 20
    pruned = await pruner.prune(thread, keep_last=17)
    assert (pruned.checkpoints, pruned.values, pruned.deferred) == (2, 3, False)
    assert await engine.store.command("HLEN", where.values) == 17
    assert (await pruner.prune(thread, keep_last=16)).deferred


async def test_two_who_prune_at_once_take_nothing_that_stands(
    engine: Engine, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One drops what the other has counted past, while it looks for what is still referred to."""
    monkeypatch.setattr("blackboard.checkpoints.prune.SLICE", 4)
    await grow(engine, thread, 20)
    before = await contents(engine, thread)
    first = Pruner(engine.store, NAMESPACE)
    kept, other = first._manifests, Pruner(engine.store, NAMESPACE)
    looks = 0

    async def raced(*args: Any) -> list[Manifest]:
        nonlocal looks
        found = await kept(*args)
        looks += 1
        names = [manifest.checkpoint for manifest in found]
        if looks == 2:  # the first look is at what is dropped, the second at the first page of what stays
            assert await other._drop(keys.ThreadKeys.of(NAMESPACE, thread), "", incarnation, names) != ()
        return found

    incarnation = (await engine.meta(thread)).incarnation or ""
    monkeypatch.setattr(first, "_manifests", raced)
    await first.prune(thread, keep_last=16)
    after = await contents(engine, thread)
    assert len(after) == 12
    assert after == {name: before[name] for name in after}


async def test_a_thread_that_is_pruned_while_it_is_closed_ends_whole(
    engine: Engine, pruner: Pruner, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blackboard.checkpoints.retention.SLICE", 4)
    await grow(engine, thread, 20)
    retention, slices = Retention(engine.store, NAMESPACE), 0
    call = engine.store.call

    class Raced:
        def __getattr__(self, name: str) -> Any:
            return getattr(engine.store, name)

        async def call(self, script: Script, *args: Any) -> Any:
            nonlocal slices
            slices += script.name == "expire.lua"
            if script.name == "expire.lua" and slices == 3:
                assert (await pruner.prune(thread, keep_last=15)).checkpoints == 5
            return await call(script, *args)

    retention._store = cast("Store", Raced())
    await retention.close(thread, status="finished", ttl=60.0)
    where = keys.ThreadKeys.of(NAMESPACE, thread)
    for manifest in await engine.history(thread):
        assert await engine.store.command("PTTL", where.checkpoint(manifest.checkpoint)) > 0


async def test_the_newest_goes_if_it_is_named(engine: Engine, pruner: Pruner, thread: str) -> None:
    """The newest of those that stand takes its place; nothing that it refers to goes."""
    await grow(engine, thread, 4)
    before = await contents(engine, thread)
    names = sorted(before)
    assert (await pruner.drop(thread, [names[3], names[2], names[0]])).checkpoints == 3
    assert await contents(engine, thread) == {names[1]: before[names[1]]}
    found = await engine.latest(thread)
    assert found is not None
    assert found.manifest.checkpoint == names[1]
    await pruner.drop(thread, [names[1]])
    assert await engine.latest(thread) is None


async def test_what_is_to_be_kept_stays(engine: Engine, pruner: Pruner, thread: str) -> None:
    await grow(engine, thread, 6)
    before = await contents(engine, thread)
    names = sorted(before)
    assert (await pruner.prune(thread, keep_last=1, keep=[names[1]])).checkpoints == 4
    assert await contents(engine, thread) == {name: before[name] for name in (names[1], names[5])}


async def test_a_page_of_pinned_ones_hides_nobody(engine: Engine, pruner: Pruner, thread: str) -> None:
    names = [f"c{number:03}" for number in range(120)]
    for number, name in enumerate(names):
        await engine.put(thread, name, step({"v": Value(b"%d" % number)}))
    for name in names[:110]:
        await pruner.pin(thread, name)
    assert (await pruner.prune(thread, keep_last=1)).checkpoints == 9
    assert [m.checkpoint for m in await engine.history(thread, limit=200)] == [names[-1], *names[109::-1]]
