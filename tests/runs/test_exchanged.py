"""What was moved, exchanged or cut in the store of an encrypted namespace is not believed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from blackboard.board import Blackboard
from blackboard.errors import CorruptValue, NotEncrypted
from blackboard.store.client import Store
from blackboard.testing.contracts.thread import all_keys
from blackboard.testing.servers import Server

from .conftest import Review
from .encrypted import opened, two


@pytest_asyncio.fixture
async def store(solo: Server) -> AsyncIterator[Store]:
    connected = await Store.connect(solo.url)
    yield connected
    await connected.close()


@pytest.fixture
def board(store: Store) -> Blackboard:
    return opened(store, "a")


async def refused(board: Blackboard, thread: str) -> None:
    with pytest.raises(CorruptValue, match="changed or moved"):
        await board.thread(thread).latest(Review)
    with pytest.raises(CorruptValue, match="changed or moved"):
        async with board.run(thread, Review):
            pytest.fail("entered with what was not written there")


async def test_values_cannot_be_exchanged(board: Blackboard, store: Store, thread: str) -> None:
    where = await two(board, thread)
    other = await two(board, f"{thread}-other")
    at = (await board.engine("checkpoint").read(thread)).snapshot
    assert at is not None
    question, verdict = (at.manifest.refs[name].digest or "" for name in ("question", "verdict"))
    bodies = await store.command("HMGET", where.values, question, verdict)
    foreign = (await store.command("HVALS", other.values))[0]
    old = await store.command("HVALS", where.values)
    for body in (bodies[1], foreign, *(one for one in old if one not in bodies)):
        await store.command("HSET", where.values, question, body)
        await refused(board, thread)
    await store.command("HSET", where.values, question, bodies[0])
    assert await board.thread(thread).latest(Review) is not None


async def test_items_cannot_be_moved(board: Blackboard, store: Store, thread: str) -> None:
    where = await two(board, thread)
    other = await two(board, f"{thread}-other")
    (log,) = await all_keys(store, where.logs())
    (foreign,) = await all_keys(store, other.logs())
    items = await store.command("LRANGE", log, 0, -1)
    for at, item in ((0, items[1]), (0, (await store.command("LRANGE", foreign, 0, 0))[0])):
        await store.command("LSET", log, at, item)
        await refused(board, thread)
    await store.command("LSET", log, 0, items[0])
    assert await board.thread(thread).latest(Review) is not None


async def test_parts_of_a_checkpoint_cannot_be_moved(board: Blackboard, store: Store, thread: str) -> None:
    """Neither its texts nor what is next nor what it refers to."""
    where = await two(board, thread)
    newer, older, _ = [where.checkpoint(one.checkpoint) for one in await board.thread(thread).history()]
    data, old = [await store.command("GET", key) for key in (newer, older)]
    texts, others = (_frame(one, b"s ") for one in (data, old))
    question, verdict = (_frame(one, b"d question ") for one in (data, old))
    changes = [
        old,
        data.replace(texts, others),
        data.replace(b'"next":"two"', b'"next":"one"'),
        data.replace(question, verdict),
        data.replace(b'"step":2', b'"step":3'),
        data.replace(b",4", b",3"),
    ]
    for changed in changes:
        assert changed != data
        await store.command("SET", newer, changed)
        await refused(board, thread)
    await store.command("SET", newer, data.replace(texts, b""))
    with pytest.raises(NotEncrypted):
        await board.thread(thread).latest()
    await store.command("SET", newer, data)
    assert await board.thread(thread).latest(Review) is not None


def _frame(manifest: bytes, start: bytes) -> bytes:
    """Cut the frame that begins with these bytes out of a manifest, length and all."""
    position = 3
    while position < len(manifest):
        colon = manifest.index(b":", position)
        end = colon + 1 + int(manifest[position:colon])
        if manifest[colon + 1 : end].startswith(start):
            return manifest[position:end]
        position = end
    raise AssertionError(start)


async def test_results_and_letters_cannot_be_moved(board: Blackboard, store: Store, thread: str) -> None:
    where = await two(board, thread)
    records = await store.command("HMGET", where.effects, "*/one", "*/two")
    await store.command("HSET", where.effects, "*/two", records[0])
    with pytest.raises(CorruptValue, match="changed or moved"):
        await board.thread(thread).effects()
    await store.command("HSET", where.effects, "*/two", records[1])
    assert len(await board.thread(thread).effects()) == 2
    await board.signal(thread, "yes", "value")
    ((_, fields),) = await store.command("XRANGE", where.inbox, "-", "+")
    await store.command("XADD", where.inbox, "*", "kind", "signal", "name", "no", "value", fields[-1])
    with pytest.raises(CorruptValue, match="'no'.*changed or moved"):
        await board.thread(thread).unread()
