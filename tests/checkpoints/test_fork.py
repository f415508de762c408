"""A fork stands where its origin stood and owes it nothing; a copy is all of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from blackboard import keys
from blackboard.checkpoints.channels import Value
from blackboard.checkpoints.engine import Engine, Write
from blackboard.checkpoints.fork import Copier
from blackboard.checkpoints.prune import Pruner
from blackboard.claims.effect import Effects, Start
from blackboard.claims.lease import Leases
from blackboard.errors import CheckpointMissing, LeaseHeld, ServerUnavailable, ThreadExists, ThreadGone
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.contracts.thread import NAMESPACE, log, step


@pytest.fixture
def engine(store: Store) -> Engine:
    return Engine(store, NAMESPACE, CheckpointNamespace())


@pytest.fixture
def copier(store: Store) -> Copier:
    return Copier(store, NAMESPACE)


async def grow(engine: Engine, thread: str, steps: int) -> list[str]:
    """Commit a log of one item a step and a large value, under one lease."""
    last = None
    names = []
    async with Leases(engine.store, NAMESPACE).hold(thread, ttl=30) as lease:
        for number in range(steps):
            items = [b'"%d"' % i for i in range(number + 1)]
            big = Value(b'"%s"' % (b"v" * 300 + b"%d" % number))
            commit = step({"l": log(items, last.refs["l"] if last else None), "big": big}, last, next=f"n{number}")
            last = await engine.commit(thread, commit, token=lease.token, sequence=number)
            lease.opened(last.incarnation)
            names.append(last.checkpoint)
    return names


async def test_a_fork_stands_where_it_was_forked(engine: Engine, copier: Copier, thread: str) -> None:
    names = await grow(engine, thread, 6)
    await copier.fork(thread, f"{thread}-fork", checkpoint=names[2])
    origin, found = await engine.at(thread, names[2]), await engine.latest(f"{thread}-fork")
    assert origin is not None
    assert found is not None
    assert found.contents == origin.contents
    assert (found.manifest.step, found.manifest.next, found.manifest.parent) == (2, "n2", None)
    assert len(await engine.history(f"{thread}-fork")) == 1
    assert (await engine.meta(f"{thread}-fork")).status == "running"


async def test_a_fork_goes_on_by_itself(engine: Engine, copier: Copier, thread: str) -> None:
    names = await grow(engine, thread, 3)
    fork = f"{thread}-fork"
    await copier.fork(thread, fork, checkpoint=names[1])
    await engine.retention.delete(thread)
    snapshot = await engine.latest(fork)
    assert snapshot is not None
    async with Leases(engine.store, NAMESPACE).hold(fork, ttl=30) as lease:
        base = snapshot.manifest.refs
        commit = step({"l": log([b'"0"', b'"1"', b'"new"'], base["l"]), "big": Value(b'"b"')})
        sequence = (await engine.meta(fork)).sequence
        done = await engine.commit(
            fork,
            replace(commit, step=2, base=base, parent=snapshot.manifest.checkpoint),
            token=lease.token,
            sequence=sequence,
        )
    found = await engine.latest(fork)
    assert found is not None
    assert found.contents == {"l": [b'"0"', b'"1"', b'"new"'], "big": b'"b"'}
    assert done.checkpoint > names[2]


async def test_effects_settled_by_then_come_along(engine: Engine, copier: Copier, thread: str) -> None:
    effects, fork = Effects(engine.store, NAMESPACE), f"{thread}-fork"
    async with Leases(engine.store, NAMESPACE).hold(thread, ttl=30) as lease:
        first = await engine.commit(thread, step({"n": Value(b"0")}), token=lease.token)
        lease.opened(first.incarnation)
        second = first
        for name in ("early", "late", "open"):
            begun = await effects.begin(lease.token, name, semantics="at-most-once", fingerprint="f")
            assert isinstance(begun, Start)
            if name == "early":
                await effects.complete(begun, b'"done"')
                second = await engine.commit(thread, step({"n": Value(b"1")}, first), token=lease.token, sequence=1)
            if name == "late":
                await effects.complete(begun, b'"done"')
    await copier.fork(thread, fork, checkpoint=second.checkpoint)
    assert [(effect.key, effect.state) for effect in await effects.all(fork)] == [("early", "done")]


async def test_the_newest_is_forked_unless_named(engine: Engine, copier: Copier, thread: str) -> None:
    names = await grow(engine, thread, 3)
    await copier.fork(thread, f"{thread}-fork")
    found = await engine.latest(f"{thread}-fork")
    assert found is not None
    assert found.manifest.checkpoint == names[-1]


async def test_a_used_id_is_refused_and_unharmed(engine: Engine, copier: Copier, thread: str) -> None:
    await grow(engine, thread, 2)
    other = f"{thread}-other"
    await grow(engine, other, 1)
    before = await engine.latest(other)
    with pytest.raises(ThreadExists):
        await copier.fork(thread, other)
    assert await engine.latest(other) == before
    async with Leases(engine.store, NAMESPACE).hold(f"{thread}-held", ttl=30):
        with pytest.raises(ThreadExists):
            await copier.fork(thread, f"{thread}-held")


async def test_a_deleted_id_can_be_forked_to(engine: Engine, copier: Copier, thread: str) -> None:
    await grow(engine, thread, 2)
    other = f"{thread}-other"
    await grow(engine, other, 5)
    await engine.retention.delete(other)
    await copier.fork(thread, other)
    found, origin = await engine.latest(other), await engine.latest(thread)
    assert found is not None
    assert origin is not None
    assert found.contents == origin.contents


async def test_what_is_not_there_cannot_be_forked(engine: Engine, copier: Copier, thread: str) -> None:
    with pytest.raises(ThreadGone):
        await copier.fork(thread, f"{thread}-fork")
    await grow(engine, thread, 1)
    with pytest.raises(CheckpointMissing):
        await copier.fork(thread, f"{thread}-fork", checkpoint="nowhere")
    assert (await engine.meta(f"{thread}-fork")).status == "none"


async def test_a_copy_is_all_of_it(engine: Engine, copier: Copier, thread: str) -> None:
    first = await engine.put(thread, "a", step({"l": log([b"1"]), "v": Value(b"v" * 500)}))
    await engine.put(thread, "b", step({"l": log([b"1", b"2"], first.refs["l"])}, first))
    await engine.put(thread, "s", step({"l": log([b"9"])}), lineage="sub:1")
    await engine.put_writes(thread, "b", [Write("t", 0, b"w")])
    await engine.put_writes(thread, "later", [Write("t", 0, b"early")])
    copy = f"{thread}-copy"
    await copier.copy(thread, copy)
    await engine.retention.delete(thread)
    for name, contents in (("a", {"l": [b"1"], "v": b"v" * 500}), ("b", {"l": [b"1", b"2"]})):
        found = await engine.at(copy, name)
        assert found is not None
        assert found.contents == contents
    newest, child = await engine.latest(copy), await engine.latest(copy, lineage="sub:1")
    assert newest is not None
    assert child is not None
    assert (newest.manifest.checkpoint, newest.writes, child.contents) == ("b", {"t:0": b"w"}, {"l": [b"9"]})
    await engine.put(copy, "later", step({"v": Value(b"1")}))
    late = await engine.latest(copy)
    assert late is not None
    assert late.writes == {"t:0": b"early"}


async def test_long_logs_are_copied_in_slices(engine: Engine, copier: Copier, thread: str) -> None:
    items = [b"%d" % i for i in range(3210)]
    await engine.put(thread, "a", step({"l": log(items)}))
    await copier.fork(thread, f"{thread}-fork")
    await copier.copy(thread, f"{thread}-copy")
    for name in ("fork", "copy"):
        found = await engine.latest(f"{thread}-{name}")
        assert found is not None
        assert found.contents["l"] == items


async def test_an_unfinished_copy_is_unseen_and_swept(engine: Engine, copier: Copier, thread: str) -> None:
    names = await grow(engine, thread, 4)
    fork = f"{thread}-fork"

    class Killed(Exception):
        pass

    async def die(*_: object) -> str:
        raise Killed

    copier._open = die  # type: ignore[method-assign, assignment]
    with pytest.raises(Killed):
        await copier.fork(thread, fork, checkpoint=names[2])
    assert await engine.latest(fork) is None
    shard = keys.threads(NAMESPACE, keys.shard(fork))
    assert float(await engine.store.command("ZSCORE", shard, fork)) > engine.store.server_time() // 1000
    await engine.store.command("ZADD", shard, 1, fork)
    await engine.retention.sweep()
    prefix = keys.ThreadKeys.of(NAMESPACE, fork).prefix
    for primary in await engine.store.primaries():
        for key in (await primary.command("SCAN", 0, "COUNT", 1_000_000))[1]:
            assert not key.decode().startswith(prefix) or key.decode() == f"{prefix}:meta"
    assert await engine.store.command("ZSCORE", shard, fork) is None


async def test_nobody_comes_before_a_copy_is_complete(engine: Engine, copier: Copier, thread: str) -> None:
    """Otherwise the copy would be opened over what was acknowledged to somebody else."""
    names = await grow(engine, thread, 2)
    copy, opening = f"{thread}-copy", copier._open
    leases, refused = Leases(engine.store, NAMESPACE), 0

    async def interrupted(*last: Any) -> str:
        nonlocal refused
        for write in (
            lambda: engine.put(copy, "mine", step({"n": Value(b"1")})),
            lambda: engine.put_writes(copy, "mine", [Write("t", 0, b"w")]),
            lambda: leases.acquire(copy, ttl=30),
        ):
            with pytest.raises(LeaseHeld):
                await write()
            refused += 1
        return await opening(*last)

    copier._open = interrupted  # type: ignore[method-assign, assignment]
    await copier.copy(thread, copy)
    assert refused == 3
    assert [manifest.checkpoint for manifest in await engine.history(copy)] == [*reversed(names)]
    assert await engine.store.command("PTTL", keys.ThreadKeys.of(NAMESPACE, copy).meta) == -1
    assert (await leases.acquire(copy, ttl=30)).status == "running"


async def test_a_sweep_that_comes_late_leaves_a_copy_alone(engine: Engine, copier: Copier, thread: str) -> None:
    await grow(engine, thread, 1)
    fork = f"{thread}-fork"
    await copier.fork(thread, fork)
    copied = await engine.store.command("HGET", keys.ThreadKeys.of(NAMESPACE, fork).meta, "copied")
    await engine.retention.remove_copy(fork, copied.decode())
    assert await engine.latest(fork) is not None


async def test_writes_that_came_before_a_copy_do_not_end_it(engine: Engine, copier: Copier, thread: str) -> None:
    await grow(engine, thread, 2)
    copy = f"{thread}-copy"
    await engine.put_writes(copy, "early", [Write("t", 0, b"w")])
    await copier.copy(thread, copy)
    where = keys.ThreadKeys.of(NAMESPACE, copy)
    assert [await engine.store.command("PTTL", key) for key in (where.meta, where.parts)] == [-1, -1]


async def test_a_fork_that_a_prune_overtakes_can_be_done_again(engine: Engine, copier: Copier, thread: str) -> None:
    """What was pruned is not lost, and the new id is free at once."""
    names, fork, values = await grow(engine, thread, 6), f"{thread}-fork", copier._values

    async def pruned(*asked: Any) -> None:
        await Pruner(engine.store, NAMESPACE).prune(thread, keep_last=1)
        await values(*asked)

    copier._values = pruned  # type: ignore[method-assign, assignment]
    with pytest.raises(ServerUnavailable, match="pruned"):
        await copier.fork(thread, fork, checkpoint=names[2])
    copier._values = values  # type: ignore[method-assign]
    with pytest.raises(CheckpointMissing):
        await copier.fork(thread, fork, checkpoint=names[2])
    await copier.fork(thread, fork)
    assert [one.checkpoint for one in await engine.history(fork)] == [names[-1]]
