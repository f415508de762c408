"""Threads to be moved: lives that they may have had, and LangGraph's savers that they may stand in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send
from typing_extensions import TypedDict

from benchmarks.measure.peer_servers import Missing, postgres_server, redis_stack
from tests.integrations.test_langgraph_graphs import (
    Work,
    approve,
    branch,
    chat_graph,
    config,
    gathered,
    history,
    inner_graph,
    shown,
)

__all__ = [
    "GRAPHS",
    "KINDS",
    "LIVES",
    "SERVED",
    "Saver",
    "chat",
    "count",
    "made",
    "postgres",
    "put",
    "redis",
    "sqlite",
    "work",
]

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


async def root_history(graph: Any, where: Any) -> Any:
    """Leave out the subgraphs, which the Redis saver lists for the root as well."""
    names: dict[str, str] = {}
    states = [one async for one in graph.aget_state_history(where)]
    return [shown(one, names) for one in states if not one.config["configurable"]["checkpoint_ns"]]


async def work(saver: Saver, thread: str, start: int) -> Any:
    graph, where = work_graph(saver), config(thread)
    if start == 0:
        await graph.ainvoke({"items": list(range(12)), "done": [], "verdict": ""}, where)
        stopped = await graph.aget_state(where, subgraphs=True)
        return [task.interrupts for task in stopped.tasks], await root_history(graph, where)
    await graph.ainvoke(Command(resume=7), where)
    await graph.ainvoke(Command(resume="yes"), where)
    return await root_history(graph, where)


async def travel(saver: Saver, thread: str, start: int) -> Any:
    """Replay an old checkpoint, and fork from it with another state."""
    graph, where = chat_graph(saver), config(thread)
    if start == 0:
        await chat(saver, thread, start)
    states = [one async for one in graph.aget_state_history(where)]
    old = next(one for one in reversed(states) if one.next == ("chat",) and len(one.values["messages"]) == 3)
    await graph.ainvoke(None, old.config)
    message = HumanMessage("fork", id=f"travel-{start}")
    forked = await graph.aupdate_state(old.config, {"messages": [message]}, as_node=START)
    await graph.ainvoke(None, forked)
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


@asynccontextmanager
async def postgres_saver() -> AsyncIterator[tuple[str, Saver]]:
    """A saver on a server of its own, after its address."""
    module = pytest.importorskip("langgraph.checkpoint.postgres.aio", reason="install langgraph-checkpoint-postgres")
    try:
        async with (
            postgres_server() as address,
            module.AsyncPostgresSaver.from_conn_string(address) as saver,
        ):
            await saver.setup()
            yield address, saver
    except Missing as missing:
        pytest.skip(str(missing))


@asynccontextmanager
async def redis_saver() -> AsyncIterator[tuple[str, Saver]]:
    """A saver on a server of its own, after its address."""
    module = pytest.importorskip("langgraph.checkpoint.redis.aio", reason="install langgraph-checkpoint-redis")
    try:
        async with redis_stack() as server, module.AsyncRedisSaver.from_conn_string(server.url) as saver:
            yield server.url, saver
    except Missing as missing:
        pytest.skip(str(missing))


@asynccontextmanager
async def postgres(_: Path) -> AsyncIterator[tuple[Saver, Saver]]:
    async with postgres_saver() as (_address, saver):
        yield saver, saver


@asynccontextmanager
async def postgres_sync(_: Path) -> AsyncIterator[tuple[Saver, Saver]]:
    """Written by the saver that has async methods, read by the one that has none."""
    async with postgres_saver() as (address, writer):
        with pytest.importorskip("langgraph.checkpoint.postgres").PostgresSaver.from_conn_string(address) as reader:
            yield writer, reader


@asynccontextmanager
async def redis(_: Path) -> AsyncIterator[tuple[Saver, Saver]]:
    async with redis_saver() as (_address, saver):
        yield saver, saver


async def count(saver: Saver, thread: str) -> int:
    if type(saver).__name__ in ("SqliteSaver", "PostgresSaver"):
        return await asyncio.to_thread(lambda: len([*saver.list(config(thread))]))
    return len([one async for one in saver.alist(config(thread))])


def made(name: str, **values: Any) -> Any:
    versions = dict.fromkeys(values, 1)
    return {**empty_checkpoint(), "v": 4, "id": name, "channel_values": values, "channel_versions": versions}


async def put(saver: Saver, name: str, parent: str | None = None, *, thread: str = "t", **values: Any) -> Any:
    where = {"thread_id": thread, "checkpoint_ns": "", **({} if parent is None else {"checkpoint_id": parent})}
    checkpoint = made(name, **values)
    return await saver.aput(
        {"configurable": where}, checkpoint, {"source": "loop", "step": 1}, checkpoint["channel_versions"]
    )


LIVES = (chat, work, delta, travel)
GRAPHS = {chat: chat_graph, work: work_graph, delta: delta_graph, travel: chat_graph}
KINDS = (in_memory, sqlite, postgres, postgres_sync, redis)
SERVED = {"postgres": postgres_saver, "redis": redis_saver}
