"""A graph is killed with SIGKILL at random moments, and another process resumes it: the same end, each effect once."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from blackboard import Blackboard, Settings
from blackboard.testing.crash import Template
from blackboard.testing.servers import Server

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from blackboard.integrations.langgraph import BlackboardSaver
from tests.chaos.stage import lines, say
from tests.integrations.killed import EFFECTS, World, built

TOGETHER = 3
"""Kills of one run at most: whoever resumes may be killed as well."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def template() -> AsyncIterator[Template]:
    async with await Template.start("tests.integrations.killed") as started:
        yield started


@dataclass
class Killing:
    """What was killed, and where."""

    server: Server
    template: Template
    directory: Path
    moments: random.Random
    lasts: float = 0.0
    kills: int = 0
    missed: int = 0
    positions: Counter[str] = field(default_factory=Counter)

    async def undisturbed(self, thread: str) -> None:
        """Let a process drive a thread to its end, and note how long that takes."""
        before = time.monotonic()
        child = await self.template.fork("drive", self.server.url, thread, str(self.directory))
        assert await child.wait() == 0, self.template.errors()
        self.lasts = time.monotonic() - before

    async def kill(self, thread: str) -> bool:
        """Kill a process that drives a thread, at a random moment of its run; False if it had come to its end."""
        child = await self.template.fork("drive", self.server.url, thread, str(self.directory))
        await asyncio.sleep(self.moments.uniform(0.02, 1.0) * self.lasts)
        child.signal(signal.SIGKILL)
        code = await child.wait()
        assert code in (0, -signal.SIGKILL), self.template.errors()
        if code == 0:
            self.missed += 1
            return False
        self.kills += 1
        self.positions[(lines(self.directory / f"{thread}.marks") or ["nothing"])[-1]] += 1
        return True

    def happened(self, thread: str) -> Counter[str]:
        return Counter(line.split(" ")[0] for line in lines(self.directory / f"{thread}.ledger"))


async def state_of(saver: BlackboardSaver, thread: str) -> Any:
    graph = built(World(saver.board, thread, Path())).compile(checkpointer=saver)
    found = await graph.aget_state({"configurable": {"thread_id": thread}})
    assert found.tasks == ()
    return found.values


async def in_memory(board: Blackboard, thread: str, directory: Path) -> Any:
    """Run the graph on LangGraph's own saver, uninterrupted."""
    graph = built(World(board, thread, directory)).compile(checkpointer=InMemorySaver())
    where: Any = {"configurable": {"thread_id": thread}}
    await graph.ainvoke({"messages": [("human", "go")], "done": [], "verdict": ""}, where)
    return await graph.ainvoke(Command(resume="yes"), where)


@pytest.mark.parametrize("kills", [12, pytest.param(50, marks=pytest.mark.chaos)])
async def test_killed_anywhere_and_resumed(
    solo: Server, template: Template, tmp_path: Path, thread: str, kills: int
) -> None:
    killing = Killing(solo, template, tmp_path, random.Random(kills))
    await killing.undisturbed(f"{thread}-first")  # which also loads the scripts
    await killing.undisturbed(f"{thread}-whole")
    async with Blackboard.open(solo.url, settings=Settings(), proof=False) as board:
        saver = BlackboardSaver(board)
        expected = await state_of(saver, f"{thread}-whole")
        memory = await in_memory(board, f"{thread}-memory", tmp_path)
        assert [m.content for m in expected["messages"]] == [m.content for m in memory["messages"]]
        assert (expected["done"], expected["verdict"]) == (memory["done"], memory["verdict"])
        runs = 0
        while killing.kills < kills and runs < 4 * kills:
            runs += 1
            name = f"{thread}-{runs}"
            for _ in range(min(1 + runs % TOGETHER, kills - killing.kills)):
                if not await killing.kill(name):
                    break
            child = await template.fork("drive", solo.url, name, str(tmp_path))
            assert await child.wait() == 0, template.errors()
            assert await state_of(saver, name) == expected
            assert killing.happened(name) == dict.fromkeys(EFFECTS, 1)
    say(
        f"{killing.kills} kills in {runs} runs, {killing.missed} came too late; killed after: {dict(killing.positions)}; undisturbed {killing.lasts:.2f} s"
    )
    assert killing.kills == kills
    assert len(killing.positions) >= kills // 4
