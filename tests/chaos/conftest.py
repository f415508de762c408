"""What the crash tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from blackboard.store.client import Store
from blackboard.testing.servers import Server


@pytest_asyncio.fixture
async def store(own: Server) -> AsyncIterator[Store]:
    """A store that is connected to the server that a module has for itself."""
    connected = await Store.connect(own.url)
    yield connected
    await connected.close()
