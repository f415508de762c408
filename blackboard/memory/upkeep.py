"""Tending a path: what was cut short is finished, what has run out goes, vectors that are missing are made, the budget is kept."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from blackboard.errors import BlackboardError, LeaseHeld
from blackboard.memory import sets
from blackboard.memory.embedder import Embedder
from blackboard.memory.forgetting import GRACE, Selection, Why, finish, forget
from blackboard.memory.lease import PathLease, Place, tend
from blackboard.memory.migration import carry_on
from blackboard.memory.pending import embed
from blackboard.memory.record import Record
from blackboard.memory.records import Records
from blackboard.memory.scrubbing import discard, scrub
from blackboard.memory.snapshot import Snapshots
from blackboard.points import reach
from blackboard.telemetry import logger

__all__ = ["Tended", "Tending", "tended"]

SLICE = 500
"""Records that one step of the upkeep is about."""

MOST_WATCHED = 1_000
"""Of how many paths a process counts what it wrote since it last had them tended."""

log = logger("memory")


@dataclass(frozen=True, slots=True)
class Tended:
    """What tending a path came to. `held_by` is who tends it already; then nothing was done.

    `finished` forgettings that were cut short were brought to their end, `expired` records cleared away, `embedded` given
    the vectors that they lacked, `evicted` for the budget; `pending` still lack a vector, because the embedder fails or is not
    that of the path. `settled`: a change of the embedding space was brought to its end, a day after it took place.
    `indexed` records were looked at for a vector set that did not hold them all.
    """

    finished: int = 0
    expired: int = 0
    embedded: int = 0
    pending: int = 0
    evicted: int = 0
    snapshot: bool = False
    settled: bool = False
    held_by: str | None = None
    indexed: int = 0


async def tended(records: Records, embedder: Embedder | None, grace: float = GRACE) -> Tended:
    """Tend a path under its lease; a forgetting that began more than `grace` seconds ago counts as cut short."""
    await sets.ready(records)
    place = Place(records.store, records.namespace, records.path)
    if await records.store.command("EXISTS", records.keys.head) == 0:
        return Tended()
    try:
        async with tend(place) as lease:
            return await _all(records, place, embedder, lease, grace)
    except LeaseHeld as held:
        return Tended(held_by=held.holder)


async def _all(records: Records, place: Place, embedder: Embedder | None, lease: PathLease, grace: float) -> Tended:
    finished = await finish(records, grace)
    reach("tend", "finished")
    expired = await _expired(records, place)
    reach("tend", "expired")
    settled = await carry_on(records, lease)
    reach("tend", "settled")
    made = 0 if embedder is None else await embed(records, embedder)
    reach("tend", "embedded")
    evicted = await _evicted(records)
    reach("tend", "evicted")
    indexed, built = await _searchable(records, place, lease)
    pending = await records.store.command("SCARD", records.keys.pending)
    return Tended(len(finished), expired, made, pending, evicted, built, settled, indexed=indexed)


async def _searchable(records: Records, place: Place, lease: PathLease) -> tuple[int, bool]:
    """Fill the vector set where the server searches; elsewhere build a snapshot if it is due. What the other needs goes."""
    every = records.policy.snapshot_every
    if sets.served(records.policy):
        indexed = await sets.fill(records)
        await discard(place)
        await sets.trim(records, every)
        return indexed, False
    await sets.drop(records)
    snapshots = Snapshots(records)
    return 0, await snapshots.due(every) and await snapshots.build(lease) is not None


async def _expired(records: Records, place: Place) -> int:
    """Clear away what is left of records that have run out: rows that find them, and their rows in the snapshot."""
    total = 0
    while ids := await records.expired(SLICE):
        gone = await records.forget(ids, expired=True)
        await scrub(place, ids)
        total += len(gone)
        if not gone:
            break
    return total


async def _evicted(records: Records) -> int:
    """Forget what is least worth keeping beyond the budget: superseded first, then by importance, then the oldest."""
    budget = records.policy.budget
    if budget is None or await records.count() <= budget:
        return 0
    free = [one.record async for page in records.walk(vectors=False) for one in page if not one.record.pinned]
    victims = sorted(free, key=_worth)[: max(0, len(free) - budget)]
    if not victims:
        return 0
    receipt = await forget(records, Selection(ids=tuple(record.id for record in victims)), Why(reason="budget"))
    return receipt.count


def _worth(record: Record) -> tuple[bool, float, int]:
    return record.superseded_by is None, record.importance, record.updated


class Tending:
    """Has paths tended in the background, each after as many of this process's writes as a snapshot is worth."""

    def __init__(self) -> None:
        self._since: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._tasks = set[asyncio.Task[None]]()

    def wrote(self, records: Records, embedder: Embedder | None) -> None:
        """Take note that something was written; nothing is awaited by that."""
        if records.known is None:
            return
        place, seq = (records.namespace, records.path), records.known.seq
        since = self._since.pop(place, seq - 1)
        due = seq - since >= records.policy.snapshot_every
        self._since[place] = seq if due else since
        if len(self._since) > MOST_WATCHED:
            self._since.popitem(last=False)
        if due:
            task = asyncio.create_task(self._tend(records, embedder))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop what goes on; whoever tends the path next goes on from there."""
        for task in (tasks := [*self._tasks]):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _tend(self, records: Records, embedder: Embedder | None) -> None:
        try:
            done = await tended(records, embedder)
        except BlackboardError as failure:
            log.warning("path %r could not be tended: %s", records.path, failure)
        else:
            log.debug("path %r was tended: %s", records.path, done)
