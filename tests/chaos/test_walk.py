"""Each end of a thread, killed anywhere and raced by others: after the next sweep every key has an owner, or an end."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial

import pytest
import pytest_asyncio

from blackboard import keys
from blackboard.checkpoints.channels import Channel, Items, Value
from blackboard.checkpoints.commit import Commit
from blackboard.checkpoints.engine import Engine, Write
from blackboard.checkpoints.fork import Copier
from blackboard.checkpoints.manifest import Meta
from blackboard.checkpoints.prune import Pruner
from blackboard.errors import BlackboardError
from blackboard.points import watch
from blackboard.runs.inbox import Inbox
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.crash import Spot, Template, recorder, strike
from blackboard.testing.keyspace import Keyspace
from blackboard.testing.life import Life
from blackboard.testing.servers import Server, binaries
from tests.chaos.stage import say

NAMESPACE = "walk"
STEPS, HOUR, RACES = 5, 3600.0, 50
MOST_KILLS = 100
"""Ends of more spots are killed at as many of them, spread evenly; all of them under the marker `chaos`."""
BINARY = next(iter(binaries().values()))


def engine_of(store: Store) -> Engine:
    return Engine(store, NAMESPACE, CheckpointNamespace())


async def grow(store: Store, thread: str) -> None:
    """A thread of everything: values, a log in segments, two lineages, writes early and late, a pin, an answer."""
    engine, items = engine_of(store), list[bytes]()
    for number in range(STEPS):
        items = [*items[:-1], b'"changed %d"' % number] if number % 3 == 2 else [*items, b'"%d"' % number]
        whole = list(items)
        for lineage in ("", "side"):
            channels: dict[str, Channel] = {
                "v": Value(b"%d" % number * 200),
                "l": Items("log", (), whole, partial(list, whole)),
            }
            commit = Commit(number, channels, parent=f"c{number - 1}" if number else None)
            await engine.put(thread, f"c{number}", commit, lineage=lineage)
            await engine.put_writes(thread, f"c{number}", [Write("t", 0, b"late")], lineage=lineage)
            await engine.put_writes(thread, f"c{number + 1}", [Write("t", 1, b"early")], lineage=lineage)
    await Pruner(store, NAMESPACE).pin(thread, "c1")
    await Pruner(store, NAMESPACE).pin(thread, "c1", lineage="side")
    await Inbox(engine).signal(thread, "verdict", "yes", key="k")


async def finish(store: Store, thread: str) -> None:
    await engine_of(store).retention.close(thread, status="finished", ttl=HOUR, drop_unread=True)


async def delete(store: Store, thread: str) -> None:
    await engine_of(store).retention.delete(thread, drop_unread=True)


async def shorten(store: Store, thread: str) -> None:
    await Pruner(store, NAMESPACE).prune(thread, keep_last=2)
    await Pruner(store, NAMESPACE).prune(thread, keep_last=1, lineage="side")


async def fork(store: Store, thread: str) -> None:
    await Copier(store, NAMESPACE).fork(thread, f"{thread}-fork", checkpoint="c3")


async def copy(store: Store, thread: str) -> None:
    await Copier(store, NAMESPACE).copy(thread, f"{thread}-copy")


async def expire(store: Store, thread: str) -> None:
    """Its time has come, and somebody removes it."""
    where = keys.ThreadKeys.of(NAMESPACE, thread)
    if await store.command("HEXISTS", where.meta, "incarnation"):
        await store.command("HSET", where.meta, "expires", 1)
        meta = Meta.of(await store.command("HGETALL", where.meta))
        await engine_of(store).retention.remove(thread, meta.incarnation or "")


ENDS: dict[str, Callable[[Store, str], Awaitable[None]]] = {
    end.__name__: end for end in (finish, delete, shorten, fork, copy, expire)
}


async def die(url: str, end: str, thread: str, spot: str) -> None:
    """End a thread in small slices, up to a spot, and be killed there."""
    store = await Store.connect(url)
    with pytest.MonkeyPatch.context() as patch, watch(strike(Spot.parse(spot))):
        cut_small(patch)
        await ENDS[end](store, thread)


def cut_small(patch: pytest.MonkeyPatch) -> None:
    """Let a short thread end in as many slices as a long one."""
    for room in ("retention", "prune"):
        patch.setattr(f"blackboard.checkpoints.{room}.SLICE", 2)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def templates() -> AsyncIterator[list[Template]]:
    """Two, for two processors."""
    async with (
        await Template.start("tests.chaos.test_walk") as first,
        await Template.start("tests.chaos.test_walk") as other,
    ):
        yield [first, other]


@pytest_asyncio.fixture
async def store(own: Server) -> AsyncIterator[Store]:
    """A store on a server with nothing in it."""
    connected = await Store.connect(own.url)
    await connected.command("FLUSHALL")
    yield connected
    await connected.close()


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch)


async def listed(store: Store) -> dict[str, float]:
    """Every thread that is listed, and when it is looked at."""
    rows: dict[str, float] = {}
    for number in range(keys.SHARDS):
        flat = await store.command("ZRANGE", keys.threads(NAMESPACE, number), 0, -1, "WITHSCORES")
        rows |= {flat[at].decode(): float(flat[at + 1]) for at in range(0, len(flat), 2)}
    return rows


async def looked_at(store: Store) -> int:
    """Let the time come at which every row is looked at, and every closed thread has expired; then sweep."""
    engine = engine_of(store)
    for thread, due in (await listed(store)).items():
        assert due > 0, f"nobody ever looks at {thread!r}"
        where = keys.ThreadKeys.of(NAMESPACE, thread)
        meta = Meta.of(await store.command("HGETALL", where.meta))
        if meta.expires is not None:
            await store.command("HSET", where.meta, "expires", 1)
        await engine.retention.due(thread, 1)
    gone = 0
    while went := await engine.retention.sweep():
        gone += went
    return gone


async def walk(store: Store) -> int:
    """Every key belongs to a thread that is listed and stands, or to a tombstone that ends; returns how many there are."""
    lives: dict[str, Life] = {}
    for thread in await listed(store):
        meta = Meta.of(await store.command("HGETALL", keys.ThreadKeys.of(NAMESPACE, thread).meta))
        lives[thread] = Life(meta.status, meta.incarnation, keeps=meta.expires is None)
    return await Keyspace(store, NAMESPACE).walk(lives)


async def readable(store: Store, thread: str) -> int:
    """Read all that stands of a thread; returns how many checkpoints."""
    engine, found = engine_of(store), 0
    for lineage in ("", "side"):
        for manifest in await engine.history(thread, lineage=lineage, limit=1000):
            snapshot = await engine.at(thread, manifest.checkpoint, lineage=lineage)
            assert snapshot is not None
            assert snapshot.contents["v"] == b"%d" % manifest.step * 200
            assert len(snapshot.contents["l"]) >= 1
            found += 1
    return found


async def spots_of(store: Store, end: str) -> list[Spot]:
    """Every spot of an end; the first time also loads the scripts."""
    found: list[Spot] = []
    for number in range(2):
        await grow(store, f"record-{number}")
        found.clear()
        with watch(recorder(found.append)):
            await ENDS[end](store, f"record-{number}")
    return list(found)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.usefixtures("small_slices")
async def test_killed_and_swept(end: str, own: Server, store: Store, templates: list[Template]) -> None:
    spots = await spots_of(store, end)
    await kill_at(spots[:: -(-len(spots) // MOST_KILLS)], end, own, store, templates)


@pytest.mark.chaos
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.usefixtures("small_slices")
async def test_killed_anywhere_and_swept(end: str, own: Server, store: Store, templates: list[Template]) -> None:
    await kill_at(await spots_of(store, end), end, own, store, templates)


async def kill_at(spots: list[Spot], end: str, own: Server, store: Store, templates: list[Template]) -> None:
    victims = {f"{end}-{number}": spot for number, spot in enumerate(spots)}
    await asyncio.gather(*(grow(store, thread) for thread in victims))
    waiting = iter(victims.items())

    async def work(template: Template) -> None:
        for thread, spot in waiting:
            child = await template.fork("die", own.url, end, thread, str(spot))
            assert await child.wait() == -signal.SIGKILL, f"{spot} was not hit: {template.errors()}"

    await asyncio.gather(*map(work, templates))
    swept = await looked_at(store)
    walked = await walk(store)
    standing = {thread: await readable(store, thread) for thread in await listed(store)}
    say(f"{end}: {len(spots)} kills, {swept} swept, {len(standing)} threads stand, {walked} keys walked")
    assert len(spots) > 10
    if end in ("delete", "expire", "finish"):
        assert swept > 0
    assert all(
        read > 0 for thread, read in standing.items() if thread not in victims or end in ("shorten", "fork", "copy")
    )


async def race(store: Store, end: str, thread: str, turn: random.Random) -> int:
    """End a thread while others write to it; returns how many of them were told that they had come too late."""
    engine = engine_of(store)
    others: list[Callable[[], Awaitable[object]]] = [
        lambda: engine.put_writes(thread, "c4", [Write("r", 0, b"raced")]),
        lambda: engine.put_writes(thread, "c7", [Write("r", 0, b"raced")], lineage="side"),
        lambda: engine.put(thread, "c6", Commit(6, {"v": Value(b"6" * 200)}, parent="c4")),
        lambda: Inbox(engine).signal(thread, "late", 1),
        lambda: Inbox(engine).note(thread, 1),
        lambda: Pruner(store, NAMESPACE).pin(thread, "c2"),
        lambda: Pruner(store, NAMESPACE).prune(thread, keep_last=1),
    ]
    late = 0

    async def other(act: Callable[[], Awaitable[object]]) -> None:
        nonlocal late
        for _ in range(turn.randrange(12)):
            await asyncio.sleep(0)
        try:
            late += await act() == "GONE"
        except BlackboardError:
            late += 1

    async def ending() -> None:
        with suppress(BlackboardError):  # a copy gives way to a thread that is pruned under it
            await ENDS[end](store, thread)

    await asyncio.gather(ending(), *map(other, turn.sample(others, 5)))
    return late


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.usefixtures("small_slices")
async def test_raced_by_others(end: str, store: Store) -> None:
    threads = [f"{end}-{number}" for number in range(RACES)]
    await asyncio.gather(*(grow(store, thread) for thread in threads))
    late = [await race(store, end, thread, random.Random(number)) for number, thread in enumerate(threads)]
    if end in ("delete", "expire"):
        await walk(store)
        assert 0 < sum(late) < 5 * RACES, "either all came too late, or none"
    if end == "finish":
        await walk(store)
    swept = await looked_at(store)
    walked = await walk(store)
    say(f"{end}: {RACES} races, {sum(late)} came too late, {swept} swept, {walked} keys walked")
