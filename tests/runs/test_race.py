"""Parking against signalling, ten thousand times: no wake is lost and no second answer accepted, whichever comes first."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from blackboard import Settings, keys
from blackboard.board import Blackboard
from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.retention import Retention
from blackboard.errors import Parked
from blackboard.store.client import Store
from blackboard.testing.servers import Server

from .conftest import Review

THREADS = 100
LATEST = 6
"""Turns of the loop by which either side may be late: about as many as it takes to park."""


@dataclass
class Seen:
    """Which order the server saw: parked before the answer; the answer found; or parking that gave way to it."""

    parked: int = 0
    found: int = 0
    gave_way: int = 0
    answers: Counter[str] = field(default_factory=Counter[str])


@dataclass
class Race:
    """One thread that asks one question after the other, and for each question two who answer it at once."""

    board: Blackboard
    thread: str
    seen: Seen
    random: random.Random
    rounds: int
    asked: int = 0
    answers: asyncio.Task[list[str]] | None = None

    async def run(self) -> None:
        while self.asked < self.rounds:
            try:
                async with self.board.run(self.thread, Review, start=Review) as run:
                    while self.asked < self.rounds:
                        if self.answers is None:
                            self.answers = asyncio.create_task(self.both(f"question-{self.asked}"))
                            await self.dawdle()
                        value = await run.wait(f"question-{self.asked}", int)
                        await self.answered(value)
                        await run.commit(next="ask")
            except Parked:
                self.seen.parked += 1
                await self.woken()
        assert await self.board.thread(self.thread).unread() == []

    async def dawdle(self) -> None:
        for _ in range(self.random.randrange(LATEST)):
            await asyncio.sleep(0)

    async def both(self, name: str) -> list[str]:
        """Answer twice at once."""
        await self.dawdle()
        return list(await asyncio.gather(*(self.board.signal(self.thread, name, number) for number in range(2))))

    async def answered(self, value: int) -> None:
        """The run has the answer that was accepted; the other one was told that it came too late."""
        assert self.answers is not None
        answers = await self.answers
        assert sorted(answers) == ["ACCEPTED", "ALREADY"]
        assert value == answers.index("ACCEPTED")
        self.seen.answers.update(answers)
        self.asked, self.answers = self.asked + 1, None

    async def woken(self) -> None:
        """Once the answer was accepted, whoever looks for runnable threads finds this one."""
        assert self.answers is not None
        assert "ACCEPTED" in await self.answers
        store, shard = self.board.store, keys.threads("checkpoint", keys.shard(self.thread))
        status = ("HGET", keys.ThreadKeys.of("checkpoint", self.thread).meta, "status")
        due, standing = await store.batch([("ZSCORE", shard, self.thread), status])
        assert 0 < float(due) <= store.server_time() // 1000
        assert standing == b"parked"


async def contend(board: Blackboard, seen: Seen, rounds: int) -> None:
    racers = [Race(board, f"race-{number}", seen, random.Random(number), rounds) for number in range(THREADS)]
    await asyncio.gather(*(racer.run() for racer in racers))


@pytest.mark.parametrize("rounds", [30, pytest.param(100, marks=pytest.mark.chaos)])
async def test_parking_against_answering(own: Server, monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    """3,000 races, ten thousand in the long run."""
    seen, park = Seen(), Engine.park

    async def counted(engine: Engine, *args: object, **more: object) -> object:
        committed = await park(engine, *args, **more)  # type: ignore[arg-type]
        seen.gave_way += committed is None
        return committed

    monkeypatch.setattr(Engine, "park", counted)
    store = await Store.connect(own.url, retry_deadline=60.0, response_timeout=30.0)
    try:
        await contend(Blackboard(store, Settings.load(), None, None), seen, rounds)
    finally:
        await store.close()
    races = seen.answers["ACCEPTED"]
    seen.found = races - seen.parked - seen.gave_way
    sys.stdout.write(f"\n{races} races: {seen.parked} parked first, {seen.gave_way} gave way, {seen.found} found\n")
    assert races == THREADS * rounds
    assert seen.answers["ALREADY"] == races, "a second answer was accepted, or a first one lost"
    for order in (seen.parked, seen.gave_way, seen.found):
        assert order > races // 100, "one order hardly came: nothing was raced"


class Between:
    """A store in which something happens right before the first command of a name."""

    def __init__(self, store: Store, name: str, happen: Callable[[], Awaitable[object]]) -> None:
        self._store, self._name = store, name
        self._happen: Callable[[], Awaitable[object]] | None = happen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def command(self, *parts: Any, **more: Any) -> Any:
        if parts[0] == self._name and (happen := self._happen):
            self._happen = None
            await happen()
        return await self._store.command(*parts, **more)


@pytest.mark.parametrize("moment", ["HMGET", "ZADD"])
async def test_a_sweep_loses_no_wake(board: Blackboard, thread: str, moment: str) -> None:
    """A thread whose row is due runs, parks and is answered while a sweep looks at it."""

    async def ask() -> None:
        async with board.run(thread, Review, start=Review) as run:
            await run.wait("verdict", str)

    async def park_and_answer() -> None:
        with pytest.raises(Parked):
            await ask()
        assert await board.signal(thread, "verdict", "yes") == "ACCEPTED"

    async with board.run(thread, Review, start=Review):
        pass
    await board.engine("checkpoint").retention.due(thread, 1)
    between = Between(board.store, moment, park_and_answer)
    await Retention(cast("Store", between), "checkpoint").sweep(100_000)
    assert thread in await board.runnable(100_000)
