"""Taking threads over from another of LangGraph's savers: all that belongs to them, compared at the end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver, CheckpointTuple, get_checkpoint_id
from langgraph.checkpoint.serde.base import SerializerProtocol

from blackboard.errors import BlackboardError, ConfigError
from blackboard.integrations.langgraph.listing import manifests
from blackboard.integrations.langgraph.place import Place, configured, several, thread_named
from blackboard.integrations.langgraph.saver import BlackboardSaver
from blackboard.integrations.langgraph.tuples import TASKS, has_no_tasks
from blackboard.telemetry import logger

__all__ = ["Copied", "Difference", "copy_threads"]

log = logger("langgraph.migrate")

_FORGETFUL = {"langgraph.checkpoint.redis.RedisSaver", "langgraph.checkpoint.redis.shallow.ShallowRedisSaver"}
"""The first passes over writes that were stored before their checkpoint, the second lists namespaces under other names."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A checkpoint that is not the same in both savers; `what` names the part, as `channel 'messages'`, or is `missing`."""

    thread: str
    lineage: str
    checkpoint: str
    what: str


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copying did: threads looked at, checkpoints copied, checkpoints that stood there before, and what differs."""

    threads: int
    checkpoints: int
    standing: int
    differences: tuple[Difference, ...]


async def copy_threads(
    source: BaseCheckpointSaver[Any], target: BlackboardSaver, threads: Iterable[str] | None = None
) -> Copied:
    """Copy threads (without `threads` every one) with all namespaces, checkpoints, parents, metadata and pending writes.

    Checkpoints are copied in the order of their ids, one at a time, so that what is held in memory is one of them, and what
    the source's listing holds. A copying that was cut off is called again: what stands is passed over, but for pending writes
    that are missing. Then each checkpoint is read from both savers and compared part by part; `differences` is empty if nothing
    is lost. Nothing should write to a thread meanwhile, and the source is only read. A source without async methods is read in
    a thread of its own. Raises ConfigError for a sync RedisSaver, which leaves out what AsyncRedisSaver tells, and what the
    savers raise, with a note of the checkpoint that it was about.
    """
    given: Any = (source, target)  # callers may not be typed
    if not isinstance(given[0], BaseCheckpointSaver) or not isinstance(given[1], BlackboardSaver):
        raise ConfigError(
            f"threads are copied from any saver of LangGraph's to a BlackboardSaver, got {source!r} and {target!r}",
            value=given,
        )
    reader = _Reader(source)
    places = await reader.places(threads)
    copied = standing = 0
    differences: list[Difference] = []
    for thread, wanted in places.items():
        stored = await _standing(target, thread)
        for place in wanted:
            stands = (place.lineage, place.checkpoint) in stored
            if await _copy(reader, target, place, stands=stands):
                copied += not stands
                standing += stands
        differences += [difference async for difference in _compared(reader, target, wanted)]
        log.info("copied thread %r: %d checkpoints", thread, len(wanted))
    return Copied(len(places), copied, standing, tuple(differences))


class _Reader:
    """The saver that is copied from, whether it is async or sync."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        for kind in type(saver).__mro__:
            if f"{kind.__module__}.{kind.__name__}" in _FORGETFUL:
                raise ConfigError(
                    f"{kind.__name__} does not tell all that is there, as interrupts that were stored before their"
                    f" checkpoint; copy from an Async{kind.__name__} of the same server",
                    value=saver,
                )
        self._saver = saver
        self._sync = not inspect.isasyncgenfunction(saver.alist)
        self._named: dict[str, Any] = {}

    async def places(self, threads: Iterable[str] | None) -> dict[str, list[Place]]:
        """List the checkpoints of each thread by their ids, whatever their lineage: so parents come before their children."""
        parents: dict[Place, Place | None] = {}
        if threads is None:
            parents.update(await self._listed(None))
        else:
            for thread in dict.fromkeys(several(threads, "threads")):
                await self._add_thread(thread, parents)
        await self._add_ancestors(parents)
        found: dict[str, list[Place]] = {}
        for place in sorted(parents, key=lambda place: place.checkpoint or ""):
            found.setdefault(place.thread, []).append(place)
        return found

    async def read(self, place: Place) -> CheckpointTuple | None:
        """Read one checkpoint, of a thread that is named as it is there; None if it has gone meanwhile."""
        config: RunnableConfig = {
            "configurable": {**configured(place.config()), "thread_id": self._named.get(place.thread, place.thread)}
        }
        if self._sync:
            return await asyncio.to_thread(self._saver.get_tuple, config)
        return await self._saver.aget_tuple(config)

    async def _add_thread(self, thread: str, parents: dict[Place, Place | None]) -> None:
        """Add what is listed of a thread, and its newest checkpoint, which a listing by a search index may not find.

        Such an index may give what is named alike as well, but for the case of its letters.
        """
        config: RunnableConfig = {"configurable": {"thread_id": thread}}
        name = thread_named(thread)
        parents.update({place: parent for place, parent in await self._listed(config) if place.thread == name})
        newest = await self.read(Place(name))
        if newest is not None:
            parents.update([self._place(newest)])

    async def _add_ancestors(self, parents: dict[Place, Place | None]) -> None:
        """Add the ancestors that were not listed, as by a listing that has a limit; those that are pruned stay away."""
        for parent in [parent for parent in parents.values() if parent not in parents]:
            place = parent
            while place is not None and place not in parents:
                found = await self.read(place)
                parents.update([] if found is None else [self._place(found)])
                place = parents.get(place)

    async def _listed(self, config: RunnableConfig | None) -> list[tuple[Place, Place | None]]:
        if not self._sync:
            try:
                return [self._place(found) async for found in self._saver.alist(config)]
            except NotImplementedError:
                self._sync = True
        return await asyncio.to_thread(lambda: [self._place(found) for found in self._saver.list(config)])

    def _place(self, found: CheckpointTuple) -> tuple[Place, Place | None]:
        """Say where a checkpoint stands, and its parent.

        A saver may name threads by numbers, which are no texts to it, and one that keeps the newest alone may give it for
        any that was asked for.
        """
        place, parent = Place.of(found.config).at(found.checkpoint["id"]), _parent(found)
        self._named[place.thread] = configured(found.config)["thread_id"]
        return place, None if parent is None else place.at(parent)


async def _standing(target: BlackboardSaver, thread: str) -> set[tuple[str, str | None]]:
    """List what of a thread is there already."""
    found: set[tuple[str, str | None]] = set()
    for lineage in await target.engine.lineages(thread):
        async for manifest in manifests(target.engine, thread, lineage, page=500):
            found.add((lineage, manifest.checkpoint))
    return found


async def _copy(reader: _Reader, target: BlackboardSaver, place: Place, *, stands: bool) -> bool:
    """Copy one checkpoint, of one that stands the pending writes alone; False if it has gone from the source."""
    found = await reader.read(place)
    if found is None:
        return False
    try:
        if stands:
            there = await target.aget_tuple(place.config())
            await _copy_writes(target, place, found, there)
            return True
        checkpoint = found.checkpoint
        versions = {name: checkpoint["channel_versions"].get(name, 0) for name in checkpoint["channel_values"]}
        await target.aput(place.at(_parent(found)).config(), checkpoint, found.metadata, versions)
        await _copy_writes(target, place, found, None)
    except BlackboardError as error:
        error.add_note(f"while checkpoint {place.checkpoint!r} of thread {place.thread!r} was copied")
        raise
    return True


async def _copy_writes(
    target: BlackboardSaver, place: Place, found: CheckpointTuple, there: CheckpointTuple | None
) -> None:
    """Copy the pending writes of each task of which not all are there.

    A saver does not tell a task's path, by which they are ordered: the order in which they came takes its place.
    """
    known = _by_task(there)
    for number, (task, writes) in enumerate(_by_task(found).items()):
        if len(known.get(task, ())) < len(writes):
            await target.aput_writes(place.config(), writes, task, f"{number:06}")


def _by_task(found: CheckpointTuple | None) -> dict[str, list[tuple[str, Any]]]:
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in (found.pending_writes or ()) if found is not None else ():
        tasks.setdefault(task, []).append((channel, value))
    return tasks


def _ordered(found: CheckpointTuple) -> list[Any]:
    """Put pending writes in one order: a saver may tell tasks by turns, and errors and the like before or after the rest."""
    return [
        (task, sorted(writes, key=lambda write: WRITES_IDX_MAP.get(write[0], 0)))
        for task, writes in _by_task(found).items()
    ]


async def _compared(reader: _Reader, target: BlackboardSaver, places: Iterable[Place]) -> AsyncIterator[Difference]:
    for place in places:
        ours, theirs = await target.aget_tuple(place.config()), await reader.read(place)
        if ours is not None and theirs is None:  # pruned there meanwhile
            continue
        what = ["missing"] if ours is None or theirs is None else _differing(target.serde, ours, theirs)
        for part in what:
            yield Difference(place.thread, place.lineage, str(place.checkpoint), part)


def _differing(serde: SerializerProtocol, ours: CheckpointTuple, theirs: CheckpointTuple) -> Iterator[str]:
    """Name the parts that are not the same."""
    if _parent(ours) != _parent(theirs):
        yield "parent"
    yield from (f"metadata {name!r}" for name in _unequal(serde, ours.metadata, theirs.metadata))
    here, there = _parts(ours, theirs), _parts(theirs, theirs)
    yield from (
        f"channel {name!r}" for name in _unequal(serde, here.pop("channel_values"), there.pop("channel_values"))
    )
    yield from _unequal(serde, here, there)
    if not _same(serde, _ordered(ours), _ordered(theirs)):
        yield "pending writes"


def _parts(found: CheckpointTuple, theirs: CheckpointTuple) -> dict[str, Any]:
    """Return what a checkpoint is made of, without the tasks of an old format that only our reading has put into it."""
    parts: dict[str, Any] = dict(found.checkpoint)
    if has_no_tasks(theirs.checkpoint) and TASKS not in theirs.checkpoint["channel_values"]:
        for name in ("channel_values", "channel_versions"):
            parts[name] = {channel: part for channel, part in parts[name].items() if channel != TASKS}
    return parts


def _unequal(serde: SerializerProtocol, ours: Any, theirs: Any) -> list[str]:
    names = sorted({*ours, *theirs})
    return [name for name in names if not _same(serde, ours.get(name), theirs.get(name))]


def _same(serde: SerializerProtocol, ours: Any, theirs: Any) -> bool:
    """Whether two values are equal, or are written as the same bytes: NaN and arrays are not equal to themselves."""
    if serde.dumps_typed(ours) == serde.dumps_typed(theirs):
        return True
    try:
        return type(ours) is type(theirs) and bool(ours == theirs)
    except ValueError:
        return False


def _parent(found: CheckpointTuple) -> str | None:
    return None if found.parent_config is None else get_checkpoint_id(found.parent_config)
