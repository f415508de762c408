"""What goes by itself and what must not: the newest checkpoints and what they need, and threads that wait for a person."""

import asyncio
import logging
import operator
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from typing_extensions import TypedDict

from blackboard import Blackboard, Settings
from blackboard.errors import ServerUnavailable
from blackboard.testing.servers import Server

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from blackboard.integrations.langgraph import BlackboardSaver
from blackboard.integrations.langgraph import saver as module
from blackboard.integrations.langgraph.ancestry import needed, needed_by_newest
from blackboard.integrations.langgraph.spelling import Spelling
from blackboard.testing.contracts.savers.case import checkpoint, config, ids, names, put


class Work(TypedDict):
    done: Annotated[list[str], operator.add]


@asynccontextmanager
async def savers(url: str, policy: dict[str, Any], **more: Any) -> AsyncIterator[BlackboardSaver]:
    settings = Settings(namespaces={"langgraph": {"kind": "checkpoint", **policy}})
    async with Blackboard.open(url, settings=settings, proof=False) as board:
        yield BlackboardSaver(board, **more)


async def waits(saver: BlackboardSaver, thread: str) -> bool:
    meta = await saver.engine.meta(thread)
    assert meta.incarnation is not None
    return meta.expires is None


def letter(saver: Any, **stops: Any) -> Any:
    """draft, two readers at once, a join, and as many more as the join says, sent one by one."""
    built = StateGraph(Work)
    for name in ("draft", "one", "two", "approve", "more", "last"):
        built.add_node(name, lambda _, name=name: {"done": [name]})
    built.add_edge(START, "draft").add_edge("draft", "one").add_edge("draft", "two").add_edge(["one", "two"], "approve")
    built.add_conditional_edges("approve", lambda _: [Send("more", {"done": []}) for _ in range(2)], ["more"])
    return built.add_edge("more", "last").add_edge("last", END).compile(checkpointer=saver, **stops)


STOPS = [
    ({"interrupt_before": ["draft"]}, ("draft",)), ({"interrupt_after": ["draft"]}, ("one", "two")),
    ({"interrupt_before": ["approve"]}, ("approve",)), ({"interrupt_after": ["approve"]}, ("more", "more")),
    ({"interrupt_before": ["last"]}, ("last",)),
]  # fmt: skip


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize(("stops", "coming"), STOPS, ids=str)
async def test_a_breakpoint_suspends_the_idle_ttl(
    solo: Server, thread: str, stops: dict[str, Any], coming: tuple[str, ...], durability: Any
) -> None:
    async with savers(solo.url, {"idle_ttl": "1h"}) as saver:
        graph = letter(saver, **stops)
        await graph.ainvoke({"done": []}, config(thread), durability=durability)
        assert (await graph.aget_state(config(thread))).next == coming
        assert await waits(saver, thread)
        stopped = await saver.aget_tuple(config(thread))
        assert stopped is not None
        await saver.aput_writes(stopped.config, [("done", ["late"])], "a task that was late")
        await put(saver, config(thread, ns="child:1"), checkpoint())
        assert await waits(saver, thread)
        ended = await graph.ainvoke(None, config(thread), durability=durability)
        assert ended["done"][-1] == "last"
        assert not await waits(saver, thread)


@pytest.mark.parametrize("joined", [True, False], ids=["join", "edge"])
async def test_a_deferred_node_comes_next(solo: Server, thread: str, joined: bool) -> None:
    built: Any = StateGraph(Work)
    for name in ("one", "two", "three"):
        built.add_node(name, lambda _, name=name: {"done": [name]}).add_edge(START, name)
    built.add_node("late", lambda _: {"done": ["late"]}, defer=True).add_edge("late", END)
    built.add_edge(["one", "two"] if joined else "one", "late")
    async with savers(solo.url, {"idle_ttl": "1h"}, breakpoints=["late"]) as saver:
        graph = built.compile(checkpointer=saver, interrupt_before=["late"])
        await graph.ainvoke({"done": []}, config(thread))
        assert (await graph.aget_state(config(thread))).next == ("late",)
        assert await waits(saver, thread)
        assert (await graph.ainvoke(None, config(thread)))["done"] == ["one", "three", "two", "late"]
        assert not await waits(saver, thread)


async def test_at_a_breakpoint_nothing_expires(solo: Server, thread: str) -> None:
    """The thread that came to its end goes after a second; the one that waits stays, and goes on."""
    async with savers(solo.url, {"idle_ttl": "1s"}) as saver:
        graph, where = letter(saver, interrupt_before=["approve"]), config(f"{thread}-waits")
        await graph.ainvoke({"done": []}, where)
        await letter(saver).ainvoke({"done": []}, config(f"{thread}-ended"))
        for _ in range(500):
            if await saver.aget_tuple(config(f"{thread}-ended")) is None:
                break
            await asyncio.sleep(0.01)
        assert await saver.aget_tuple(config(f"{thread}-ended")) is None
        assert (await graph.ainvoke(None, where))["done"] == ["draft", "one", "two", "approve", "more", "more", "last"]


@pytest.mark.parametrize(
    ("breakpoints", "kept"), [((), ()), (("approve",), ("approve",)), (("more", "draft"), ("draft", "more"))]
)
async def test_breakpoints_that_are_named(
    solo: Server, thread: str, breakpoints: tuple[str, ...], kept: tuple[str, ...]
) -> None:
    """A run that stopped elsewhere has died, or may: it expires."""
    async with savers(solo.url, {"idle_ttl": "1h"}, breakpoints=breakpoints) as saver:
        found: set[str] = set()
        for stops, coming in STOPS:
            name = f"{thread}-{stops}"
            await letter(saver, **stops).ainvoke({"done": []}, config(name))
            if await waits(saver, name):
                found.update(coming)
        assert found == {*kept}


async def test_keep_last_prunes_by_itself(backend: str, thread: str) -> None:
    async with savers(backend, {"keep_last": 3}) as saver:
        graph, most, ended = letter(saver), 0, {}
        for turn in range(1, 12):
            ended = await graph.ainvoke({"done": [f"turn {turn}"]}, config(thread))
            assert len(ended["done"]) == 8 * turn
            most = max(most, len(await ids(saver, config(thread))))
        assert 16 <= most <= 3 + 16 + 7
        left = [state async for state in graph.aget_state_history(config(thread))]
        assert len(left) < 26
        assert left[0].values == ended
        assert [len(state.values["done"]) for state in left] == sorted(
            (len(s.values["done"]) for s in left), reverse=True
        )


def gathered(state: list[str] | None, writes: Any) -> list[str]:
    return [*(state or []), *(item for write in writes for item in write)]


@pytest.mark.parametrize("frequency", [3, 7, 40])
@pytest.mark.filterwarnings("ignore")
async def test_keep_last_leaves_what_delta_channels_need(solo: Server, thread: str, frequency: int) -> None:
    """Every checkpoint that stays has the state that it has on a saver that keeps all."""

    class Delta(TypedDict):
        lines: Annotated[list[str], DeltaChannel(gathered, snapshot_frequency=frequency)]

    built = StateGraph(Delta).add_node("add", lambda state: {"lines": [f"line-{len(state['lines'])}"]})
    built.add_edge(START, "add").add_edge("add", END)
    async with savers(solo.url, {"keep_last": 2}) as saver:
        ours, theirs, where = (
            built.compile(checkpointer=saver),
            built.compile(checkpointer=InMemorySaver()),
            config(thread),
        )
        stored, whole = 0, []
        for turn in range(24):
            for graph in (ours, theirs):
                await graph.ainvoke({"lines": [f"in-{turn}"]}, where)
            left = [state.values async for state in ours.aget_state_history(where)]
            whole = [state.values async for state in theirs.aget_state_history(where)]
            assert left[:2] == whole[:2]
            assert [values for values in left if values not in whole] == []
            stored = len(left)
        assert stored < len(whole)


@pytest.mark.parametrize("seed", range(6))
async def test_what_the_newest_need_is_what_each_of_them_needs(solo: Server, thread: str, seed: int) -> None:
    """On chains with forks, snapshots here and there, and parents whose id is larger."""
    chance = random.Random(seed)
    async with savers(solo.url, {}) as saver:
        made = names(24)
        for at, name in enumerate(made):
            parent = chance.choice(made[max(0, at - 4) : at] or made[-1:]) if at and chance.random() < 0.95 else None
            if chance.random() < 0.1:
                parent = chance.choice(made[at + 1 :] or [None])
            values = {channel: 1 for channel in ("a", "b") if chance.random() < 0.2}
            open_channels = {channel: (1, 1) for channel in ("a", "b") if chance.random() < 0.9}
            await put(
                saver, config(thread, parent), checkpoint(name, **values), counters_since_delta_snapshot=open_channels
            )
        spelling, place = Spelling(saver.serde), (thread, "")
        for newest in (1, 2, 5, 30):
            expected: set[str] = set()
            for name in made[-newest:]:
                expected |= set((await needed(saver.engine, spelling, place, name))[0])
            found = await needed_by_newest(saver.engine, spelling, place, newest)
            assert {*found} - {*made[-newest:]} == expected - {*made[-newest:]}


async def test_a_prune_that_fails_is_no_failure_of_the_put(
    solo: Server, thread: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*args: Any) -> None:
        raise ServerUnavailable("not now")

    monkeypatch.setattr(module, "keep_newest", broken)
    async with savers(solo.url, {"keep_last": 1}) as saver:
        with caplog.at_level(logging.WARNING, "blackboard.langgraph"):
            where = await put(saver, config(thread), checkpoint(n=1), step=16)
        assert await ids(saver, config(thread)) == [where["configurable"]["checkpoint_id"]]
    assert [record.message for record in caplog.records] == ["a thread was not pruned: not now"]
