"""Real graphs behave as with LangGraph's own InMemorySaver: the same scenario on both, compared value by value."""

import asyncio
import operator
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any

import pytest
from typing_extensions import TypedDict

from blackboard import Blackboard, Settings, keys
from blackboard.testing.servers import Server

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt

from blackboard.integrations.langgraph import BlackboardSaver

BRANCHES = 60

Scenario = Callable[[BaseCheckpointSaver[Any], str], Awaitable[Any]]


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    notes: dict[str, str]


class Work(TypedDict):
    items: list[int]
    done: Annotated[list[int], operator.add]
    verdict: str


def chat(state: Chat) -> Any:
    number = len(state["messages"])
    last = state["messages"][-1]
    answer = AIMessage(f"{number}: {last.content}", id=f"ai-{number}")
    return {"messages": [answer], "notes": {**state.get("notes", {}), f"note-{number}": "n" * 100}}


def chat_graph(saver: BaseCheckpointSaver[Any]) -> Any:
    built = StateGraph(Chat).add_node("chat", chat).add_edge(START, "chat").add_edge("chat", END)
    return built.compile(checkpointer=saver)


def config(thread: str, **more: Any) -> Any:
    return {"configurable": {"thread_id": thread, **more}}


def shown(snapshot: Any, names: dict[str, str]) -> Any:
    """Tell all that a snapshot says, with ids told in the order of their appearance and without times."""

    def named(config: Any) -> Any:
        if config is None:
            return None
        at = config["configurable"]
        ns = "|".join(part.partition(":")[0] for part in at.get("checkpoint_ns", "").split("|"))
        name = at.get("checkpoint_id")
        return ns, None if name is None else names.setdefault(name, str(len(names)))

    tasks = [(t.name, t.path, repr(t.error), [i.value for i in t.interrupts], t.result) for t in snapshot.tasks]
    metadata = {key: value for key, value in (snapshot.metadata or {}).items() if key in {"source", "step"}}
    return snapshot.values, snapshot.next, named(snapshot.config), named(snapshot.parent_config), metadata, tasks


async def history(graph: Any, where: Any) -> list[Any]:
    names: dict[str, str] = {}
    return [shown(one, names) async for one in graph.aget_state_history(where)]


async def conversation(saver: BaseCheckpointSaver[Any], thread: str) -> Any:
    """Messages that grow, one that is replaced, one that is removed."""
    graph, where = chat_graph(saver), config(thread)
    for number in range(8):
        await graph.ainvoke({"messages": [HumanMessage(f"{number}" * 60, id=f"h-{number}")]}, where)
    await graph.aupdate_state(where, {"messages": [HumanMessage("changed", id="h-1")]})
    await graph.ainvoke({"messages": [RemoveMessage("h-0"), HumanMessage("more", id="h-9")]}, where)
    return await history(graph, where)


async def time_travel(saver: BaseCheckpointSaver[Any], thread: str) -> Any:
    """Replay an old checkpoint, and fork from one with another state."""
    graph, where = chat_graph(saver), config(thread)
    for number in range(4):
        await graph.ainvoke({"messages": [HumanMessage("x" * 80, id=f"h-{number}")]}, where)
    states = [one async for one in graph.aget_state_history(where)]
    old = next(one for one in states if one.next == ("chat",) and len(one.values["messages"]) == 3)
    replayed = await graph.ainvoke(None, old.config)
    forked = await graph.aupdate_state(old.config, {"messages": [HumanMessage("fork", id="h-fork")]}, as_node=START)
    continued = await graph.ainvoke(None, forked)
    return replayed, continued, await history(graph, where)


def branch(state: Any) -> Any:
    return {"done": [state["n"]]}


def approve(state: Work) -> Any:
    return {"verdict": interrupt({"sum": sum(state["done"])})}


def inner_graph() -> Any:
    def first(state: Work) -> Any:
        return {"done": [1000]}

    def second(state: Work) -> Any:
        return {"done": [interrupt("how many")]}

    inner = StateGraph(Work).add_node("first", first).add_node("second", second)
    return inner.add_edge(START, "first").add_edge("first", "second").add_edge("second", END).compile()


async def fan_out(saver: BaseCheckpointSaver[Any], thread: str) -> Any:
    """Sixty branches at once, then a person is asked, and answers."""
    built = StateGraph(Work).add_node("branch", branch).add_node("approve", approve)
    built.add_conditional_edges(START, lambda state: [Send("branch", {"n": n}) for n in state["items"]], ["branch"])
    graph = built.add_edge("branch", "approve").add_edge("approve", END).compile(checkpointer=saver)
    where = config(thread)
    asked = await graph.ainvoke({"items": list(range(BRANCHES)), "done": [], "verdict": ""}, where)
    stopped = await graph.aget_state(where)
    answered = await graph.ainvoke(Command(resume="yes"), where)
    questions = [i.value for i in asked["__interrupt__"]]
    return questions, stopped.next, answered, await history(graph, where)


async def subgraphs(saver: BaseCheckpointSaver[Any], thread: str) -> Any:
    """An interrupt inside a subgraph, beside a branch that is done; the state within is read."""
    built = StateGraph(Work).add_node("inner", inner_graph()).add_node("beside", lambda _: {"done": [5]})
    built.add_edge(START, "inner").add_edge(START, "beside").add_edge("inner", END).add_edge("beside", END)
    graph = built.compile(checkpointer=saver)
    where = config(thread)
    await graph.ainvoke({"items": [], "done": [], "verdict": ""}, where)
    names: dict[str, str] = {}
    stopped = await graph.aget_state(where, subgraphs=True)
    within = [shown(task.state, names) for task in stopped.tasks if task.state is not None]
    answered = await graph.ainvoke(Command(resume=7), where)
    return within, answered, await history(graph, where)


async def failure(saver: BaseCheckpointSaver[Any], thread: str) -> Any:
    """One branch fails, the other's writes are kept, and the retry does not repeat it."""
    calls: list[str] = []
    where = config(thread)

    def good(state: Work) -> Any:
        calls.append("good")
        return {"done": [1]}

    async def bad(state: Work) -> Any:
        calls.append("bad")
        if calls.count("bad") > 1:
            return {"done": [2]}
        for _ in range(500):
            found = await saver.aget_tuple(where)
            if found is not None and [1] in [value for _, _, value in found.pending_writes or ()]:
                break
            await asyncio.sleep(0.01)
        raise ValueError("once")

    built = StateGraph(Work).add_node("good", good).add_node("bad", bad)
    built.add_edge(START, "good").add_edge(START, "bad").add_edge("good", END).add_edge("bad", END)
    graph = built.compile(checkpointer=saver)
    with pytest.raises(ValueError, match="once"):
        await graph.ainvoke({"items": [], "done": [], "verdict": ""}, where)
    stopped = await graph.aget_state(where)
    ended = await graph.ainvoke(None, where)
    return sorted(calls), stopped.next, ended, await history(graph, where)


def gathered(state: list[str] | None, writes: Any) -> list[str]:
    return [*(state or []), *(item for write in writes for item in write)]


async def deltas(saver: BaseCheckpointSaver[Any], thread: str) -> Any:
    """A channel that is stored as writes, with a snapshot now and then."""

    class Delta(TypedDict):
        lines: Annotated[list[str], DeltaChannel(gathered, snapshot_frequency=5)]

    graph = (
        StateGraph(Delta)
        .add_node("add", lambda state: {"lines": [f"line-{len(state['lines'])}"]})
        .add_edge(START, "add")
        .add_edge("add", END)
        .compile(checkpointer=saver)
    )
    where = config(thread)
    for number in range(12):
        await graph.ainvoke({"lines": [f"in-{number}"]}, where)
    if isinstance(saver, BlackboardSaver):
        assert len((await graph.aget_state(where)).values["lines"]) == 24
    return await history(graph, where)


async def stored_bytes(saver: BlackboardSaver, thread: str) -> int:
    """Sum what every key of a thread takes on the server, but for the op ids, which go after seconds."""
    store, prefix = saver.engine.store, keys.ThreadKeys.of("langgraph", thread).prefix
    size = 0
    for primary in await store.primaries():
        for key in [key for key in await primary.command("KEYS", "*") if key.decode().startswith(f"{prefix}:")]:
            if key.endswith(b":ops"):
                continue
            size += await primary.command("MEMORY", "USAGE", key, "SAMPLES", 0)
    return size


@pytest.fixture
async def saver(backend: str) -> AsyncIterator[BlackboardSaver]:
    async with Blackboard.open(backend, settings=Settings(), proof=False) as board:
        yield BlackboardSaver(board)


SCENARIOS = [conversation, time_travel, fan_out, subgraphs, failure, deltas]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
@pytest.mark.filterwarnings("ignore")
async def test_as_in_memory(saver: BlackboardSaver, thread: str, scenario: Scenario) -> None:
    ours, theirs = await scenario(saver, thread), await scenario(InMemorySaver(), thread)
    assert ours == theirs


@pytest.mark.filterwarnings("ignore")
async def test_another_process_goes_on(backend: str, thread: str) -> None:
    """What is remembered of a thread is a saving alone: a saver that knows nothing goes on with the same state."""
    memory = chat_graph(InMemorySaver())
    for number in range(6):
        ask: Any = {"messages": [HumanMessage("y" * 90, id=f"h-{number}")]}
        async with BlackboardSaver.aopen(backend, settings=Settings()) as fresh:
            ours = await chat_graph(fresh).ainvoke(ask, config(thread))
        assert ours == await memory.ainvoke(ask, config(thread))


@pytest.mark.filterwarnings("ignore")
async def test_pruning_leaves_what_delta_channels_need(saver: BlackboardSaver, thread: str) -> None:
    before = await deltas(saver, thread)
    await saver.aprune([thread])
    left = [one async for one in saver.alist(config(thread))]
    assert 1 < len(left) < len(before)
    found = await saver.aget_delta_channel_history(config=config(thread), channels=["lines"])
    assert len(found["lines"]["seed"].value) + sum(len(value) for _, _, value in found["lines"]["writes"]) == 24


@pytest.mark.filterwarnings("ignore")
async def test_a_conversation_grows_with_what_is_new(solo: Server, thread: str) -> None:
    """Two hundred steps of a message of 1 KB: no more than four times their bytes are stored, writes and manifests counted."""
    steps = 200
    board = await Blackboard.open(solo.url, settings=Settings(), proof=False)
    saver = BlackboardSaver(board)

    def speak(state: Chat) -> Any:
        return {"messages": [AIMessage(uuid.uuid4().hex * 32)]}

    def more(state: Chat) -> str:
        return "speak" if len(state["messages"]) < steps else END

    built: Any = StateGraph(Chat).add_node("speak", speak).add_edge(START, "speak").add_conditional_edges("speak", more)
    graph = built.compile(checkpointer=saver)
    ended = await graph.ainvoke({"messages": []}, config(thread) | {"recursion_limit": steps + 1})
    assert (await graph.aget_state(config(thread))).values == ended
    assert len(ended["messages"]) == steps
    assert await stored_bytes(saver, thread) <= 4 * steps * 1024
    await board.close()
