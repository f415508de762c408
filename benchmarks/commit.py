"""What a commit costs: against a bare SET, with many tasks at once, and in round trips."""

from __future__ import annotations

import asyncio
import secrets
import sys
import uuid
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from benchmarks.measure.bench import Bench, Effort, Fsync, main
from benchmarks.measure.contest import Times, alternate, ratio
from benchmarks.measure.figures import Figure
from benchmarks.measure.peers import bare, pooled
from blackboard.checkpoints.channels import Channel, Items, Ref, Segments, Value
from blackboard.checkpoints.commit import Commit, Committed
from blackboard.checkpoints.engine import Engine, Write
from blackboard.checkpoints.reading import MOST_ITEMS
from blackboard.claims.lease import Leases, Token
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.proxy import FaultProxy

NAMESPACE = "checkpoint"
TARGETS: dict[Fsync, float] = {"always": 1.3, "everysec": 1.5}
SIZES = (1 << 10, 16 << 10)
TASKS = (1, 8, 64)
ROUNDS: dict[tuple[Effort, Fsync], int] = {
    ("full", "everysec"): 3000, ("quick", "everysec"): 400, ("least", "everysec"): 3,
    ("full", "always"): 400, ("quick", "always"): 60, ("least", "always"): 3,
}  # fmt: skip
"""Commits and SETs in turn, per size."""
BURSTS: dict[Effort, int] = {"full": 10, "quick": 3, "least": 1}
BURST: dict[Fsync, int] = {"everysec": 512, "always": 64}
"""Commits of one burst, over all its tasks."""
LEASE_TTL = 600.0


class Driver:
    """A driver of one thread whose every step appends one message to a log and counts in a value."""

    def __init__(self, engine: Engine, thread: str, token: Token | None, size: int) -> None:
        self._engine, self.thread, self.token = engine, thread, token
        self._message = b'"%s"' % secrets.token_hex(size // 2 - 1).encode()
        self.last: Committed | None = None

    @classmethod
    async def start(cls, engine: Engine, holder: Store, size: int) -> Driver:
        """Lease a thread that is new, over `holder`, and make its first commit."""
        thread = f"commit-{uuid.uuid4().hex}"
        lease = await Leases(holder, NAMESPACE).acquire(thread, ttl=LEASE_TTL)
        driver = cls(engine, thread, lease.token, size)
        await driver.step()
        return driver

    @property
    def content(self) -> bytes:
        """The bytes that a step adds: its message and its counter."""
        return self._message + b"%d" % (self.last.step if self.last else 0)

    async def step(self) -> None:
        """Commit the next step."""
        last = self.last
        base: Segments = last.refs["messages"].segments if last else ()
        number = last.step + 1 if last else 0
        refs: dict[str, Ref] = dict(last.refs) if last else {}
        channels: dict[str, Channel] = {
            "messages": Items("log", base, [self._message], lambda: [self._message] * (number + 1)),
            "count": Value(b"%d" % number),
        }
        commit = Commit(number, channels, base=refs, parent=last.checkpoint if last else None, next="work")
        self.last = await self._engine.commit(
            self.thread, commit, token=self.token, sequence=last.sequence if last else 0
        )
        if self.token is not None and self.token.incarnation is None:
            self.token = replace(self.token, incarnation=self.last.incarnation)

    async def steps(self, count: int) -> None:
        """Commit some steps, one after the other."""
        for _ in range(count):
            await self.step()


async def against_set(bench: Bench, fsync: Fsync) -> list[Figure]:
    """Commit a step, SET its content through redis-py and through our own client, in turns on one server."""
    rounds = ROUNDS[bench.effort, fsync]
    figures: list[Figure] = []
    async with bench.server(fsync) as server, bare(server.url) as peer:
        store = await Store.connect(server.url)
        for size in SIZES:
            driver = await Driver.start(Engine(store, NAMESPACE, CheckpointNamespace()), store, size)

            async def own(driver: Driver = driver) -> None:
                await store.command("SET", "bare", driver.content)

            async def theirs(driver: Driver = driver) -> None:
                await peer.set("bare", driver.content)

            contestants = {"commit": driver.step, "redis-py's SET": theirs, "own SET": own}
            times = await alternate(contestants, rounds, warm=rounds // 10)
            figures += _against_set(times, f"{size >> 10} KB, fsync {fsync}", TARGETS[fsync])
        await store.close()
    return figures


def _against_set(times: Times, what: str, target: float) -> list[Figure]:
    return [
        *(Figure(f"{name} p50, {what}", median(taken) * 1e6, "µs") for name, taken in times.items()),
        Figure(f"commit / redis-py's SET p50, {what}", ratio(times, "commit", "redis-py's SET"), "×", target, "lower"),
        Figure(f"commit / own SET p50, {what}", ratio(times, "commit", "own SET"), "×"),
    ]


async def against_pool(bench: Bench, fsync: Fsync) -> list[Figure]:
    """Let many tasks commit at once, each on its own thread: over our client, and over redis-py's pool, in turns."""
    figures: list[Figure] = []
    async with bench.server(fsync) as server:
        store = await Store.connect(server.url)
        async with pooled(store, server.url, 64) as pool:
            for tasks in TASKS:
                each = 1 if bench.effort == "least" else BURST[fsync] // tasks
                times = await _at_once({"blackboard": store, "pool": pool}, store, (tasks, each), BURSTS[bench.effort])
                figures += _against_pool(times, tasks, each, fsync)
        await store.close()
    return figures


async def _at_once(contestants: dict[str, Store], holder: Store, shape: tuple[int, int], bursts: int) -> Times:
    tasks, each = shape
    drivers: dict[str, list[Driver]] = {}
    for name, store in contestants.items():
        engine = Engine(store, NAMESPACE, CheckpointNamespace())
        drivers[name] = [await Driver.start(engine, holder, SIZES[0]) for _ in range(tasks)]

    async def burst(name: str) -> None:
        await asyncio.gather(*(driver.steps(each) for driver in drivers[name]))

    return await alternate({name: lambda name=name: burst(name) for name in drivers}, bursts, warm=1)  # type: ignore[misc]


def _against_pool(times: Times, tasks: int, each: int, fsync: Fsync) -> list[Figure]:
    what = f"{tasks} {'task' if tasks == 1 else 'tasks'}, fsync {fsync}"
    bound = 2.0 if tasks == 64 and fsync == "everysec" else None
    return [
        *(Figure(f"commits/s, {name}, {what}", tasks * each / median(taken), "1/s") for name, taken in times.items()),
        Figure(f"throughput / redis-py pool, {what}", ratio(times, "pool", "blackboard"), "×", bound, "higher"),
    ]


async def round_trips(bench: Bench) -> list[Figure]:
    """Count on the wire, through a proxy, how often the client waits for the server."""
    async with bench.server("everysec") as server, await FaultProxy.start(server.url) as proxy:
        store = await Store.connect(proxy.url)
        engine = Engine(store, NAMESPACE, CheckpointNamespace())
        driver = await Driver.start(engine, store, SIZES[0])
        thread, last = driver.thread, driver.last
        assert last is not None
        long = await _long_log(engine)
        fresh = Driver(engine, f"commit-{uuid.uuid4().hex}", None, SIZES[0])
        await engine.latest(thread)
        write = Write("task", 0, b"1")
        await engine.put_writes(thread, last.checkpoint, [write], token=driver.token)
        counted: list[Figure] = []
        for name, act, target in (
            ("commit", driver.step, 1),
            ("latest", lambda: engine.latest(thread), 1),
            ("put_writes", lambda: engine.put_writes(thread, last.checkpoint, [write], token=driver.token), 1),
            ("first write of a thread", fresh.step, 2),
            (f"latest with a log of {MOST_ITEMS + 1:,} items", lambda: engine.latest(long), 2),
        ):
            proxy.reset()
            await act()
            counted.append(Figure(f"round trips: {name}", proxy.round_trips, "trips", target, "lower"))
        await store.close()
    return counted


async def _long_log(engine: Engine) -> str:
    """Store a thread whose log is too long for one trip."""
    thread = f"commit-{uuid.uuid4().hex}"
    items = [b"%d" % number for number in range(MOST_ITEMS + 1)]
    await engine.commit(thread, Commit(0, {"items": Items("log", (), items, lambda: items)}))
    return thread


async def measure(bench: Bench) -> Sequence[Figure]:
    """Measure all of it."""
    fsyncs: tuple[Fsync, ...] = ("everysec", "always")
    return [
        *[figure for fsync in fsyncs for figure in await against_set(bench, fsync)],
        *[figure for fsync in fsyncs for figure in await against_pool(bench, fsync)],
        *await round_trips(bench),
    ]


if __name__ == "__main__":
    sys.exit(main("What a commit costs", measure))
