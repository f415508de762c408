"""What one process knows of a namespace of a store: every item's value and vectors, kept up to date from the log."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from blackboard.errors import ServerUnavailable
from blackboard.integrations.langgraph.items import value_of
from blackboard.memory.record import Token
from blackboard.memory.records import Records, Tail
from blackboard.memory.stored import Stored

__all__ = ["Held", "Image"]

LOADS = 3
"""How often one refresh reads everything because the log had been trimmed before it was read."""


@dataclass(frozen=True, slots=True)
class Held:
    """An item as it was last read, to be compared and never to be handed out: `vectors` are those of its texts in a row."""

    key: str
    version: int
    value: dict[str, Any]
    vectors: bytes | None
    expires: int | None

    @classmethod
    def of(cls, stored: Stored) -> Held:
        """Take a record as an item."""
        record = stored.record
        return cls(record.id, record.version, value_of(record), stored.vector, record.expires)


class Image:
    """The items of one namespace in order of first write. Belongs to one event loop.

    What it holds is as of `token`. An item whose time was extended by a read is held with its old end: `settle` asks.
    """

    def __init__(self, namespace: tuple[str, ...], records: Records) -> None:
        self.namespace, self.records = namespace, records
        self.items: dict[str, Held] = {}
        self.token: Token | None = None
        self.space: str | None = None
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Read on to the end of the log, so that every write acknowledged before the call is known.

        One round trip if nothing is new, two if something is; callers that wait at the same time share them. Raises
        StoreRegressed if the store has lost what was known.
        """
        turn = self._next
        if turn is None:
            turn = self._next = asyncio.create_task(self._turn())
            turn.add_done_callback(_heard)
        await asyncio.shield(turn)

    async def settle(self, now_ms: int) -> None:
        """Ask for the items whose time seems to be over, and drop those that are gone; nothing is sent if there are none."""
        doubtful = [held.key for held in self.items.values() if held.expires is not None and held.expires <= now_ms]
        if doubtful:
            before = dict(self.items)
            for key, stored in zip(doubtful, await self.records.fetch(doubtful, vectors=True), strict=True):
                if self.items.get(key) is before[key]:
                    self._take(key, stored)

    def drop(self, held: Held) -> None:
        """Forget an item that was not there when it was asked for, unless it was put again and is known by that already."""
        if self.items.get(held.key) is held:
            del self.items[held.key]

    async def _turn(self) -> None:
        async with self._lock:
            self._next = None  # whoever comes from here on may have seen a write that this turn does not read
            target, loads = 0, 0
            while True:
                tail = await self.records.tail(self.token or 0)
                if tail.token is None:
                    return
                target = target or (self.records.known.seq if self.records.known else 0)
                if tail.gap or (tail.more and self.token is None):
                    if loads == LOADS:
                        raise ServerUnavailable(
                            f"the log of path {self.records.path!r} is trimmed faster than it can be read; try again",
                            path=self.records.path,
                        )
                    loads += 1
                    await self._load(tail)
                    continue
                await self._follow(tail)
                if not tail.more or tail.token.seq >= target:
                    return

    async def _load(self, tail: Tail) -> None:
        """Read every item, whatever is known; what is written meanwhile is in the log behind `token`."""
        token, found = self.records.known, dict[str, Held]()
        async for page in self.records.walk():
            for stored in page:
                found.pop(stored.record.id, None)
                found[stored.record.id] = Held.of(stored)
        self.items, self.token, self.space = found, token, tail.space

    async def _follow(self, tail: Tail) -> None:
        """Take over what the log says; an item that begins anew comes last."""
        written: dict[str, None] = {}
        gone = set[str]()
        for change in tail.changes:
            if change.op == "forget" or (change.op == "put" and change.version == 1):
                gone.add(change.id)
                written.pop(change.id, None)
            if change.op in ("put", "vector"):
                written[change.id] = None
        stored = await self.records.fetch([*written], vectors=True)
        for key in gone:
            self.items.pop(key, None)
        for key, one in zip(written, stored, strict=True):
            self._take(key, one)
        self.token, self.space = tail.token, tail.space

    def _take(self, key: str, stored: Stored | None) -> None:
        if stored is None:
            self.items.pop(key, None)
        else:
            self.items[key] = Held.of(stored)


def _heard(turn: asyncio.Task[None]) -> None:
    """Take note of a failure, which whoever waits is told of."""
    if not turn.cancelled():
        turn.exception()
