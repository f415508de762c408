"""A server that is full, demoted, emptied or damaged: an honest error, nothing half written, and no invented history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from blackboard import keys
from blackboard.checkpoints.channels import Channel, Items, Value
from blackboard.checkpoints.commit import Commit, Committed
from blackboard.checkpoints.engine import Engine, Write
from blackboard.claims.effect import Effects, Start
from blackboard.claims.lease import Lease, Leases
from blackboard.errors import (
    BlackboardError,
    ServerRefused,
    ServerUnavailable,
    StoreRegressed,
    ThreadGone,
)
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.servers import Server, binaries, start_server
from tests.chaos.stage import NAMESPACE, say


@pytest_asyncio.fixture(params=sorted(binaries()))
async def own(request: pytest.FixtureRequest, tmp_path: Any) -> AsyncIterator[Server]:
    """A server that the test may spoil."""
    async with await start_server(binaries()[request.param], tmp_path) as started:
        yield started


@dataclass
class Driver:
    """A driver with a lease, one commit and one open effect."""

    store: Store
    thread: str
    lease: Lease
    done: Committed
    start: Start

    @property
    def engine(self) -> Engine:
        return Engine(self.store, NAMESPACE, CheckpointNamespace())

    @property
    def effects(self) -> Effects:
        return Effects(self.store, NAMESPACE)

    @property
    def where(self) -> keys.ThreadKeys:
        return keys.ThreadKeys.of(NAMESPACE, self.thread)

    async def commit(self) -> Any:
        items = [b'"a"', b'"b"']
        log = Items("log", self.done.refs["log"].segments, items[1:], lambda: items)
        settlement = self.effects.settlement(self.start, b'"settled"')
        channels: dict[str, Channel] = {"log": log, "big": Value(b"c" * 500)}
        commit = Commit(1, channels, base=self.done.refs, parent=self.done.checkpoint, settlements=[settlement])
        return await self.engine.commit(self.thread, commit, token=self.lease.token, sequence=self.done.sequence)

    async def put_writes(self) -> Any:
        writes = [Write("t", 0, b"x")]
        return await self.engine.put_writes(self.thread, self.done.checkpoint, writes, token=self.lease.token)

    async def begin(self) -> Any:
        return await self.effects.begin(self.lease.token, "new", semantics="at-most-once", fingerprint="f")

    async def complete(self) -> Any:
        return await self.effects.complete(self.start, b'"x"')

    async def attach(self) -> Any:
        return await self.effects.attach(self.start, "reference")

    async def acquire(self) -> Any:
        return await Leases(self.store, NAMESPACE).acquire(self.thread, "another", ttl=5)

    async def renew(self) -> Any:
        return await self.lease.renew()

    async def release(self) -> Any:
        return await self.lease.release()

    async def close(self) -> Any:
        return await self.engine.retention.close(self.thread, status="failed", ttl=None, token=self.lease.token)

    async def read(self) -> Any:
        return await self.engine.read(self.thread)


async def driver(store: Store, thread: str) -> Driver:
    lease = await Leases(store, NAMESPACE).acquire(thread, "driver", ttl=60)
    channels: dict[str, Channel] = {"log": Items("log", (), [b'"a"'], lambda: [b'"a"']), "big": Value(b"b" * 500)}
    engine = Engine(store, NAMESPACE, CheckpointNamespace())
    done = await engine.commit(thread, Commit(0, channels), token=lease.token)
    lease.opened(done.incarnation)
    start = await Effects(store, NAMESPACE).begin(lease.token, "open", semantics="at-most-once", fingerprint="f")
    assert isinstance(start, Start)
    return Driver(store, thread, lease, done, start)


@pytest_asyncio.fixture
async def store(own: Server) -> AsyncIterator[Store]:
    connected = await Store.connect(own.url, retry_deadline=1)
    yield connected
    await connected.close()


@pytest_asyncio.fixture
async def on(store: Store, thread: str) -> Driver:
    return await driver(store, thread)


async def everything(store: Store) -> dict[bytes, bytes]:
    """Every key with its bytes."""
    _, found = await store.command("SCAN", 0, "COUNT", 1_000_000)
    return dict(zip(found, [await store.command("DUMP", key) for key in found], strict=True))


async def test_a_full_server_refuses_commits_and_keeps_leases(own: Server, store: Store, on: Driver) -> None:
    before = await everything(store)
    await own.configure(maxmemory=1)
    for refused in (on.commit, on.put_writes, on.begin, on.complete, on.attach):
        with pytest.raises(ServerRefused) as full:
            await refused()
        assert full.value.code == "OOM", refused
        assert await everything(store) == before, refused
    await on.lease.renew()
    assert (await on.read()).snapshot.manifest.step == 0
    await own.ask("SCRIPT", "FLUSH")
    await on.lease.release()
    assert await Leases(store, NAMESPACE).holder(on.thread) is None
    await own.configure(maxmemory=0)
    assert (await on.commit()).step == 1


async def test_the_lock_of_a_closed_thread_ends_with_its_lease(store: Store, on: Driver) -> None:
    """Else a driver who dies between finish and release would hold everybody up until the thread expires."""
    await on.complete()
    await on.engine.retention.close(on.thread, status="finished", ttl=3600, token=on.lease.token)
    assert 0 < await store.command("PTTL", on.where.lock) <= 60_000
    assert await store.command("PTTL", on.where.meta) > 60_000


async def test_a_demoted_server_takes_nothing(own: Server, store: Store, on: Driver) -> None:
    """It may be promoted again or another may be; until the deadline that is waited for."""
    before = await everything(store)
    await own.ask("REPLICAOF", "127.0.0.1", "1")
    for refused in (on.commit, on.put_writes, on.begin, on.complete):
        with pytest.raises((ServerUnavailable, ServerRefused)):
            await refused()
    assert await everything(store) == before
    commit = asyncio.create_task(on.commit())
    await asyncio.sleep(0.1)
    await own.ask("REPLICAOF", "NO", "ONE")
    assert (await commit).step == 1


async def test_a_flush_under_a_live_driver(own: Server, store: Store, on: Driver) -> None:
    await own.ask("FLUSHALL")
    for call in (on.commit, on.put_writes, on.renew, on.release):
        with pytest.raises(StoreRegressed):
            await call()
    for call in (on.begin, on.complete, on.attach, on.close):
        with pytest.raises((StoreRegressed, ThreadGone)):
            await call()
    assert await everything(store) == {}


@pytest.mark.parametrize("lost", ["meta", "latest"])
async def test_a_lost_head(lost: str, store: Store, on: Driver) -> None:
    """Whoever writes and whoever reads is told: the thread is not started anew over what it held."""
    await store.command("DEL", getattr(on.where, lost)() if lost == "latest" else on.where.meta)
    before = await everything(store)
    with pytest.raises(StoreRegressed, match=lost):
        await on.commit()
    with pytest.raises(StoreRegressed, match=lost):
        await on.read()
    with pytest.raises(StoreRegressed, match=lost):
        await on.engine.commit(on.thread, Commit(0, {}), token=on.lease.token)
    assert await everything(store) == before


async def test_a_head_that_went_back(store: Store, on: Driver) -> None:
    """`latest` is older than what its only writer was told."""
    second = await on.commit()
    await store.command("SET", on.where.latest(), on.done.checkpoint)
    with pytest.raises(StoreRegressed):
        await on.engine.commit(
            on.thread, Commit(2, {}, parent=second.checkpoint), token=on.lease.token, sequence=second.sequence
        )


async def test_a_lost_segment_is_said_and_sent_again(store: Store, on: Driver) -> None:
    ((segment, _),) = on.done.refs["log"].segments
    await store.command("DEL", on.where.log("log", segment))
    with pytest.raises(StoreRegressed, match="segment"):
        await on.read()
    await on.commit()
    assert (await on.read()).snapshot.contents["log"] == [b'"a"', b'"b"']


KEYS: dict[str, Callable[[Driver], str]] = {
    "meta": lambda on: on.where.meta,
    "latest": lambda on: on.where.latest(),
    "lock": lambda on: on.where.lock,
    "ops": lambda on: on.where.ops,
    "history": lambda on: on.where.history(),
    "values": lambda on: on.where.values,
    "parts": lambda on: on.where.parts,
    "effects": lambda on: on.where.effects,
    "open effects": lambda on: on.where.effects_open,
    "checkpoint": lambda on: on.where.checkpoint(on.done.checkpoint),
    "writes": lambda on: on.where.writes(on.done.checkpoint),
    "segment": lambda on: on.where.log("log", on.done.refs["log"].segments[0][0]),
}
ZSETS = ("ops", "history")
CALLS: dict[str, Callable[[Driver], Awaitable[Any]]] = {
    name: getattr(Driver, name)
    for name in (
        "commit", "put_writes", "begin", "complete", "attach", "acquire", "renew", "release", "close", "read",
    )
}  # fmt: skip


async def test_a_key_of_another_type(store: Store, thread: str) -> None:
    """Each call against each damaged key: it does not need the key, or it raises and has written nothing."""
    raised = 0
    for call, act in CALLS.items():
        for key, named in KEYS.items():
            on = await driver(store, f"{thread}-{call}-{key}")
            await store.command("DEL", named(on))
            await store.command("PFADD" if key in ZSETS else "ZADD", named(on), 1, "damaged")
            before = await everything(store)
            try:
                await act(on)
            except BlackboardError:
                raised += 1
                assert await everything(store) == before, (call, key)
            await store.command("DEL", *await everything(store))
    say(f"{len(CALLS)} calls on {len(KEYS)} damaged keys: {raised} refused, nothing written")
    assert raised >= 30


async def test_a_fresh_thread_beside_a_damaged_ops_key(store: Store, thread: str) -> None:
    """Also where nothing stands yet, every key is looked at before the first is written."""
    await store.command("SET", keys.ThreadKeys.of(NAMESPACE, thread).ops, "damaged")
    engine = Engine(store, NAMESPACE, CheckpointNamespace())
    with pytest.raises(ServerRefused):
        await engine.put(thread, "c0", Commit(0, {"n": Value(b"0")}))
    assert (await engine.meta(thread)).status == "none"
    assert await engine.latest(thread) is None


async def test_scripts_flushed_in_the_middle(own: Server, store: Store, on: Driver) -> None:
    done, items = on.done, [b'"a"']
    await on.complete()
    for step in range(1, 41):
        if step % 4 == 0:
            await own.ask("SCRIPT", "FLUSH")
        items.append(b'"%d"' % step)
        log = Items("log", done.refs["log"].segments, items[-1:], lambda: items)
        commit = Commit(step, {"log": log}, base=done.refs, parent=done.checkpoint)
        done = await on.engine.commit(on.thread, commit, token=on.lease.token, sequence=done.sequence)
    found = (await on.read()).snapshot
    assert found.contents["log"] == items
    assert [one.step for one in await on.engine.history(on.thread)] == list(range(40, -1, -1))
