"""Reading where the server refuses what a call does not declare, and while the thread moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from blackboard import keys
from blackboard.checkpoints.channels import Value
from blackboard.checkpoints.commit import Commit, Committed
from blackboard.checkpoints.engine import Engine, Write
from blackboard.checkpoints.reading import Reader
from blackboard.errors import CheckpointMissing, ServerRefused, ServerUnavailable, StoreRegressed
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.contracts.thread import NAMESPACE, log, step
from blackboard.testing.servers import Server, binaries, start_server

KEPT = "%RW~bb:*:meta", "%RW~bb:*:latest", "%RW~bb:*:history", "%RW~bb:*:values", "%RW~bb:*:effects:open"


@pytest.fixture
def engine(store: Store) -> Engine:
    return Engine(store, NAMESPACE, CheckpointNamespace())


@pytest_asyncio.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[tuple[Server, Store]]:
    """A server that the tests may set up, and the store of a user whose keys it limits."""
    async with await start_server(next(iter(binaries().values())), tmp_path) as server:
        await server.ask("ACL", "SETUSER", "agent", "on", ">secret", "+@all", "~*")
        store = await Store.connect(server.url + "?username=agent&password=secret")
        yield server, store
        await store.close()


async def test_both_ways_find_the_same(engine: Engine, thread: str) -> None:
    long = [b"%d" % i for i in range(5000)]
    first = await engine.commit(
        thread, step({"v": Value(b"v" * 500), "w": Value(b"w"), "l": log([b"1"]), "e": log([])})
    )
    await engine.put_writes(thread, first.checkpoint, [Write("t", 0, b"w")])
    second = await engine.commit(thread, step({"l": log(long), "v": Value(b"v" * 500)}, first), sequence=1)
    declaring = Reader(engine.store, NAMESPACE, declares=True)
    for name in (None, first.checkpoint, second.checkpoint):
        found, same = await engine.read(thread, name), await declaring.read(thread, name, "")
        assert found.snapshot is not None
        assert (found.meta, found.snapshot, found.open_effects) == (same.meta, same.snapshot, same.open_effects)
    assert await engine.history(thread) == await declaring.history(thread, "", 50, None)
    with pytest.raises(CheckpointMissing):
        await declaring.read(thread, "nowhere", "")


async def test_a_reader_between_commits_sees_one_moment(engine: Engine, thread: str) -> None:
    """Meta and checkpoint are of one moment, whatever is committed between the trips."""
    last: Committed | None = None
    reader = Reader(engine.store, NAMESPACE, declares=True)
    done = asyncio.Event()

    async def write() -> None:
        nonlocal last
        for number in range(100):
            commit = step({"n": Value(b"%d" % number), "l": log([b"%d" % i for i in range(number)])}, last)
            last = await engine.commit(thread, commit, sequence=number)
            await asyncio.sleep(0.002)
        done.set()

    writing = asyncio.create_task(write())
    seen: list[int] = []
    while not done.is_set():
        try:
            reading = await reader.read(thread, None, "")
        except ServerUnavailable:
            continue
        if reading.snapshot is not None:
            number = reading.snapshot.manifest.step
            assert reading.meta.sequence == number + 1
            assert reading.snapshot.contents == {"n": b"%d" % number, "l": [b"%d" % i for i in range(number)]}
            seen.append(number)
    await writing
    assert seen == sorted(seen)
    assert (await reader.read(thread, None, "")).meta.sequence == 100


async def test_what_is_refused_either_way_is_said(guarded: tuple[Server, Store], thread: str) -> None:
    """A user who may not read the checkpoints is told so; once he may, one trip is tried again."""
    server, store = guarded
    engine = Engine(store, NAMESPACE, CheckpointNamespace())
    await engine.commit(thread, Commit(0, {"n": Value(b"1")}))
    await server.ask("ACL", "SETUSER", "agent", "resetkeys", *KEPT)
    for refused in (engine.latest(thread), engine.history(thread)):
        with pytest.raises(ServerRefused) as caught:
            await refused
        assert caught.value.ids["code"] == "NOPERM"
    assert not engine.reader.declares
    await server.ask("ACL", "SETUSER", "agent", "~*")
    found = await engine.latest(thread)
    assert found is not None
    assert found.contents == {"n": b"1"}


@pytest.mark.parametrize("declares", [False, True])
async def test_a_history_without_its_meta_is_lost_and_not_empty(engine: Engine, thread: str, declares: bool) -> None:
    reader = Reader(engine.store, NAMESPACE, declares=declares)
    assert await reader.history(thread, "", 50, None) == []
    first = await engine.commit(thread, step({"v": Value(b"v")}))
    assert [one.checkpoint for one in await reader.history(thread, "", 50, None)] == [first.checkpoint]
    await engine.store.command("DEL", keys.ThreadKeys.of(NAMESPACE, thread).meta)
    with pytest.raises(StoreRegressed, match="meta"):
        await reader.history(thread, "", 50, None)
