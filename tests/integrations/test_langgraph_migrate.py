"""Threads are taken over from other savers whole and can be gone on with; a copying can be cut off at any point."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
from typing_extensions import TypedDict

from blackboard import Blackboard, Settings
from blackboard.errors import ConfigError, EncodeError
from blackboard.testing.servers import Server
from tests.integrations.test_langgraph_graphs import (
    Work,
    approve,
    branch,
    chat_graph,
    config,
    gathered,
    history,
    inner_graph,
)

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

import numpy as np
from langchain_core.messages import HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send

from blackboard.integrations.langgraph import BlackboardSaver, BlackboardSerializer, Copied, Difference, copy_threads

Saver = BaseCheckpointSaver[Any]


class Delta(TypedDict):
    lines: Annotated[list[str], DeltaChannel(gathered, snapshot_frequency=5)]


def delta_graph(saver: Saver) -> Any:
    built = StateGraph(Delta).add_node("add", lambda state: {"lines": [f"line-{len(state['lines'])}"]})
    return built.add_edge(START, "add").add_edge("add", END).compile(checkpointer=saver)


def work_graph(saver: Saver) -> Any:
    """Branches, and a subgraph in which a person is asked."""
    built = StateGraph(Work).add_node("branch", branch).add_node("inner", inner_graph()).add_node("approve", approve)
    built.add_conditional_edges(START, lambda state: [Send("branch", {"n": n}) for n in state["items"]], ["branch"])
    built.add_edge("branch", "inner").add_edge("inner", "approve").add_edge("approve", END)
    return built.compile(checkpointer=saver)


async def chat(saver: Saver, thread: str, start: int) -> Any:
    graph, where = chat_graph(saver), config(thread)
    for number in range(start, start + 4):
        await graph.ainvoke({"messages": [HumanMessage("x" * 80, id=f"h-{number}")]}, where)
    states = [one async for one in graph.aget_state_history(where)]
    old = next(one for one in states if one.next == ("chat",))
    await graph.aupdate_state(old.config, {"messages": [HumanMessage("fork", id=f"fork-{start}")]}, as_node=START)
    return await history(graph, where)


async def work(saver: Saver, thread: str, start: int) -> Any:
    graph, where = work_graph(saver), config(thread)
    if start == 0:
        await graph.ainvoke({"items": list(range(12)), "done": [], "verdict": ""}, where)
        stopped = await graph.aget_state(where, subgraphs=True)
        return [task.interrupts for task in stopped.tasks], await history(graph, where)
    await graph.ainvoke(Command(resume=7), where)
    await graph.ainvoke(Command(resume="yes"), where)
    return await history(graph, where)


async def delta(saver: Saver, thread: str, start: int) -> Any:
    graph, where = delta_graph(saver), config(thread)
    for number in range(start, start + 7):
        await graph.ainvoke({"lines": [f"in-{number}"]}, where)
    return await history(graph, where)


@asynccontextmanager
async def in_memory(_: Path) -> AsyncIterator[tuple[Saver, Saver]]:
    saver = InMemorySaver()
    yield saver, saver


@asynccontextmanager
async def sqlite(path: Path) -> AsyncIterator[tuple[Saver, Saver]]:
    """Written by the saver that has async methods, read by the one that has none."""
    pytest.importorskip("aiosqlite", reason="install langgraph-checkpoint-sqlite")
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    name = str(path / "threads.db")
    async with AsyncSqliteSaver.from_conn_string(name) as writer:
        with SqliteSaver.from_conn_string(name) as reader:
            yield writer, reader


@pytest.fixture
async def target(solo: Server, thread: str) -> AsyncIterator[BlackboardSaver]:
    async with Blackboard.open(solo.url, settings=Settings(), proof=False) as board:
        yield BlackboardSaver(board, namespace=thread)


async def count(saver: Saver, thread: str) -> int:
    if type(saver).__name__ == "SqliteSaver":
        return await asyncio.to_thread(lambda: len([*saver.list(config(thread))]))
    return len([one async for one in saver.alist(config(thread))])


@pytest.mark.parametrize("kind", [in_memory, sqlite], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("life", [chat, work, delta], ids=lambda life: life.__name__)
@pytest.mark.filterwarnings("ignore")
async def test_a_thread_goes_on_where_it_was(
    kind: Callable[[Path], Any], life: Callable[..., Any], target: BlackboardSaver, tmp_path: Path
) -> None:
    async with kind(tmp_path) as (writer, reader):
        before = await life(writer, "moved", 0)
        size = await count(reader, "moved")
        assert await copy_threads(reader, target) == Copied(1, size, 0, ())
        assert await count(target, "moved") == size
        graph = {"chat": chat_graph, "work": work_graph, "delta": delta_graph}[life.__name__](target)
        there = await history(graph, config("moved"))
        assert there == (before[1] if life is work else before)
        assert await life(target, "moved", 10) == await life(writer, "moved", 10)


@pytest.mark.filterwarnings("ignore")
async def test_only_the_threads_that_are_named(target: BlackboardSaver) -> None:
    source = InMemorySaver()
    for name in ("a", "b", "c:{*}"):
        await chat(source, name, 0)
    assert (await copy_threads(source, target, ["c:{*}", "c:{*}", "none"])).threads == 1
    assert [await count(target, name) for name in ("a", "b")] == [0, 0]
    assert (await copy_threads(source, target)).threads == 3
    assert await count(target, "b") == await count(source, "b")


@pytest.mark.filterwarnings("ignore")
async def test_cut_off_at_every_write_and_called_again(
    target: BlackboardSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = InMemorySaver()
    await work(source, "moved", 0)
    left = 0

    def limited(write: Any) -> Any:
        async def act(*args: Any) -> Any:
            nonlocal left
            if left == 0:
                raise ConnectionError("cut off")
            left -= 1
            return await write(*args)

        return act

    monkeypatch.setattr(target, "aput", limited(target.aput))
    monkeypatch.setattr(target, "aput_writes", limited(target.aput_writes))
    size, cuts = await count(source, "moved"), 0
    ended = None
    while ended is None and cuts < 200:
        left = 2
        try:
            ended = await copy_threads(source, target)
        except ConnectionError:
            cuts += 1
    assert cuts > size and ended is not None
    assert ended.differences == ()
    assert ended.checkpoints + ended.standing == size
    assert await copy_threads(source, target) == Copied(1, 0, size, ())


def made(name: str, **values: Any) -> Any:
    versions = dict.fromkeys(values, 1)
    return {**empty_checkpoint(), "v": 4, "id": name, "channel_values": values, "channel_versions": versions}


async def put(saver: Saver, name: str, parent: str | None = None, **values: Any) -> Any:
    where = {"thread_id": "t", "checkpoint_ns": "", **({} if parent is None else {"checkpoint_id": parent})}
    checkpoint = made(name, **values)
    return await saver.aput(
        {"configurable": where}, checkpoint, {"source": "loop", "step": 1}, checkpoint["channel_versions"]
    )


async def test_what_differs_is_named(target: BlackboardSaver) -> None:
    """Checkpoints of the same ids stood there before: they are left as they are, and told."""
    source = InMemorySaver()
    for saver, number, parent in ((source, 1, "0"), (target, 2, "1")):
        await put(saver, "1", n=number, same=[1])
        where = await put(saver, "2", parent, n=1)
        await saver.aput_writes(where, [("x", number)], "task")
    told = await copy_threads(source, target)
    assert (told.checkpoints, told.standing) == (0, 2)
    named = [(difference.checkpoint, difference.what) for difference in told.differences]
    # The time is that at which each was made.
    assert [one for one in named if one[1] != "ts"] == [("1", "channel 'n'"), ("2", "parent"), ("2", "pending writes")]
    assert told.differences[0] == Difference("t", "", "1", "channel 'n'")


async def test_values_that_are_not_equal_to_themselves(target: BlackboardSaver) -> None:
    source = InMemorySaver()
    where = await put(source, "1", nan=float("nan"), array=np.arange(4.0), items=[{1, 2}, float("inf")])
    await source.aput_writes(where, [("b", 2), ("__error__", ValueError("no")), ("a", float("nan"))], "z", "path 1")
    await source.aput_writes(where, [("b", 3)], "a", "path 2")
    assert (await copy_threads(source, target)).differences == ()
    found = await target.aget_tuple(where)
    assert found is not None
    writes = [write[:2] for write in found.pending_writes or ()]
    assert writes == [("z", "__error__"), ("z", "b"), ("z", "a"), ("a", "b")]


async def test_a_checkpoint_of_an_old_format_keeps_its_tasks(target: BlackboardSaver, tmp_path: Path) -> None:
    async with sqlite(tmp_path) as (source, reader):
        where = await put(source, "1")
        await source.aput_writes(where, [("__pregel_tasks", Send("n", 1))], "task")
        old: Any = {**made("2", n=1), "v": 3}
        await source.aput(where, old, {"source": "loop", "step": 2}, {"n": 1})
        assert (await copy_threads(reader, target)).differences == ()
    found = await target.aget_tuple(config("t"))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"n": 1, "__pregel_tasks": [Send("n", 1)]}


async def test_a_refusal_names_the_checkpoint(target: BlackboardSaver) -> None:
    strict = BlackboardSaver(target.board, namespace=target.engine.namespace, serde=BlackboardSerializer())
    source = InMemorySaver(serde=BlackboardSerializer([Difference]))
    await put(source, "1", n=1)
    await put(source, "2", "1", kept=Difference("t", "", "1", "x"))
    with pytest.raises(EncodeError, match=r"channel 'kept': .*classes=\[Difference\]") as refused:
        await copy_threads(source, strict)
    assert refused.value.__notes__ == ["while checkpoint '2' of thread 't' was copied"]
    assert await count(strict, "t") == 1


async def test_threads_that_are_named_by_numbers(target: BlackboardSaver) -> None:
    """In memory 7 is another thread than "7"; here its text names it."""
    memory = InMemorySaver()
    made: Any = {**empty_checkpoint(), "channel_values": {"n": 1}, "channel_versions": {"n": 1}}
    del made["v"]
    memory.put({"configurable": {"thread_id": 7, "checkpoint_ns": ""}}, made, {}, {"n": 1})
    for threads, stands in ((None, 0), ([7], 1)):
        copied = await copy_threads(memory, target, threads)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert copied == Copied(threads=1, checkpoints=1 - stands, standing=stands, differences=())
    found = await target.aget_tuple(config("7"))
    assert found is not None
    assert found.checkpoint == made


async def test_one_text_is_not_many_threads(target: BlackboardSaver) -> None:
    with pytest.raises(ConfigError, match="abc"):
        await copy_threads(InMemorySaver(), target, "abc")
