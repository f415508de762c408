"""A template forks children that end, fail, stop and are killed at a spot; none outlives it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from blackboard import points
from blackboard.testing.crash import Spot, Template, recorder

MODULE = """
import asyncio, os, signal
from blackboard.points import reach, watch
from blackboard.testing.crash import Spot, strike

async def end(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))

async def fail():
    raise ArithmeticError("on purpose")

async def count(path, spot):
    with watch(strike(Spot.parse(spot))):
        for number in range(5):
            reach("step", "before")
            with open(path, "a") as file:
                file.write(f"{number}\\n")

async def hang():
    await asyncio.sleep(3600)
"""


@pytest_asyncio.fixture
async def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Template]:
    (tmp_path / "playing.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    async with await Template.start("playing") as started:
        yield started


async def test_a_child_ends(template: Template, tmp_path: Path) -> None:
    child = await template.fork("end", str(tmp_path / "out"))
    assert await child.wait() == 0
    assert await child.wait() == 0
    assert not child.running
    assert int((tmp_path / "out").read_text()) == child.pid


async def test_a_child_fails_and_says_why(template: Template) -> None:
    child = await template.fork("fail")
    assert await child.wait() == 1
    assert "ArithmeticError: on purpose" in template.errors()


async def test_a_child_is_killed_at_the_third_time(template: Template, tmp_path: Path) -> None:
    child = await template.fork("count", str(tmp_path / "out"), "step:before#3")
    assert await child.wait() == -signal.SIGKILL
    assert (tmp_path / "out").read_text() == "0\n1\n"


async def test_a_spot_that_is_not_reached_kills_nobody(template: Template, tmp_path: Path) -> None:
    child = await template.fork("count", str(tmp_path / "out"), "step:before#6")
    assert await child.wait() == 0


async def test_children_end_with_their_template(template: Template) -> None:
    children = await asyncio.gather(*(template.fork("hang") for _ in range(3)))
    assert all(child.running for child in children)
    await template.close()
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child.pid, 0)


async def test_a_template_without_its_module(tmp_path: Path) -> None:
    async with await Template.start("no_such_module") as template:
        with pytest.raises(RuntimeError, match="no_such_module"):
            await template.fork("end", "nowhere")


def test_spots_count_each_point_for_itself() -> None:
    seen: list[Spot] = []
    with points.watch(recorder(seen.append)):
        for name in ("a", "b", "a"):
            points.reach(name, "x")
    assert [str(spot) for spot in seen] == ["a:x#1", "b:x#1", "a:x#2"]
    assert [Spot.parse(str(spot)) for spot in seen] == seen
