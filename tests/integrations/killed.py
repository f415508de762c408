"""A graph that is killed: branches, a subgraph, a question, and side effects that must happen once whoever resumes it."""

from __future__ import annotations

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from blackboard import Blackboard, Settings
from blackboard.claims.outcome import Busy, Done, Unknown
from blackboard.claims.shared import Claim
from blackboard.integrations.langgraph import BlackboardSaver
from tests.chaos.stage import append, lines

LEASE = 0.3
"""Seconds for which a killed owner, of the thread or of an effect, holds the next one up."""

PAUSE = 0.005
BRANCHES = 4
EFFECTS = {*(f"branch-{number}" for number in range(BRANCHES)), "inner", "send"}


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    done: Annotated[list[str], operator.add]
    verdict: str


class World:
    """The world outside the store: a file of what happened, and one of where the drivers were."""

    def __init__(self, board: Blackboard, thread: str, directory: Path) -> None:
        self.effects, self.thread = board.effects(namespace="langgraph"), thread
        self._ledger, self._marks = directory / f"{thread}.ledger", directory / f"{thread}.marks"

    def mark(self, text: str) -> None:
        append(self._marks, text)

    async def once(self, name: str) -> str:
        """Let an effect happen, unless it has; an unknown one is looked up in the world and decided."""
        while True:
            match await self.effects.begin(
                f"{self.thread}/{name}", semantics="at-most-once", fingerprint=name, ttl=LEASE
            ):
                case Claim() as claim:
                    async with self.effects.hold(claim):
                        self.mark(f"{name} claimed")
                        append(self._ledger, f"{name} {claim.downstream_key}")
                        self.mark(f"{name} happened")
                        await asyncio.sleep(PAUSE)
                        await self.effects.complete(claim, name.encode())
                        self.mark(f"{name} recorded")
                    return f"did {name}"
                case Done():
                    return f"did {name}"
                case Unknown() as unknown:
                    happened = any(line.startswith(f"{name} ") for line in lines(self._ledger))
                    await self.effects.resolve(unknown, "done" if happened else "retry", name.encode())
                case Busy() as busy:
                    await asyncio.sleep(min(busy.retry_after, LEASE))
                case other:
                    raise AssertionError(f"{name}: {other}")


def built(world: World) -> Any:
    """Build the graph: plan, branches at once, a subgraph, a person is asked, an end."""

    def plan(state: State) -> Any:
        world.mark("plan")
        return {"messages": [AIMessage("p" * 500, id="plan")], "done": ["plan"]}

    async def branch(state: Any) -> Any:
        await asyncio.sleep(PAUSE * state["n"])
        return {"done": [await world.once(f"branch-{state['n']}")]}

    async def inner(state: State) -> Any:
        world.mark("inner")
        return {"done": [await world.once("inner")]}

    def after(state: State) -> Any:
        world.mark("after")
        return {"messages": [AIMessage("i" * 500, id="inner")], "done": []}

    def approve(state: State) -> Any:
        world.mark("approve")
        return {"verdict": interrupt({"done": len(state["done"])})}

    async def send(state: State) -> Any:
        return {"messages": [AIMessage(state["verdict"], id="send")], "done": [await world.once("send")]}

    below = StateGraph(State).add_node("inner", inner).add_node("after", after)
    below.add_edge(START, "inner").add_edge("inner", "after").add_edge("after", END)
    top = StateGraph(State).add_node("plan", plan).add_node("branch", branch).add_node("below", _alone(below.compile()))
    top.add_node("approve", approve).add_node("send", send).add_edge(START, "plan")
    top.add_conditional_edges("plan", lambda _: [Send("branch", {"n": n}) for n in range(BRANCHES)], ["branch"])
    top.add_edge("branch", "below").add_edge("below", "approve").add_edge("approve", "send").add_edge("send", END)
    return top


def _alone(inner: Any) -> Any:
    """Give a subgraph no state of its parent's to repeat, and take what it adds."""

    async def below(state: State) -> Any:
        return await inner.ainvoke({"messages": [], "done": [], "verdict": ""})

    return below


async def driven(saver: BlackboardSaver, world: World, thread: str) -> Any:
    """Begin the run, or go on where the last driver was; returns the state at its end."""
    graph = built(world).compile(checkpointer=saver)
    async with saver.lease(thread, ttl=LEASE, wait=30) as lease:
        where: Any = {"configurable": {"thread_id": thread, "lease": lease}}
        while True:
            state = await graph.aget_state(where)
            if state.created_at is None:
                await graph.ainvoke({"messages": [HumanMessage("go", id="go")], "done": [], "verdict": ""}, where)
            elif state.interrupts:
                await graph.ainvoke(Command(resume="yes"), where)
            elif state.tasks:  # not `next`: of a step whose writes all came before the kill it is empty
                await graph.ainvoke(None, where)
            else:
                return state.values


async def drive(url: str, thread: str, directory: str) -> None:
    """Drive a thread to its end, in a process that may be killed."""
    async with Blackboard.open(url, settings=Settings(), proof=False) as board:
        saver = BlackboardSaver(board)
        world = World(board, thread, Path(directory))
        world.mark("begun")
        await driven(saver, world, thread)
        world.mark("ended")
