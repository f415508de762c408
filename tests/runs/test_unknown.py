"""What is asked of an id that holds nothing leaves nothing: it is refused, and the id is as unused as before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from blackboard import keys
from blackboard.board import Blackboard
from blackboard.errors import BlackboardError, CheckpointMissing, LeaseHeld, ThreadGone
from blackboard.runs.thread import Thread

from .conftest import Review

Ask = Callable[[Thread], Awaitable[Any]]


ASKED: dict[str, tuple[Ask, type[BlackboardError]]] = {
    "rewind": (lambda t: t.rewind(keys.sequence_id(1), reason="a mistake"), ThreadGone),
    "resolve": (lambda t: t.resolve("0/pay", 1), ThreadGone),
    "abandon": (lambda t: t.abandon("0/pay", "it never came"), ThreadGone),
    "readmit": (lambda t: t.readmit(), ThreadGone),
    "pin": (lambda t: t.pin(keys.sequence_id(1)), CheckpointMissing),
    "fork": (lambda t: t.fork(f"{t.id}-to"), ThreadGone),
    "copy": (lambda t: t.copy(f"{t.id}-to"), ThreadGone),
}


async def left(board: Blackboard, thread: str) -> list[str]:
    """Tell which keys of a thread stand, and whether it is listed."""
    where = keys.ThreadKeys.of("checkpoint", thread)
    own = [where.meta, where.lock, where.ops, where.latest(), where.history(), where.effects, where.inbox, where.pins()]
    standing = [key for key in own if await board.store.command("EXISTS", key)]
    row = await board.store.command("ZSCORE", keys.threads("checkpoint", keys.shard(thread)), thread)
    return standing + ["row"] * (row is not None)


@pytest.mark.parametrize("asked", ASKED)
async def test_an_unknown_thread(board: Blackboard, thread: str, asked: str) -> None:
    ask, refused = ASKED[asked]
    with pytest.raises(refused):
        await ask(board.thread(thread))
    assert await left(board, thread) + await left(board, f"{thread}-to") == []
    assert await board.thread(thread).status() == "none"
    assert not await board.thread(thread).delete()


@pytest.mark.parametrize("asked", ["rewind", "resolve", "abandon"])
async def test_a_deleted_thread_stays_as_deleted_as_it_was(board: Blackboard, thread: str, asked: str) -> None:
    async with board.run(thread, Review, start=Review):
        pass
    assert await board.thread(thread).delete()
    meta = keys.ThreadKeys.of("checkpoint", thread).meta
    before = await board.store.command("HGETALL", meta)
    with pytest.raises(ThreadGone):
        await ASKED[asked][0](board.thread(thread))
    assert await board.store.command("HGETALL", meta) == before
    assert not await board.thread(thread).delete()


async def test_an_expired_thread_is_left_to_who_removes_it(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        await run.finish()
    where = keys.ThreadKeys.of("checkpoint", thread)
    await board.store.command("HSET", where.meta, "expires", "1")
    with pytest.raises(ThreadGone):
        await board.thread(thread).rewind(keys.sequence_id(1), reason="too late")
    assert await board.store.command("EXISTS", where.latest()) == 1


async def test_entering_without_a_start_reserves_nothing(board: Blackboard, thread: str) -> None:
    with pytest.raises(CheckpointMissing, match="no start= was given"):
        async with board.run(thread, Review):
            pass
    assert await left(board, thread) == []


async def test_entering_without_a_start_waits_for_who_begins_it(board: Blackboard, thread: str) -> None:
    """An id whose driver has not stored the first checkpoint is held, not unknown."""
    ready = asyncio.Event()

    async def begin() -> Review:
        with pytest.raises(LeaseHeld):
            async with board.run(thread, Review):
                pass
        ready.set()
        return Review(question="begun")

    async def follow() -> str:
        await ready.wait()
        async with board.run(thread, Review, wait=10) as run:
            return run.state.question

    following = asyncio.create_task(follow())
    async with board.run(thread, Review, start=begin):
        await asyncio.sleep(0)
    assert await following == "begun"
