"""Snapshots of the index by reference: built by one, loaded by any process, scrubbed when something is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from blackboard.errors import CorruptValue, ServerUnavailable
from blackboard.keys import path_segments
from blackboard.memory.building import Build, Head
from blackboard.memory.chunks import Chunk
from blackboard.memory.lease import PathLease, Place, tend
from blackboard.memory.pointer import Pointer
from blackboard.memory.record import Token
from blackboard.memory.records import Records
from blackboard.memory.scrubbing import scrub
from blackboard.memory.stored import Stored
from blackboard.points import reach
from blackboard.telemetry import count, logger, span

__all__ = ["Loaded", "Progress", "Snapshots"]

TRIP_BYTES = 8 << 20
"""Bytes of chunks that are read in one round trip."""

ATTEMPTS = 3
"""How many pointers in a row may have been replaced while their chunks were read."""

Progress = Callable[[int, int], None]
"""Told how many records are read, and of how many."""

log = logger("memory")


@dataclass(frozen=True, slots=True)
class Loaded:
    """Every record of a path, in order of first write, as of `token` or later: replay the log from there."""

    token: Token
    rows: list[Stored]
    source: Literal["snapshot", "records"]


class Snapshots:
    """The snapshots of one path. The newest is found by one pointer; what it names never changes under its name."""

    def __init__(self, records: Records) -> None:
        self._place, self._records = Place(records.store, records.namespace, records.path), records

    async def pointer(self) -> Pointer | None:
        """Read the pointer to the newest snapshot; None if there is none. CorruptValue if it is unreadable."""
        stored = await self._place.store.command("GET", self._place.keys.index)
        return None if stored is None else Pointer.parse(stored)

    async def due(self, every: int) -> bool:
        """Tell whether so many writes came since the newest snapshot, or it is of no use; one round trip."""
        head, pointer, _ = await self._stands()
        if head is None:
            return False
        usable = (
            pointer is not None
            and pointer.token.incarnation == head.token.incarnation
            and pointer.space in (None, head.space)
        )
        return head.token.seq - (pointer.token.seq if pointer is not None and usable else 0) >= every

    async def build(self, lease: PathLease | None = None) -> Pointer | None:
        """Build a snapshot under the lease of the path (without one, it is taken), and make it the newest.

        It holds every write acknowledged before the call. The log goes up to the watermark of the snapshot before, so that
        views that are not far behind need not load. None if nothing was ever remembered there, or others forgot
        faster than it could be built. Raises LeaseHeld, LeaseLost, StoreRegressed; then the old snapshot stands.
        """
        if lease is None:
            async with tend(self._place) as taken:
                return await self.build(taken)
        head = await Head.read(self._place)
        if head is None:
            return None
        with span("memory.snapshot", path=self._place.path):
            built = await Build(self._place, self._records, lease, head).run()
        if built is not None:
            log.info("path %r: a snapshot of %d records, %d bytes", self._place.path, built.rows, built.size)
            count("memory.snapshots")
        return built

    async def scrub(self, ids: Iterable[str]) -> int:
        """Take forgotten records out of every chunk; see `scrub`. Needs no lease."""
        return await scrub(self._place, ids)

    async def load(self, space: str | None = None, progress: Progress | None = None) -> Loaded | None:
        """Read every record of the path from the newest snapshot, or from the records where that is not to be had.

        `space` is the embedding space that is needed, if any. A snapshot of another space or another life of the path, one
        that the log does not reach back to, that is ahead of the head or not what was written is passed over, with a
        line in the log. None if nothing was ever remembered there.
        """
        for _ in range(ATTEMPTS):
            head, pointer, flaw = await self._stands()
            if head is None:
                return None
            if pointer is not None and not flaw and space is not None and pointer.space not in (None, space):
                flaw = "it is of another embedding space"
            if pointer is None or flaw:
                break
            try:
                return Loaded(pointer.token, _distinct(await self._rows(pointer, progress)), "snapshot")
            except CorruptValue as unreadable:
                flaw = str(unreadable)
                if await self._place.store.command("GET", self._place.keys.index) == pointer.text().encode():
                    break
        else:
            flaw = f"{ATTEMPTS} snapshots were replaced while they were read"
        return await self._rebuilt(flaw, space, progress)

    async def read(self) -> tuple[Pointer | None, list[Stored]]:
        """Read the newest snapshot itself, whatever the records say; CorruptValue if it is not what was written."""
        for _ in range(ATTEMPTS):
            pointer = await self.pointer()
            try:
                return pointer, [] if pointer is None else await self._rows(pointer, None)
            except CorruptValue:
                if await self.pointer() == pointer:
                    raise
        raise ServerUnavailable(f"{ATTEMPTS} snapshots were replaced while they were read", **self._place.ids)

    async def _stands(self) -> tuple[Head | None, Pointer | None, str]:
        """Read head and pointer, and say what is wrong with the snapshot, if anything is."""
        where = self._place.keys
        told, stored = await self._place.store.batch([Head.command(self._place), ("GET", where.index)])
        head = Head.of(told)
        if head is None or stored is None:
            return head, None, "there is none"
        try:
            pointer = Pointer.parse(stored)
        except CorruptValue as unreadable:
            return head, None, str(unreadable)
        if pointer.token.incarnation != head.token.incarnation:
            return head, pointer, "it is of another life of the path"
        if pointer.token > head.token:
            return head, pointer, f"it is ahead of the head: {pointer.token.seq} > {head.token.seq}"
        if pointer.token.seq < head.trimmed:
            return head, pointer, f"the log begins after it: {pointer.token.seq} < {head.trimmed}"
        return head, pointer, ""

    async def _rows(self, pointer: Pointer, progress: Progress | None) -> list[Stored]:
        rows: list[Stored] = []
        path, incarnation = path_segments(self._place.path), pointer.token.incarnation
        for group in _grouped(pointer.chunks):
            names = [f"{pointer.generation}:{chunk.number}" for chunk in group]
            bodies = await self._place.store.batch([("GET", self._place.keys.chunk(name)) for name in names])
            reach("load", "read")
            for chunk, body in zip(group, bodies, strict=True):
                rows += await asyncio.to_thread(chunk.open, body, path, incarnation)
            if progress is not None:
                progress(len(rows), pointer.rows)
        return rows

    async def _rebuilt(self, flaw: str, space: str | None, progress: Progress | None) -> Loaded | None:
        head = await Head.read(self._place)
        if head is None:
            return None
        log.info("path %r: no snapshot to load (%s); reading %d records", self._place.path, flaw, head.count)
        rows: list[Stored] = []
        async for page in self._records.walk(space=space):
            rows += page
            reach("rebuild", "read")
            if progress is not None:
                progress(len(rows), max(head.count, len(rows)))
        return Loaded(head.token, _distinct(rows), "records")


def _distinct(rows: list[Stored]) -> list[Stored]:
    """Keep the later of two rows of a record, which was forgotten and remembered anew while the rows were read."""
    found: dict[str, Stored] = {}
    for row in rows:
        found.pop(row.record.id, None)
        found[row.record.id] = row
    return list(found.values())


def _grouped(chunks: Iterable[Chunk]) -> list[list[Chunk]]:
    """Put chunks together that are read in one round trip."""
    groups: list[list[Chunk]] = []
    size = TRIP_BYTES
    for chunk in chunks:
        if size + chunk.size > TRIP_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(chunk)
        size += chunk.size
    return groups
