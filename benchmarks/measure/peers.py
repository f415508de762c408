"""What our client is measured against: the same engine over redis-py's own asyncio client and pool."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from redis.asyncio import BlockingConnectionPool, Redis

from blackboard.store.client import Store
from blackboard.store.protocol import Part
from blackboard.store.script import Script

__all__ = ["bare", "pooled"]


class _Pooled:
    """Has of Store what a commit calls; each call takes a connection of the pool, as redis-py's users do."""

    def __init__(self, client: Redis, store: Store) -> None:
        self._client = client
        self.op_id = store.op_id
        self.retry_deadline = store.retry_deadline

    async def call(self, script: Script, keys: Sequence[str], args: Sequence[Part], **_: object) -> Any:
        return await cast("Any", self._client.evalsha(script.sha, len(keys), *keys, *args))


@asynccontextmanager
async def bare(url: str) -> AsyncIterator[Redis]:
    """Give redis-py's own asyncio client, as its users have it."""
    async with Redis.from_url(url) as client:
        yield client


@asynccontextmanager
async def pooled(store: Store, url: str, connections: int) -> AsyncIterator[Store]:
    """Give a store whose scripts go through `BlockingConnectionPool(connections)`; `store` numbers the operations.

    A commit through it sends the same keys and arguments as one through `store`. The server must have the scripts.
    """
    pool = BlockingConnectionPool.from_url(url, max_connections=connections, timeout=None)
    client = Redis(connection_pool=pool)
    try:
        yield cast("Store", _Pooled(client, store))
    finally:
        await client.aclose()
        await pool.aclose()
