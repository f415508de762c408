"""Public bug reports about runs that died in the middle, as inputs with the right answer: what is done again, and what is not."""

import asyncio
import operator
from collections.abc import AsyncIterator
from typing import Annotated, Any, cast

import pytest
from typing_extensions import TypedDict

from blackboard import Blackboard, Settings
from blackboard.claims.outcome import Busy, Unknown
from blackboard.claims.shared import Claim

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send

from blackboard.integrations.langgraph import BlackboardSaver
from blackboard.testing.contracts.savers.case import config


@pytest.fixture
async def saver(backend: str) -> AsyncIterator[BlackboardSaver]:
    async with Blackboard.open(backend, settings=Settings(), proof=False) as board:
        yield BlackboardSaver(board)


async def test_c62_a_crash_after_the_mail_was_sent(saver: BlackboardSaver, thread: str) -> None:
    """Whoever resumes is told that the outcome is unknown; nothing is sent again by itself."""
    sent: list[str] = []
    asked: list[Any] = []

    class Mail(TypedDict):
        log: Annotated[list[str], operator.add]

    def built(board: Blackboard, *, dies: bool) -> Any:
        async def send(state: Mail) -> Any:
            effects = board.effects(namespace="langgraph")
            answer: Any = None
            while answer is None or isinstance(answer, Busy):
                await asyncio.sleep(0.01)
                answer = await effects.begin(f"{thread}/mail", semantics="at-most-once", fingerprint="v1", ttl=0.2)
            asked.append(answer)
            if isinstance(answer, Claim):
                sent.append("mail")
            if dies:
                raise ConnectionError("the process is gone")
            return {"log": ["sent" if isinstance(answer, Claim) else "unknown"]}

        return StateGraph(Mail).add_node("send", send).add_edge(START, "send").add_edge("send", END)

    with pytest.raises(ConnectionError):
        await built(saver.board, dies=True).compile(checkpointer=saver).ainvoke({"log": []}, config(thread))
    resumed = await built(saver.board, dies=False).compile(checkpointer=saver).ainvoke(None, config(thread))
    assert resumed["log"] == ["unknown"]
    assert sent == ["mail"]
    assert isinstance(asked[-1], Unknown)


CALLS = [
    {"id": "call_A", "name": "book_room", "args": {"room": "R1"}},
    {"id": "call_B", "name": "send_mail", "args": {"to": "team@example.com"}},
]


async def test_c104_the_process_dies_between_two_tool_results(saver: BlackboardSaver, thread: str) -> None:
    """The answered call is not run again, the other is; both results stand, and the thread takes a new turn."""

    class Chat(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]

    runs: list[str] = []
    dead = asyncio.Event()

    def model(state: Chat) -> Any:
        asks = isinstance(state["messages"][-1], HumanMessage) and not any(
            isinstance(m, ToolMessage) for m in state["messages"]
        )
        return {"messages": [AIMessage("", tool_calls=CALLS, id="ai-1") if asks else AIMessage("done")]}

    async def tool(call: Any) -> Any:
        runs.append(call["id"])
        if call["id"] == "call_B" and not dead.is_set():
            while not (found := await saver.aget_tuple(config(thread))) or not found.pending_writes:
                await asyncio.sleep(0.01)
            dead.set()
            raise ConnectionError("the process is gone")
        return {"messages": [ToolMessage(f"did {call['name']}", tool_call_id=call["id"], id=f"result-{call['id']}")]}

    def route(state: Chat) -> Any:
        last = state["messages"][-1]
        return (
            [Send("tool", call) for call in last.tool_calls] if isinstance(last, AIMessage) and last.tool_calls else END
        )

    built = StateGraph(Chat).add_node("model", model).add_node("tool", cast("Any", tool)).add_edge(START, "model")
    built.add_conditional_edges("model", route, ["tool", END]).add_edge("tool", "model")
    graph = built.compile(checkpointer=saver)
    with pytest.raises(ConnectionError):
        await graph.ainvoke({"messages": [HumanMessage("Book the room and mail the team.")]}, config(thread))
    stopped = await graph.aget_state(config(thread))
    assert [(task.path[1], task.result is not None) for task in stopped.tasks] == [(0, True), (1, False)]
    ended = await graph.ainvoke(None, config(thread))
    assert sorted(runs) == ["call_A", "call_B", "call_B"]
    results = [m.tool_call_id for m in ended["messages"] if isinstance(m, ToolMessage)]
    assert results == ["call_A", "call_B"]
    more = await graph.ainvoke({"messages": [HumanMessage("Thanks.")]}, config(thread))
    assert [m.content for m in more["messages"][-2:]] == ["Thanks.", "done"]
