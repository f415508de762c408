"""The view: what one process knows of a path, kept up to date from its log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from blackboard.errors import CorruptValue, ServerUnavailable, StoreRegressed
from blackboard.memory.embedder import Space, unpack
from blackboard.memory.frame import Frame
from blackboard.memory.index import kind_for
from blackboard.memory.record import Token
from blackboard.memory.records import Records, Tail
from blackboard.memory.snapshot import Loaded, Progress, Snapshots
from blackboard.memory.stored import Stored
from blackboard.memory.table import NEVER, Row, Table
from blackboard.memory.words import words
from blackboard.settings import MemoryNamespace
from blackboard.telemetry import count, logger

__all__ = ["Loader", "View"]

Loader = Callable[[str | None, Progress | None], Awaitable[Loaded | None]]
"""What reads all records of a path, given the space that its vectors should have; None if nothing was ever written."""

DELTA = 1_000
"""Rows beside the index up to which it is not built anew; a tenth of its rows if that is more."""
ENDED = 0.25
"""Share of ended rows up to which they are carried along."""
PIECE = 500
"""Rows read into a table at a time."""
FEW = 50
"""Rows that are worked on on the event loop; more go to a thread."""
FETCHED = 200
"""Records read in one round trip."""
INLINE = 20_000
"""Characters that are split into words on the event loop; more go to a thread."""
LOADS = 3
"""How often one refresh reads everything because the log had been trimmed before it was read."""

log = logger("memory")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Step:
    """What a stretch of the log comes to: rows to append, and records that are gone before that."""

    rows: Sequence[Row]
    gone: Sequence[str]
    clock: int

    @classmethod
    def of(cls, news: Sequence[Stored], space: Space | None, gone: Sequence[str] = ()) -> _Step:
        """Make the rows of records; `clock` is the latest time that they tell of."""
        clock = max((stored.record.updated for stored in news), default=0)
        return cls([_row(stored, space) for stored in news], gone, clock)


class View:
    """What one process knows of one path. `frame` is the newest it has; frames that somebody holds stay what they are.

    Its vectors are those of `space`, or of whatever space the path has if that is None; where the path has another one,
    records are found by words alone. `loader` reads everything the first time and after a gap (from the newest snapshot or
    the records unless another is given); `progress` is told how far that is. Belongs to one event loop. Indexes are
    built in threads, and swapped in when they are done.
    """

    def __init__(
        self,
        records: Records,
        space: Space | None,
        policy: MemoryNamespace,
        *,
        loader: Loader | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.records, self.space, self.policy = records, space, policy
        self._loader = Snapshots(records).load if loader is None else loader
        self._progress = progress
        self._table = Table(None)
        self._table.settle("flat")
        self.frame = Frame(self._table)
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[Frame] | None = None
        self._building: asyncio.Task[None] | None = None
        self._tasks = set[asyncio.Task[Any]]()
        self._journal: list[_Step] | None = None

    def __repr__(self) -> str:
        return f"<View of {self.records!r} at {self.frame.token}>"

    async def refresh(self, at_least: Token | None = None) -> Frame:
        """Read on to the end of the log, and return a frame that holds every write acknowledged before the call.

        One round trip if nothing is new, two if something is; callers that wait at the same time share them. Raises
        StoreRegressed if the path is not as far as `at_least`, or has not the life that it is of.
        """
        turn = self._next
        if turn is None:
            turn = self._next = self._started(self._turn())
        frame = await asyncio.shield(turn)
        if at_least is not None:
            self._reached(frame, at_least)
        return frame

    async def reload(self) -> Frame:
        """Read everything anew, whatever is known, and return the frame that comes of it."""
        async with self._lock:
            await self._load(await self.records.tail(0, 1))
        return await self.refresh()

    async def rebuild(self) -> None:
        """Build the index anew, without a trace of what has ended; returns when it is swapped in."""
        while (before := self._building) is not None:  # it may have begun before the last change
            await asyncio.shield(before)
        await asyncio.shield(self._build())

    async def close(self) -> None:
        """Stop what is running in the background."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _started(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something that goes on if the caller who began it is cancelled."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.debug("path %r: %r", self.records.path, failure)  # whoever waits for it is told

    async def _turn(self) -> Frame:
        async with self._lock:
            self._next = None  # whoever comes from here on may have seen a write that this turn does not read
            await self._read_on()
            table = self._table
            late, ended = table.size - table.settled, table.size - table.living
            if late > max(DELTA, table.settled // 10) or ended > max(DELTA, ENDED * table.size):
                self._build()
            return self.frame

    async def _read_on(self) -> None:
        target: int | None = None
        loads = 0
        while True:
            tail = await self.records.tail(self.frame.token or 0)
            if tail.token is None or (tail.token == self.frame.token and tail.space == self.frame.stored_space):
                return
            if tail.gap or (tail.more and self.frame.token is None) or self._respaced(tail):
                if loads == LOADS:
                    raise ServerUnavailable(
                        f"the log of path {self.records.path!r} is trimmed faster than it can be read; try again",
                        path=self.records.path,
                    )
                loads += 1
                await self._load(tail)
                continue
            if target is None:
                target = self.records.known.seq if self.records.known else 0
            await self._follow(tail)
            if not tail.more or tail.token.seq >= target:
                return

    async def _load(self, tail: Tail) -> None:
        """Read everything, whatever was known before."""
        loaded = await self._loader(tail.space, self._progress)
        if loaded is None:
            raise self._regressed("nothing", tail.token)
        usable = self._usable(tail.space)
        table, clock = Table(usable), 0
        for start in range(0, len(loaded.rows), PIECE):
            piece = {stored.record.id: stored for stored in loaded.rows[start : start + PIECE]}
            step = await asyncio.to_thread(_Step.of, [*piece.values()], usable)
            await _apply(table, [step])
            clock = max(clock, step.clock)
        vectors = 0 if table.vectors is None else table.vectors.count
        await asyncio.to_thread(table.settle, kind_for(self.policy.index, vectors, self.policy.flat_limit))
        log.info("path %r: %d records read from %s", self.records.path, table.size, loaded.source)
        count("memory.loads", source=loaded.source)
        self._table, self._journal = table, None
        self.frame = Frame(table, loaded.token, clock=clock, stored_space=tail.space)

    async def _follow(self, tail: Tail) -> None:
        """Apply what the log says to the table, and make the next frame."""
        usable = self._usable(tail.space)
        if usable is not None and self._table.space is None:
            self._table.adopt(usable)
        gone, written = dict[str, None](), dict[str, None]()
        for change in tail.changes:
            if change.op == "forget":
                gone[change.id] = None
                written.pop(change.id, None)
            elif change.op != "space":
                written[change.id] = None
        step = _Step((), (), self.frame.clock)
        if gone or written:
            found = dict(zip(written, await self._fetched([*written], tail.space), strict=True))
            size = sum(len(stored.record.text) for stored in found.values() if stored is not None)
            if len(found) <= FEW and size <= INLINE:
                step = self._step(found, gone, usable)
            else:
                step = await asyncio.to_thread(self._step, found, gone, usable)
            if self._journal is not None:
                self._journal.append(step)
            await _apply(self._table, [step])
        clock = max(step.clock, self.frame.clock)
        self.frame = Frame(self._table, tail.token, clock=clock, stored_space=tail.space)

    def _step(self, found: Mapping[str, Stored | None], gone: Collection[str], space: Space | None) -> _Step:
        """Work out what records that were read come to; one that is not there any more is gone."""
        missing = [name for name, stored in found.items() if stored is None]
        ended = set(gone)  # what was forgotten and is there again needs a row even if that is known
        news = [one for one in found.values() if one is not None and (one.record.id in ended or self._news(one))]
        return _Step.of(news, space, [*gone, *missing])

    async def _fetched(self, ids: Sequence[str], space: str | None) -> list[Stored | None]:
        """Read records in slices: what a trip brings is read on the event loop. A frame holds vectors of one space."""
        found: list[Stored | None] = []
        for start in range(0, len(ids), FETCHED):
            found += await self.records.fetch(ids[start : start + FETCHED], vectors=True, space=space)
        return found

    def _news(self, stored: Stored) -> bool:
        """Say whether a record differs from its row; a later write may have been read with an earlier one."""
        row = self._table.row_of(stored.record.id, self._table.size, self._table.epoch)
        if row is None:
            return True
        names = ("version", "seq", "vid", "valid_from", "valid_until", "expires")
        held = tuple(int(self._table.numbers(name, self._table.size)[row]) for name in names)
        return held != tuple(_numbers(stored)[name] for name in names)

    def _usable(self, stored_space: str | None) -> Space | None:
        """Say of which space vectors can be held; None if there are none, or they are of another."""
        if stored_space is None or (self.space is not None and self.space.text() != stored_space):
            return None
        return Space.parse(stored_space)

    def _respaced(self, tail: Tail) -> bool:
        """Say whether all vectors of the path have been replaced since the frame was made."""
        known = self.frame.stored_space
        if known is not None:
            return known != tail.space
        return sum(change.op == "space" for change in tail.changes) > 1

    def _build(self) -> asyncio.Task[None]:
        """Begin to build the index anew, unless that is going on."""
        if self._building is None:
            self._journal = []
            self._building = self._started(self._rebuilt(self.frame, self._table, self._journal))
        return self._building

    async def _rebuilt(self, frame: Frame, table: Table, journal: list[_Step]) -> None:
        try:
            try:
                fresh = await asyncio.to_thread(self._copied, frame, table)
            except Exception:
                log.exception("path %r: the index could not be built anew; the one before goes on", self.records.path)
                raise
            async with self._lock:
                if self._journal is journal:  # otherwise everything was read anew meanwhile
                    if table.space is not None and fresh.space is None:
                        fresh.adopt(table.space)
                    await _apply(fresh, journal)
                    now = self.frame
                    self._table = fresh
                    self.frame = Frame(fresh, now.token, clock=now.clock, stored_space=now.stored_space)
                    count("memory.rebuilds")
        finally:
            if self._journal is journal:
                self._journal = None
            self._building = None

    def _copied(self, frame: Frame, table: Table) -> Table:
        fresh = table.kept(frame.size, frame.epoch)
        vectors = 0 if fresh.vectors is None else fresh.vectors.count
        fresh.settle(kind_for(self.policy.index, vectors, self.policy.flat_limit))
        return fresh

    def _reached(self, frame: Frame, at_least: Token) -> None:
        token = frame.token
        if token is None or token.incarnation != at_least.incarnation or token.seq < at_least.seq:
            raise self._regressed("nothing" if token is None else str(token), at_least)

    def _regressed(self, found: str, wanted: Token | None) -> StoreRegressed:
        return StoreRegressed(
            f"path {self.records.path!r} was at {wanted} and the store has {found}: it has lost what it had acknowledged",
            namespace=self.records.namespace,
            path=self.records.path,
            lost=str(wanted),
        )


async def _apply(table: Table, steps: Sequence[_Step]) -> None:
    def apply() -> None:
        for step in steps:
            table.add(step.rows, step.gone)

    if sum(len(step.rows) + len(step.gone) for step in steps) <= FEW:
        apply()
    else:
        await asyncio.to_thread(apply)


def _row(stored: Stored, space: Space | None) -> Row:
    """Make the row of a record; its vector only if it is of the space that the table holds."""
    record = stored.record
    numbers = _numbers(stored)
    vector = None
    if stored.vector is not None and space is not None:
        try:
            vector = unpack(stored.vector, space)
        except CorruptValue as wrong:
            log.warning("record %r is found by its words alone: %s", record.id, wrong)
    if vector is None:
        numbers["vid"] = -1
    return Row(
        record.id,
        words=words(record.text),
        vector=vector,
        created=record.created,
        importance=record.importance,
        subject=record.subject,
        metadata=record.metadata,
        **numbers,
    )


def _numbers(stored: Stored) -> dict[str, int]:
    """What changes when a record does; its expiry comes in ms."""
    record = stored.record
    return {
        "version": record.version,
        "seq": record.token.seq,
        "vid": -1 if stored.vid is None else stored.vid,
        "valid_from": record.valid_from,
        "valid_until": NEVER if record.valid_until is None else record.valid_until,
        "expires": NEVER if record.expires is None else record.expires * 1_000,
    }
