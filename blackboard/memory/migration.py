"""Migration: another embedder's vectors are put beside those that stand, and then all take their place at once.

Nothing is taken away before that is settled: a record that holds vectors of two spaces is found by the one that is of its
path's space, so that one field of the head decides for all of them, there and back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import Any, Literal, cast

from blackboard.errors import ConfigError, CorruptValue
from blackboard.memory.embedder import Embedder, Space, embedded, pack
from blackboard.memory.lease import PathLease, Place, tend
from blackboard.memory.pending import EMBEDDED, embed, sweep
from blackboard.memory.record import Record
from blackboard.memory.records import Records
from blackboard.memory.sets import fill, served
from blackboard.memory.snapshot import Snapshots
from blackboard.points import reach
from blackboard.store.protocol import Part
from blackboard.store.script import Script
from blackboard.telemetry import logger

__all__ = ["Comparison", "Migrated", "Standing", "Status", "carry_on", "migrate", "rollback", "settle", "standing"]

NOTE, BESIDE, RESPACE, SETTLE = (
    Script("blackboard.memory", name, prelude=("blackboard.claims:guard.lua", "path.lua"))
    for name in ("note.lua", "beside.lua", "respace.lua", "settle.lua")
)

GRACE = 86_400.0
"""Seconds for which a change can be taken back, unless it is settled before: a day."""

ROUNDS = 16
"""How often what others wrote meanwhile is caught up with; what is left then is embedded after the change."""

SLICE = 200
"""Records that are settled by one script."""

Status = Literal["settled", "staging", "flipped", "returned"]
"""What a path is in: no change of its space; vectors being made; the new space, the old one beside it; the old one again."""

Progress = Callable[[int, int], None]
"""Told how many records were looked at, and of how many."""

log = logger("memory")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Whether a change may take place: the least overlap of both spaces, on `questions` or else on records.

    `before` makes the questions' vectors of the space that is changed.
    """

    questions: Sequence[str] = ()
    least: float = 0.0
    before: Embedder | None = None

    def __post_init__(self) -> None:
        if type(self.least) not in (int, float) or not 0 <= self.least <= 1:
            raise ConfigError(f"least_overlap is a share from 0 to 1, got {self.least!r}", value=self.least)
        if isinstance(self.questions, str):
            raise ConfigError(f"queries is a list of texts, got the text {self.questions!r}", value=self.questions)


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a migration came to: vectors `staged` by this call, and records `left` that still have none of the new space.

    `overlap` is which share of the first ten records is the same in both spaces, None if there was nothing to compare.
    `flipped` says whether recall goes by the new space now.
    """

    staged: int
    left: int
    overlap: float | None
    flipped: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a path stands: the `space` of its vectors, None as long as it has none, and the change that is under way.

    `other` is the space whose vectors stand beside those, `since` when the change began, or took place, in µs; both None
    if it is settled. `pending` records lack a vector of `space`. `swept` is for whoever tends the path.
    """

    space: Space | None
    status: Status
    other: Space | None
    since: int | None
    pending: int
    swept: bool = True

    @property
    def target(self) -> Space | None:
        """The space that the path is brought to, or was brought to."""
        return self.space if self.status == "flipped" else self.other


async def standing(records: Records) -> Standing:
    """Read where a path stands; one round trip."""
    where = records.keys
    space, noted, pending = await records.store.batch(
        [("HGET", where.head, "space"), ("HGETALL", where.migration), ("SCARD", where.pending)]
    )
    stands = None if space is None else Space.parse(space.decode())
    told = {name.decode(): value.decode() for name, value in zip(noted[::2], noted[1::2], strict=True)}
    if not told:
        return Standing(stands, "settled", None, None, pending)
    try:
        status = cast("Status", told["status"])
        other = Space.parse(told["source" if status == "flipped" else "target"])
        return Standing(stands, status, other, int(told["since"]), pending, status == "staging" or "swept" in told)
    except (KeyError, ValueError) as error:
        raise CorruptValue(f"the note of path {records.path!r} about its embedding space is unreadable") from error


async def migrate(
    records: Records, embedder: Embedder, comparison: Comparison, progress: Progress | None = None
) -> Migrated:
    """Bring a path to the space of another embedder, under the path's lease; see `Memory.migrate`."""
    if await records.store.command("EXISTS", records.keys.head) == 0:
        return Migrated(0, 0, None, flipped=True)
    async with tend(Place(records.store, records.namespace, records.path)) as lease:
        return await _Migration(records, lease, embedder).run(comparison, progress)


async def rollback(records: Records, embedder: Embedder | None) -> Standing:
    """Bring a path back to the space that it had before a change that is not settled; see `Memory.rollback`."""
    async with tend(Place(records.store, records.namespace, records.path)) as lease:
        stands = await standing(records)
        if stands.status not in ("flipped", "returned") or stands.other is None:
            raise ConfigError(
                f"path {records.path!r} has nothing to go back to: its vectors are of {_spelled(stands.space)} and the change "
                f"to that is {stands.status}; migrate to the embedder that you want"
            )
        work = _Change(records, lease)
        if stands.status == "flipped":
            await work.respace(stands.other, "returned")
            reach("rollback", "returned")
        await work.complete(embedder)
    return await standing(records)


async def settle(records: Records) -> int:
    """Leave every record its vector of the path's space alone; see `Memory.settle`."""
    if (await standing(records)).status == "settled":
        return 0
    async with tend(Place(records.store, records.namespace, records.path)) as lease:
        return await _Change(records, lease).settle()


async def carry_on(records: Records, lease: PathLease) -> bool:
    """Finish a change of the space that was cut short after it took place, and settle it after its grace; tell if it was."""
    stands = await standing(records)
    if stands.status in ("settled", "staging") or stands.since is None:
        return False
    work = _Change(records, lease)
    if not stands.swept:
        await work.sweep()
    if stands.since + GRACE * 1_000_000 > records.store.server_time():
        return False
    await work.settle()
    return True


class _Change:
    """The steps of a change, each a script that shows the fence of the lease."""

    def __init__(self, records: Records, lease: PathLease) -> None:
        self._records, self._lease = records, lease
        self._place = Place(records.store, records.namespace, records.path)

    async def note(self, **fields: Part) -> None:
        """Write down how far it has come; without fields, that it is at its end."""
        await self._ask(NOTE, [self._place.keys.migration], [part for pair in fields.items() for part in pair])

    async def respace(self, space: Space, status: Status) -> None:
        """Make a space the path's, for all records at once."""
        where = self._place.keys
        reply = await self._ask(RESPACE, [where.log, where.migration], [space.text(), status])
        if reply[0] != b"OK":
            raise ConfigError(
                f"path {self._place.path!r}: the change of its space was settled meanwhile; migrate again"
            )
        log.info("path %r: its vectors are of %s from here on", self._place.path, space.text())

    async def sweep(self) -> None:
        """List what lacks a vector of the space that the path has now."""
        await sweep(self._records)
        await self.note(swept=1)

    async def complete(self, embedder: Embedder | None) -> int:
        """Do what follows a change: list what lacks a vector, make it, and renew what is searched; tell what still lacks one."""
        await self.sweep()
        reach("migrate", "swept")
        if embedder is not None:
            await embed(self._records, embedder)
        if served(self._records.policy):
            await fill(self._records)
        snapshots = Snapshots(self._records)
        if await self._records.store.command("EXISTS", self._place.keys.index):
            await snapshots.build(self._lease)
        return int(await self._records.store.command("SCARD", self._place.keys.pending))

    async def settle(self) -> int:
        """Go over all records, and note the end of the change."""
        if not (await standing(self._records)).swept:
            await self.sweep()
        after = changed = 0
        while rows := await self._records.rows(after, SLICE):
            after = rows[-1][1]
            reply = await self._ask(SETTLE, [self._place.keys.record(name) for name, _ in rows], [])
            reach("settle", "moved")
            changed += int(reply[1])
        await self.note()
        reach("settle", "noted")
        return changed

    async def _ask(self, script: Script, names: Sequence[str], args: Sequence[Part]) -> Any:
        place, lease = self._place, self._lease
        reply = await place.store.call(script, [place.keys.head, *names], [lease.fence, *args])
        place.judge(reply, fence=lease.fence, owner=lease.owner)
        return reply


class _Migration(_Change):
    """One migration under way."""

    def __init__(self, records: Records, lease: PathLease, embedder: Embedder) -> None:
        super().__init__(records, lease)
        self._embedder, self._target = embedder, Space.of(embedder)
        self._staged = 0

    async def run(self, comparison: Comparison, progress: Progress | None) -> Migrated:
        """Stage, compare and flip; or go on where one was cut short."""
        stands = await standing(self._records)
        if stands.status != "settled" and stands.target != self._target:
            raise ConfigError(
                f"path {self._place.path!r} is being brought to {_spelled(stands.target)}, not to {self._target.text()}; call "
                "settle() to end that, or rollback() if it has taken place",
                stored=_spelled(stands.target), offered=self._target.text(),
            )  # fmt: skip
        if stands.space in (None, self._target):
            return await self._there(stands)
        source = stands.space
        before = _questioner(comparison, source)
        if stands.status != "staging":
            now = self._records.store.server_time()
            await self.note(status="staging", target=self._target.text(), source=source.text(), since=now)
            reach("migrate", "noted")
        await self._stage_all(progress)
        overlap = await self._compared(source, comparison, before)
        reach("migrate", "compared")
        left = await self._catch_up()
        if overlap is not None and overlap < comparison.least:
            return Migrated(self._staged, left, overlap, flipped=False)
        await self.respace(self._target, "flipped")
        reach("migrate", "flipped")
        left = await self.complete(self._embedder)
        return Migrated(self._staged, left, overlap, flipped=True)

    async def _there(self, stands: Standing) -> Migrated:
        """Make what is missing at a path that has the space already, or has none: there is nothing to keep beside it."""
        if stands.status == "settled":
            await sweep(self._records)
            made = await embed(self._records, self._embedder, strict=True)
            return Migrated(made, (await standing(self._records)).pending, None, flipped=True)
        return Migrated(0, await self.complete(self._embedder), None, flipped=True)

    async def _stage_all(self, progress: Progress | None) -> None:
        """Make the vectors of all records that have none of the new space, and of what is written meanwhile."""
        tail = await self._records.tail(0, 1)
        self._seen = 0 if self._records.known is None or tail.token is None else self._records.known.seq
        done, total = 0, int(await self._records.store.command("ZCARD", self._place.keys.order))
        async for page in self._records.walk(vectors=False, space=self._target.text()):
            await self._stage([one.record for one in page if one.vid is None])
            done += len(page)
            if progress is not None:
                progress(done, max(done, total))
        await self._catch_up()

    async def _catch_up(self) -> int:
        """Follow the log until nothing new lacks a vector; returns how many may, if others write too fast."""
        left = 0
        for _ in range(ROUNDS):
            names = dict[str, None]()
            more = True
            while more:
                tail = await self._records.tail(self._seen)
                names |= dict.fromkeys(change.id for change in tail.changes if change.op == "put")
                self._seen = self._seen if tail.token is None else tail.token.seq
                more = tail.more
            found = await self._records.fetch([*names], space=self._target.text())
            lacking = [one.record for one in found if one is not None and one.vid is None]
            left = len(lacking)
            if not lacking:
                break
            await self._stage(lacking)
        return left

    async def _stage(self, rows: Sequence[Record]) -> None:
        """Have records embedded, and put their vectors beside those that they have."""
        for part in (rows[start : start + EMBEDDED] for start in range(0, len(rows), EMBEDDED)):
            texts = [record.text for record in part]
            vectors = pack(await embedded(self._embedder, texts), self._target)
            told: list[Part] = [self._target.text()]
            for text, vector in zip(texts, vectors, strict=True):
                told += [sha1(text.encode(), usedforsecurity=False).hexdigest(), vector]
            reply = await self._ask(BESIDE, [self._place.keys.record(record.id) for record in part], told)
            self._staged += int(reply[1])
            reach("migrate", "staged")

    async def _compared(self, source: Space, comparison: Comparison, before: Embedder | None) -> float | None:
        from blackboard.memory.overlap import asked, overlap, sampled

        if before is None:
            probes = await sampled(self._records, source, self._target)
        else:
            probes = await asked(before, self._embedder, comparison.questions)
        return None if probes is None else await overlap(self._records, source, self._target, probes)


def _questioner(comparison: Comparison, source: Space) -> Embedder | None:
    """The embedder that makes the questions' vectors of the space that is changed; None where records are compared."""
    if not comparison.questions:
        return None
    if comparison.before is None or Space.of(comparison.before) != source:
        raise ConfigError(
            f"queries are asked in both spaces, and nothing here makes vectors of {source.text()}; open the memory with that "
            "embedder and give the new one to migrate, or leave queries out to compare records"
        )
    return comparison.before


def _spelled(space: Space | None) -> str:
    return "no space" if space is None else space.text()
