"""What a long thread costs: bytes and time per step over a thousand steps of one 1 KB message each."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeAlias

from pydantic import BaseModel

from benchmarks.measure.bench import Bench, Effort, main
from benchmarks.measure.contest import undisturbed
from benchmarks.measure.figures import Figure
from blackboard.board import Blackboard
from blackboard.checkpoints.log import Log
from blackboard.keys import ThreadKeys
from blackboard.runs.run import Run
from blackboard.testing.servers import Server

NAMESPACE = "checkpoint"
CONTENT = 1 << 10
MARKS: Mapping[Effort, Sequence[int]] = {"full": (10, 100, 800), "quick": (10, 100, 160), "least": (10, 20, 40)}
"""Steps that are looked at; the thread grows a quarter beyond the last."""
YOUNG = 10
WINDOW = 10
LEASE_TTL = 600.0


class Message(BaseModel, frozen=True):
    text: str


class Native(BaseModel):
    messages: Log[Message] = Log()


class Listed(BaseModel):
    messages: list[Message] = []


class Keyed(BaseModel):
    messages: dict[str, Message] = {}


State: TypeAlias = Native | Listed | Keyed
MODELS: Mapping[str, type[State]] = {"Log": Native, "list": Listed, "dict": Keyed}


@dataclass
class Growing:
    """A thread that grows by one message per step, and what was seen of it."""

    run: Run[Any]
    bytes_sent: dict[int, int] = field(default_factory=dict[int, int])
    bytes_stored: dict[int, int] = field(default_factory=dict[int, int])
    seconds: list[float] = field(default_factory=list[float])

    async def step(self) -> None:
        """Add one message of text that nothing compresses, and commit it."""
        text = secrets.token_hex(CONTENT // 2)
        began = time.perf_counter()
        messages = self.run.state.messages
        if isinstance(messages, dict):
            messages[f"message-{self.run.step}"] = Message(text=text)
        else:
            messages.append(Message(text=text))
        await self.run.commit(next="work")
        self.seconds.append(time.perf_counter() - began)


class Nursery:
    """Threads of one model that are always young: the next one is entered when one has grown."""

    def __init__(self, enter: Callable[[str], Awaitable[Growing]], kind: str) -> None:
        self._enter, self._kind = enter, kind
        self._threads = 0
        self._young: Growing | None = None

    async def step(self) -> float:
        """Take a step near the tenth, and tell how long it took."""
        if self._young is None or self._young.run.step >= YOUNG + WINDOW // 2:
            self._threads += 1
            self._young = await self._enter(f"young-{self._kind}-{self._threads}")
            while self._young.run.step < YOUNG - WINDOW // 2:
                await self._young.step()
        await self._young.step()
        return self._young.seconds[-1]


async def bytes_received(server: Server) -> int:
    """Bytes that the server has received from all its clients."""
    return int(dict(_pairs(await server.ask("INFO", "stats")))["total_net_input_bytes"])


async def bytes_stored(board: Blackboard, thread: str) -> int:
    """MEMORY USAGE of every key of a thread, all elements counted."""
    found: set[bytes] = set()
    cursor: bytes | int = 0
    pattern = f"{ThreadKeys.of(NAMESPACE, thread).prefix}:*"
    while True:
        cursor, names = await board.store.command("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
        found.update(names)
        if int(cursor) == 0:
            break
    usages = await board.store.batch([("MEMORY", "USAGE", name, "SAMPLES", 0) for name in found])
    return sum(int(usage) for usage in usages)


def _pairs(info: bytes) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (line.partition(":") for line in info.decode().splitlines())]


async def grow(bench: Bench, kind: str, marks: Sequence[int], steps: int) -> list[Figure]:
    """Grow a thread of one kind to its end, looking at it at the marked steps, the last of which is the old one."""
    late = marks[-1]
    async with bench.server("everysec") as server, Blackboard.open(server.url) as board, AsyncExitStack() as stack:

        async def enter(thread: str) -> Growing:
            model = MODELS[kind]
            return Growing(await stack.enter_async_context(board.run(thread, model, start=model, lease_ttl=LEASE_TTL)))

        old, nursery = await enter(kind), Nursery(enter, kind)
        young: list[float] = []
        with undisturbed():
            for number in range(1, steps + 1):
                if number in marks:
                    await _marked(old, server, number)
                    old.bytes_stored[number] = await bytes_stored(board, kind)
                else:
                    await old.step()
                if abs(number - late) <= 2 * WINDOW:
                    young.append(await nursery.step())
        figures = _stored(kind, old, marks)
        figures += _taken(kind, old, young, late)
        return [*figures, *await _read(kind, board, steps)]


async def _marked(old: Growing, server: Server, number: int) -> None:
    """Take a step and count what it sends; what the counting itself sends is counted before and taken off."""
    readings = [await bytes_received(server), await bytes_received(server)]
    await old.step()
    readings.append(await bytes_received(server))
    old.bytes_sent[number] = readings[2] - readings[1] - (readings[1] - readings[0])


def _stored(kind: str, old: Growing, marks: Sequence[int]) -> list[Figure]:
    first, late = marks[0], marks[-1]
    target = 2.0 if kind == "Log" else None
    per_step = (old.bytes_stored[late] - old.bytes_stored[first]) / (late - first)
    return [
        Figure(
            f"{kind}: bytes stored / content, {late} steps",
            old.bytes_stored[late] / (late * CONTENT),
            "×",
            target,
            "lower",
        ),
        Figure(f"{kind}: bytes stored per step", per_step, "B"),
        *(Figure(f"{kind}: bytes sent, step {number}", old.bytes_sent[number], "B") for number in marks),
    ]


def _taken(kind: str, old: Growing, young: Sequence[float], late: int) -> list[Figure]:
    aged = median(old.seconds[late - 1 - 2 * WINDOW : late + 2 * WINDOW])
    target = 1.2 if kind == "Log" else None
    return [
        Figure(f"{kind}: time of step {YOUNG}", median(young) * 1e6, "µs"),
        Figure(f"{kind}: time of step {late}", aged * 1e6, "µs"),
        Figure(f"{kind}: time of step {late} / step {YOUNG}", aged / median(young), "×", target, "lower"),
    ]


async def _read(kind: str, board: Blackboard, steps: int) -> list[Figure]:
    thread = board.thread(kind)
    taken: dict[str, list[float]] = {"history of 50": [], "latest": []}
    for _ in range(20):
        for name, read in (("history of 50", lambda: thread.history(limit=50)), ("latest", thread.latest)):
            began = time.perf_counter()
            found: Any = await read()
            taken[name].append(time.perf_counter() - began)
            assert found is not None
    return [Figure(f"{kind}: {name} at step {steps}", median(times) * 1e3, "ms") for name, times in taken.items()]


async def measure(bench: Bench) -> Sequence[Figure]:
    """Grow one thread of each kind."""
    marks = MARKS[bench.effort]
    return [figure for kind in MODELS for figure in await grow(bench, kind, marks, marks[-1] + marks[-1] // 4)]


if __name__ == "__main__":
    sys.exit(main("What a long thread costs", measure))
