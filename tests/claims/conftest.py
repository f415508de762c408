"""One server for what need not be shown on every backend."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from blackboard.store.client import Store
from blackboard.testing.proxy import FaultProxy
from blackboard.testing.servers import Server


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
