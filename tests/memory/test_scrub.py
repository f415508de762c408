"""Scrubbing: what is forgotten is in no chunk when it is acknowledged, and nothing else is lost by it."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

import pytest

from blackboard.errors import ServerUnavailable
from blackboard.memory import building, scrubbing
from blackboard.memory.records import Records
from blackboard.memory.snapshot import Snapshots
from blackboard.settings import MemoryNamespace
from blackboard.store.client import Store
from tests.memory.dump import everything, holding
from tests.memory.replay import SPACE, agrees, forget, meddled, place_of, put, stored, vector_of, written


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows a chunk, so that a few records make several."""
    monkeypatch.setattr(building, "LONGEST_ROWS", 3)


@pytest.fixture
def records(store: Store) -> Records:
    return Records(store, "memory", f"scrub/{uuid.uuid4().hex}", MemoryNamespace())


@pytest.fixture
def snapshots(records: Records) -> Snapshots:
    return Snapshots(records)


async def nowhere(records: Records, *names: str) -> None:
    """No key of the path says the text or the vector of these."""
    for name in names:
        assert await holding(records, f"text of {name}".encode()) == []
        assert await holding(records, vector_of(name)) == []


async def test_a_forgotten_record_is_in_no_chunk(records: Records, snapshots: Snapshots) -> None:
    """One chunk is written anew under another number; the others stay as they are."""
    names = await written(records, 9)
    built = await snapshots.build()
    assert built is not None
    assert len(await holding(records, b"text of r4")) == 2
    assert await forget(records, snapshots, "r4") == 1
    await nowhere(records, "r4")
    pointer = await snapshots.pointer()
    assert pointer is not None
    assert [chunk.number for chunk in pointer.chunks] == [0, 3, 2]
    assert [chunk.rows for chunk in pointer.chunks] == [3, 2, 3]
    assert (pointer.generation, pointer.token) == (built.generation, built.token)
    loaded = await snapshots.load(SPACE)
    assert loaded is not None
    assert (loaded.source, [row.record.id for row in loaded.rows]) == ("snapshot", [n for n in names if n != "r4"])
    await agrees(records, loaded)
    assert {name.decode() for name in await records.store.command("SMEMBERS", records.keys.chunks)} == set(
        pointer.names()
    )


async def test_many_from_many_chunks(records: Records, snapshots: Snapshots) -> None:
    await written(records, 9)
    await snapshots.build()
    gone = ["r0", "r1", "r2", "r3", "r8"]
    assert await forget(records, snapshots, *gone) == 5
    await nowhere(records, *gone)
    loaded = await snapshots.load(SPACE)
    assert loaded is not None
    assert (loaded.source, loaded.rows) == ("snapshot", await stored(records))
    assert await forget(records, snapshots, *gone) == 0


async def test_what_no_chunk_holds_changes_none(records: Records, snapshots: Snapshots) -> None:
    await written(records, 4)
    built = await snapshots.build()
    await put(records, "late")
    assert await forget(records, snapshots, "late", "never") == 0
    assert await snapshots.pointer() == built


async def test_an_old_version_goes_with_its_record(records: Records, snapshots: Snapshots) -> None:
    """The snapshot holds the text from before an update; forgetting removes that, too."""
    await written(records, 4)
    await snapshots.build()
    await put(records, "r1", text="changed since", vector=b"changed!")
    assert await holding(records, b"text of r1") != []
    assert await forget(records, snapshots, "r1") == 1
    await nowhere(records, "r1")
    assert await holding(records, b"changed since") == []


async def test_a_record_that_was_remembered_anew_stays(records: Records, snapshots: Snapshots) -> None:
    """Forgotten, remembered anew, taken into a snapshot, and only then scrubbed for having been forgotten."""
    await written(records, 4)
    await records.forget(["r1"])
    await put(records, "r1", text="anew")
    await snapshots.build()
    assert await snapshots.scrub(["r1"]) == 0
    loaded = await snapshots.load(SPACE)
    assert loaded is not None
    assert (loaded.source, loaded.rows) == ("snapshot", await stored(records))


async def test_more_than_can_be_rewritten_at_once_drops_the_snapshot(
    records: Records, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(records, 7)
    await snapshots.build()
    monkeypatch.setattr(scrubbing, "MOST_BYTES", 100)
    await forget(records, snapshots, "r1")
    assert await snapshots.pointer() is None
    assert await records.store.command("EXISTS", records.keys.chunks) == 0
    assert await holding(records, b"text of r5") == [records.keys.record("r5")]
    await nowhere(records, "r1")
    loaded = await snapshots.load(SPACE)
    assert loaded is not None
    assert loaded.source == "records"
    await agrees(records, loaded)


@pytest.mark.parametrize("where", ["start", "end"])
async def test_a_chunk_that_cannot_be_read_goes_with_its_snapshot(
    records: Records, snapshots: Snapshots, where: str
) -> None:
    await written(records, 7)
    built = await snapshots.build()
    assert built is not None
    key = records.keys.chunk(built.names()[0])
    data = await records.store.command("GET", key)
    await records.store.command("SET", key, b"?" + data[1:] if where == "start" else data[:-1] + b"?")
    await forget(records, snapshots, "r1")
    await nowhere(records, "r1")
    assert await snapshots.pointer() is None
    await agrees(records, await snapshots.load(SPACE))


async def test_a_pointer_that_cannot_be_read_goes_with_all_chunks(records: Records, snapshots: Snapshots) -> None:
    await written(records, 7)
    await snapshots.build()
    await records.store.command("SET", records.keys.index, "?")
    await forget(records, snapshots, "r1")
    await nowhere(records, "r1")
    assert [key for key in await everything(records) if ":chunk" in key or key == records.keys.index] == []


async def test_a_chunk_that_is_being_built_is_scrubbed(records: Records, snapshots: Snapshots) -> None:
    """Also when there is no snapshot yet, and when the builder dies afterwards."""
    await written(records, 9)

    class Dead(Exception):
        pass

    async def pass_by() -> None:
        """Let the first chunk be staged."""

    async def die() -> None:
        assert await holding(records, b"text of r1") != [records.keys.record("r1")]
        await forget(records, snapshots, "r1")
        raise Dead

    with pytest.raises(Dead):
        await meddled(records, pass_by, die).build()
    await nowhere(records, "r1")


async def interleaved(records: Records, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[object]], times: int) -> None:  # fmt: skip
    """Let somebody change the chunks after a scrub has looked and before it acts."""
    decide, acted = scrubbing._decide, 0

    async def meanwhile(*args: object) -> object:
        nonlocal acted
        decided = await decide(*args)  # type: ignore[arg-type]
        if acted < times:
            acted += 1
            await act()
        return decided

    monkeypatch.setattr(scrubbing, "_decide", meanwhile)
    await forget(records, snapshots, "r4")
    assert acted == times


@pytest.mark.parametrize("other", ["a new snapshot", "another scrub"])
async def test_it_begins_again_when_the_chunks_changed(
    records: Records, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    await written(records, 9)
    await snapshots.build()

    async def build() -> None:
        await snapshots.build()

    async def scrub() -> None:
        await scrubbing.scrub(place_of(records), ["r5"])

    await records.forget(["r5"])
    await interleaved(records, snapshots, monkeypatch, build if other == "a new snapshot" else scrub, 1)
    await nowhere(records, "r4", "r5")
    loaded = await snapshots.load(SPACE)
    assert loaded is not None
    assert loaded.source == "snapshot"
    await agrees(records, loaded)


async def test_it_says_so_when_the_chunks_never_rest(
    records: Records, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records are gone; forgetting them again scrubs again."""
    await written(records, 9)
    await snapshots.build()
    monkeypatch.setattr(scrubbing, "ATTEMPTS", 2)
    with pytest.raises(ServerUnavailable, match="kept changing"):
        await interleaved(records, snapshots, monkeypatch, lambda: records.store.command("HINCRBY", records.keys.head, "scrubs", 1), 2)  # fmt: skip
    monkeypatch.undo()
    await snapshots.scrub(["r4"])
    await nowhere(records, "r4")
