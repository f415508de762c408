"""The fixtures for users' tests, as a user has them: in a pytest of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from blackboard.testing.servers import binaries

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.skipif(not binaries(), reason="no server binary: install agent-blackboard[embedded]")

ROOT = Path(__file__).parents[2]
AGENT = """
import asyncio
import pytest
from pydantic import BaseModel
from blackboard import Blackboard, LeaseHeld, Log
from blackboard.testing.pytest import spots_of
from blackboard.testing.proxy import drop_reply

class Notes(BaseModel):
    lines: Log[str] = Log()

ran = []

async def agent(board):
    async with board.run("t", Notes, start=Notes) as run:
        while not run.done:
            made = await run.effect("work", str, semantics="at-least-once").call(lambda: ran.append(run.step) or "made")
            run.state.lines.append(f"{run.step} {made}")
            if run.step == 2:
                await run.finish("ok")
            else:
                await run.commit(next="more")

async def written(board):
    latest = await board.thread("t").latest(Notes)
    return list(latest.state.lines)
"""


@pytest.fixture
def users(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest('pytest_plugins = ["blackboard.testing.pytest"]')
    pytester.makeini(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error"
    )
    return pytester


def passed(users: pytest.Pytester, tests: str, **outcomes: int) -> pytest.RunResult:
    users.makepyfile(AGENT + tests)
    result = users.runpytest_subprocess("-p", "no:cacheprovider", "-q")
    result.assert_outcomes(**outcomes)
    return result


def test_every_test_has_an_empty_board(users: pytest.Pytester) -> None:
    tests = """
@pytest.mark.parametrize("number", range(2))
async def test_empty(board, number):
    assert [row async for row in board.threads()] == []
    await agent(board)
    assert await board.thread("t").result() == "ok"
"""
    passed(users, tests, passed=2)


def test_an_agent_is_resumed_from_every_spot(users: pytest.Pytester) -> None:
    tests = """
SPOTS = spots_of(agent)

@pytest.mark.parametrize("spot", SPOTS, ids=str)
async def test_resumes(board, crash_at, spot):
    async with crash_at(spot) as crash:
        await agent(board)
    assert crash.happened
    await agent(board)
    assert await written(board) == ["0 made", "1 made", "2 made"]
    assert await board.thread("t").result() == "ok"

def test_the_recording():
    names = {spot.point for spot in SPOTS}
    assert {"commit.lua:sent", "effect:after", "begin.lua:after", "acquire.lua:before"} <= names
    assert len(SPOTS) > 40 and len(set(SPOTS)) == len(SPOTS)
"""
    users.makepyfile(AGENT + tests)
    result = users.runpytest_subprocess("-p", "no:cacheprovider", "-q")
    assert result.ret == 0, result.outlines[-40:]
    assert result.parseoutcomes()["passed"] > 40


def test_the_dead_do_nothing_more(users: pytest.Pytester) -> None:
    """No release and no record, not by a finally, not by a task that is left; the lease has lapsed for the next one."""
    tests = """
async def test_dead(board, crash_at):
    after = []
    async with crash_at("effect:after"):
        try:
            async with board.run("t", Notes, start=Notes) as run:
                late = asyncio.create_task(later(board, after))
                await run.effect("work", semantics="at-most-once").call(lambda: None)
        finally:
            after.append("finally")
            await board.signal("t", "name", 1)
    await asyncio.gather(late, return_exceptions=True)
    assert after == ["finally"]
    meta = await board.thread("t").meta()
    assert (meta.failures, meta.holder is None) == (0, False)
    assert [effect.key for effect in await board.thread("t").effects()] == ["0/work"]
    assert await board.thread("t").unread() == []
    async with board.run("t", Notes) as run:
        assert run.lease.takeover
        assert [effect.key for effect in run.unresolved] == ["0/work"]

async def later(board, after):
    await asyncio.sleep(0.1)
    await board.signal("t", "name", 1)
    after.append("signalled")

async def test_whoever_was_there_before_lives(board, crash_at):
    async with board.run("other", Notes, start=Notes) as run:
        async with crash_at("commit:after#2"):
            await agent(board)
        run.state.lines.append("alive")
        await run.commit()
        with pytest.raises(LeaseHeld):
            async with board.run("other", Notes): pass

async def test_a_task_takes_its_driver_along(board, crash_at):
    async with crash_at("commit.lua:sent"):
        child = asyncio.create_task(agent(board))
        await asyncio.sleep(60)
    await agent(board)
    assert len(await written(board)) == 3
"""
    passed(users, tests, passed=3)


def test_a_spot_that_is_not_reached_fails(users: pytest.Pytester) -> None:
    tests = """
async def test_unreached(board, crash_at):
    async with crash_at("commit:before#9"):
        await agent(board)

async def test_another_error_is_shown(board, crash_at):
    async with crash_at("commit:before#9"):
        raise ArithmeticError("mine")
"""
    result = passed(users, tests, failed=2)
    result.stdout.fnmatch_lines(
        ["*commit:before#9 was never reached; reached were *commit:before#1*", "*ArithmeticError: mine"]
    )


def test_servers_restart_and_wires_break(users: pytest.Pytester) -> None:
    tests = """
async def test_restart(board, restart_server, board_server):
    before = board_server.pid
    async with board.run("t", Notes, start=Notes) as run:
        run.state.lines.append("kept")
        await run.commit()
        await restart_server()
        assert board_server.pid != before
        await run.commit()
    assert await written(board) == ["kept"]

async def test_a_lost_reply(proxied_board, fault_proxy, board):
    async with proxied_board.run("t", Notes, start=Notes) as run:
        run.state.lines.append("once")
        fault_proxy.reset()
        fault_proxy.fault(drop_reply(), at=0)
        await run.commit()
        assert fault_proxy.names.count("EVALSHA") == 2
    assert await written(board) == ["once"]

async def test_left_dead(board, board_server):
    board_server.kill()

async def test_alive_again(board):
    await agent(board)
"""
    passed(users, tests, passed=4)
