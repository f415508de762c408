"""A view whose index is built anew goes on meanwhile, and loses nothing; nor does the event loop wait for it."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from threading import Event

import pytest

from blackboard.memory import view as viewing
from blackboard.memory.embedder import Space, pack
from blackboard.memory.frame import Frame
from blackboard.memory.record import Record, Token
from blackboard.memory.records import Records, Tail
from blackboard.memory.snapshot import Loaded, Progress
from blackboard.memory.stored import Stored
from blackboard.memory.table import Table
from blackboard.memory.words import words
from blackboard.settings import MemoryNamespace
from blackboard.store.client import Store
from blackboard.testing.servers import Server
from tests.memory.viewing import body, fill, nearest, records_of, there, vectors, view_of


@pytest.mark.parametrize("moment", ["before the copy", "after the copy"])
async def test_rebuilt_with_what_came_meanwhile(store: Store, moment: str) -> None:
    records = records_of(store)
    view = view_of(records)
    made = await fill(records, 40)
    await view.refresh()
    await records.forget(["3"])
    await view.refresh()
    copied, go = view._copied, Event()

    def slow(frame: Frame, table: Table) -> Table:
        fresh = copied(frame, table)
        assert go.wait(60)
        return copied(frame, table) if moment == "before the copy" else fresh

    view._copied = slow  # type: ignore[method-assign]
    building = asyncio.create_task(view.rebuild())
    await asyncio.sleep(0)
    await records.forget(["4"])
    await records.put(body("5", -made[5], "other words"))
    later = await fill(records, 5, start=40, seed=8)
    before = await view.refresh()
    go.set()
    await building
    frame = view.frame
    assert there(frame) == there(before) == [str(n) for n in range(45) if n not in (3, 4)]
    assert frame.token == before.token
    assert (view._table.settled, frame.size, before.size) == (39, 45, 46)
    assert nearest(frame, -made[5]) == ["5"]
    assert [nearest(frame, vector) for vector in later] == [[str(n)] for n in range(40, 45)]
    assert frame.lexical(words("other")).nonzero()[0].tolist() == [frame.row_of("5")]


async def test_rebuilt_by_itself_when_much_is_new(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewing, "DELTA", 20)
    records = records_of(store)
    view = view_of(records)
    await fill(records, 20)
    await view.refresh()
    assert not view._tasks
    await fill(records, 1, start=20)
    await view.refresh()
    assert len(view._tasks) == 1
    await asyncio.gather(*view._tasks)
    assert view._table.settled == 21
    await records.forget(map(str, range(21)))
    frame = await view.refresh()
    assert (len(frame), frame.size) == (0, 21)
    await asyncio.gather(*view._tasks)
    assert (len(view.frame), view.frame.size) == (0, 0)
    assert nearest(view.frame, vectors(1)[0]) == []


async def test_a_reload_wins_over_a_rebuild(store: Store) -> None:
    records = records_of(store)
    view = view_of(records)
    await fill(records, 10)
    await view.refresh()
    building = view._build()
    await fill(records, 5, start=10)
    await store.command("XTRIM", records.keys.log, "MAXLEN", 1)
    await view.refresh()
    await building
    assert len(view.frame) == 15
    await fill(records, 1, start=15)
    assert len(await view.refresh()) == 16


async def test_a_rebuild_that_fails_leaves_what_there_was(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    records = records_of(store)
    view = view_of(records)
    made = await fill(records, 3)
    await view.refresh()
    with monkeypatch.context() as patch:
        patch.setattr(view, "_copied", lambda *_: (_ for _ in ()).throw(MemoryError("no room")))
        with pytest.raises(MemoryError):
            await view.rebuild()
    assert nearest(view.frame, made[2]) == ["2"]
    await view.rebuild()
    assert nearest(view.frame, made[2]) == ["2"]


async def test_two_writers_and_many_readers(store: Store) -> None:
    """Every frame holds what was acknowledged before it was asked for, and the last equals the store."""
    records = records_of(store)
    others = Records(store, records.namespace, records.path, MemoryNamespace())
    view = view_of(records)
    acknowledged: dict[str, int] = {}
    done = False

    async def write(mine: Records, first: int) -> None:
        made = vectors(60, first)
        for number in range(60):
            name = str(first + number % 40)
            acknowledged[name] = (await mine.put(body(name, made[number]))).version
            if number % 7 == 6:
                del acknowledged[name]
                await mine.forget([name])

    async def read() -> int:
        reads = 0
        while not done:
            expected = dict(acknowledged)
            frame = await view.refresh()
            for name, version in expected.items():
                row = frame.row_of(name)
                if row is None or frame.versions[row] < version:
                    assert acknowledged.get(name) != version, f"{name} was acknowledged, and is not there"
            reads += 1
        return reads

    readers = [asyncio.create_task(read()) for _ in range(3)]
    await asyncio.gather(write(records, 0), write(others, 1000))
    done = True
    assert min(await asyncio.gather(*readers)) > 3
    frame = await view.refresh()
    kept = {stored.record.id: stored for page in [page async for page in records.walk()] for stored in page}
    assert sorted(there(frame)) == sorted(kept)
    for name, stored in kept.items():
        row = frame.row_of(name)
        assert row is not None
        assert (frame.versions[row], frame.vids[row]) == (stored.record.version, stored.vid)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """The pauses of Python's collector grow with all that the process holds; they are not what is asked about."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_the_event_loop_goes_on(solo: Server, no_collector: None) -> None:
    """While 20,000 records are read into a view, and its index is built twice."""
    space, token = Space("made-up", 64), Token(1, 20_000)
    rows = [
        Stored(
            Record(("p",), f"id{n}", f"the {n} quick foxes of {n % 97}", token, metadata={"n": n}), n, vector, "", None
        )
        for n, vector in enumerate(pack(vectors(20_000, 1, space), space))
    ]

    class Trimmed(Records):
        """A path that has to be read whole."""

        async def tail(self, after: int | Token, limit: int = 5000) -> Tail:
            return Tail(token, gap=not after, space=space.text())

    async def loader(wanted: str | None, progress: Progress | None) -> Loaded:
        return Loaded(token, rows, "snapshot")

    store = await Store.connect(solo.url)
    view = view_of(Trimmed(store, "memory", "p", MemoryNamespace(flat_limit=5_000)), space, loader=loader)
    late: list[float] = []

    async def tick() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            late.append(time.perf_counter() - before)

    ticker = asyncio.create_task(tick())
    frame = await view.refresh()
    assert (len(frame), frame.vectors_alive) == (20_000, 20_000)
    await view.rebuild()
    assert len(view.frame) == 20_000
    ticker.cancel()
    await store.close()
    assert len(late) > 100
    assert max(late) < 0.4, "done on the loop, it would be seconds; threads of a busy machine take tenths at most"
    assert sorted(late)[len(late) // 2] < 0.03
