"""The script that ends or parks a thread gives its lease back: a renewal that finds it gone meanwhile cuts nothing short."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from blackboard import Settings, keys
from blackboard.board import Blackboard
from blackboard.errors import LeaseLost, Parked, UnreadSignals
from blackboard.store.client import Store
from blackboard.store.script import Script
from blackboard.testing.proxy import Command, FaultProxy, delay_reply
from blackboard.testing.servers import Server

from .conftest import Review

EXPIRE = Script("blackboard.checkpoints", "expire.lua")
RENEW = Script("blackboard.claims", "renew.lua", prelude=("guard.lua",))


@pytest_asyncio.fixture
async def proxy(solo: Server) -> AsyncIterator[FaultProxy]:
    async with await FaultProxy.start(solo.url) as standing:
        yield standing


@pytest_asyncio.fixture
async def slow(proxy: FaultProxy) -> AsyncIterator[Blackboard]:
    """A board whose wire goes through the proxy."""
    store = await Store.connect(proxy.url)
    yield Blackboard(store, Settings.load(), None, None)
    await store.close()


def calls(proxy: FaultProxy, script: Script) -> int:
    return sum(_is(script, command) for command in proxy.commands)


def _is(script: Script, command: Command) -> bool:
    return script.sha.encode() in command.args or script.source in command.args


async def test_the_slices_of_a_finish_may_take_longer_than_the_lease(
    slow: Blackboard, proxy: FaultProxy, thread: str
) -> None:
    async with slow.run(thread, Review, start=Review, lease_ttl=0.3) as run:
        proxy.fault(delay_reply(0.25), when=lambda command: _is(EXPIRE, command), times=4)
        await run.finish("all of it")
    where = keys.ThreadKeys.of("checkpoint", thread)
    left = [where.meta, where.latest(), where.history(), where.checkpoint(keys.sequence_id(2))]
    assert [key for key in left if await slow.store.command("PTTL", key) <= 0] == []
    assert await slow.thread(thread).result() == "all of it"


@pytest.mark.parametrize("how", ["finished", "parked"])
async def test_a_renewal_that_comes_before_the_answer_says_nothing(
    slow: Blackboard, proxy: FaultProxy, thread: str, how: str
) -> None:
    async with slow.run(thread, Review, start=Review, lease_ttl=0.9) as run:
        proxy.reset()
        proxy.fault(delay_reply(0.6), when=lambda command: how.encode() in command.args)
        if how == "parked":
            with pytest.raises(Parked):
                await run.wait("verdict", str)
        else:
            await run.finish()
    assert calls(proxy, RENEW) > 0
    assert await slow.thread(thread).status() == how


async def test_a_finish_that_is_refused_leaves_the_lease_watched(
    slow: Blackboard, proxy: FaultProxy, thread: str
) -> None:
    with pytest.raises(LeaseLost, match="taken over"):
        async with slow.run(thread, Review, start=Review, lease_ttl=0.9) as run:
            await slow.note(thread, "read me")
            with pytest.raises(UnreadSignals):
                await run.finish()
            await slow.thread(thread).break_lock()
            await run.lease.renew()


async def test_letters_of_a_thread_that_was_lost_in_part_are_not_dropped_unsaid(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review):
        await board.note(thread, "read me")
    where = keys.ThreadKeys.of("checkpoint", thread)
    assert await board.store.command("DEL", where.meta) == 1
    with pytest.raises(UnreadSignals):
        await board.thread(thread).delete()
    assert [letter.open() for letter in await board.thread(thread).unread()] == ["read me"]
    assert await board.thread(thread).delete(drop_unread=True)
    assert await board.thread(thread).status() == "deleted"
    async with board.run(thread, Review, start=Review) as run:
        assert (run.step, await run.notes()) == (0, [])
