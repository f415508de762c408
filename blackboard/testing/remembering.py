"""Hypothesis drives a path of memory through any order of events, and the store must agree with the model after each.

```python
run_state_machine_as_test(lambda: MemoryMachine(url), settings=settings(max_examples=80, deadline=None))
```
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypedDict, TypeVar, cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from blackboard.errors import RecordConflict, RecordMissing
from blackboard.memory.consolidation import Group, Merged, Plan, Source
from blackboard.memory.memory import Memory
from blackboard.memory.new import New
from blackboard.memory.paths import Paths
from blackboard.memory.record import Record
from blackboard.memory.records import Records
from blackboard.memory.verify import verify
from blackboard.settings import MemoryNamespace
from blackboard.store.client import Store
from blackboard.testing.contracts.thread import all_keys
from blackboard.testing.interference import Interference
from blackboard.testing.remembered import Remembered, Trace

__all__ = ["MemoryMachine"]

T = TypeVar("T")
MERGED = "the newest that was merged"
IDS = st.sampled_from(["a", "b", "c", "имя {x}*", MERGED])
TEXTS = st.sampled_from(["one", "two", "three"])
SUBJECTS = st.sampled_from([None, "s", "s", "t"])
TIMES = st.integers(1, 4)


class Way(TypedDict):
    """How a record is kept: a `ttl` is longer than the machine runs."""

    importance: float
    ttl: int | None


WAYS = st.builds(Way, importance=st.sampled_from([0.0, 0.5, 1.0]), ttl=st.sampled_from([None, None, 3600]))


class MemoryMachine(RuleBasedStateMachine):
    """One path on a real server: records with and without ids, subjects, updates, merging, forgetting, expiry, replies that are lost."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.store = self.run(Store.connect(url))
        self.wire = Interference(self.store)
        self.namespace = f"machine-{uuid.uuid4().hex[:8]}"
        store = cast("Store", self.wire)
        self.records = Records(store, self.namespace, "a/b", MemoryNamespace())
        self.memory = Memory(self.records, Paths(store, self.namespace), None)
        self.model = Remembered()
        self.merged: list[Merged] = []
        self.replayed: dict[str, int] = {}
        self.seen = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end on the machine's own loop."""
        return self.runner.run(work)

    def teardown(self) -> None:
        """Forget everything, and find nothing left behind but what is never given out twice."""
        try:
            self.run(self._emptied())
        finally:
            self.run(self._cleaned())
            self.runner.close()

    async def _emptied(self) -> None:
        await self._verified()
        await self._swept()
        await self.records.forget([*self.model.records])
        prefix = self.records.keys.prefix + ":"
        left = {key.removeprefix(prefix) for key in await all_keys(self.store) if key.startswith(prefix)}
        lasting = {name for name in left if await self.store.command("PTTL", prefix + name) == -1}
        assert left <= {"head", "log", "ops"}, left
        assert lasting <= {"head", "log"}, lasting

    async def _verified(self) -> None:
        report = await verify(self.records, None)
        assert report.findings == (), report

    async def _cleaned(self) -> None:
        found = [key for key in await all_keys(self.store) if key.startswith(f"bb:{self.namespace}:")]
        await self.store.batch([("DEL", key) for key in found])
        await self.store.close()

    @rule(twice=st.booleans())
    def lose_replies(self, *, twice: bool) -> None:
        """Let every script be sent again from here on, or no more."""
        self.wire.twice = twice

    @rule(text=TEXTS, subject=SUBJECTS, at=TIMES, how=WAYS)
    def say(self, text: str, subject: str | None, at: int, how: Way) -> None:
        """Remember something, or find that it is remembered already."""
        found = self.run(self.memory.remember(text, subject=subject, valid_from=at, **how))
        twin = self.model.twin(text, subject)
        assert found.duplicate == (twin is not None)
        if twin is None:
            assert found.id not in self.model.records
            self.agree(found, self.model.put(found.id, text, subject, at, **how))
        else:
            self.agree(found, twin)

    @rule(who=IDS, text=TEXTS, subject=SUBJECTS, at=TIMES, how=WAYS)
    def say_under(self, who: str, text: str, subject: str | None, at: int, how: Way) -> None:
        """Remember something under an id, whatever it stood for."""
        name, subject = self.named(who), None if who == MERGED else subject
        said = self.memory.remember(text, id=name, subject=subject, valid_from=at, **how)
        self.agree(self.run(said), self.model.put(name, text, subject, at, **how))

    @rule(said=st.lists(st.tuples(TEXTS, SUBJECTS), min_size=2, max_size=6))
    def say_many(self, said: list[tuple[str, str | None]]) -> None:
        """Remember several things at once."""
        found = self.run(self.memory.remember_all([New(text, subject=subject, valid_from=2) for text, subject in said]))
        assert [(record.text, record.subject) for record in found] == said
        for record in sorted(found, key=lambda one: (one.token.seq, one.duplicate)):
            text, subject = record.text, record.subject
            twin = self.model.twin(text, subject)
            assert record.duplicate == (twin is not None)
            self.agree(record, twin or self.model.put(record.id, text, subject, 2))

    @rule(who=IDS, text=st.none() | TEXTS, at=st.none() | TIMES, how=WAYS, behind=st.integers(0, 1))
    def update(self, who: str, text: str | None, at: int | None, how: Way, behind: int) -> None:
        """Update a record with the version that it has, or with an older one."""
        name = self.named(who)
        old = self.model.records.get(name)
        expected = max(1, (old.version if old else 1) - behind)
        change = self.memory.update(name, expected=expected, what=text, valid_from=at, **how)
        if old is None or old.version != expected:
            with pytest.raises(RecordMissing if old is None else RecordConflict):
                self.run(change)
            return
        done = self.run(change)
        moved = old.valid_from if at is None else at
        self.agree(done, self.model.put(name, text or old.text, old.subject, moved, **how))

    @rule(id=IDS, at=st.integers(0, 20))
    def forget(self, id: str, at: int) -> None:
        """Forget a record, of one's own id or another."""
        known = sorted(self.model.records)
        name = known[at % len(known)] if known and at % 2 else self.named(id)
        gone = self.run(self.records.forget([name]))
        old = self.model.forget(name)
        assert [(one.id, one.version) for one in gone] == ([] if old is None else [(name, old.version)])

    @rule(who=IDS, text=TEXTS, subject=SUBJECTS, at=TIMES, sweep=st.booleans())
    def expire(self, who: str, text: str, subject: str | None, at: int, *, sweep: bool) -> None:
        """Remember something for a moment, and let that pass."""
        name, subject = self.named(who), None if who == MERGED else subject
        self.run(self.memory.remember(text, id=name, subject=subject, valid_from=at, ttl=0.001))
        self.model.put(name, text, subject, at)
        self.run(self._passed(name))
        self.model.expire(name)
        if sweep:
            self.run(self._swept())

    @rule(text=TEXTS, at=st.integers(0, 7), size=st.integers(1, 3))
    def merge(self, text: str, at: int, size: int) -> None:
        """Let one record stand for some that are current."""
        free = [one for one in self.model.records.values() if one.subject is None and one.superseded_by is None]
        chosen = sorted(free, key=lambda one: one.first)[at % 4 :][:size]
        if not chosen:
            return
        group = Group(tuple(Source(one.id, one.version, one.text) for one in chosen), text, 1.0)
        done = self.run(self.memory.apply(Plan(self.records.path, (group,), len(free))))
        if done.skipped:  # the same at the same versions was merged before, and is there or not cleared away
            assert tuple(one.id for one in chosen) in {merged.sources for merged in self.merged}
            return
        (merged,) = done.merged
        self.merged.append(merged)
        record = self.run(self.memory.get(merged.id))
        assert record is not None
        most, ends = max(one.importance for one in chosen), all(one.ends for one in chosen)
        self.agree(
            record, self.model.merge(merged.id, text, record.valid_from, merged.sources, importance=most, ends=ends)
        )

    @rule(at=st.integers(0, 3))
    def undo(self, at: int) -> None:
        """Take a merged record apart, whatever has become of it."""
        if self.merged:
            merged = self.merged[-1 - at % len(self.merged)]
            assert self.run(self.memory.undo(merged)) == self.model.undo(merged.id)

    def named(self, id: str) -> str:
        """Name the newest merged record where that is meant; an id of one's own where there is none."""
        return self.merged[-1].id if id == MERGED and self.merged else id

    @invariant()
    def everything_agrees(self) -> None:
        """Records, order, histories, counts and the log say the same as the model."""
        found = self.run(self._read())
        expected = sorted(self.model.records.values(), key=lambda trace: trace.first)
        assert [record.id for record in found] == [trace.id for trace in expected]
        for record, trace in zip(found, expected, strict=True):
            self.agree(record, trace)
        assert self.run(self.memory.count()) == len(expected)
        for subject in ("s", "t"):
            history = self.run(self.memory.history(subject))
            assert [record.id for record in history] == [trace.id for trace in self.model.about(subject)]

    @invariant()
    def the_log_tells_all(self) -> None:
        """Whoever replays the log has the versions that stand, except of what expired and was not swept."""
        tail = self.run(self.records.tail(self.seen))
        assert not tail.gap
        for change in tail.changes:
            self.seen += 1
            assert change.seq == self.seen
            if change.op == "forget":
                del self.replayed[change.id]
            else:
                self.replayed[change.id] = change.version
        stand = {name: trace.version for name, trace in self.model.records.items()}
        assert {name: version for name, version in self.replayed.items() if name in stand} == stand

    def agree(self, record: Record, trace: Trace) -> None:
        """Compare a record with the model's."""
        shown = replace(
            trace,
            text=record.text,
            version=record.version,
            subject=record.subject,
            valid_from=record.valid_from,
            valid_until=record.valid_until,
            superseded_by=record.superseded_by,
            importance=record.importance,
            ends=record.expires is not None,
        )
        assert (record.id, shown) == (trace.id, trace)

    @invariant()
    def a_sweep_finds_every_row(self) -> None:
        """A subject's list holds the records about it, in their order, and else only rows that a sweep will take away."""
        where = self.records.keys
        told = self.run(self.store.command("HGETALL", where.subjects))
        swept = {name.decode(): about.decode() for name, about in zip(told[::2], told[1::2], strict=True)}
        for trace in self.model.records.values():
            assert swept.pop(trace.id, None) == (trace.subject if trace.ends else None)
        for subject in ("s", "t"):
            rows = self.run(self.store.command("ZRANGE", where.subject(subject), 0, -1, "WITHSCORES"))
            scores = {name.decode(): int(score) for name, score in zip(rows[::2], rows[1::2], strict=True)}
            about = {trace.id: trace.valid_from for trace in self.model.about(subject)}
            assert {name: score for name, score in scores.items() if name in about} == about
            assert scores.keys() - about.keys() <= {name for name, one in swept.items() if one == subject}
            assert self.run(self.store.command("PTTL", where.subject(subject))) == (-1 if rows else -2)

    async def _read(self) -> list[Record]:
        return [one.record async for page in self.records.walk(4) for one in page]

    async def _passed(self, id: str) -> None:
        for _ in range(1000):
            if await self.memory.get(id) is None and id in await self.records.expired():
                return
            await asyncio.sleep(0.001)
        raise AssertionError(f"{id!r} does not expire")

    async def _swept(self) -> None:
        overdue = await self.records.expired()
        gone = await self.records.forget(overdue, expired=True)
        for name in overdue:
            self.model.clear(name)
        assert sorted(one.id for one in gone) == sorted(overdue)
        assert await self.records.expired() == []
