"""A survey: everything that stands of a path, read once and key by key, to be compared."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from blackboard.errors import CorruptValue
from blackboard.keys import decode
from blackboard.memory.building import Head
from blackboard.memory.lease import Place
from blackboard.memory.records import Change, Records
from blackboard.memory.stored import Stored
from blackboard.store.protocol import Part

__all__ = ["Survey"]

PAGE = 500


@dataclass(slots=True)
class Survey:
    """What stands of a path. Rows by record id: `order`, `expiring` and `sources` with their scores, `subjects` by subject.

    `about` maps the ids of records that expire to their subjects, `said` to what they say, `contents` digests to ids, `same` to
    several, `chunks` the chunks to whether
    they stay; `log` is what the log says, oldest first. `unreadable` are records that are not what was written.
    """

    head: Head
    records: dict[str, Stored] = field(default_factory=dict[str, Stored])
    unreadable: dict[str, str] = field(default_factory=dict[str, str])
    order: dict[str, int] = field(default_factory=dict[str, int])
    expiring: dict[str, int] = field(default_factory=dict[str, int])
    about: dict[str, str] = field(default_factory=dict[str, str])
    sources: dict[str, int] = field(default_factory=dict[str, int])
    pending: set[str] = field(default_factory=set[str])
    contents: dict[str, str] = field(default_factory=dict[str, str])
    same: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    said: dict[str, str] = field(default_factory=dict[str, str])
    subjects: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    chunks: dict[str, bool] = field(default_factory=dict[str, bool])
    registered: set[str] = field(default_factory=set[str])
    log: list[Change] = field(default_factory=list[Change])
    now_ms: int = 0

    @classmethod
    async def read(cls, records: Records) -> Survey | None:
        """Read it; None if nothing was ever remembered there. Goes over the names of all keys of the server, once."""
        place = Place(records.store, records.namespace, records.path)
        head = await Head.read(place)
        if head is None:
            return None
        self, where, store = cls(head), records.keys, records.store
        names = [name async for name in _names(records)]
        order, expiring, sources, about, told, pending, chunks = await store.batch(
            [
                _scored(where.order), _scored(where.expiring), _scored(where.sources), ("HGETALL", where.subjects), ("HGETALL", where.contents),
                ("SMEMBERS", where.pending), ("SMEMBERS", where.chunks),
            ]
        )  # fmt: skip
        self.order, self.expiring, self.sources = _scores(order), _scores(expiring), _scores(sources)
        self.about, self.said = _words(about), _words(told)
        self.pending, self.registered = {one.decode() for one in pending}, {one.decode() for one in chunks}
        await self._read_records(
            records, sorted({*_under(names, "record:"), *self.order, *self.expiring, *self.pending})
        )
        await self._read_pointers(records, names)
        await self._read_log(records)
        self.now_ms = store.server_time() // 1000
        return self

    def due(self, id: str) -> bool:
        """Tell whether a record's time is over, so that only its rows are left, to be cleared away in time."""
        return id not in self.records and self.expiring.get(id, self.now_ms + 1) <= self.now_ms

    async def _read_records(self, records: Records, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), PAGE):
            part = ids[start : start + PAGE]
            try:
                found = await records.fetch(part, vectors=True)
            except CorruptValue:
                found = [await self._one(records, each) for each in part]
            self.records.update((row.record.id, row) for row in found if row is not None)

    async def _one(self, records: Records, id: str) -> Stored | None:
        try:
            return (await records.fetch([id], vectors=True))[0]
        except CorruptValue as unreadable:
            self.unreadable[id] = str(unreadable)
            return None

    async def _read_pointers(self, records: Records, names: Sequence[str]) -> None:
        where = records.keys
        digests = _under(names, "content:")
        owners = await _each(records, [("GET", where.content(digest)) for digest in digests])
        self.contents = {
            digest: owner.decode() for digest, owner in zip(digests, owners, strict=True) if owner is not None
        }
        shared = _under(names, "same:")
        rows = await _each(records, [_scored(where.same(digest)) for digest in shared])
        self.same = {digest: _scores(found) for digest, found in zip(shared, rows, strict=True)}
        subjects = _under(names, "subject:")
        rows = await _each(records, [_scored(where.subject(subject)) for subject in subjects])
        self.subjects = {subject: _scores(found) for subject, found in zip(subjects, rows, strict=True)}
        chunks = _under(names, "chunk:")
        lives = await _each(records, [("PTTL", where.chunk(name)) for name in chunks])
        self.chunks = {name: life == -1 for name, life in zip(chunks, lives, strict=True) if life != -2}

    async def _read_log(self, records: Records) -> None:
        after, more = self.head.trimmed, True
        while more:
            tail = await records.tail(after)
            self.log += tail.changes
            after, more = tail.changes[-1].seq if tail.changes else after, tail.more


async def _names(records: Records) -> AsyncIterator[str]:
    """Give the names of the path's keys, without what they begin with; some may come twice."""
    start = f"{records.keys.prefix}:"
    for primary in await records.store.primaries():
        cursor = b"0"
        while True:
            cursor, keys = await primary.command("SCAN", cursor, "MATCH", f"{start}*", "COUNT", 5000)
            for key in keys:
                yield key.decode().removeprefix(start)
            if cursor == b"0":
                break


def _under(names: Sequence[str], kind: str) -> list[str]:
    """Choose the names of one kind, and undo their encoding."""
    return sorted({decode(name.removeprefix(kind)) for name in names if name.startswith(kind)})


def _scored(key: str) -> tuple[str, ...]:
    return ("ZRANGEBYSCORE", key, "-inf", "+inf", "WITHSCORES")


def _words(reply: Sequence[bytes]) -> dict[str, str]:
    return {name.decode(): word.decode() for name, word in zip(reply[::2], reply[1::2], strict=True)}


def _scores(reply: Sequence[bytes]) -> dict[str, int]:
    return {one.decode(): int(float(score)) for one, score in zip(reply[::2], reply[1::2], strict=True)}


async def _each(records: Records, commands: Sequence[tuple[Part, ...]]) -> list[Any]:
    found: list[Any] = []
    for start in range(0, len(commands), PAGE):
        found += await records.store.batch(commands[start : start + PAGE])
    return found
