"""Verifying: every way in which what is derived can differ from the records is found, and mended where it can be."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio

from blackboard.memory import building
from blackboard.memory.chunks import sealed
from blackboard.memory.embedder import Space
from blackboard.memory.lease import Place, claim
from blackboard.memory.new import Body
from blackboard.memory.record import Token
from blackboard.memory.records import Records
from blackboard.memory.snapshot import Snapshots
from blackboard.memory.stored import Stored
from blackboard.memory.verify import Report, verify
from blackboard.memory.view import View
from blackboard.settings import MemoryNamespace
from blackboard.store.client import Store

SPACE = Space("made-up", 4)
POLICY = MemoryNamespace()
VECTOR = b"\x00\x3c\x00\x00\x00\x00\x00\x00"
"""(1, 0, 0, 0) in 16 bits."""
ANOTHER = b"\x00\x00\x00\x3c\x00\x00\x00\x00"
"""(0, 1, 0, 0)."""


@dataclass(frozen=True)
class Kept:
    """A path with six records, one of each kind among them, a snapshot, and two writes after it."""

    records: Records
    view: View

    @property
    def store(self) -> Store:
        return self.records.store

    @property
    def snapshots(self) -> Snapshots:
        return Snapshots(self.records)

    async def verify(self, *, repair: bool = False) -> Report:
        return await verify(self.records, self.view, repair=repair)


def body(name: str, **more: object) -> Body:
    plain = Body(f"text of {name}", id=name, vector=VECTOR, space=SPACE.text(), metadata={"name": name})
    return replace(plain, **more)  # type: ignore[arg-type]


@pytest_asyncio.fixture
async def kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Kept]:
    monkeypatch.setattr(building, "LONGEST_ROWS", 3)
    records = Records(store, "memory", f"verify/{uuid.uuid4().hex}", POLICY)
    await records.put_all(
        [
            body("plain"), body("other"), body("about", subject="s"), body("ends", subject="e", ttl=3_600_000),
            body("pending", vector=None), body("late", metadata={}),
        ]
    )  # fmt: skip
    await Snapshots(records).build()
    await records.put(body("late", text="changed"))
    await records.put(body("new"))
    view = View(records, SPACE, POLICY)
    await view.refresh()
    yield Kept(records, view)
    await view.close()


async def test_nothing_is_found_where_nothing_is_wrong(kept: Kept) -> None:
    report = await kept.verify()
    assert report.findings == ()
    assert report.ok
    assert report.token == kept.records.known
    assert report.compared == {"records": 7, "contents": 5, "subjects": 2, "log": 9, "index": 7, "snapshot": 6}
    again = await kept.verify(repair=True)
    assert (again.findings, again.changed) == ((), 0)


async def test_of_a_path_that_was_never_written(store: Store) -> None:
    records = Records(store, "memory", f"verify/{uuid.uuid4().hex}", POLICY)
    report = await verify(records, View(records, SPACE, POLICY), repair=True)
    assert (report.token, report.compared, report.ok) == (None, {}, True)


Damage = Callable[[Kept], Awaitable[object]]


async def _content(kept: Kept, name: str) -> str:
    (stored,) = await kept.records.fetch([name])
    assert stored is not None
    return kept.records.keys.content(stored.content)


async def row_lost(kept: Kept) -> None:
    await kept.store.command("ZREM", kept.records.keys.order, "plain")
    await kept.store.command("HINCRBY", kept.records.keys.head, "count", -1)


async def record_lost(kept: Kept) -> None:
    await kept.store.command("DEL", kept.records.keys.record("plain"))


async def count_wrong(kept: Kept) -> None:
    await kept.store.command("HSET", kept.records.keys.head, "count", 99)


async def expiry_lost(kept: Kept) -> None:
    await kept.store.command("ZREM", kept.records.keys.expiring, "ends")


async def expiry_wrong(kept: Kept) -> None:
    await kept.store.command("ZADD", kept.records.keys.expiring, 1, "ends")


async def expiry_of_nothing(kept: Kept) -> None:
    await kept.store.command("ZADD", kept.records.keys.expiring, 99_999_999_999_999, "nothing")


async def expiry_of_one_that_stays(kept: Kept) -> None:
    await kept.store.command("ZADD", kept.records.keys.expiring, 99_999_999_999_999, "plain")


async def about_lost(kept: Kept) -> None:
    await kept.store.command("HDEL", kept.records.keys.subjects, "ends")


async def about_wrong(kept: Kept) -> None:
    await kept.store.command("HSET", kept.records.keys.subjects, "ends", "s")


async def about_of_nothing(kept: Kept) -> None:
    await kept.store.command("HSET", kept.records.keys.subjects, "nothing", "s")


async def about_of_one_that_stays(kept: Kept) -> None:
    await kept.store.command("HSET", kept.records.keys.subjects, "about", "s")


async def pending_though_made(kept: Kept) -> None:
    await kept.store.command("SADD", kept.records.keys.pending, "plain")


async def pending_of_nothing(kept: Kept) -> None:
    await kept.store.command("SADD", kept.records.keys.pending, "nothing")


async def content_lost(kept: Kept) -> None:
    await kept.store.command("DEL", await _content(kept, "plain"))


async def content_of_nothing(kept: Kept) -> None:
    await kept.store.command("SET", kept.records.keys.content("ab" * 16), "nothing")


async def content_of_another(kept: Kept) -> None:
    await kept.store.command("SET", kept.records.keys.content("ab" * 16), "plain")


async def subject_lost(kept: Kept) -> None:
    await kept.store.command("ZREM", kept.records.keys.subject("s"), "about")


async def subject_wrong(kept: Kept) -> None:
    await kept.store.command("ZADD", kept.records.keys.subject("s"), 1, "about")


async def subject_of_nothing(kept: Kept) -> None:
    await kept.store.command("ZADD", kept.records.keys.subject("s"), 1, "nothing")


async def subject_of_another(kept: Kept) -> None:
    await kept.store.command("ZADD", kept.records.keys.subject("t"), 1, "plain")


async def chunk_of_nothing(kept: Kept) -> None:
    await kept.store.command("SET", kept.records.keys.chunk("0000-ab:0"), b"text")


async def chunk_broken(kept: Kept) -> None:
    pointer = await kept.snapshots.pointer()
    assert pointer is not None
    await kept.store.command("SET", kept.records.keys.chunk(pointer.names()[0]), b"text")


async def pointer_broken(kept: Kept) -> None:
    await kept.store.command("SET", kept.records.keys.index, b"text")


async def _rewritten(kept: Kept, change: Callable[[list[Stored]], list[Stored]]) -> None:
    """Let the first chunk hold other rows, with a pointer that agrees."""
    pointer, rows = await kept.snapshots.read()
    assert pointer is not None
    chunk, data = sealed(0, change(rows[:3]))
    await kept.store.command("SET", kept.records.keys.chunk(pointer.names()[0]), data)
    await kept.store.command(
        "SET", kept.records.keys.index, replace(pointer, chunks=(chunk, *pointer.chunks[1:])).text()
    )


async def snapshot_without_one(kept: Kept) -> None:
    await _rewritten(kept, lambda rows: rows[1:])


async def snapshot_with_a_ghost(kept: Kept) -> None:
    await _rewritten(kept, lambda rows: [*rows, replace(rows[0], record=replace(rows[0].record, id="ghost"))])


async def snapshot_with_one_twice(kept: Kept) -> None:
    await _rewritten(kept, lambda rows: [*rows, rows[0]])


async def snapshot_of_another_version(kept: Kept) -> None:
    await _rewritten(kept, lambda rows: [replace(rows[0], record=replace(rows[0].record, version=7)), *rows[1:]])


async def snapshot_of_another_vector(kept: Kept) -> None:
    await _rewritten(kept, lambda rows: [replace(rows[0], vector=ANOTHER), *rows[1:]])


async def log_without_a_write(kept: Kept) -> None:
    (stored,) = await kept.records.fetch(["new"])
    assert stored is not None
    await kept.store.command("XDEL", kept.records.keys.log, f"{stored.record.token.seq}-0")


WHOLE: dict[Damage, list[tuple[str, str, str]]] = {
    row_lost: [("order", "missing", "plain")],
    record_lost: [("content", "orphaned", "plain"), ("index", "orphaned", "plain"), ("order", "orphaned", "plain"), ("snapshot", "orphaned", "plain")],
    count_wrong: [("head", "mismatched", "count")],
    expiry_lost: [("expiring", "missing", "ends")],
    expiry_wrong: [("expiring", "mismatched", "ends")],
    expiry_of_nothing: [("expiring", "orphaned", "nothing")],
    expiry_of_one_that_stays: [("expiring", "mismatched", "plain")],
    about_lost: [("subjects", "missing", "ends")],
    about_wrong: [("subjects", "mismatched", "ends")],
    about_of_nothing: [("subjects", "orphaned", "nothing")],
    about_of_one_that_stays: [("subjects", "mismatched", "about")],
    pending_though_made: [("pending", "orphaned", "plain")],
    pending_of_nothing: [("pending", "orphaned", "nothing")],
    content_lost: [("content", "missing", "plain")],
    content_of_nothing: [("content", "orphaned", "nothing")],
    content_of_another: [("content", "mismatched", "plain")],
    subject_lost: [("subject", "missing", "about")],
    subject_wrong: [("subject", "mismatched", "about")],
    subject_of_nothing: [("subject", "orphaned", "nothing")],
    subject_of_another: [("subject", "orphaned", "plain")],
    chunk_of_nothing: [("snapshot", "orphaned", "chunk 0000-ab:0")],
    chunk_broken: [("snapshot", "mismatched", "pointer")],
    pointer_broken: [("snapshot", "mismatched", "pointer")],
    snapshot_without_one: [("snapshot", "missing", "plain")],
    snapshot_with_a_ghost: [("snapshot", "orphaned", "ghost")],
    snapshot_with_one_twice: [("snapshot", "duplicate", "plain")],
    snapshot_of_another_version: [("snapshot", "mismatched", "plain")],
    snapshot_of_another_vector: [("snapshot", "mismatched", "plain")],
}  # fmt: skip


@pytest.mark.parametrize("damage", WHOLE, ids=lambda damage: damage.__name__)
async def test_it_is_found_and_repaired(kept: Kept, damage: Damage) -> None:
    await damage(kept)
    report = await kept.verify()
    assert sorted((one.where, one.what, one.name) for one in report.findings) == sorted(WHOLE[damage])
    assert not report.ok
    mended = await kept.verify(repair=True)
    assert [one for one in mended.findings if not one.repaired] == []
    assert mended.ok
    assert len(mended.findings) == len(report.findings)
    after = await kept.verify()
    assert after.findings == ()


async def test_a_row_that_no_sweep_would_find(kept: Kept) -> None:
    """Of a record whose time is over: it is left to the sweep, unless that cannot know whose row it is."""
    where, store = kept.records.keys, kept.store
    await kept.records.put(body("brief", subject="s", ttl=1))
    await expired(kept.records, "brief")
    assert (await kept.verify()).findings == ()
    await store.command("HDEL", where.subjects, "brief")
    report = await kept.verify(repair=True)
    assert [(one.where, one.what, one.name, one.repaired) for one in report.findings] == [
        ("subject", "orphaned", "brief", True)
    ]
    assert await store.command("ZRANGE", where.subject("s"), 0, -1) == [b"about"]
    assert [one.id for one in await kept.records.forget(["brief"], expired=True)] == ["brief"]
    assert (await kept.verify()).findings == ()


async def test_the_list_of_one_that_expires_is_mended_to_last(kept: Kept) -> None:
    where, store = kept.records.keys, kept.store
    await store.command("DEL", where.subject("e"), where.subjects)
    assert (await kept.verify(repair=True)).ok
    assert [record.id for record in await kept.records.about("e")] == ["ends"]
    assert await store.command("PTTL", where.subject("e")) == -1
    assert await store.command("HGETALL", where.subjects) == [b"ends", b"e"]


async def expired(records: Records, id: str) -> None:
    for _ in range(1000):
        if id in await records.expired() and await records.get(id) is None:
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"{id!r} does not expire")


async def test_a_write_that_the_log_lost_is_logged_again(kept: Kept) -> None:
    """Another process that has not seen it is told; the number that is gone cannot be given again."""
    await log_without_a_write(kept)
    report = await kept.verify()
    assert [(one.where, one.what) for one in report.findings] == [("log", "missing")] * 2
    mended = await kept.verify(repair=True)
    assert sorted(one.repaired for one in mended.findings) == [False, True]
    (stored,) = await kept.records.fetch(["new"])
    assert stored is not None
    tail = await kept.records.tail(stored.record.token.seq - 1)
    assert [(change.op, change.id) for change in tail.changes] == [("put", "new")]


async def test_a_record_that_cannot_be_read_is_named_and_left(kept: Kept) -> None:
    await kept.store.command("HSET", kept.records.keys.record("plain"), "version", "?")
    report = await kept.verify()
    assert [(one.where, one.what, one.name, one.repaired) for one in report.findings] == [("record", "mismatched", "plain", False)]  # fmt: skip
    assert await kept.store.command("HGET", kept.records.keys.record("plain"), "version") == b"?"


async def test_the_index_of_this_process(kept: Kept) -> None:
    """Rows that the log never told of: lost, of a ghost, of another version, of another vector."""
    table, store = kept.view._table, kept.store
    table._end("other")
    await store.command("HSET", kept.records.keys.record("plain"), "vector", ANOTHER)
    await store.command("HSET", kept.records.keys.record("about"), "version", 9)
    kept.view.frame._table.epoch += 1
    kept.view.frame = type(kept.view.frame)(table, kept.view.frame.token, stored_space=SPACE.text())
    found = {(one.where, one.what, one.name) for one in (await kept.verify()).findings if one.where == "index"}
    assert found == {("index", "missing", "other"), ("index", "mismatched", "plain"), ("index", "mismatched", "about")}
    assert (await kept.verify(repair=True)).ok
    assert (await kept.verify()).findings == ()


async def test_a_snapshot_is_left_while_another_tends_the_path(kept: Kept) -> None:
    await pointer_broken(kept)
    lease = await claim(Place(kept.store, kept.records.namespace, kept.records.path))
    report = await kept.verify(repair=True)
    assert [(one.where, one.repaired) for one in report.findings if one.what == "mismatched"] == [("snapshot", False)]
    await lease.release()
    assert (await kept.verify(repair=True)).ok


async def test_what_is_written_meanwhile_is_not_judged(kept: Kept) -> None:
    """Writers go on during it; nothing is found, whatever was read before and after their writes."""

    async def write() -> None:
        for number in range(60):
            await kept.records.put(body("plain", text=f"version {number}"))
            await kept.records.forget(["new"])
            await kept.records.put(body("new"))

    writing = asyncio.create_task(write())
    reports = [await kept.verify() for _ in range(5)]
    await writing
    assert [report.findings for report in reports] == [()] * 5
    assert sum(report.changed for report in reports) > 0
    assert (await kept.verify()).findings == ()
    assert isinstance(reports[-1].token, Token)
