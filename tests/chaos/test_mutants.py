"""The checkers must find what they are for: scripts without one of their checks are caught, the whole ones are not."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from blackboard.checkpoints import engine
from blackboard.claims import effect, lease
from blackboard.store.client import Store
from blackboard.store.script import Script
from blackboard.testing.history import Violation
from blackboard.testing.proxy import FaultProxy, drop_reply
from blackboard.testing.servers import Server
from tests.chaos.stage import say
from tests.chaos.workload import Driver, Habits, Told, judge

HABITS = Habits(ttl=0.1, commits=10, late=0.1)
THREADS = ("t0", "t1", "t2")


@dataclass(frozen=True)
class Mutant:
    """A script with a part of it replaced, and the promises that this may break."""

    name: str
    script: Script
    old: str
    new: str
    breaks: frozenset[str]


def mutant(name: str, script: Script, change: tuple[str, str], *breaks: str) -> Mutant:
    return Mutant(name, script, *change, frozenset(breaks))


MUTANTS = (
    mutant(
        "no fence check", engine._COMMIT,
        ("if fence == m.fence then return nil, fence end", "if true then return nil, fence end"),
        "stale write", "fence fell",
    ),
    mutant(
        "a lower fence passes", engine._COMMIT,
        ("if fence == m.fence then", "if tonumber(fence) <= tonumber(m.fence) then"),
        "stale write", "fence fell",
    ),
    mutant(
        "no op id", engine._COMMIT,
        ("local same = stored and", "local same = false and"),
        "refused but stored",
    ),
    mutant(
        "a commit that does not move latest", engine._COMMIT,
        ("if native or not latest or before(latest, id) then", "if id ~= '000000000003' then"),
        "lost", "gap",
    ),
    mutant(
        "a release that does not compare", lease.RELEASE,
        ("if refusal then\n  return refusal\nend\nif lock == fence .. ':' .. owner then", "if lock then"),
        "two holders",
    ),
    mutant(
        "a grant that does not look at the lock", lease.ACQUIRE,
        ("if locked and locked == stored then", "if false then"),
        "two holders",
    ),
    mutant(
        "a fence that is not raised", lease.ACQUIRE,
        ("local fence = guard.text(math.max(tonumber(stored or '0') + 1, now))", "local fence = stored or guard.text(now)"),
        "fence reused",
    ),
    mutant(
        "at-most-once runs again", effect.BEGIN,
        ("if semantics == 'at-most-once' or open.semantics == 'at-most-once' then", "if false then"),
        "effect repeated",
    ),
)  # fmt: skip


@contextmanager
def installed(change: Mutant) -> Iterator[None]:
    """Replace the text of a script meanwhile; fails if that changes nothing."""
    script, whole = change.script, change.script.source
    mutated = whole.replace(change.old.encode(), change.new.encode())
    assert whole.count(change.old.encode()) == 1, f"{change.name}: the part to be replaced is not there once"
    assert mutated != whole
    try:
        _put(script, mutated)
        yield
    finally:
        _put(script, whole)


def _put(script: Script, source: bytes) -> None:
    script.source, script.sha = source, hashlib.sha1(source, usedforsecurity=False).hexdigest()


async def round_of(server: Server, directory: Path, seed: int) -> tuple[Told, Sequence[Violation]]:
    """Let two drivers contend in this process for a moment, while one reply in fifty is lost; then judge."""
    directory.mkdir()
    async with await FaultProxy.start(server.url) as proxy:
        stores = [await Store.connect(proxy.url, retry_deadline=5) for _ in range(2)]
        counted = iter(range(1 << 60))
        proxy.fault(drop_reply(), when=lambda _: next(counted) % 50 == 49, times=1 << 60)
        drivers = [Driver(store, f"d{at}", directory, HABITS, seed + at) for at, store in enumerate(stores)]
        stop, threads = directory / "stop", [f"{directory.name}-{name}" for name in THREADS]
        work = [driver.work(threads, stop) for driver in drivers for _ in range(4)]
        asyncio.get_running_loop().call_later(1.0, stop.touch)
        await asyncio.gather(*work)
        for store, driver in zip(stores, drivers, strict=True):
            driver.notes.close()
            await store.close()
    return await judge(server.url, directory)


async def test_the_scripts_as_they_are(own: Server, tmp_path: Path) -> None:
    """Nothing is found where nothing is wrong, also where late writes had to be refused."""
    rounds = refused = acknowledged = 0
    while rounds < 3 or (not refused and rounds < 12):
        rounds += 1
        seen, found = await round_of(own, tmp_path / f"whole-{rounds}", rounds)
        assert found == []
        assert seen.surprises == []
        refused += seen.refused()
        acknowledged += seen.acknowledged
    assert refused > 0
    assert acknowledged > 100


@pytest.mark.parametrize("change", MUTANTS, ids=[change.name for change in MUTANTS])
async def test_a_mutant_is_caught(change: Mutant, own: Server, tmp_path: Path) -> None:
    caught: set[str] = set()
    acknowledged = rounds = 0
    with installed(change):
        while not caught & change.breaks and rounds < 8:
            rounds += 1
            seen, found = await round_of(own, tmp_path / f"{change.name.replace(' ', '-')}-{rounds}", rounds)
            caught = {violation.promise for violation in found}
            acknowledged += seen.acknowledged
    say(f"{change.name}: {sorted(caught)} in {acknowledged} acknowledged, round {rounds}")
    assert caught & change.breaks
