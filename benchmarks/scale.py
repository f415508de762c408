"""What size costs: a thread of 100,000 steps against one of 1,000, and a namespace of 100,000 threads against one of 250."""

from __future__ import annotations

import asyncio
import resource
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure.bench import Bench, Effort, main
from benchmarks.measure.contest import Times, alternate, ratio, undisturbed
from benchmarks.measure.figures import Figure
from blackboard import Blackboard, keys
from blackboard.board import PAGE
from blackboard.checkpoints.channels import Value
from blackboard.checkpoints.commit import Commit
from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.fork import Copier
from blackboard.checkpoints.prune import Pruner
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.servers import Server

NAMESPACE = "checkpoint"
CONTENT = 200
SLICE = 200
PRUNED = 100
OVERDUE = 100
MOST_STALL, MOST_RSS, MOST_RATIO = 5.0, 50.0, 1.5


@dataclass(frozen=True)
class Sizes:
    """How long the long and the short thread are, how many threads there are, and how often all is measured."""

    long: int
    short: int
    threads: int
    rounds: int


SIZES: Mapping[Effort, Sizes] = {
    "full": Sizes(100_000, 1_000, 100_000, 200),
    "quick": Sizes(10_000, 1_000, 5_000, 60),
    "least": Sizes(1_500, 300, 300, 10),
}


def content() -> Value:
    """Something that nothing compresses and no other step shares."""
    return Value(secrets.token_hex(CONTENT // 2).encode())


@dataclass
class Grown:
    """A thread whose state has the same size in every step; its commits can be sent before the answers are there."""

    engine: Engine
    thread: str
    steps: int = 0
    forks: int = field(default=0)

    def step(self) -> Awaitable[Any]:
        parent = keys.sequence_id(self.steps) if self.steps else None
        commit = Commit(self.steps, {"state": content()}, parent=parent, next="work")
        self.steps += 1
        return self.engine.commit(self.thread, commit, sequence=self.steps - 1)

    async def grow(self, steps: int) -> None:
        """Send commits in slices; they arrive in order, for there is one connection."""
        if not self.steps:
            await self.step()
            steps -= 1
        for start in range(0, steps, SLICE):
            await asyncio.gather(*(self.step() for _ in range(min(SLICE, steps - start))))

    async def latest(self) -> None:
        assert await self.engine.latest(self.thread) is not None

    async def page(self) -> None:
        assert len(await self.engine.history(self.thread, limit=20)) == 20

    async def middle(self) -> None:
        before = keys.sequence_id(self.steps // 2)
        assert len(await self.engine.history(self.thread, limit=1, before=before)) == 1

    async def fork(self) -> None:
        self.forks += 1
        await Copier(self.engine.store, NAMESPACE).fork(self.thread, f"{self.thread}-{self.forks}")

    async def prune(self, keep_last: int) -> int:
        return (await Pruner(self.engine.store, NAMESPACE).prune(self.thread, keep_last=keep_last)).checkpoints


async def reading(long: Grown, short: Grown, rounds: int) -> list[Figure]:
    """Compare what does not change how long the threads are."""
    figures: list[Figure] = []
    acts: Mapping[str, Callable[[Grown], Awaitable[Any]]] = {
        "commit": Grown.step, "latest": Grown.latest, "history of 20": Grown.page, "history of 1 in the middle": Grown.middle,
        "fork": Grown.fork,
    }  # fmt: skip
    for name, act in acts.items():

        def bound(grown: Grown, act: Callable[[Grown], Awaitable[Any]] = act) -> Callable[[], Awaitable[Any]]:
            return lambda: act(grown)

        times = await alternate({"long": bound(long), "short": bound(short)}, rounds, warm=3)
        figures.append(compared(name, times, long, short))
    return figures


def compared(name: str, times: Times, long: Grown, short: Grown) -> Figure:
    label = f"{name}: {long.thread} / {short.thread}"
    return Figure(label, ratio(times, "long", "short"), "×", MOST_RATIO, "lower")


async def pruning(long: Grown, short: Grown, rounds: int) -> list[Figure]:
    """Prune what has grown since the last time, then an eighth of all, with the garbage that is looked for then."""
    times: dict[str, list[float]] = {"long": [], "short": []}
    kept = {"long": long.steps, "short": short.steps}
    shares: dict[str, float] = {}
    with undisturbed():
        for _ in range(rounds):
            for name, grown in (("long", long), ("short", short)):
                await grown.grow(PRUNED)
                began = time.perf_counter()
                assert await grown.prune(kept[name]) == PRUNED
                times[name].append(time.perf_counter() - began)
        for name, grown in (("long", long), ("short", short)):
            began = time.perf_counter()
            dropped = await grown.prune(kept[name] - kept[name] // 8)
            shares[name] = (time.perf_counter() - began) / dropped
    return [
        compared(f"prune of {PRUNED}", times, long, short),
        Figure("prune of an eighth and its garbage, per checkpoint", shares["long"] * 1e6, "µs"),
        Figure(
            f"prune of an eighth, per checkpoint: {long.thread} / {short.thread}",
            shares["long"] / shares["short"], "×", MOST_RATIO, "lower",
        ),
    ]  # fmt: skip


@contextmanager
def peak() -> Iterator[list[float]]:
    """Note by how many MB the memory of this process rose above where it stood."""
    risen: list[float] = []
    clear, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")

    def read(name: str) -> int:
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(name))

    if clear.exists():
        clear.write_text("5")  # the peak is counted anew from here
    before = read("VmRSS") if clear.exists() else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield risen
    after = read("VmHWM") if clear.exists() else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    risen.append(max(after - before, 4) / 1024)


async def memory(long: Grown) -> Figure:
    with peak() as risen:
        for _ in range(20):
            await long.engine.history(long.thread, limit=1000)
    return Figure(f"memory of a history page of 1,000: {long.thread}", risen[0], "MB", MOST_RSS, "lower")


async def stalls(server: Server, what: str, work: Callable[[], Awaitable[Any]]) -> list[Figure]:
    """Do something, and report how long it took and for how long its commands kept the server.

    The longest one of hundreds is the one during which the machine did something else; so the target is for 99 of 100.
    """
    await server.configure(slowlog_log_slower_than=100, slowlog_max_len=100_000)
    await server.ask("SLOWLOG", "RESET")
    began = time.perf_counter()
    await work()
    taken = time.perf_counter() - began
    slow = await server.ask("SLOWLOG", "GET", -1)
    held = sorted(entry[2] / 1e3 for entry in slow if entry[3][0] != b"SLOWLOG") or [0.1]
    return [
        Figure(f"{what}: in all", taken, "s"),
        Figure(
            f"{what}: 99 of 100 commands on the server", held[(len(held) - 1) * 99 // 100], "ms", MOST_STALL, "lower"
        ),
        Figure(f"{what}: longest command on the server", held[-1], "ms"),
    ]


async def one_thread(server: Server, sizes: Sizes) -> list[Figure]:
    store = await Store.connect(server.url, connections=1, response_timeout=30.0, retry_deadline=60.0)
    try:
        engine = Engine(store, NAMESPACE, CheckpointNamespace())
        long, short = Grown(engine, f"{sizes.long:,} steps"), Grown(engine, f"{sizes.short:,} steps")
        began = time.perf_counter()
        await long.grow(sizes.long)
        built = sizes.long / (time.perf_counter() - began)
        await short.grow(sizes.short)
        figures = [Figure("commits/s while the thread grew", built, "1/s")]
        figures += await reading(long, short, sizes.rounds)
        figures.append(await memory(long))
        figures += await pruning(long, short, max(5, sizes.rounds // 10))
        prune = lambda: long.prune(sizes.long // 2)  # noqa: E731
        figures += await stalls(server, f"prune to half: {long.thread}", prune)
        close = lambda: engine.retention.close(long.thread, status="finished", ttl=3600.0)  # noqa: E731
        figures += await stalls(server, f"finish: {long.thread}", close)
        figures += await stalls(server, f"delete: {long.thread}", lambda: engine.retention.delete(long.thread))
        return figures
    finally:
        await store.close()


class Crowd:
    """Many threads of one step each."""

    def __init__(self, board: Blackboard) -> None:
        self._board, self.size, self._overdue = board, 0, 0
        self._idle = Engine(board.store, NAMESPACE, CheckpointNamespace(idle_ttl=0.001))

    async def grow(self, threads: int) -> None:
        engine = self._board.engine(NAMESPACE)
        while self.size < threads:
            some = range(self.size, min(self.size + SLICE, threads))
            await asyncio.gather(*(engine.commit(f"t{n}", Commit(0, {"state": content()})) for n in some))
            self.size = some.stop

    async def list_page(self) -> None:
        listed = 0
        async for _ in self._board.threads():
            listed += 1
            if listed == PAGE:
                break

    async def sweep(self) -> float:
        """Let threads become overdue, and remove them."""
        some = range(self._overdue, self._overdue + OVERDUE)
        self._overdue = some.stop
        await asyncio.gather(*(self._idle.commit(f"idle{n}", Commit(0, {"state": content()})) for n in some))
        await asyncio.sleep(0.05)
        began = time.perf_counter()
        assert await self._board.sweep(OVERDUE) == OVERDUE
        return time.perf_counter() - began


async def many_threads(little: Server, large: Server, sizes: Sizes) -> list[Figure]:
    """List and sweep where there are few threads and where there are many, in turns."""
    few, many = PAGE + 50, max(sizes.threads, PAGE + 50)
    rounds = max(5, sizes.rounds // 10)
    async with Blackboard.open(little.url) as one, Blackboard.open(large.url) as other:
        short, long = Crowd(one), Crowd(other)
        await short.grow(few)
        await long.grow(many)
        listed = await alternate({"short": short.list_page, "long": long.list_page}, rounds, warm=2)
        swept: dict[str, list[float]] = {"short": [], "long": []}
        with undisturbed():
            for _ in range(rounds):
                swept["short"].append(await short.sweep())
                swept["long"].append(await long.sweep())
    label = f"{many:,} threads / {few:,}"
    return [
        Figure(f"list a page of {PAGE}: {many:,} threads", median(listed["long"]) * 1e3, "ms"),
        Figure(f"list a page: {label}", ratio(listed, "long", "short"), "×", MOST_RATIO, "lower"),
        Figure(f"sweep of {OVERDUE} overdue: {many:,} threads", median(swept["long"]) * 1e3, "ms"),
        Figure(f"sweep: {label}", ratio(swept, "long", "short"), "×", MOST_RATIO, "lower"),
    ]


async def measure(bench: Bench) -> Sequence[Figure]:
    """Measure one thread that grows long, and then many."""
    sizes = SIZES[bench.effort]
    async with bench.server("everysec") as server:
        figures = await one_thread(server, sizes)
    async with bench.server("everysec") as little, bench.server("everysec") as large:
        return [*figures, *await many_threads(little, large, sizes)]


if __name__ == "__main__":
    sys.exit(main("What size costs", measure))
