"""Building a snapshot: chunk by chunk while others write and forget, then one flip of the pointer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from blackboard.errors import CorruptValue
from blackboard.memory.chunks import LONGEST_BYTES, LONGEST_ROWS, Chunk, sealed, weight
from blackboard.memory.lease import PathLease, Place
from blackboard.memory.pointer import Pointer
from blackboard.memory.record import Token
from blackboard.memory.records import Records
from blackboard.memory.stored import Stored
from blackboard.points import reach
from blackboard.store.script import Script

__all__ = ["Build", "Head"]

STAGED_MS = 600_000
"""How long a chunk stands that no pointer names: what a build that died leaves is gone after it."""

ATTEMPTS = 64
"""How often in a row a step gives way to others who forget meanwhile."""

STAGE, FLIP = (
    Script("blackboard.memory", name, prelude=("blackboard.claims:guard.lua",)) for name in ("stage.lua", "flip.lua")
)


@dataclass(frozen=True, slots=True)
class Head:
    """What is true of the whole path as far as snapshots go.

    `count` is how many records stand, `trimmed` the seq up to which the log is gone, `scrubs` how often chunks were scrubbed.
    """

    token: Token
    space: str | None
    count: int
    trimmed: int
    scrubs: str

    @classmethod
    async def read(cls, place: Place) -> Head | None:
        """Read it; None if nothing was ever remembered there."""
        return cls.of(await place.store.command(*cls.command(place)))

    @staticmethod
    def command(place: Place) -> tuple[str, ...]:
        """Return the command whose reply `of` takes."""
        return ("HMGET", place.keys.head, "incarnation", "seq", "space", "count", "trimmed", "scrubs")

    @classmethod
    def of(cls, reply: Sequence[bytes | None]) -> Head | None:
        """Make it from the reply."""
        incarnation, seq, space, count, trimmed, scrubs = (each.decode() if each else "" for each in reply)
        if not incarnation:
            return None
        token = Token(int(incarnation), int(seq or 0))
        return cls(token, space or None, int(count or 0), int(trimmed or 0), scrubs or "0")


class Build:
    """One snapshot in the making, as of `head` or later.

    A record that is written meanwhile may be in it as it was or as it is: whoever loads the snapshot replays the log
    from the watermark. A record that is forgotten meanwhile is not: every step is refused when a scrub came between the
    reading and the writing, and the rows are read again.
    """

    def __init__(self, place: Place, records: Records, lease: PathLease, head: Head) -> None:
        self._place, self._records, self._lease, self._head = place, records, lease, head
        self._generation = place.store.op_id()
        self._scrubs = head.scrubs
        self._chunks: list[Chunk] = []
        self._ids: list[list[str]] = []

    async def run(self) -> Pointer | None:
        """Stage all chunks and flip the pointer; None if others forgot faster than it could be built."""
        async for rows in _grouped(self._records.walk()):
            reach("build", "read")
            self._ids.append([row.record.id for row in rows])
            self._chunks.append(Chunk(len(self._chunks), "", 0, 0))
            if not await self._stage(self._chunks[-1], rows):
                return None
        reach("build", "staged")
        return await self._flip()

    async def _stage(self, chunk: Chunk, rows: Sequence[Stored]) -> bool:
        where, number = self._place.keys, chunk.number
        name = f"{self._generation}:{number}"
        asked = (where.head, where.chunks, where.chunk(name))
        for _ in range(ATTEMPTS):
            self._chunks[number], data = await asyncio.to_thread(sealed, number, rows)
            reply = await self._place.store.call(STAGE, asked, (*self._shown, name, STAGED_MS, data))
            if self._place.judge(reply, fence=self._lease.fence, owner=self._lease.owner) == "OK":
                return True
            self._scrubs = reply[1].decode()
            rows = await self._read(number)
        return False

    async def _flip(self) -> Pointer | None:
        where, store = self._place.keys, self._place.store
        for _ in range(ATTEMPTS):
            pointer = Pointer(self._generation, self._head.token, self._head.space, tuple(self._chunks))
            before, standing = await store.batch([("GET", where.index), ("SMEMBERS", where.chunks)])
            ours = pointer.names()
            victims = sorted({name.decode() for name in standing} - set(ours))
            asked = [where.chunk(name) for name in (*ours, *victims)]
            args = (*self._shown, before or b"", pointer.text(), self._trim(before), len(ours), *ours, *victims)
            reply = await store.call(FLIP, (where.head, where.index, where.log, where.chunks, *asked), args)
            match self._place.judge(reply, fence=self._lease.fence, owner=self._lease.owner):
                case "OK":
                    return pointer
                case "SCRUBBED":
                    self._scrubs = reply[1].decode()
                case _:
                    pass
            if not await self._mend():
                return None
        return None

    @property
    def _shown(self) -> tuple[int, int, str]:
        """What every script is shown: the fence, the life of the path, and how many scrubs the rows have seen."""
        return self._lease.fence, self._head.token.incarnation, self._scrubs

    def _trim(self, before: bytes | None) -> int:
        """Tell up to where the log goes: what came since the snapshot before stays, for views that are not far behind."""
        try:
            token = Pointer.parse(before).token if before else None
        except CorruptValue:
            return 0
        known = token is not None and token.incarnation == self._head.token.incarnation and token <= self._head.token
        return token.seq if token is not None and known else 0

    async def _mend(self) -> bool:
        """Stage again the chunks that are gone: scrubbed, or past their time."""
        where = self._place.keys
        names = [f"{self._generation}:{chunk.number}" for chunk in self._chunks]
        standing = await self._place.store.batch([("EXISTS", where.chunk(name)) for name in names])
        for chunk, stands in zip(tuple(self._chunks), standing, strict=True):
            if not stands and not await self._stage(chunk, await self._read(chunk.number)):
                return False
        return True

    async def _read(self, number: int) -> list[Stored]:
        """Read the rows of a chunk as they are now, without those that are gone."""
        found = await self._records.fetch(self._ids[number], vectors=True)
        return [row for row in found if row is not None]


async def _grouped(pages: AsyncIterator[list[Stored]]) -> AsyncIterator[list[Stored]]:
    """Cut the rows into chunks: 1,024 rows, or fewer where they are large."""
    rows: list[Stored] = []
    size = 0
    async for page in pages:
        for row in page:
            if rows and (len(rows) == LONGEST_ROWS or size + weight(row) > LONGEST_BYTES):
                yield rows
                rows, size = [], 0
            rows.append(row)
            size += weight(row)
    if rows:
        yield rows
