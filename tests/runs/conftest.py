"""A board over the backend of the test, and the state that the runs of these tests drive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from pydantic import BaseModel

from blackboard import Log, Run, Settings
from blackboard.board import Blackboard
from blackboard.store.client import Store


class Message(BaseModel, frozen=True):
    text: str


class Review(BaseModel):
    question: str = "why?"
    messages: Log[Message] = Log()
    notes: list[str] = []
    counts: dict[str, int] = {}
    verdict: str | None = None


@pytest.fixture
def board(store: Store) -> Blackboard:
    return Blackboard(store, Settings.load(), None, None)


async def die(board: Blackboard, thread: str, body: Callable[[Run[Review]], Awaitable[object]]) -> None:
    """Drive a thread up to the end of `body` and stop there as a process that dies: nothing after it is recorded."""
    done = asyncio.Event()

    async def drive() -> None:
        async with board.run(thread, Review, start=Review) as run:
            await body(run)
            done.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(drive())
    await asyncio.wait({task, waiting := asyncio.create_task(done.wait())}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    assert not task.done(), task.exception()
    await board.thread(thread).break_lock()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
