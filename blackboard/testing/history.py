"""Checkers: from what drivers were told, and what is stored in the end, to what the store did wrong.

Every operation appends one item that no other operation appends, so that the stored log is the order in which the
operations took effect. The checks are linear in the number of operations; an empty list means that nothing was lost,
doubled, made up, reordered or accepted from a driver who had been replaced.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

__all__ = ["Grant", "Operation", "Outcome", "Stored", "Violation", "check_effects", "check_grants", "check_thread"]

Outcome = Literal["acknowledged", "refused", "unknown"]
"""What the caller was told: it is stored; nothing was written; nothing for certain (also: the caller died)."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One append as its caller saw it; `began` and `ended` are of one monotonic clock, `ended` counts if it was answered."""

    thread: str
    item: str
    fence: int
    began: float
    ended: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Grant:
    """One lease as its holder saw it: asked for at `asked`, granted by `granted`, surely live until `until`.

    `until` is when the holder began to give it back, or when it lapses by a clock that counts from before `asked`.
    """

    thread: str
    owner: str
    fence: int
    asked: float
    granted: float
    until: float


@dataclass(frozen=True, slots=True)
class Stored:
    """What a thread holds in the end: the items in order, and step and fence of every checkpoint, oldest first."""

    thread: str
    items: Sequence[str]
    steps: Sequence[int]
    fences: Sequence[int]
    latest: int | None = None


@dataclass(frozen=True, slots=True)
class Violation:
    """One promise that was broken: its name, where, and what shows it."""

    promise: Literal[
        "lost", "doubled", "made up", "refused but stored", "gap", "fence fell", "stale write", "reordered",
        "latest is not the tail", "two holders", "fence reused", "effect repeated",
    ]  # fmt: skip
    thread: str
    detail: str = field(compare=False)


def check_thread(operations: Iterable[Operation], grants: Iterable[Grant], stored: Stored) -> list[Violation]:
    """Check the log of one thread against what its drivers were told."""
    told = {operation.item: operation for operation in operations}
    return [*_items(told, stored), *_chain(stored), *_order(told, stored), *_stale(told.values(), [*grants], stored)]


def check_grants(grants: Iterable[Grant]) -> list[Violation]:
    """Check the leases of any number of threads: no two of a thread live at once, no fence given out twice."""
    by_thread: defaultdict[str, list[Grant]] = defaultdict(list)
    for grant in grants:
        by_thread[grant.thread].append(grant)
    found: list[Violation] = []
    for thread, granted in by_thread.items():
        granted.sort(key=lambda grant: grant.granted)
        for before, after in pairwise(granted):
            if after.granted < before.until and after.owner != before.owner:
                found.append(Violation("two holders", thread, f"{after} while {before}"))
        for fence, count in Counter(grant.fence for grant in granted).items():
            if count > 1:
                found.append(Violation("fence reused", thread, f"fence {fence} was granted {count} times"))
    return found


def check_effects(runs: Mapping[str, int]) -> list[Violation]:
    """Check how often each at-most-once effect happened in the outside world."""
    return [Violation("effect repeated", key, f"{count} times") for key, count in runs.items() if count > 1]


def _items(told: Mapping[str, Operation], stored: Stored) -> Iterable[Violation]:
    counted = Counter(stored.items)
    for item, count in counted.items():
        if count > 1:
            yield Violation("doubled", stored.thread, f"{item} stands {count} times")
        operation = told.get(item)
        if operation is None:
            yield Violation("made up", stored.thread, f"nobody wrote {item}")
        elif operation.outcome == "refused":
            yield Violation("refused but stored", stored.thread, f"{operation}")
    for item, operation in told.items():
        if operation.outcome == "acknowledged" and item not in counted:
            yield Violation("lost", stored.thread, f"{operation}")


def _chain(stored: Stored) -> Iterable[Violation]:
    if list(stored.steps) != list(range(len(stored.steps))):
        yield Violation("gap", stored.thread, f"steps {list(stored.steps)[:50]}")
    for before, after in pairwise(stored.fences):
        if after < before:
            yield Violation("fence fell", stored.thread, f"{before} before {after}")
    if stored.steps and stored.latest != stored.steps[-1]:
        yield Violation("latest is not the tail", stored.thread, f"{stored.latest}, not {stored.steps[-1]}")


def _order(told: Mapping[str, Operation], stored: Stored) -> Iterable[Violation]:
    """An operation that was answered before another began stands before it: the latest beginning so far decides."""
    latest = float("-inf")
    for item in stored.items:
        operation = told.get(item)
        if operation is None:
            continue
        if operation.outcome == "acknowledged" and operation.ended < latest:
            yield Violation("reordered", stored.thread, f"{operation} stands behind one that began later")
        latest = max(latest, operation.began)


def _stale(operations: Iterable[Operation], grants: Sequence[Grant], stored: Stored) -> Iterable[Violation]:
    """A write that began after a higher fence was granted must not be stored."""
    present = set(stored.items)
    granted = sorted((grant.granted, grant.fence) for grant in grants)
    highest, at = 0, 0
    for operation in sorted(operations, key=lambda operation: operation.began):
        while at < len(granted) and granted[at][0] < operation.began:
            highest = max(highest, granted[at][1])
            at += 1
        if operation.fence < highest and operation.item in present:
            yield Violation("stale write", stored.thread, f"{operation} after fence {highest} was granted")
