"""Snapshots: what is loaded and replayed is what the store holds, whatever became of the snapshot meanwhile."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from blackboard.errors import LeaseHeld, LeaseLost
from blackboard.memory import building
from blackboard.memory.lease import claim, tend
from blackboard.memory.new import Body
from blackboard.memory.pointer import Pointer
from blackboard.memory.records import Records
from blackboard.memory.snapshot import Snapshots
from blackboard.settings import MemoryNamespace
from blackboard.store.client import Store
from tests.memory.dump import everything, holding
from tests.memory.replay import OTHER, SPACE, agrees, forget, meddled, place_of, put, stored, vector_of, written


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows a chunk, so that a few records make several."""
    monkeypatch.setattr(building, "LONGEST_ROWS", 3)


@pytest.fixture
def records(store: Store) -> Records:
    return Records(store, "memory", f"snapshot/{uuid.uuid4().hex}", MemoryNamespace())


@pytest.fixture
def snapshots(records: Records) -> Snapshots:
    return Snapshots(records)


async def test_what_was_built_is_loaded(records: Records, snapshots: Snapshots) -> None:
    await written(records, 8)
    await records.put(Body("pending", id="pending", subject="s", pinned=True, ttl=3_600_000, importance=0.25))
    built = await snapshots.build()
    assert built is not None
    assert (built.rows, [chunk.rows for chunk in built.chunks], built.space) == (9, [3, 3, 3], SPACE)
    told: list[tuple[int, int]] = []
    loaded = await snapshots.load(SPACE, lambda done, total: told.append((done, total)))
    assert loaded is not None
    assert (loaded.source, loaded.token, loaded.rows) == ("snapshot", built.token, await stored(records))
    assert told == [(9, 9)]
    assert loaded.token == records.known
    lives = [await records.store.command("PTTL", records.keys.chunk(name)) for name in built.names()]
    assert lives == [-1, -1, -1]


async def test_writes_after_it_are_replayed(records: Records, snapshots: Snapshots) -> None:
    await written(records, 5)
    await snapshots.build()
    await put(records, "r1", "new", text="changed")
    await records.forget(["r2"])
    loaded = await snapshots.load(SPACE)
    assert loaded is not None
    assert loaded.source == "snapshot"
    assert {"r2"} < {row.record.id for row in loaded.rows}
    await agrees(records, loaded)


async def test_of_a_path_that_was_never_written_there_is_none(records: Records, snapshots: Snapshots) -> None:
    assert await snapshots.build() is None
    assert await snapshots.load() is None
    assert await snapshots.scrub(["a"]) == 0
    assert await snapshots.pointer() is None
    assert not await snapshots.due(1)


async def test_of_a_path_that_holds_nothing_any_more(records: Records, snapshots: Snapshots) -> None:
    names = await written(records, 2)
    await records.forget(names)
    built = await snapshots.build()
    assert built is not None
    assert built.chunks == ()
    loaded = await snapshots.load()
    assert loaded is not None
    assert (loaded.rows, loaded.source) == ([], "snapshot")


async def test_it_is_due_by_the_writes_since(records: Records, snapshots: Snapshots) -> None:
    await written(records, 3)
    seq = records.known.seq if records.known else 0
    assert (await snapshots.due(seq), await snapshots.due(seq + 1)) == (True, False)
    await snapshots.build()
    assert not await snapshots.due(1)
    await put(records, "r1", "r2")
    assert (await snapshots.due(2), await snapshots.due(3)) == (True, False)


async def test_a_second_one_replaces_the_first(records: Records, snapshots: Snapshots) -> None:
    """Chunks of the first are gone, and so is the log before it; what came since stays."""
    await written(records, 7)
    first = await snapshots.build()
    await put(records, "r1", "r2")
    second = await snapshots.build()
    assert first is not None
    assert second is not None
    store, where = records.store, records.keys
    standing = {name.decode() for name in await store.command("SMEMBERS", where.chunks)}
    assert standing == set(second.names())
    assert await store.command("EXISTS", *(where.chunk(name) for name in first.names())) == 0
    assert await store.command("HGET", where.head, "trimmed") == b"%d" % first.token.seq
    (oldest,) = await store.command("XRANGE", where.log, "-", "+", "COUNT", 1)
    assert oldest[0] == b"%d-0" % (first.token.seq + 1)
    assert not (await records.tail(first.token.seq)).gap
    assert (await records.tail(first.token.seq - 1)).gap
    await agrees(records, await snapshots.load(SPACE))


Damage = Callable[[Records, Pointer], Awaitable[None]]


async def flipped_bit(records: Records, pointer: Pointer) -> None:
    key = records.keys.chunk(pointer.names()[1])
    data = bytearray(await records.store.command("GET", key))
    data[len(data) // 2] ^= 1
    await records.store.command("SET", key, bytes(data))


async def truncated(records: Records, pointer: Pointer) -> None:
    key = records.keys.chunk(pointer.names()[-1])
    await records.store.command("SET", key, (await records.store.command("GET", key))[:-1])


async def missing(records: Records, pointer: Pointer) -> None:
    await records.store.command("DEL", records.keys.chunk(pointer.names()[0]))


async def swapped(records: Records, pointer: Pointer) -> None:
    first, last = (records.keys.chunk(pointer.names()[at]) for at in (0, -1))
    bodies = await records.store.batch([("GET", first), ("GET", last)])
    await records.store.batch([("SET", first, bodies[1]), ("SET", last, bodies[0])])


async def garbled(records: Records, pointer: Pointer) -> None:
    await records.store.command("SET", records.keys.index, pointer.text()[:-3])


async def absent(records: Records, _: Pointer) -> None:
    await records.store.command("DEL", records.keys.index)


async def of_another_life(records: Records, pointer: Pointer) -> None:
    token = replace(pointer.token, incarnation=pointer.token.incarnation - 1)
    await records.store.command("SET", records.keys.index, replace(pointer, token=token).text())


async def ahead(records: Records, pointer: Pointer) -> None:
    token = replace(pointer.token, seq=pointer.token.seq + 1)
    await records.store.command("SET", records.keys.index, replace(pointer, token=token).text())


async def trimmed(records: Records, pointer: Pointer) -> None:
    await put(records, "r1", "r2")
    seq = pointer.token.seq + 1
    await records.store.command("HSET", records.keys.head, "trimmed", seq)
    await records.store.command("XTRIM", records.keys.log, "MINID", f"{seq + 1}-0")


async def of_another_space(records: Records, pointer: Pointer) -> None:
    await records.store.command("SET", records.keys.index, replace(pointer, space=OTHER).text())


DAMAGES: dict[Damage, str] = {
    flipped_bit: "not what was written", truncated: "not what was written", missing: "not what was written",
    swapped: "not what was written", garbled: "not a pointer", absent: "there is none", of_another_life: "another life",
    ahead: "ahead of the head", trimmed: "the log begins after it", of_another_space: "another embedding space",
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
async def test_what_is_wrong_is_rebuilt_from_the_records(
    records: Records, snapshots: Snapshots, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    await written(records, 7)
    built = await snapshots.build()
    assert built is not None
    await damage(records, built)
    told: list[tuple[int, int]] = []
    with caplog.at_level(logging.INFO, "blackboard.memory"):
        loaded = await snapshots.load(SPACE, lambda done, total: told.append((done, total)))
    assert loaded is not None
    assert loaded.source == "records"
    assert told[-1] == (7, 7)
    assert [line for line in caplog.messages if "no snapshot to load" in line and DAMAGES[damage] in line]
    await agrees(records, loaded)
    again = await snapshots.build()
    assert again is not None
    healed = await snapshots.load(SPACE)
    assert healed is not None
    assert healed.source == "snapshot"
    await agrees(records, healed)


async def test_a_snapshot_from_before_the_first_vector_is_loaded(records: Records, snapshots: Snapshots) -> None:
    await records.put(Body("words", id="a"))
    await snapshots.build()
    assert await records.set_vector("a", 1, vector_of("a"), SPACE)
    loaded = await snapshots.load(SPACE)
    assert loaded is not None
    assert loaded.source == "snapshot"
    await agrees(records, loaded)


async def test_one_builds_at_a_time(records: Records, snapshots: Snapshots) -> None:
    await written(records, 4)
    async with tend(place_of(records)) as lease:
        with pytest.raises(LeaseHeld):
            await snapshots.build()
        assert await snapshots.build(lease) is not None


async def test_a_stale_builder_changes_nothing(records: Records, snapshots: Snapshots) -> None:
    await written(records, 4)
    stale = await claim(place_of(records), ttl=30)
    await records.store.command("DEL", records.keys.lock)
    await claim(place_of(records), ttl=30)
    before = await everything(records)
    with pytest.raises(LeaseLost):
        await snapshots.build(stale)
    assert await everything(records) == before


async def test_the_lease_is_lost_in_the_middle(records: Records, snapshots: Snapshots) -> None:
    """The old snapshot stands; what was staged is not seen, ends by itself, and goes with the next build."""
    await written(records, 7)
    first = await snapshots.build()
    assert first is not None

    async def taken_over() -> None:
        await records.store.command("DEL", records.keys.lock)
        await (await claim(place_of(records), ttl=30)).release()

    with pytest.raises(LeaseLost):
        await meddled(records, lambda: asyncio.sleep(0), taken_over).build()
    assert await snapshots.pointer() == first
    standing = {name.decode() for name in await records.store.command("SMEMBERS", records.keys.chunks)}
    (debris,) = standing - set(first.names())
    assert 0 < await records.store.command("PTTL", records.keys.chunk(debris)) <= 600_000
    await agrees(records, await snapshots.load(SPACE))
    second = await snapshots.build()
    assert second is not None
    assert {name.decode() for name in await records.store.command("SMEMBERS", records.keys.chunks)} == set(
        second.names()
    )
    assert await records.store.command("EXISTS", records.keys.chunk(debris)) == 0


async def test_records_written_while_it_is_built(records: Records) -> None:
    await written(records, 9)

    async def change() -> None:
        await put(records, "r0", "r4", "r8", "late", text="changed")

    snapshots = meddled(records, change, change)
    assert await snapshots.build() is not None
    loaded = await snapshots.load(SPACE)
    assert loaded is not None
    assert loaded.source == "snapshot"
    await agrees(records, loaded)


@pytest.mark.parametrize("name", ["r0", "r4", "r8"], ids=["staged", "in hand", "to come"])
@pytest.mark.parametrize("again", [False, True], ids=["gone", "remembered anew"])
async def test_a_record_forgotten_while_it_is_built_stays_forgotten(
    records: Records, snapshots: Snapshots, name: str, again: bool
) -> None:
    await written(records, 9)

    async def act() -> None:
        await forget(records, snapshots, name)
        assert await holding(records, f"text of {name}".encode()) == []
        if again:
            await put(records, name, text="anew", vector=b"anewanew")

    built = meddled(records, lambda: asyncio.sleep(0), act)
    assert await built.build() is not None
    assert await holding(records, f"text of {name}".encode()) == []
    assert await holding(records, vector_of(name)) == []
    loaded = await snapshots.load(SPACE)
    assert loaded is not None
    assert loaded.source == "snapshot"
    await agrees(records, loaded)


async def test_staged_chunks_that_ended_are_staged_again(records: Records, snapshots: Snapshots) -> None:
    """As when a build takes longer than a staged chunk stands."""
    await written(records, 9)

    async def end() -> None:
        for name in await records.store.command("SMEMBERS", records.keys.chunks):
            await records.store.command("DEL", records.keys.chunk(name.decode()))

    assert await meddled(records, end, end).build() is not None
    loaded = await snapshots.load(SPACE)
    assert loaded is not None
    assert (loaded.source, loaded.rows) == ("snapshot", await stored(records))


async def test_all_at_once(records: Records, snapshots: Snapshots) -> None:
    """Builders, writers, forgetters and readers on one path: every reader ends with what the store holds, and no ghost."""
    names = await written(records, 12)
    chance = random.Random(7)
    gone: list[str] = []
    sources: list[str] = []

    async def build() -> None:
        try:
            await snapshots.build()
        except LeaseHeld:
            return

    async def churn(number: int) -> None:
        for step in range(6):
            name = f"n{number}-{step}"
            await put(records, name, chance.choice(names))
            if step % 2:
                await forget(records, snapshots, name)
                assert await holding(records, f"text of {name}".encode()) == []
                gone.append(name)

    async def read() -> None:
        for _ in range(4):
            loaded = await snapshots.load(SPACE)
            assert loaded is not None
            sources.append(loaded.source)
            await asyncio.sleep(0)

    tasks = [*(churn(number) for number in range(3)), *(build() for _ in range(6)), *(read() for _ in range(2))]
    await asyncio.gather(*tasks)
    await build()
    loaded = await snapshots.load(SPACE)
    assert loaded is not None
    assert loaded.source == "snapshot"
    await agrees(records, loaded)
    assert len(gone) == 9
    for name in gone:
        assert await holding(records, f"text of {name}".encode()) == []
        assert await holding(records, vector_of(name)) == []
