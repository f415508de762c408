"""Drivers that contend for threads: each takes a lease, appends items of its own, does effects, and is late at times."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from blackboard.checkpoints.channels import Items
from blackboard.checkpoints.commit import Commit
from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.reading import Snapshot
from blackboard.claims.effect import Effects, Start
from blackboard.claims.lease import Lease, Leases
from blackboard.claims.outcome import Unknown
from blackboard.codec import decode, encode
from blackboard.errors import BlackboardError, LeaseHeld, LeaseLost, OutcomeUnknown, ServerUnavailable
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.history import (
    Grant,
    Operation,
    Outcome,
    Stored,
    Violation,
    check_effects,
    check_grants,
    check_thread,
)
from tests.chaos.stage import NAMESPACE, append, items_of, lines

now = time.monotonic
"""One clock for every process of the machine."""


@dataclass(frozen=True)
class Habits:
    """How a driver behaves: seconds of its leases, commits per visit, and how often it is late (0 to 1)."""

    ttl: float = 0.5
    commits: int = 20
    late: float = 0.01


class Notes:
    """What one driver was told, line by line in a file, so that it outlives the driver."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, *words: object) -> None:
        os.write(self._descriptor, (" ".join(map(str, words)) + "\n").encode())

    def close(self) -> None:
        os.close(self._descriptor)


class Driver:
    """One driver with its own store; several of its tasks visit threads at once."""

    def __init__(self, store: Store, name: str, directory: Path, habits: Habits, seed: int) -> None:
        self.engine = Engine(store, NAMESPACE, CheckpointNamespace())
        self.leases, self.effects = Leases(store, NAMESPACE), Effects(store, NAMESPACE)
        self.notes = Notes(directory / f"{name}.notes")
        self._name, self._directory, self._habits = name, directory, habits
        self._random = random.Random(seed)
        self._items = 0

    async def work(self, threads: Sequence[str], stop: Path) -> None:
        """Visit threads at random until the file `stop` is there."""
        while not stop.exists():
            try:
                await self.visit(self._random.choice(threads))
            except (LeaseLost, OutcomeUnknown, ServerUnavailable):
                continue
            except LeaseHeld:
                await asyncio.sleep(0.005)
            except BlackboardError as surprise:
                self.notes.note("surprise", type(surprise).__name__, str(surprise).replace("\n", " "))

    async def visit(self, thread: str) -> None:
        asked = now()
        lease = await self.leases.acquire(thread, ttl=self._habits.ttl)
        self.notes.note("grant", thread, lease.owner, lease.fence, asked, now(), lease.deadline)
        try:
            await self._append(thread, lease)
        finally:
            self.notes.note("until", lease.owner, min(now(), lease.deadline))
            await lease.release()
            self.notes.note("done", "release")

    async def _append(self, thread: str, lease: Lease) -> None:
        reading = await self.engine.read(thread)
        sequence, last = reading.meta.sequence, reading.snapshot
        items = [] if last is None else items_of(last, "log")
        refs = {} if last is None else dict(last.manifest.refs)
        step, parent = (0, None) if last is None else (last.manifest.step + 1, last.manifest.checkpoint)
        if last is not None:
            await self._effect(lease, last)
        for _ in range(self._random.randint(1, self._habits.commits)):
            await self._lateness()
            self._items += 1
            item = f"{self._name}.{self._items}"
            items.append(encode(item))
            base = refs["log"].segments if refs else ()
            log = Items("log", base, items[-1:], lambda: items)
            commit = Commit(step, {"log": log}, base=refs, parent=parent)
            self.notes.note("began", item, thread, lease.fence, now())
            try:
                done = await self.engine.commit(thread, commit, token=lease.token, sequence=sequence)
            except BlackboardError as error:
                self.notes.note("ended", item, "unknown" if isinstance(error, OutcomeUnknown) else "refused", now())
                raise
            self.notes.note("ended", item, "acknowledged", now())
            if lease.incarnation is None:
                lease.opened(done.incarnation)
            step, parent, sequence, refs = done.step + 1, done.checkpoint, done.sequence, dict(done.refs)
            if lease.remaining < self._habits.ttl / 2:
                await lease.renew()
                self.notes.note("until", lease.owner, lease.deadline)
                self.notes.note("done", "renew")

    async def _effect(self, lease: Lease, last: Snapshot) -> None:
        """An at-most-once effect that several drivers may come to; one in doubt is decided by the ledger."""
        key, ledger = f"e{last.manifest.step // 8}", self._directory / f"{lease.token.thread}.ledger"
        answer = await self.effects.begin(lease.token, key, semantics="at-most-once", fingerprint="f")
        if isinstance(answer, Start):
            self.notes.note("done", "begin")
            await self._lateness()
            append(ledger, key)
            await self._lateness()
            await self.effects.complete(answer, b"1")
            self.notes.note("done", "complete")
        elif isinstance(answer, Unknown):
            await self.effects.resolve(lease.token, answer, "done" if key in lines(ledger) else "abandoned", b"1")
            self.notes.note("done", "resolve")

    async def _lateness(self) -> None:
        if self._random.random() < self._habits.late:
            await asyncio.sleep(self._habits.ttl * self._random.uniform(0.5, 2))


async def toil(url: str, name: str, seed: str, threads: str, directory: str) -> None:
    """One driver process: twelve tasks over so many threads until the file `stop` is there."""
    store = await Store.connect(url, retry_deadline=5)
    driver = Driver(store, name, Path(directory), Habits(), int(seed))
    names = [f"t{number}" for number in range(int(threads))]
    await asyncio.gather(*(driver.work(names, Path(directory, "stop")) for _ in range(12)))
    await store.close()


@dataclass(frozen=True)
class Told:
    """All that the drivers noted."""

    operations: list[Operation]
    grants: list[Grant]
    others: int
    surprises: list[str]

    @property
    def acknowledged(self) -> int:
        """How many writes were acknowledged: commits, grants, releases, renewals, effects."""
        commits = sum(operation.outcome == "acknowledged" for operation in self.operations)
        return commits + len(self.grants) + self.others

    def refused(self) -> int:
        return sum(operation.outcome == "refused" for operation in self.operations)


def told(directory: Path) -> Told:
    began: dict[str, tuple[str, int, float]] = {}
    ended: dict[str, tuple[Outcome, float]] = {}
    grants: dict[str, Grant] = {}
    others, surprises = 0, []
    for line in _noted(directory):
        match line.split(" "):
            case ["began", item, thread, fence, at]:
                began[item] = (thread, int(fence), float(at))
            case ["ended", item, ("acknowledged" | "refused" | "unknown") as answer, at]:
                ended[item] = (answer, float(at))
            case ["grant", thread, owner, fence, asked, granted, until]:
                grants[owner] = Grant(thread, owner, int(fence), float(asked), float(granted), float(until))
            case ["until", owner, until]:
                grant = grants[owner]
                grants[owner] = Grant(grant.thread, owner, grant.fence, grant.asked, grant.granted, float(until))
            case ["done", _]:
                others += 1
            case _:
                surprises.append(line)
    operations = []
    for item, (where, number, begun) in began.items():
        outcome, over = ended.get(item, ("unknown", float("inf")))
        operations.append(Operation(where, item, number, begun, over, outcome))
    return Told(operations, list(grants.values()), others, surprises)


def acknowledged_so_far(directory: Path) -> int:
    """Count quickly, and never too much, while the drivers are at work."""
    marks = (b" acknowledged ", b"\ngrant ", b"\ndone ")
    noted = [path.read_bytes() for path in directory.glob("*.notes")]
    return sum(text.count(mark) for text in noted for mark in marks)


def _noted(directory: Path) -> Iterator[str]:
    for path in sorted(directory.glob("*.notes")):
        yield from lines(path)


async def stored(engine: Engine, thread: str) -> Stored:
    """Read what a thread holds in the end."""
    chain = list(reversed(await engine.history(thread, limit=100_000)))
    found = await engine.latest(thread)
    if found is None:
        return Stored(thread, (), (), ())
    items = [decode(item) for item in items_of(found, "log")]
    return Stored(thread, items, [one.step for one in chain], [one.fence for one in chain], found.manifest.step)


def effect_runs(directory: Path) -> dict[str, int]:
    """Count how often each effect happened."""
    runs: dict[str, int] = {}
    for path in directory.glob("*.ledger"):
        for key in lines(path):
            name = f"{path.stem}/{key}"
            runs[name] = runs.get(name, 0) + 1
    return runs


async def judge(url: str, directory: Path) -> tuple[Told, list[Violation]]:
    """Compare what the drivers were told with what is stored."""
    store = await Store.connect(url)
    engine = Engine(store, NAMESPACE, CheckpointNamespace())
    seen = told(directory)
    operations: defaultdict[str, list[Operation]] = defaultdict(list)
    grants: defaultdict[str, list[Grant]] = defaultdict(list)
    for operation in seen.operations:
        operations[operation.thread].append(operation)
    for grant in seen.grants:
        grants[grant.thread].append(grant)
    found = [*check_grants(seen.grants), *check_effects(effect_runs(directory))]
    for thread in operations:
        found += check_thread(operations[thread], grants[thread], await stored(engine, thread))
    await store.close()
    return seen, found
