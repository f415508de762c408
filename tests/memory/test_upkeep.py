"""Tending a path: TTL, missing vectors, budget, snapshot; by one at a time, and in the background."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from blackboard.memory.lease import Place, tend
from blackboard.memory.memories import Memories
from blackboard.memory.new import New
from blackboard.settings import Settings
from blackboard.store.client import Store
from tests.memory.dump import holding
from tests.memory.recalling import Topics, memory_of, texts


async def until_expired(memory: object, id: str) -> None:
    for _ in range(500):
        if await memory.get(id) is None:  # type: ignore[attr-defined]
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not expire")


async def test_expired_goes_with_its_vector(store: Store) -> None:
    """A TTL takes the record for every reader at once; tending takes its vector out of the snapshot."""
    memory = memory_of(store, Topics())
    brief = await memory.remember("a brief puppy", ttl=0.2)
    await memory.remember("a lasting puppy")
    await memory.snapshot()
    (stored,) = await memory.records.fetch([brief.id], vectors=True)
    assert stored is not None
    assert stored.vector is not None
    await until_expired(memory, brief.id)
    assert texts(await memory.recall("puppy")) == ["a lasting puppy"]
    assert len(await holding(memory.records, b"a brief puppy")) == 1, "the chunk of the snapshot"
    done = await memory.tend()
    assert (done.expired, done.held_by) == (1, None)
    assert await holding(memory.records, b"a brief puppy") == []
    assert await memory.count() == 1
    again = await memory.remember("a brief puppy")
    assert not again.duplicate
    assert sorted(texts(await memory.recall("puppy"))) == ["a brief puppy", "a lasting puppy"]
    assert (await memory.tend()).expired == 0


async def test_missing_vectors_are_made(store: Store) -> None:
    embedder = Topics()
    memory = memory_of(store, embedder)
    embedder.failing = OSError("no model")
    record = await memory.remember("a kitten")
    assert not record.embedded
    assert texts(await memory.recall("kitten")) == ["a kitten"]
    done = await memory.tend()
    assert (done.embedded, done.pending) == (0, 1)
    embedder.failing = None
    done = await memory.tend()
    assert (done.embedded, done.pending) == (1, 0)
    found = await memory.get(record.id)
    assert found is not None
    assert found.embedded
    assert texts(await memory.recall("cat", lexical=0.0, k=1)) == ["a kitten"]


async def test_budget_keeps_what_matters(store: Store) -> None:
    """Superseded first, then what matters least, then the oldest; pinned records neither go nor count."""
    memory = memory_of(store, Topics(), budget=2)
    await memory.remember_all(
        [
            New("pinned", pinned=True, importance=0.0),
            New("old", importance=0.5),
            New("minor", importance=0.1),
            New("lives in Oslo", subject="ann", valid_from=1, importance=1.0),
            New("lives in Rome", subject="ann", valid_from=2, importance=0.9),
            New("new", importance=0.5),
        ]
    )
    done = await memory.tend()
    assert done.evicted == 3
    assert {record.text for record in await memory.list()} == {"pinned", "lives in Rome", "new"}
    (receipt,) = await memory.receipts()
    assert (receipt.reason, receipt.count) == ("budget", 3)
    assert (await memory.tend()).evicted == 0


async def test_snapshot_when_due(store: Store) -> None:
    memory = memory_of(store, Topics(), snapshot_every=4)
    await memory.remember_all(["a", "b"])
    memory._tending = None
    assert not (await memory.tend()).snapshot, "two writes, and the space that the first has set"
    await memory.remember("c")
    assert (await memory.tend()).snapshot
    assert not (await memory.tend()).snapshot


async def test_one_at_a_time(store: Store) -> None:
    memory = memory_of(store, Topics())
    assert (await memory.tend()).held_by is None, "nothing was ever remembered here, so nothing is claimed"
    await memory.remember("a")
    async with tend(Place(store, "memory", memory.records.path), "somebody"):
        done = await memory.tend()
    assert done.held_by == "somebody"
    assert (await memory.tend()).held_by is None


async def test_in_the_background(store: Store) -> None:
    """After as many writes as a snapshot is worth the path is tended without anybody asking for it."""
    settings = Settings(namespaces={"memory": {"kind": "memory", "snapshot_every": 10}})
    memories = Memories(store, settings)
    memory = memories.open(f"tending/{uuid.uuid4().hex}", "memory", Topics())
    for number in range(25):
        await memory.remember(f"fact {number}")
    tasks = [*memories._tending._tasks]
    assert tasks
    await asyncio.wait(tasks)
    assert await store.command("EXISTS", memory.records.keys.index) == 1
    await memories.close()


async def test_close_stops_it(store: Store) -> None:
    settings = Settings(namespaces={"memory": {"kind": "memory", "snapshot_every": 1}})
    memories = Memories(store, settings)
    memory = memories.open(f"tending/{uuid.uuid4().hex}", "memory", Topics())
    await memory.remember("fact")
    await memories.close()
    assert not memories._tending._tasks
    assert await memory.count() == 1


@pytest.mark.parametrize("cut", ["finished", "expired", "embedded", "evicted"])
async def test_cut_short_is_begun_again(store: Store, cut: str) -> None:
    from blackboard.points import watch

    memory = memory_of(store, Topics(), budget=1)
    await memory.remember_all(["one", "two", "three"])

    def stop(point: str) -> None:
        if point == f"tend:{cut}":
            raise RuntimeError(cut)

    with watch(stop), pytest.raises(RuntimeError, match=cut):
        await memory.tend()
    assert await store.command("EXISTS", memory.records.keys.lock) == 0
    await memory.tend()
    assert [record.text for record in await memory.list()] == ["three"]
