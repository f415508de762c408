"""Taking forgotten records out of every chunk that stands, before it is acknowledged that they are forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from blackboard.errors import CorruptValue, ServerUnavailable
from blackboard.keys import path_segments
from blackboard.memory.chunks import LONGEST_START, Chunk, fingerprints, holds, sealed
from blackboard.memory.lease import Place
from blackboard.memory.pointer import Pointer
from blackboard.memory.stored import Stored
from blackboard.points import reach
from blackboard.store.client import Part
from blackboard.store.script import Script
from blackboard.telemetry import logger

__all__ = ["discard", "scrub"]

SCRUB = Script("blackboard.memory", "scrub.lua")

MOST_BYTES = 8 << 20
"""Chunks of more bytes than this are not rewritten at once: the whole snapshot goes, and is built anew in time."""

ATTEMPTS = 64
"""How often in a row a scrub begins again because others changed the chunks meanwhile."""

log = logger("memory")


@dataclass(frozen=True, slots=True)
class Standing:
    """The chunks of a path as they stood at one moment: what is decided about, and compared before it is done."""

    scrubs: str
    before: bytes
    names: list[str]

    @classmethod
    async def read(cls, place: Place) -> Standing | None:
        """Read it; None if nothing was ever remembered at the path."""
        where = place.keys
        (incarnation, scrubs), before, names = await place.store.batch(
            [("HMGET", where.head, "incarnation", "scrubs"), ("GET", where.index), ("SMEMBERS", where.chunks)]
        )
        if incarnation is None:
            return None
        return cls((scrubs or b"0").decode(), before or b"", sorted(name.decode() for name in names))

    async def holding(self, place: Place, ids: Iterable[str]) -> set[str]:
        """Name the chunks that may hold one of these ids."""
        asked = [("GETRANGE", place.keys.chunk(name), 0, LONGEST_START - 1) for name in self.names]
        starts: list[bytes] = await place.store.batch(asked) if asked else []
        wanted = fingerprints(ids)

        def match() -> set[str]:
            return {name for name, start in zip(self.names, starts, strict=True) if start and holds(start, wanted)}

        return await asyncio.to_thread(match)


@dataclass(slots=True)
class Change:
    """What a scrub is about to do: the pointer afterwards (None: none), the chunks that come, by name, and those that go."""

    pointer: Pointer | None
    victims: set[str]
    fresh: dict[str, bytes] = field(default_factory=dict[str, bytes])
    rows: int = 0

    async def apply(self, place: Place, on: Standing) -> bool:
        """Do it, unless something else was done meanwhile."""
        where = place.keys
        victims = sorted(self.victims)
        asked = (where.head, where.index, where.chunks, *(where.chunk(name) for name in (*self.fresh, *victims)))
        pointer = self.pointer.text() if self.pointer is not None else ""
        names = (*self.fresh, *victims)
        args: tuple[Part, ...] = (on.scrubs, on.before, pointer, len(on.names), len(self.fresh), *names)
        reply = await place.store.call(SCRUB, asked, (*args, *self.fresh.values()))
        return bool(reply[0] == b"OK")


async def scrub(place: Place, ids: Iterable[str]) -> int:
    """Take records out of the snapshot and of whatever is being built; returns how many rows went from the snapshot.

    When it returns, no chunk holds a row of them from before they were forgotten, and none will: call it when the records
    are gone, and before anybody is told. A record that was remembered anew meanwhile stays. Chunks are rewritten; above
    8 MiB, or where one cannot be read, the whole snapshot goes. Raises ServerUnavailable if the chunks kept changing.
    """
    forgotten = frozenset(ids)
    for _ in range(ATTEMPTS):
        standing = await Standing.read(place)
        if standing is None:
            return 0
        holding = await standing.holding(place, forgotten)
        reach("scrub", "found")
        change = await _decide(place, standing, holding, forgotten)
        reach("scrub", "decided")
        if await change.apply(place, standing):
            return change.rows
    raise ServerUnavailable(f"the chunks of path {place.path!r} kept changing while they were scrubbed", **place.ids)


async def discard(place: Place) -> None:
    """Take the snapshot away, and whatever is being built: nobody is to load it any more."""
    for _ in range(ATTEMPTS):
        standing = await Standing.read(place)
        if standing is None or not (standing.before or standing.names):
            return
        if await Change(None, set(standing.names)).apply(place, standing):
            return


async def _decide(place: Place, standing: Standing, holding: set[str], forgotten: frozenset[str]) -> Change:
    """Rewrite the chunks of the snapshot that hold forgotten records; whatever is being built is staged again."""
    if not standing.before:
        return Change(None, holding)
    try:
        pointer = Pointer.parse(standing.before)
    except CorruptValue as unreadable:
        return _dropped(place, standing.names, unreadable, 0)
    names = set(pointer.names())
    hit = [chunk for name, chunk in zip(pointer.names(), pointer.chunks, strict=True) if name in holding]
    rows, every = sum(chunk.rows for chunk in hit), names & set(standing.names) | holding
    if sum(chunk.size for chunk in hit) > MOST_BYTES:
        return _dropped(place, every, f"{len(hit)} chunks are too many to rewrite at once", rows)
    try:
        return await _rewrite(place, pointer, hit, Change(pointer, holding - names), forgotten)
    except CorruptValue as unreadable:
        return _dropped(place, every, unreadable, rows)


def _dropped(place: Place, names: Iterable[str], why: CorruptValue | str, rows: int) -> Change:
    log.warning("path %r: its snapshot goes (%s), and is built anew when the path is tended", place.path, why)
    return Change(None, set(names), rows=rows)


async def _rewrite(
    place: Place, pointer: Pointer, hit: Sequence[Chunk], change: Change, forgotten: frozenset[str]
) -> Change:
    chunks = list(pointer.chunks)
    number = max((chunk.number for chunk in chunks), default=0)
    for chunk in hit:
        name = f"{pointer.generation}:{chunk.number}"
        body = await place.store.command("GET", place.keys.chunk(name))
        rows = await asyncio.to_thread(chunk.open, body, path_segments(place.path), pointer.token.incarnation)
        kept = await _kept(place, rows, forgotten)
        if len(kept) == len(rows):
            continue
        number += 1
        made, data = await asyncio.to_thread(sealed, number, kept)
        chunks[chunks.index(chunk)] = made
        change.victims.add(name)
        change.fresh[f"{pointer.generation}:{number}"] = data
        change.rows += len(rows) - len(kept)
    change.pointer = replace(pointer, chunks=tuple(chunks))
    return change


async def _kept(place: Place, rows: list[Stored], forgotten: frozenset[str]) -> list[Stored]:
    """Leave out what is forgotten; a row that is as the record is now was written after that."""
    ids = [row.record.id for row in rows if row.record.id in forgotten]
    asked = [("HGET", place.keys.record(each), "seq") for each in ids]
    seqs = dict(zip(ids, await place.store.batch(asked) if asked else [], strict=True))
    return [row for row in rows if row.record.id not in seqs or seqs[row.record.id] == b"%d" % row.record.token.seq]
