"""What is done to a path as a whole: it is migrated, settled, forgotten from, consolidated and tended; killed anywhere.

A scene is prepared by whoever watches, its act is played by a child that may be killed, and played again by the next one.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from blackboard.errors import EmbedderMismatch, LeaseHeld
from blackboard.memory import building, migration, pending
from blackboard.memory.consolidation import Merged
from blackboard.memory.embedder import Metric, Space
from blackboard.memory.lease import tend
from blackboard.memory.memories import Memories
from blackboard.memory.memory import Memory
from blackboard.memory.new import Body, New
from blackboard.memory.upkeep import tended
from blackboard.points import watch
from blackboard.settings import Settings
from blackboard.store.client import Store
from blackboard.testing.crash import Spot, recorder, strike
from tests.chaos.stage import append
from tests.memory.dump import holding

TTL = 3.0
TEXTS = {f"r{number}": f"text of r{number}" for number in range(7)}
ALIKE = {
    "a": "the kitten sleeps in the red box", "b": "the kitten sleeps in the red box.", "c": "the kitten sleeps in the big red box",
}  # fmt: skip
GONE = ("r2", "r5")

DEFAULTS = cast("dict[str, Any]", tend.__kwdefaults__)
SMALL: tuple[tuple[dict[str, Any], str, Any], ...] = (
    (building.__dict__, "LONGEST_ROWS", 4), (pending.__dict__, "SLICE", 4), (migration.__dict__, "SLICE", 4),
    (migration.__dict__, "EMBEDDED", 4), (migration.__dict__, "GRACE", 0.0), (DEFAULTS, "ttl", TTL),
)  # fmt: skip
"""What is set otherwise here: a few records make several slices, a change is settled when it is tended, a lease is short."""


class Model:
    """A direction of its own for every text; texts about kittens all have one."""

    metric: Metric = "cosine"

    def __init__(self, name: str, dimension: int) -> None:
        self.name, self.dimension = name, dimension

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        return np.stack([self._vector(text.partition(" sleeps")[0]) for text in texts])

    def _vector(self, text: str) -> Any:
        seed = int.from_bytes(hashlib.sha256(f"{self.name} {text}".encode()).digest()[:8], "big")
        return np.random.default_rng(seed).standard_normal(self.dimension)


OLD, NEW = Model("old", 12), Model("new", 10)


@dataclass(frozen=True)
class Desk:
    """One path."""

    store: Store
    path: str

    def memory(self, embedder: Model | None = OLD, **policy: Any) -> Memory:
        policy = {"kind": "memory", "embedding": {"kind": "none"}, **policy}
        return Memories(self.store, Settings(namespaces={"memory": policy})).open(self.path, "memory", embedder)

    async def current(self) -> Memory:
        """The memory as whoever has the embedder of its space opens it; the other one is refused."""
        space = (await self.memory().space()).space
        right, wrong = (OLD, NEW) if space == Space.of(OLD) else (NEW, OLD)
        try:
            await self.memory(wrong).recall("text")
        except EmbedderMismatch:
            return self.memory(right)
        raise AssertionError("two embedders are right")

    async def found(self, *wanted: str) -> None:
        """Each text is found first by its vector, and nothing else is found."""
        memory = await self.current()
        hits = [hit.record.text for hit in await memory.recall("text", k=50)]
        assert sorted(hits) == sorted(wanted)
        for text in wanted:
            assert (await memory.recall(text, k=1, lexical=0.0))[0].record.text == text


class Scene:
    """Something that is done to a path; `points` are those that it has to reach."""

    points: frozenset[str] = frozenset()

    async def prepare(self, on: Desk) -> None:
        """Remember what it is done to."""
        await on.memory().remember_all([New(text, id=name) for name, text in TEXTS.items()])
        await on.memory().snapshot()

    async def act(self, on: Desk) -> None:
        raise NotImplementedError

    async def whole(self, on: Desk) -> None:
        """What holds wherever it was killed."""
        await on.found(*TEXTS.values())

    async def ended(self, on: Desk) -> None:
        """What holds when it was played to its end."""
        assert (await (await on.current()).verify()).findings == ()


class Migrating(Scene):
    points = frozenset(f"migrate:{moment}" for moment in ("noted", "staged", "compared", "flipped", "swept"))

    async def act(self, on: Desk) -> None:
        await on.memory(NEW).migrate()

    async def ended(self, on: Desk) -> None:
        stands = await on.memory().space()
        assert (stands.space, stands.status, stands.pending, stands.swept) == (Space.of(NEW), "flipped", 0, True)
        await on.found(*TEXTS.values())
        await super().ended(on)


class Returning(Migrating):
    points = frozenset({"rollback:returned", "migrate:swept"})

    async def prepare(self, on: Desk) -> None:
        await super().prepare(on)
        await on.memory(NEW).migrate()

    async def act(self, on: Desk) -> None:
        await on.memory().rollback()

    async def ended(self, on: Desk) -> None:
        stands = await on.memory().space()
        assert (stands.space, stands.status, stands.pending, stands.swept) == (Space.of(OLD), "returned", 0, True)
        await on.found(*TEXTS.values())
        await Scene.ended(self, on)


class Settling(Migrating):
    points = frozenset({"settle:moved", "settle:noted"})

    async def prepare(self, on: Desk) -> None:
        await super().prepare(on)
        await on.memory(NEW).migrate()

    async def act(self, on: Desk) -> None:
        await on.memory().settle()

    async def ended(self, on: Desk) -> None:
        assert (await on.memory().space()).status == "settled"
        assert await holding(on.memory().records, b"next") == []
        await on.found(*TEXTS.values())
        await Scene.ended(self, on)


class Forgetting(Scene):
    """What is forgotten goes as a whole, with one receipt, or not at all; who tends the path sees to that."""

    points = frozenset(f"forget:{moment}" for moment in ("noted", "removed", "scrubbed", "receipt"))

    async def act(self, on: Desk) -> None:
        await on.memory().forget(GONE, reason="asked")

    async def whole(self, on: Desk) -> None:
        hits = {hit.record.text for hit in await on.memory().recall("text", k=50)}
        stands = {record.text for record in await on.memory().list()}
        assert hits == stands
        assert stands >= {text for name, text in TEXTS.items() if name not in GONE}
        assert (await tended(on.memory().records, OLD, grace=0.0)).held_by is None, "forgetting needs no lease"
        receipts = await on.memory().receipts()
        stands = {record.id for record in await on.memory().list()}
        assert len(receipts) <= 1
        assert stands == ({*TEXTS} - {*GONE} if receipts else {*TEXTS})
        for receipt in receipts:
            assert receipt.count <= len(GONE)
            assert (await on.memory().verify_forgotten(receipt)).gone

    async def ended(self, on: Desk) -> None:
        assert {record.id for record in await on.memory().list()} == {*TEXTS} - {*GONE}
        for name in GONE:
            assert await holding(on.memory().records, TEXTS[name].encode()) == []
        assert await on.store.command("EXISTS", on.memory().records.keys.forgetting) == 0
        await super().ended(on)


class Consolidating(Scene):
    """Each statement is found once, or its sources are."""

    points = frozenset({"consolidate:made", "consolidate:merged"})

    async def prepare(self, on: Desk) -> None:
        await super().prepare(on)
        await on.memory().remember_all([New(text, id=name) for name, text in ALIKE.items()])

    async def act(self, on: Desk) -> None:
        memory = on.memory()
        await memory.apply(await memory.consolidate())

    async def whole(self, on: Desk) -> None:
        hits = sorted(hit.record.text for hit in await on.memory().recall("text", k=50))
        assert hits in (sorted([*TEXTS.values(), *ALIKE.values()]), sorted([*TEXTS.values(), ALIKE["c"]]))

    async def ended(self, on: Desk) -> None:
        await on.found(*TEXTS.values(), ALIKE["c"])
        await super().ended(on)


class Undoing(Consolidating):
    points = frozenset({"undo:parted"})

    async def prepare(self, on: Desk) -> None:
        await super().prepare(on)
        await Consolidating.act(self, on)

    async def act(self, on: Desk) -> None:
        for name in [one.record.id async for page in on.memory().records.walk() for one in page]:
            if name.startswith("merged-"):
                await on.memory().undo(Merged(name, tuple(ALIKE)))

    async def ended(self, on: Desk) -> None:
        hits = sorted(hit.record.text for hit in await on.memory().recall("text", k=50))
        assert hits == sorted([*TEXTS.values(), *ALIKE.values()])
        assert {record.id for record in await on.memory().list()} == {*TEXTS, *ALIKE}
        await Scene.ended(self, on)


class Tending(Scene):
    """Everything that can be left to whoever tends a path is."""

    points = frozenset(f"tend:{moment}" for moment in ("finished", "expired", "settled", "embedded", "evicted"))

    async def prepare(self, on: Desk) -> None:
        await super().prepare(on)
        await _cut("migrate:flipped", on.memory(NEW).migrate())
        memory = on.memory(NEW)
        await memory.remember("text of a brief one", id="brief", ttl=0.001)
        await memory.records.put(Body("text of a bare one", id="bare"))
        await _cut("forget:noted", memory.forget(GONE))

    async def act(self, on: Desk) -> None:
        memory = on.memory(NEW, budget=5, snapshot_every=1)
        told = await tended(memory.records, NEW, grace=0.0)
        if told.held_by is not None:
            raise LeaseHeld("somebody else tends it", holder=told.held_by, remaining=TTL)

    async def whole(self, on: Desk) -> None:
        memory = on.memory(NEW)
        hits = {hit.record.text for hit in await memory.recall("text", k=50)}
        assert hits == {record.text for record in await memory.list()}
        assert hits >= {text for name, text in TEXTS.items() if name not in (*GONE, "r0")} | {"text of a bare one"}

    async def ended(self, on: Desk) -> None:
        memory = on.memory(NEW)
        assert {record.id for record in await memory.list()} == {"r1", "r3", "r4", "r6", "bare"}
        assert ((await memory.space()).status, (await memory.space()).pending) == ("settled", 0)
        assert sorted(receipt.reason for receipt in await memory.receipts()) == ["", "budget"]
        for text in (TEXTS["r0"], *map(TEXTS.__getitem__, GONE), "text of a brief one"):
            assert await holding(memory.records, text.encode()) == []
        await super().ended(on)


async def _cut(moment: str, work: Awaitable[object]) -> None:
    """Have something done up to a moment."""

    def stop(point: str) -> None:
        if point == moment:
            raise RuntimeError(moment)

    with watch(stop), pytest.raises(RuntimeError, match=moment):
        await work


SCENES: dict[str, Scene] = {
    kind.__name__.lower(): kind()
    for kind in (Migrating, Returning, Settling, Forgetting, Consolidating, Undoing, Tending)
}


async def patiently(act: Callable[[], Awaitable[object]]) -> None:
    """Do something when the lease of whoever died is over."""
    async with asyncio.timeout(10 * TTL):
        while True:
            try:
                await act()
            except LeaseHeld as held:
                await asyncio.sleep(held.remaining + 0.001)
            else:
                return


async def record(url: str, path: str, scene: str, out: str) -> None:
    """Play the act of a scene, and write down every spot that it reaches; it is not to be renewed meanwhile, however slow."""
    DEFAULTS["ttl"] = 20 * TTL
    await _play(url, path, scene, recorder(lambda spot: append(Path(out), str(spot))))


async def die(url: str, path: str, scene: str, spot: str) -> None:
    """Play the act of a scene up to a spot, and be killed there."""
    DEFAULTS["ttl"] = TTL
    await _play(url, path, scene, strike(Spot.parse(spot)))


async def _play(url: str, path: str, scene: str, watcher: Callable[[str], None]) -> None:
    for where, name, value in SMALL[:-1]:
        where[name] = value
    store = await Store.connect(url)
    try:
        with watch(watcher):
            await SCENES[scene].act(Desk(store, path))
    finally:
        await store.close()
