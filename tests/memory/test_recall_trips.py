"""What a recall costs in round trips, counted on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from blackboard.memory.new import New
from blackboard.store.client import Store
from blackboard.testing.proxy import FaultProxy
from blackboard.testing.servers import Server
from tests.memory.recalling import Topics, memory_of, texts


@pytest_asyncio.fixture
async def proxy(server: Server) -> AsyncIterator[FaultProxy]:
    async with await FaultProxy.start(server.url) as started:
        yield started


@pytest.mark.parametrize("context", [0, 2])
async def test_two_if_every_write_is_to_be_seen_and_one_if_not(proxy: FaultProxy, context: int) -> None:
    store = await Store.connect(proxy.url)
    memory = memory_of(store, Topics(), context=context)
    await memory.remember_all(New("a cat", metadata={"n": n}) for n in range(30))
    assert len(await memory.recall("cat")) == 10  # the view is made
    trips: dict[str, int] = {}
    for consistency in ("strong", "eventual"):
        proxy.reset()
        assert len(await memory.recall("cat", k=20, consistency=consistency)) == 20
        trips[consistency] = proxy.round_trips
    proxy.reset()
    assert texts(await memory.recall("cat", where={"n": -1})) == []
    trips["nothing found"] = proxy.round_trips
    writer = memory_of(store, Topics(), path=memory.records.path)
    await writer.remember("a dog")
    proxy.reset()
    assert texts(await memory.recall("dog", k=1)) == ["a dog"]
    trips["something new"] = proxy.round_trips
    await store.close()
    assert trips == {"strong": 2, "eventual": 1, "nothing found": 1, "something new": 3}
