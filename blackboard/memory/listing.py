"""Reading without relevance: pages in order of first write, counts, and what changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from blackboard.errors import ConfigError
from blackboard.keys import check_id
from blackboard.memory.filters import Where, parse
from blackboard.memory.record import Record, Token, checked
from blackboard.memory.records import Change, Records

__all__ = ["Changes", "Page", "at_least_one", "changes", "count", "history", "page"]


SIZE = 500
"""How many records are read at once to find those that a filter holds for."""


@dataclass(frozen=True, slots=True)
class Page(Sequence[Record]):
    """Records in order of first write; `after` leads to the next page; None says that there is none."""

    records: tuple[Record, ...]
    after: int | None

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Record, ...]: ...
    def __getitem__(self, index: int | slice) -> Record | tuple[Record, ...]:
        return self.records[index]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed after a token, oldest first: which records and how, never what they say.

    `token` leads to what comes next (None: the path was never written), `more` says that more stands already. With a
    `gap` older entries were trimmed: read the records themselves instead.
    """

    changes: tuple[Change, ...]
    token: Token | None
    gap: bool
    more: bool


async def page(records: Records, where: Where | None, limit: int, after: int) -> Page:
    """Read at most `limit` records that a filter holds for, after a place."""
    chosen = parse(where)
    at_least_one(limit)
    if type(after) is not int or after < 0:
        raise ConfigError(f"after is 0, or `after` of the page before unless that is None; got {after!r}", value=after)
    found: list[Record] = []
    place = after
    while rows := await records.rows(place, limit if chosen is None else max(limit, SIZE)):
        stored = await records.fetch([name for name, _ in rows])
        for one, (_, place) in zip(stored, rows, strict=True):
            if one is not None and (chosen is None or chosen.matches(one.record.metadata)):
                found.append(one.record)
            if len(found) == limit:
                return Page(tuple(found), place)
    return Page(tuple(found), None)


async def count(records: Records, where: Where | None) -> int:
    """Count the records that a filter holds for; all of them in one round trip."""
    chosen = parse(where)
    if chosen is None:
        return await records.count()
    return sum([chosen.matches(one.record.metadata) async for part in records.walk(vectors=False) for one in part])


async def history(records: Records, subject: str, limit: int) -> list[Record]:
    """Read the newest records about a subject."""
    at_least_one(limit)
    return await records.about(check_id(subject, "subject"), limit)


async def changes(records: Records, after: Token | None, limit: int) -> Changes:
    """Read what the log says after a token."""
    at_least_one(limit)
    after = checked(after, "after")
    tail = await records.tail(0 if after is None else after, limit)
    return Changes(tail.changes, tail.token, tail.gap, tail.more)


def at_least_one(limit: int) -> None:
    """Refuse a limit that is none."""
    if type(limit) is not int or limit < 1:
        raise ConfigError(f"limit must be a whole number of at least 1, got {limit!r}", limit=limit)
