"""What processes do that remember, forget, build snapshots and read; run in children that may be killed."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blackboard.errors import LeaseHeld
from blackboard.memory import building
from blackboard.memory.embedder import Space, pack
from blackboard.memory.frame import Frame
from blackboard.memory.lease import Place, tend
from blackboard.memory.new import Body
from blackboard.memory.record import Token
from blackboard.memory.records import Records
from blackboard.memory.snapshot import Snapshots
from blackboard.memory.view import View
from blackboard.points import reach, watch
from blackboard.settings import MemoryNamespace
from blackboard.store.client import Store
from blackboard.testing.crash import Spot, recorder, strike
from tests.chaos.stage import append, lines, whole

NAMESPACE = "memory"
SPACE = Space("made-up", 4)
POLICY = MemoryNamespace()
TTL = 1.0
FIRST = [f"r{number}" for number in range(7)]
FORGOTTEN = "r4"

vars(building)["LONGEST_ROWS"] = 3  # a few records make several chunks


@dataclass(frozen=True)
class Shelf:
    """One path, and a file outside the store of what the store acknowledged."""

    records: Records
    journal: Path

    @classmethod
    def of(cls, store: Store, path: str, directory: str | Path) -> Shelf:
        return cls(Records(store, NAMESPACE, path, POLICY), Path(directory) / f"{path.replace('/', '-')}.journal")

    @property
    def snapshots(self) -> Snapshots:
        return Snapshots(self.records)

    @property
    def view(self) -> View:
        return View(self.records, SPACE, POLICY)

    @property
    def place(self) -> Place:
        return Place(self.records.store, NAMESPACE, self.records.path)

    def ack(self, what: str, name: str, token: Token) -> None:
        append(self.journal, json.dumps([what, name, str(token)]))

    def acknowledged(self) -> list[tuple[str, str, Token]]:
        return [(what, name, Token.parse(token)) for what, name, token in map(json.loads, lines(self.journal))]

    async def put(self, *names: str, text: str = "") -> None:
        bodies = [body(name, text) for name in names]
        for record in await self.records.put_all(bodies):
            self.ack("put", record.id, record.token)

    async def forget(self, name: str) -> None:
        gone = await self.records.forget([name])
        reach("forget", "removed")
        await self.snapshots.scrub([name])
        for one in gone:
            self.ack("forget", name, one.token)

    async def build(self) -> None:
        async with tend(self.place, ttl=TTL) as lease:
            await self.snapshots.build(lease)


def body(name: str, text: str = "") -> Body:
    """What is remembered under a name: a text and a vector of its own."""
    spot = random.Random(name + text)
    (vector,) = pack(_normal([spot.gauss() for _ in range(4)]), SPACE)
    return Body(text or f"text of {name}", id=name, vector=vector, space=SPACE.text())


def _normal(numbers: list[float]) -> Any:
    import numpy as np

    array = np.array([numbers], np.float32)
    return array / np.linalg.norm(array)


async def patiently(build: Callable[[], Awaitable[None]]) -> None:
    """Build when the lease of whoever died is over."""
    async with asyncio.timeout(10 * TTL):
        while True:
            try:
                return await build()
            except LeaseHeld as held:
                await asyncio.sleep(held.remaining + 0.001)


async def keeping(on: Shelf) -> None:
    """Remember, build, change, build again, forget, read."""
    await on.put(*FIRST)
    await patiently(on.build)
    await on.put("r1", "late", text="changed since")
    await patiently(on.build)
    await on.forget(FORGOTTEN)
    reach("view", "before")
    view = on.view
    await view.refresh()
    reach("view", "read")
    await view.close()


async def record(url: str, path: str, directory: str, out: str) -> None:
    """Play the scene and write down every spot that it reaches."""
    await _play(url, path, directory, recorder(lambda spot: append(Path(out), str(spot))))


async def die(url: str, path: str, directory: str, spot: str) -> None:
    """Play the scene up to a spot, and be killed there."""
    await _play(url, path, directory, strike(Spot.parse(spot)))


async def _play(url: str, path: str, directory: str, watcher: Callable[[str], None]) -> None:
    store = await Store.connect(url)
    try:
        with watch(watcher):
            await keeping(Shelf.of(store, path, directory))
    finally:
        await store.close()


async def write(url: str, path: str, directory: str, name: str, operations: str) -> None:
    """Put, update and forget records of this writer's own, and build a snapshot now and then."""
    store = await Store.connect(url)
    on, chance = (
        Shelf(Records(store, NAMESPACE, path, POLICY), Path(directory) / f"{name}.journal"),
        random.Random(name),
    )
    names = [f"{name}-{number}" for number in range(60)]
    try:
        for number in range(int(operations)):
            if chance.random() < 0.2:
                await on.forget(chance.choice(names))
            else:
                await on.put(chance.choice(names), text=f"{name} says {number}")
            if number % 150 == 100:
                with suppress(LeaseHeld):
                    await on.build()
    finally:
        await store.close()


async def read(url: str, path: str, directory: str, name: str) -> None:
    """Read what the writers were told, and check that a view as of that token has it; until the file `stop` is there.

    What is wrong is appended to the reader's file, and at last what the view holds.
    """
    store = await Store.connect(url)
    on, told = Shelf.of(store, path, directory), Path(directory) / f"{name}.told"
    journals = [Path(directory) / f"{writer}.journal" for writer in ("w1", "w2")]
    view, rounds = on.view, 0
    try:
        while not (Path(directory) / "stop").exists():
            newest = [json.loads(found[-1]) for journal in journals if (found := whole(journal))]
            token = max((Token.parse(text) for *_, text in newest), default=None)
            frame = await view.refresh(token)
            rounds += 1
            for what, record_id, text in newest:
                check(told, frame, what, record_id, Token.parse(text))
            if rounds % 40 == 0:
                await view.close()
                view = on.view
        frame = await view.refresh()
        append(told, json.dumps(["rounds", rounds]))
        append(told, json.dumps(["holds", held(frame)]))
        await view.close()
    finally:
        await store.close()


def check(told: Path, frame: Frame, what: str, id: str, token: Token) -> None:
    """Say what is wrong with a frame that was asked for as of a token; what cannot be judged here, the parent judges."""
    row = frame.row_of(id)
    if frame.token is None or frame.token < token:
        append(told, json.dumps(["older", id, str(token), str(frame.token)]))
    elif row is None and what == "put":
        append(told, json.dumps(["gone", id, str(token), str(frame.token)]))
    elif row is not None and int(frame.seqs[row]) < token.seq:
        append(told, json.dumps(["ghost" if what == "forget" else "stale", id, str(token), str(frame.token)]))


def held(frame: Frame) -> dict[str, list[Any]]:
    """What a frame holds: seq, version and vector of each record that is there."""
    rows = [row for row in range(frame.size) if frame.alive[row]]
    return {
        frame.ids[row]: [int(frame.seqs[row]), int(frame.versions[row]), [round(float(x), 3) for x in vector]]
        for row, vector in zip(rows, frame.vectors(_rows(rows)), strict=True)
    }


def _rows(rows: list[int]) -> Any:
    import numpy as np

    return np.array(rows, np.int64)


async def stored(records: Records) -> dict[str, list[Any]]:
    """What the store holds, spelled as `held` spells it."""
    from blackboard.memory.embedder import unpack

    found: dict[str, list[Any]] = {}
    async for page in records.walk():
        for one in page:
            assert one.vector is not None
            vector = [round(float(x), 3) for x in unpack(one.vector, SPACE)]
            found[one.record.id] = [one.record.token.seq, one.record.version, vector]
    return found
