"""Sync callers: a call is answered or refused, whatever becomes of the loop that serves it."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from blackboard.errors import BlackboardError, ConfigError
from blackboard.testing.servers import Server

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langgraph.checkpoint.base import empty_checkpoint

from blackboard.integrations.langgraph import BlackboardSaver, BlackboardStore
from blackboard.integrations.langgraph.loop import entered, wait_for

CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
MANY = 20


@pytest.mark.filterwarnings("error")
async def test_after_the_block_every_call_is_refused(solo: Server) -> None:
    def calls() -> None:
        with BlackboardSaver.open(solo.url) as saver, BlackboardStore.open(solo.url) as store:
            assert saver.get_tuple(CONFIG) is None
        for call in (
            lambda: saver.get_tuple(CONFIG),
            lambda: saver.put(CONFIG, empty_checkpoint(), {}, {}),
            lambda: list(saver.list(None)),
            lambda: store.get(("a",), "b"),
        ):
            with pytest.raises(ConfigError, match="has ended"):
                call()

    await asyncio.to_thread(calls)


async def test_a_loop_that_stands_still_serves_nobody(solo: Server) -> None:
    def calls() -> None:
        loop = asyncio.new_event_loop()
        opened = BlackboardSaver.aopen(solo.url)
        saver = loop.run_until_complete(opened.__aenter__())
        try:
            with pytest.raises(ConfigError, match="stands still"):
                saver.get_tuple(CONFIG)
        finally:
            loop.run_until_complete(opened.__aexit__(None, None, None))
            loop.close()

    await asyncio.to_thread(calls)


async def test_calls_that_are_under_way_when_the_block_ends_come_back(solo: Server) -> None:
    refusals = list[BlackboardError]()

    def read_on(saver: BlackboardSaver, begun: threading.Barrier) -> None:
        saver.get_tuple(CONFIG)
        begun.wait(30)
        try:
            while True:
                saver.get_tuple(CONFIG)
        except BlackboardError as refused:
            refusals.append(refused)

    def calls() -> None:
        begun = threading.Barrier(MANY + 1)
        with BlackboardSaver.open(solo.url) as saver:
            readers = [threading.Thread(target=read_on, args=(saver, begun), daemon=True) for _ in range(MANY)]
            for reader in readers:
                reader.start()
            begun.wait(30)
        for reader in readers:
            reader.join(30)

    await asyncio.to_thread(calls)
    assert len(refusals) == MANY


async def test_work_that_the_end_of_the_loop_cuts_off_is_refused() -> None:
    refusals = list[ConfigError]()

    @asynccontextmanager
    async def served() -> AsyncGenerator[asyncio.AbstractEventLoop]:
        yield asyncio.get_running_loop()

    def wait_long(loop: asyncio.AbstractEventLoop, begun: threading.Event) -> None:
        async def work() -> None:
            begun.set()
            await asyncio.sleep(3600)

        try:
            wait_for(loop, work())
        except ConfigError as refused:
            refusals.append(refused)

    def calls() -> None:
        begun = threading.Event()
        with entered(served()) as loop:
            waiter = threading.Thread(target=wait_long, args=(loop, begun), daemon=True)
            waiter.start()
            begun.wait(30)
        waiter.join(30)

    await asyncio.to_thread(calls)
    assert ["cut off" in str(refused) for refused in refusals] == [True]
