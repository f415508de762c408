"""Listing checkpoints: manifests are filtered by their metadata, and only those that pass are read whole."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from blackboard import keys
from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.manifest import Manifest
from blackboard.errors import ConfigError
from blackboard.integrations.langgraph.conditions import same
from blackboard.integrations.langgraph.originals import Originals
from blackboard.integrations.langgraph.place import Place
from blackboard.integrations.langgraph.spelling import Spelling
from blackboard.integrations.langgraph.tuples import find, tuple_of

__all__ = ["Asked", "listed", "manifests"]

PAGE = 50
"""Checkpoints per page: a trip for their manifests and one for their contents."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Which checkpoints of a thread are wanted: of one lineage or (None) all, older than an id, with this metadata."""

    thread: str
    lineage: str | None = None
    checkpoint: str | None = None
    before: str | None = None
    filter: Mapping[str, Any] | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and type(self.limit) is not int:
            raise ConfigError(f"limit must be a whole number or None, got {self.limit!r}", value=self.limit)
        if self.filter is not None and not isinstance(self.filter, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"filter must be a dict of metadata, got {self.filter!r}", value=self.filter)


async def manifests(
    engine: Engine, thread: str, lineage: str, *, before: str | None = None, page: int = PAGE
) -> AsyncIterator[Manifest]:
    """Yield the manifests of a lineage, newest first."""
    while found := await engine.history(thread, lineage=lineage, before=before, limit=page):
        for manifest in found:
            yield manifest
        if len(found) < page:
            return
        before = found[-1].checkpoint


async def _named(engine: Engine, place: Place, before: str | None) -> AsyncIterator[Manifest]:
    """Yield the manifest of one checkpoint, if there is one and it is older than `before`."""
    found = await find(engine, place)
    if found is not None and (before is None or keys.encode(found.manifest.checkpoint) < keys.encode(before)):
        yield found.manifest


async def listed(engine: Engine, spelling: Spelling, asked: Asked) -> AsyncIterator[CheckpointTuple]:
    """Yield tuples, newest id first whatever their lineage; in pages, each read in one trip per lineage."""
    lineages = await engine.lineages(asked.thread) if asked.lineage is None else [asked.lineage]
    sources = [_Source(engine, spelling, asked, lineage) for lineage in lineages]
    left = asked.limit
    heads = [(head, at) for at, source in enumerate(sources) if (head := await source.head()) is not None]
    heapq.heapify(heads)
    while heads and (left is None or left > 0):
        _, at = heapq.heappop(heads)
        found = await sources[at].take(left)
        head = await sources[at].head()
        if head is not None:
            heapq.heappush(heads, (head, at))
        if found is not None:
            yield found
            left = None if left is None else left - 1


class _Descending(str):
    """An id that sorts before the smaller ones, by bytes as the server sorts."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return keys.encode(str(self)) > keys.encode(str(other))


class _Source:
    """The checkpoints of one lineage that were asked for, newest first, contents read a page ahead."""

    def __init__(self, engine: Engine, spelling: Spelling, asked: Asked, lineage: str) -> None:
        self._engine, self._spelling, self._asked = engine, spelling, asked
        self._place = Place(asked.thread, lineage)
        if asked.checkpoint is None:
            self._manifests = manifests(engine, asked.thread, lineage, before=asked.before)
        else:
            self._manifests = _named(engine, self._place.at(asked.checkpoint), asked.before)
        self._ready: list[Manifest] = []
        self._tuples: dict[str, CheckpointTuple] = {}
        self._ended = False

    async def head(self) -> _Descending | None:
        """Tell the id of the next one; None at the end."""
        if not self._ready and not self._ended:
            await self._fill()
        return _Descending(self._ready[0].checkpoint) if self._ready else None

    async def take(self, most: int | None) -> CheckpointTuple | None:
        """Return the next one and pass on; None if it was pruned since it was listed."""
        if self._ready[0].checkpoint not in self._tuples:
            some = self._ready[: PAGE if most is None else min(most, PAGE)]
            place, originals = self._place, Originals(self._spelling)
            for snapshot in await self._engine.contents(place.thread, some, lineage=place.lineage):
                made = await tuple_of(self._engine, self._spelling, place, snapshot, originals)
                self._tuples[snapshot.manifest.checkpoint] = made
        return self._tuples.pop(self._ready.pop(0).checkpoint, None)

    async def _fill(self) -> None:
        async for manifest in self._manifests:
            if self._wanted(manifest):
                self._ready.append(manifest)
            if len(self._ready) >= PAGE:
                return
        self._ended = True

    def _wanted(self, manifest: Manifest) -> bool:
        if not self._asked.filter:
            return True
        _, metadata = self._spelling.rest(manifest)
        return all(same(metadata.get(name), value) for name, value in self._asked.filter.items())
