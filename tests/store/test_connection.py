"""One shared connection: what goes out together, what is never written, what a silent socket means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from blackboard.errors import OutcomeUnknown, ServerUnavailable
from blackboard.store.address import Endpoint, Login
from blackboard.store.client import Store
from blackboard.store.connection import Connection, Lost
from blackboard.store.dial import Dialer
from blackboard.store.protocol import ErrorReply, pack
from blackboard.testing.servers import Server, binaries, start_server


@pytest_asyncio.fixture
async def own(tmp_path: Path) -> AsyncIterator[Server]:
    async with await start_server(next(iter(binaries().values())), tmp_path) as started:
        yield started


async def connect(server: Server, batch_bytes: int = 1 << 20, response_timeout: float = 5) -> Connection:
    return await Dialer(Login(), None, 2, response_timeout, batch_bytes).reach(Endpoint(path=str(server.socket)))


def watch(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is written from now on."""
    written: list[bytes] = []
    write = connection._write

    def note(data: bytes) -> None:
        written.append(data)
        write(data)

    monkeypatch.setattr(connection, "_write", note)
    return written


async def test_commands_of_one_tick_go_out_together(own: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = await connect(own)
    commands = [pack(("ECHO", number)) for number in range(64)]
    written = watch(connection, monkeypatch)
    assert await connection.exchange(*commands) == [b"%d" % number for number in range(64)]
    assert written == [commands[0], b"".join(commands[1:])]
    written.clear()
    assert await connection.exchange(commands[5]) == [b"5"]
    assert written == [commands[5]]
    connection.close()


async def test_writes_are_capped_and_a_larger_command_goes_alone(own: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = await connect(own, batch_bytes=1000)
    sizes = [10, 100, 3000, 100, 100, 100, 900, 5000]
    commands = [pack(("ECHO", b"x" * size)) for size in sizes]
    written = watch(connection, monkeypatch)
    assert [len(reply) for reply in await connection.exchange(*commands)] == sizes
    assert all(len(data) <= 1000 or data in commands for data in written)
    assert len(written) == 6  # 10 | 100 | 3000 | 100 100 100 | 900 | 5000
    assert connection.load == 0
    connection.close()


async def test_errors_are_replies(own: Server) -> None:
    connection = await connect(own)
    wrong, right = await connection.exchange(pack(("NOSUCH",)), pack(("PING",)))
    assert isinstance(wrong, ErrorReply)
    assert right == b"PONG"
    connection.close()


async def test_silence_closes_and_traffic_does_not(own: Server) -> None:
    connection = await connect(own, response_timeout=0.2)
    for _ in range(8):
        await connection.exchange(pack(("PING",)))
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)
    assert connection.is_open
    own.pause()
    with pytest.raises(Lost, match=r"no reply within 0.2 s") as lost:
        await connection.exchange(pack(("PING",)))
    own.resume()
    assert lost.value.written
    still_open: bool = connection.is_open
    assert not still_open
    with pytest.raises(Lost) as refused:
        await connection.send(pack(("PING",)))
    assert not refused.value.written


async def test_what_waits_behind_a_full_socket_was_not_executed(own: Server) -> None:
    """The deadline passes while a command is still queued here: that is certain, not unknown."""
    store = await Store.connect(own.url, connections=1)
    own.pause()
    large = asyncio.create_task(store.command("SET", "large", b"x" * (8 << 20), deadline=0.4))
    await asyncio.sleep(0.05)
    small = asyncio.create_task(store.command("SET", "small", 1, deadline=0.2))
    with pytest.raises(ServerUnavailable, match="it was not executed"):
        await small
    with pytest.raises(OutcomeUnknown):
        await large
    own.resume()
    assert await store.command("EXISTS", "small") == 0
    await store.close()


async def test_a_cancelled_command_that_was_not_written_is_not_sent(own: Server) -> None:
    store = await Store.connect(own.url, connections=1)
    first = asyncio.create_task(store.command("SET", "first", 1))
    second = asyncio.create_task(store.command("SET", "second", 1))
    await asyncio.sleep(0)
    second.cancel()
    assert await first == b"OK"
    assert await store.command("EXISTS", "first", "second") == 1
    await store.close()
