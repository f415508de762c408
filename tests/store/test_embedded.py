"""The embedded server: durable, private, shared, found again, and gone when nobody uses it, whoever was killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from blackboard.store.binaries import Binary
from blackboard.store.client import Store
from blackboard.store.directory import DataDirectory
from blackboard.store.embedded import Embedded, down, start, status, up
from blackboard.store.wire import Wire, ask
from blackboard.testing.servers import binaries, until

from .directories import ended, removed

BINARIES = binaries()
FAMILIES = {name: Binary.inspect(path) for name, path in BINARIES.items()}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest_asyncio.fixture
async def server(here: Path) -> AsyncIterator[Embedded]:
    async with await start(here, grace=0.1) as started:
        yield started
    await ended(here)


def client(directory: Path, *, grace: float = 0.1) -> tuple[subprocess.Popen[bytes], int]:
    """Another process that uses the server; returns it and the server's pid."""
    program = """
        import asyncio, sys
        from pathlib import Path
        from blackboard.store.embedded import start
        embedded = asyncio.run(start(Path(sys.argv[1]), grace=float(sys.argv[2])))
        print(embedded.pid, flush=True)
        sys.stdin.read()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), directory, str(grace)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def finish(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def supervisor_of(pid: int) -> int:
    shown = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(shown.stdout)


async def test_it_is_durable_and_private(server: Embedded) -> None:
    async with await Wire.open(server.socket) as wire:
        for setting, value in (
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("maxmemory-policy", "noeviction"),
            ("maxmemory", "0"),
            ("port", "0"),
        ):
            assert await wire.ask("CONFIG", "GET", setting) == [setting.encode(), value.encode()]
    assert server.url == f"unix://{server.socket}"
    assert len(os.fsencode(server.socket)) <= 103
    for path in (server.socket, server.socket.parent, server.directory):
        assert path.stat().st_mode & 0o077 == 0, path
    for path in server.directory.rglob("*.aof"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert os.getsid(server.pid) != os.getsid(0)


async def test_all_processes_share_one(server: Embedded, here: Path) -> None:
    other, pid = client(here)
    assert pid == server.pid
    async with await start(here) as second:
        assert second.pid == server.pid
    finish(other)


async def test_many_starters_start_one(here: Path) -> None:
    started = await asyncio.gather(*(start(here, grace=0.1) for _ in range(20)))
    assert len({one.pid for one in started}) == 1
    for one in started:
        one.release()
    await ended(here)


async def test_processes_that_start_at_once_share_one(here: Path) -> None:
    found = await asyncio.gather(*(asyncio.to_thread(client, here, grace=1) for _ in range(4)))
    assert len({pid for _, pid in found}) == 1
    for process, _ in found:
        finish(process)
    await ended(here)


async def test_it_survives_a_killed_starter_and_ends_when_unused(here: Path) -> None:
    first, pid = client(here, grace=0.5)
    second, again = client(here)
    assert again == pid
    finish(first)
    await asyncio.sleep(1.5)
    assert (await status(here)).pid == pid
    finish(second)
    await ended(here)
    assert not (await status(here)).running


async def test_data_survive_stop_and_start(here: Path) -> None:
    async with await start(here, grace=0.1) as first:
        await ask(first.socket, "SET", "a", 1)
    await ended(here)
    async with await start(here, grace=0.1) as second:
        assert second.pid != first.pid
        assert await ask(second.socket, "GET", "a") == b"1"
    await ended(here)


async def test_a_killed_server_is_started_again(server: Embedded) -> None:
    await ask(server.socket, "SET", "a", 1)
    first = server.pid
    os.kill(first, signal.SIGKILL)
    await asyncio.gather(*(server.ensure() for _ in range(10)))
    assert server.pid != first
    assert await ask(server.socket, "GET", "a") == b"1"
    assert server.url == f"unix://{server.socket}"


async def test_ensure_leaves_a_running_server_alone(server: Embedded) -> None:
    first = server.pid
    await server.ensure()
    assert server.pid == first


async def test_a_killed_supervisor_is_replaced_and_still_ends_the_server(server: Embedded, here: Path) -> None:
    """The server goes on, the next user brings a new supervisor, which ends it when all have gone."""
    os.kill(supervisor_of(server.pid), signal.SIGKILL)
    data = DataDirectory(here)

    async def alone() -> bool:
        return not data.supervised

    await until(alone, 10)
    assert data.served
    async with await start(here, grace=0.1) as second:
        assert second.pid == server.pid
        assert data.supervised
    server.release()
    await ended(here)


async def test_a_deleted_directory_ends_its_server(server: Embedded, here: Path) -> None:
    pid = server.pid
    supervisor = supervisor_of(pid)
    await removed(here)

    async def gone() -> bool:
        try:
            os.kill(supervisor, 0)
        except ProcessLookupError:
            return True
        return False

    async with await start(here, grace=0.1) as fresh:
        assert fresh.pid != pid
        assert fresh.socket != server.socket or not Path(f"/proc/{pid}").exists()
        server.release()
        await until(gone, 20)
        assert await ask(fresh.socket, "PING") == b"PONG"
    await ended(here)


async def test_an_adopted_server_ends_with_its_directory_too(server: Embedded, here: Path) -> None:
    os.kill(supervisor_of(server.pid), signal.SIGKILL)
    data = DataDirectory(here)

    async def alone() -> bool:
        return not data.supervised

    await until(alone, 10)
    (await start(here)).release()
    await removed(here)

    async def silent() -> bool:
        try:
            await ask(server.socket, "PING")
        except (OSError, EOFError):
            return True
        return False

    await until(silent, 20)
    here.mkdir()


async def test_a_client_outlives_its_killed_server(server: Embedded) -> None:
    """The client brings the server back by itself, and what was acknowledged is there."""
    store = await Store.connect(server.url, revive=server.ensure)
    first = server.pid
    for number in range(1, 4):
        assert await store.command("SET", "a", number) == b"OK"
        os.kill(server.pid, signal.SIGKILL)
        assert await store.command("GET", "a") == str(number).encode()
    assert server.pid != first
    await store.close()


async def test_a_deleted_socket_is_no_dead_end(server: Embedded, here: Path) -> None:
    await ask(server.socket, "SET", "a", 1)
    await asyncio.sleep(0.3)
    server.socket.unlink()
    await server.ensure()
    assert await ask(server.socket, "GET", "a") == b"1"


async def test_a_moved_directory_never_gets_two_servers(server: Embedded, here: Path, tmp_path: Path) -> None:
    here.rename(tmp_path / "moved")
    async with await start(tmp_path / "moved") as second:
        assert second.pid == server.pid
    server.release()
    await ended(tmp_path / "moved")
    here.mkdir()


async def test_up_stays_and_down_ends(here: Path) -> None:
    assert (await status(here)).running is False
    assert not here.exists()
    shown = await up(here)
    assert (shown.running, shown.kept, shown.used, shown.directory) == (True, True, False, here)
    async with await start(here) as one:
        assert one.pid == shown.pid
        assert await down(here) == "USED"
    assert await down(here) == "STOPPED"
    assert await down(here) == "ABSENT"
    assert (await status(here)).running is False


async def test_down_can_be_forced(server: Embedded, here: Path) -> None:
    assert await down(here, force=True) == "STOPPED"
    await server.ensure()


async def test_a_killed_starter_holds_nobody_up(here: Path) -> None:
    """The kernel drops the lock of whoever was killed while starting or stopping the server."""
    program = """
        import sys, time
        from pathlib import Path
        from blackboard.store.supervisor import Lock
        lock = Lock(Path(sys.argv[1]) / "starting.lock")
        print(lock.take(), flush=True)
        time.sleep(600)
    """
    here.mkdir()
    starter = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program), here], stdout=subprocess.PIPE)
    assert starter.stdout is not None
    assert starter.stdout.readline() == b"True\n"
    waiting = asyncio.create_task(start(here, grace=0.1))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    finish(starter)
    (await waiting).release()
    await ended(here)


async def test_users_that_come_and_go_never_meet_a_dying_server(here: Path) -> None:
    """With no grace the server ends all the time; whoever has a hold finds it alive and the data there."""
    for number in range(12):
        async with await start(here, grace=0.0) as one:
            assert await ask(one.socket, "INCR", "visits") == number + 1
            await asyncio.sleep(0.13 * (number % 4))
            assert await ask(one.socket, "GET", "visits") == str(number + 1).encode()
        await asyncio.sleep(0.17 * (number % 5))
    await ended(here)
