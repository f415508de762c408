"""Forgetting: records, what finds them, and the snapshots that hold them go before anybody is told that they are gone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from blackboard.errors import ConfigError, CorruptValue, OutcomeUnknown
from blackboard.keys import check_id, path_segments
from blackboard.memory.filters import Filter, Where, parse
from blackboard.memory.lease import Place
from blackboard.memory.listing import at_least_one
from blackboard.memory.paths import Paths
from blackboard.memory.receipt import Receipt
from blackboard.memory.records import Records
from blackboard.memory.scrubbing import scrub
from blackboard.memory.writing import Forgotten
from blackboard.points import reach
from blackboard.store.script import Script

__all__ = ["GRACE", "Selection", "Why", "finish", "forget", "forget_below", "receipts"]

RECEIPT = Script("blackboard.memory", "receipt.lua", prelude=("blackboard.claims:guard.lua",))

SLICE = 500
"""Records that are taken away in one step."""

ROUNDS = 16
"""How often records that came to match while others were taken away are looked for again."""

GRACE = 60.0
"""Seconds after which a forgetting that is not at its end counts as cut short: several times what a slice takes."""

LONGEST_REASON = 1024
"""Bytes of a reason or an actor."""

ABSENT = -1
"""The version of what was not there."""

Victims = Mapping[str, int | None]
"""Ids of records, each with the version that is meant, or None for whatever stands."""


@dataclass(frozen=True, slots=True)
class Why:
    """Why and for whom something is forgotten, as the receipt says."""

    reason: str = ""
    actor: str = ""

    def __post_init__(self) -> None:
        for name, text in (("reason", self.reason), ("actor", self.actor)):
            if text and len(check_id(text, name).encode()) > LONGEST_REASON:
                raise ConfigError(f"{name} has more than {LONGEST_REASON} bytes: {text[:40]!r}…", value=text)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records are meant: by id, by what holds for them, or all."""

    ids: tuple[str, ...] | None = None
    where: Filter | None = None
    subject: str | None = None

    @classmethod
    def of(
        cls, ids: str | Iterable[str] | None, where: Where | None, subject: str | None, *, everything: bool
    ) -> Selection:
        """Check a selection; ConfigError for none, for more than one kind, and for a filter that is not understood."""
        chosen = parse(where)
        conditions = chosen is not None or subject is not None
        if not isinstance(everything, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not be typed
            raise ConfigError(f"everything is True or False, got {everything!r}", value=everything)
        if (ids is not None) + conditions + everything != 1:
            raise ConfigError(
                "say what is to be forgotten: ids, or where and subject, or everything=True; "
                f"got ids={ids!r}, where={where!r}, subject={subject!r}, everything={everything!r}"
            )
        if ids is not None:
            if not isinstance(ids, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigError(f"ids are one record id or several, got {ids!r}", value=ids)
            named = [ids] if isinstance(ids, str) else [*ids]
            return cls(ids=tuple(dict.fromkeys(check_id(one, "record id") for one in named)))
        return cls(where=chosen, subject=None if subject is None else check_id(subject, "subject"))

    async def victims(self, records: Records) -> AsyncIterator[Victims]:
        """Yield the records that are meant, in slices, until none is left that was there when this began."""
        if self.ids is not None:
            for start in range(0, len(self.ids), SLICE):
                yield dict.fromkeys(self.ids[start : start + SLICE])
        elif self.where is None and self.subject is None:
            async for part in _all(records):
                yield part
        else:
            for _ in range(ROUNDS):
                found = [part async for part in self._matching(records)]
                for part in found:
                    yield part
                if not found:
                    return
            raise OutcomeUnknown(
                f"records of path {records.path!r} keep coming that are to be forgotten; those found are gone",
                namespace=records.namespace, path=records.path,
            )  # fmt: skip

    async def _matching(self, records: Records) -> AsyncIterator[Victims]:
        async for page in records.walk(SLICE, vectors=False):
            part = {
                one.record.id: one.record.version
                for one in page
                if (self.subject is None or one.record.subject == self.subject)
                and (self.where is None or self.where.matches(one.record.metadata))
            }
            if part:
                yield part


async def _all(records: Records) -> AsyncIterator[Victims]:
    """Yield everything that was first written before now."""
    tail = await records.tail(0, 1)
    if tail.token is None or records.known is None:
        return
    last, after = records.known.seq, 0
    while rows := [row for row in await records.rows(after, SLICE) if row[1] <= last]:
        after = rows[-1][1]
        yield {name: None for name, _ in rows}


async def forget(records: Records, selection: Selection, why: Why) -> Receipt:
    """Take records away for good, and return the receipt.

    What is about to go is noted first, so that a forgetting that was cut short is brought to its end by whoever tends the
    path next; then the records go, then their rows in every chunk of a snapshot, then the receipt is written.
    """
    work = Work(records, why)
    async for victims in selection.victims(records):
        await work.take(victims)
    return await work.close()


async def finish(records: Records, grace: float = GRACE) -> list[Receipt]:
    """Bring every forgetting of the path that was cut short to its end: those that began more than `grace` seconds ago."""
    before = records.store.server_time() - round(grace * 1_000_000)
    noted = await records.store.command("HGETALL", records.keys.forgetting)
    by_receipt: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for field, told in zip(noted[::2], noted[1::2], strict=True):
        try:
            note = json.loads(told)
        except ValueError as error:
            raise CorruptValue(f"a note of what is to be forgotten at path {records.path!r} is unreadable") from error
        if int(note["receipt"].partition("-")[0]) <= before:
            by_receipt.setdefault(note["receipt"], []).append((field.decode(), note))
    done: list[Receipt] = []
    for receipt, notes in by_receipt.items():
        work = Work(records, Why(notes[0][1]["reason"], notes[0][1]["actor"]), receipt)
        for field, note in notes:
            await work.resume(field, note["victims"])
        done.append(await work.close())
    return done


async def receipts(records: Records, limit: int = 100) -> list[Receipt]:
    """Read the newest receipts of a path, the newest first."""
    at_least_one(limit)
    rows = await records.store.command("XREVRANGE", records.keys.receipts, "+", "-", "COUNT", limit)
    return [Receipt.parse(dict(zip(told[::2], told[1::2], strict=True))[b"receipt"]) for _, told in rows]


class Work:
    """One forgetting under way."""

    def __init__(self, records: Records, why: Why, id: str | None = None) -> None:
        self._records, self._why = records, why
        self._place = Place(records.store, records.namespace, records.path)
        self._id = id or records.store.op_id()
        self._asked: list[str] = []
        self._gone: list[Forgotten] = []
        self._fields: list[str] = []

    async def take(self, victims: Victims) -> None:
        """Take a slice of records away, having noted that they are about to go, each as it is now."""
        records = self._records
        found = await records.fetch([*victims])
        standing = {
            name: version if version is not None or one is None else one.record.version
            for (name, version), one in zip(victims.items(), found, strict=True)
        }
        field = f"{self._id}:{len(self._fields)}"
        note = {"receipt": self._id, "reason": self._why.reason, "actor": self._why.actor, "victims": standing}
        await records.store.command("HSET", records.keys.forgetting, field, json.dumps(note))
        reach("forget", "noted")
        await self._remove(field, victims)

    async def resume(self, field: str, noted: Victims) -> None:
        """Take away what was noted and still stands as it stood then."""
        await self._remove(field, {name: version or ABSENT for name, version in noted.items()})

    async def _remove(self, field: str, victims: Victims) -> None:
        self._fields.append(field)
        self._asked += victims
        any_version = [name for name, version in victims.items() if version is None]
        versions = {name: version for name, version in victims.items() if version is not None}
        self._gone += await self._records.forget(any_version) if any_version else []
        self._gone += await self._records.forget(versions, versions=versions) if versions else []
        left = victims.keys() - {one.id for one in self._gone}
        self._gone += await self._records.forget(left, expired=True) if left else []
        reach("forget", "removed")

    async def close(self) -> Receipt:
        """Scrub the snapshot, write the receipt and return it."""
        records = self._records
        scrubbed = await scrub(self._place, self._asked) if self._asked else 0
        reach("forget", "scrubbed")
        receipt = Receipt.of(
            self._gone, id=self._id, namespace=records.namespace, path=path_segments(records.path),
            time=records.store.server_time(), reason=self._why.reason, actor=self._why.actor, scrubbed=scrubbed,
        )  # fmt: skip
        if self._asked:
            receipt = await self._written(receipt)
            reach("forget", "receipt")
        return receipt

    async def _written(self, receipt: Receipt) -> Receipt:
        records = self._records
        asked = (records.keys.head, records.keys.receipts, records.keys.forgetting)
        kept = records.policy.receipts_ttl
        ttl = "" if kept is None else max(1, round(kept * 1000))
        previous = await records.store.command("HGET", records.keys.head, "receipt")
        receipt = replace(receipt, previous=(previous or b"").decode())
        while True:
            args: Sequence[Any] = (receipt.previous, receipt.digest, receipt.text(), ttl, *self._fields)
            reply = await records.store.call(RECEIPT, asked, args)
            if reply[0] == b"OK":
                return receipt
            receipt = receipt.after(reply[1].decode())


async def forget_below(records: Records, paths: Paths, selection: Selection, why: Why) -> tuple[Receipt, ...]:
    """Forget the same at every path below one, and return the receipts of those where something was meant."""
    made: list[Receipt] = []
    after = ""
    while page := await paths.below(records.path, after=after):
        for after in page:
            other = Records(records.store, records.namespace, after, records.policy)
            made.append(await forget(other, selection, why))
    return tuple(receipt for receipt in made if receipt.count)
