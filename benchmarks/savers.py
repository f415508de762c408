"""What LangGraph's persistence costs: an ordinary graph of 800 steps on this saver, on InMemorySaver and on the peers."""

from __future__ import annotations

import secrets
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from benchmarks.measure.bench import Bench, Effort, main
from benchmarks.measure.contest import Times, alternate, ratio, undisturbed
from benchmarks.measure.figures import Figure
from benchmarks.measure.savers import MEMORY, OURS, Contestant, contestants
from blackboard.integrations.langgraph import BlackboardSaver

CONTENT = 1 << 10
LISTED = 50


@dataclass(frozen=True)
class Sizes:
    """Steps of the graph, how many it takes per invocation, how often ours and the one in memory run, reads, ancestors."""

    steps: int
    stretch: int
    runs: int
    reads: int
    ancestors: int


SIZES: Mapping[Effort, Sizes] = {
    "full": Sizes(800, 100, 3, 20, 1000),
    "quick": Sizes(200, 50, 2, 10, 1000),
    "least": Sizes(12, 6, 1, 2, 10),
}


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def chat(state: Chat) -> dict[str, list[AnyMessage]]:
    """Answer with text that nothing compresses."""
    return {"messages": [AIMessage(f"{len(state['messages']):08}{secrets.token_hex(CONTENT // 2 - 4)}")]}


@dataclass
class Grown:
    """A graph on one saver, and the thread that it grows."""

    saver: BaseCheckpointSaver[Any]
    stretch: int
    thread: str = "chat"

    def __post_init__(self) -> None:
        def onward(state: Chat) -> str:
            return "chat" if len(state["messages"]) % self.stretch else END

        built = StateGraph(Chat).add_node("chat", chat).add_edge(START, "chat").add_conditional_edges("chat", onward)
        self.graph: Any = built.compile(checkpointer=self.saver)
        self.config: Any = {"configurable": {"thread_id": self.thread}, "recursion_limit": self.stretch + 1}

    async def grow(self) -> None:
        """Take the steps of one invocation."""
        await self.graph.ainvoke({"messages": []}, self.config)

    async def state(self) -> None:
        assert (await self.graph.aget_state(self.config)).values["messages"]

    async def history(self) -> None:
        found = [one async for one in self.graph.aget_state_history(self.config, limit=LISTED)]
        assert len(found) <= LISTED
        assert found[0].values["messages"]


async def raced(present: Mapping[str, Contestant], sizes: Sizes) -> tuple[dict[str, Grown], dict[str, list[float]]]:
    """Let the savers take turns, one invocation each, until all have taken their steps; peers run once."""
    seconds: dict[str, list[float]] = {name: [] for name in present}
    grown: dict[str, Grown] = {}
    for run in range(sizes.runs):
        running = {n: Grown(one.saver, sizes.stretch, f"chat-{run}") for n, one in present.items()}
        if run:
            running = {name: one for name, one in running.items() if name in (OURS, MEMORY)}
        totals = dict.fromkeys(running, 0.0)
        turns = list(running.items())
        with undisturbed():
            for _ in range(sizes.steps // sizes.stretch):
                turns.append(turns.pop(0))
                for name, one in turns:
                    began = time.perf_counter()
                    await one.grow()
                    totals[name] += time.perf_counter() - began
        for name, total in totals.items():
            seconds[name].append(total)
        grown = grown or running
    return grown, seconds


async def sized(present: Mapping[str, Contestant], sizes: Sizes) -> list[Figure]:
    """Weigh what each saver stored; ours has stored as many threads as it took runs."""
    figures: list[Figure] = []
    for name, one in present.items():
        if one.stored is not None:
            threads = sizes.runs if name == OURS else 1
            value = await one.stored() / (threads * sizes.steps * CONTENT)
            figures.append(bounded(f"bytes stored / content: {name}", value, 4.0, name))
    return figures


def timed(seconds: Mapping[str, Sequence[float]], steps: int) -> list[Figure]:
    """Compare the whole runs with those of InMemorySaver that were under way at the same time."""
    figures = [Figure(f"{steps} steps: {name}", median(taken), "s") for name, taken in seconds.items()]
    for name, taken in seconds.items():
        if name != MEMORY:
            value = median(mine / theirs for mine, theirs in zip(taken, seconds[MEMORY], strict=False))
            figures.append(bounded(f"{steps} steps: {name} / {MEMORY}", value, 1.1, name))
    return figures


def bounded(label: str, value: float, target: float, name: str) -> Figure:
    """Make a figure that has a target if it is ours."""
    return Figure(label, value, "×", target, "lower") if name == OURS else Figure(label, value, "×")


async def read(grown: Mapping[str, Grown], sizes: Sizes) -> list[Figure]:
    """Read the newest state again and again, and a page of history, in turns; and the state as a process does that never read it."""
    acts: tuple[tuple[str, float, int, Callable[[Grown], Awaitable[None]]], ...] = (
        ("get_state", 1.3, sizes.reads, Grown.state),
        (f"history of {LISTED}", 0.25, max(2, sizes.reads // 4), Grown.history),
    )
    figures: list[Figure] = []
    for what, target, rounds, act in acts:
        turns = {name: lambda one=one, act=act: act(one) for name, one in grown.items()}
        times: Times = await alternate(turns, rounds, warm=1)
        figures += [Figure(f"{what} p50: {name}", median(taken) * 1e3, "ms") for name, taken in times.items()]
        figures += [
            bounded(f"{what}: {name} / {MEMORY}", ratio(times, name, MEMORY), target, name)
            for name in times
            if name != MEMORY
        ]
    return [*figures, *await first_read(grown[OURS], grown[MEMORY], sizes)]


async def first_read(ours: Grown, memory: Grown, sizes: Sizes) -> list[Figure]:
    """Read the newest state by savers that have read and stored nothing yet."""
    assert isinstance(ours.saver, BlackboardSaver)
    board = ours.saver.board
    fresh = iter([Grown(BlackboardSaver(board), ours.stretch, ours.thread) for _ in range(sizes.reads + 1)])
    turns: Mapping[str, Callable[[], Awaitable[None]]] = {OURS: lambda: next(fresh).state(), MEMORY: memory.state}
    times = await alternate(turns, sizes.reads, warm=1)
    what = "get_state, the first of a process"
    return [
        Figure(f"{what} p50: {OURS}", median(times[OURS]) * 1e3, "ms"),
        Figure(f"{what}: {OURS} / {MEMORY}", ratio(times, OURS, MEMORY), "×"),
    ]


async def round_trips(ours: Contestant, sizes: Sizes) -> list[Figure]:
    """Count on the wire, through a proxy, what one call of our saver costs; the delta channel has no snapshot near."""
    proxy = ours.proxy
    assert proxy is not None
    async with BlackboardSaver.aopen(proxy.url) as saver:
        where: Any = {"configurable": {"thread_id": uuid.uuid4().hex, "checkpoint_ns": ""}}

        async def put() -> None:
            nonlocal where
            values = {"n": [secrets.token_hex(100)]}
            checkpoint = empty_checkpoint() | {"v": 4, "channel_values": values, "channel_versions": {"n": 1}}
            where = await saver.aput(where, checkpoint, {"source": "loop", "step": 0}, {"n": 1})

        async def write() -> None:
            await saver.aput_writes(where, [("delta", "x")], "task")

        async def delta() -> None:
            found = await saver.aget_delta_channel_history(config=where, channels=["delta"])
            assert len(found["delta"]["writes"]) == sizes.ancestors - 1, "nothing was written to the last one"

        for _ in range(
            sizes.ancestors - 1
        ):  # `put` is called twice below, which makes one more and the checkpoint itself
            await put()
            await write()
        counted: list[Figure] = []
        for name, act in {
            "put": put, "put_writes": write, "get_tuple": lambda: saver.aget_tuple(where),
            f"delta history of {sizes.ancestors:,} ancestors": delta,
        }.items():  # fmt: skip
            await act()  # the first call of a script sends it
            proxy.reset()
            await act()
            counted.append(Figure(f"round trips: {name}", proxy.round_trips, "trips", 1, "lower"))
        return counted


async def measure(bench: Bench) -> Sequence[Figure]:
    """Measure every saver that is there; the reasons why others are not go to the error output."""
    sizes = SIZES[bench.effort]
    async with contestants(bench, peers=bench.effort != "least") as (present, skipped):
        for name, reason in skipped.items():
            print(f"skipped: {name}: {reason}", file=sys.stderr)
        grown, seconds = await raced(present, sizes)
        figures = await sized(present, sizes)
        figures += timed(seconds, sizes.steps)
        figures += await read(grown, sizes)
        return [*figures, *await round_trips(present[OURS], sizes)]


if __name__ == "__main__":
    sys.exit(main("What LangGraph's persistence costs", measure))
