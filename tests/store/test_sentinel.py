"""The client behind sentinels: it finds the master, and follows a failover."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from blackboard.errors import ServerUnavailable
from blackboard.store.client import NewServer, Store
from blackboard.store.script import Script
from blackboard.testing.sentinel import SentinelGroup, start_sentinel
from blackboard.testing.servers import binaries, until

BINARY = next(iter(binaries().values()))


@pytest_asyncio.fixture
async def group(tmp_path: Path) -> AsyncIterator[SentinelGroup]:
    async with await start_sentinel(BINARY, tmp_path) as started:
        yield started


async def test_failover_is_followed(group: SentinelGroup, increment: Script) -> None:
    store = await Store.connect(group.url, retry_deadline=20)
    shown: list[NewServer] = []

    async def look(new: NewServer) -> None:
        shown.append(new)

    store.on_new_server(look)
    keys = ["{t}count", "{t}ops"]
    assert await store.call(increment, keys, [store.op_id()]) == [b"OK", 1]
    old = (await store.primaries())[0].name
    await store.command("WAIT", 1, 5000)
    await group.failover()
    primary = await group.primary()

    async def followed() -> bool:
        return (await store.primaries())[0].name == f"127.0.0.1:{primary.port}" != old

    await until(followed, 15)
    replies = await asyncio.gather(*(store.call(increment, keys, [store.op_id()]) for _ in range(20)))
    assert sorted(count for _, count in replies) == list(range(2, 22))
    assert await primary.ask("GET", keys[0]) == b"21"
    assert {new.server for new in shown} == {f"127.0.0.1:{primary.port}"}
    await store.close()


async def test_dead_sentinels_are_passed_over(group: SentinelGroup) -> None:
    url = group.url.replace("redis+sentinel://", "redis+sentinel://127.0.0.1:1,")
    store = await Store.connect(url)
    assert await store.command("PING") == b"PONG"
    await store.close()


async def test_unknown_master_is_named(group: SentinelGroup) -> None:
    place = group.url.rpartition("/")[0]
    with pytest.raises(ServerUnavailable, match="no sentinel names a live master 'nobody'"):
        await Store.connect(f"{place}/nobody", retry_deadline=0.3)
