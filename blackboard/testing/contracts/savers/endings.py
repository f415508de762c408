"""Contracts of the end of a thread: deleted is deleted, whoever comes late; expired is gone as a whole, whenever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from blackboard.testing.contracts.savers.case import (
    Case,
    Saver,
    State,
    at,
    checkpoint,
    config,
    names,
    promise,
    put,
    refused,
    seen,
)

__all__ = ["CONTRACTS"]

SPACES = ("", "child:1")
LONG = 130
MOST_COMMANDS = 200


async def _begun(saver: Saver, thread: str, made: list[str]) -> Any:
    """Store two checkpoints with writes, and one in a namespace below; returns the config of the newest."""
    where = await put(saver, config(thread), checkpoint(made[0], n=0, text="t" * 300))
    await saver.aput_writes(where, [("x", 1)], "task")
    await put(saver, config(thread, ns=SPACES[1]), checkpoint(made[0], n=0))
    where = await put(saver, where, checkpoint(made[1], n=1, text="t" * 300))
    await saver.aput_writes(where, [("x", 2)], "task")
    return where


@promise()
async def deleting_leaves_nothing(case: Case) -> None:
    """Every checkpoint and write of every namespace, however many, and nothing of another thread."""
    async with case.saver() as saver:
        thread, other, made = case.thread(), case.thread(), names(LONG)
        await _begun(saver, other, made)
        kept = await seen(saver, other, SPACES)
        for name in made:
            await put(saver, config(thread), checkpoint(name, n=name))
            await put(saver, config(thread, ns=f"child:{name[:3]}"), checkpoint(name, n=name))
            await saver.aput_writes(config(thread, name), [("x", 1)], "task")
        await saver.adelete_thread(thread)
        assert await seen(saver, thread, ["", *{f"child:{name[:3]}" for name in made}]) == {}
        assert await saver.aget_tuple(config(thread, made[0])) is None
        assert await seen(saver, other, SPACES) == kept
        await saver.adelete_thread(thread)


@promise()
async def nothing_is_resurrected(case: Case) -> None:
    """A write that comes after the delete leaves nothing to be read, also not for a thread that takes the id."""
    async with case.saver() as saver, case.saver() as late:
        thread, made = case.thread(), names(4)
        where = await _begun(saver, thread, made)
        for write in (_late_put, _late_writes, _late_child):
            await saver.adelete_thread(thread)
            with suppress(Exception):
                await write(late, where, made[2])
            assert await seen(saver, thread, SPACES) == {}, f"after {write.__name__}"
            assert await saver.aget_tuple(config(thread, made[2])) is None
        await put(saver, config(thread), checkpoint(made[1], fresh=True))
        assert await seen(saver, thread, SPACES) == {"": [(made[1], {"fresh": True}, None, [])]}


async def _late_put(saver: Saver, where: Any, name: str) -> None:
    await put(saver, where, checkpoint(name, n=2))


async def _late_writes(saver: Saver, where: Any, name: str) -> None:
    await saver.aput_writes(where, [("late", name)], "late")


async def _late_child(saver: Saver, where: Any, name: str) -> None:
    await put(saver, config(at(where)["thread_id"], ns=SPACES[1]), checkpoint(name, n=2))


@promise()
async def late_writes_are_refused(case: Case) -> None:
    """Who writes on after the delete is told, by an error: a put that continues the thread, and pending writes."""
    async with case.saver() as saver, case.saver() as late:
        thread, made = case.thread(), names(3)
        where = await _begun(saver, thread, made)
        await late.aget_tuple(config(thread))
        await saver.adelete_thread(thread)
        await refused([write(late, where, made[2]) for write in (_late_put, _late_writes, _late_child)])
        await refused([_late_writes(late, config(thread, made[2]), "")])
        assert await seen(saver, thread, SPACES) == {}


@promise("expire")
async def an_expired_thread_is_gone_as_a_whole(case: Case) -> None:
    """No namespace, no value and no write outlives the others, and a new thread under the id has nothing of it."""
    async with case.saver() as saver:
        thread, made = case.thread(), names(3)
        await _begun(saver, thread, made)
        assert set(await seen(saver, thread, SPACES)) == {*SPACES}
        await case.expire(thread)
        assert await seen(saver, thread, SPACES) == {}
        await put(saver, config(thread), checkpoint(made[1], fresh=True))
        assert await seen(saver, thread, SPACES) == {"": [(made[1], {"fresh": True}, None, [])]}


@promise("expire", "wire")
async def expiry_in_the_middle_of_a_put(case: Case) -> None:
    """The time of a thread runs out at any command of a put: nothing is left, or the checkpoint that was put, whole."""
    made = names(3)
    values = {"n": 2, "text": "t" * 300}
    whole: State = {"": [(made[2], values, made[1], [])]}

    async def write(saver: Saver, where: Any) -> None:
        await put(saver, where, checkpoint(made[2], **values))

    assert await _expire_at_every_command(case, made, write, whole) > 0


@promise("expire", "wire")
async def expiry_in_the_middle_of_pending_writes(case: Case) -> None:
    """The time of a thread runs out at any command of a put_writes: nothing is left to be read."""
    made = names(3)

    async def write(saver: Saver, where: Any) -> None:
        await saver.aput_writes(where, [("x", 9), ("y", 9)], "another")

    assert await _expire_at_every_command(case, made, write, {}) > 0


async def _expire_at_every_command(
    case: Case, made: list[str], write: Callable[[Saver, Any], Awaitable[None]], whole: State
) -> int:
    """Hold each command of a write in turn until the thread has expired; returns how many there were."""
    for number in range(MOST_COMMANDS):
        thread = case.thread()
        async with case.saver() as saver:
            where = await _begun(saver, thread, made)
            cut = case.wire.hold(number)
            writing = asyncio.ensure_future(write(saver, where))
            reached = asyncio.ensure_future(cut.reached.wait())
            await asyncio.wait([writing, reached], return_when=asyncio.FIRST_COMPLETED)
            reached.cancel()
            if not cut.reached.is_set():
                await writing
                return number
            await case.expire(thread)
            cut.gate.set()
            with suppress(Exception):
                await writing
            case.wire.mend()
            found = await seen(saver, thread, SPACES)
        assert found in ({}, whole), f"expired at command {number}: {found}"
    raise AssertionError(f"a write of more than {MOST_COMMANDS} commands")


CONTRACTS = (
    deleting_leaves_nothing,
    nothing_is_resurrected,
    late_writes_are_refused,
    an_expired_thread_is_gone_as_a_whole,
    expiry_in_the_middle_of_a_put,
    expiry_in_the_middle_of_pending_writes,
)
