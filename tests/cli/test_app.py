"""The commands, against an embedded server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from blackboard import Blackboard
from blackboard.cli.app import app

from .conftest import Command

ROOT = Path(__file__).parents[2]


class State(BaseModel):
    count: int = 0
    names: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def threads(command: Command) -> None:
    """Two threads: one runs and has an effect that nobody knows the end of, one is finished."""
    asyncio.run(_fill(command.directory))


async def _fill(directory: Path) -> None:
    async with Blackboard.open(directory=directory) as board:
        async with board.run("open/1", State, start=State) as run:
            run.state.count, run.cursors["page"] = 2, 7
            await run.commit(next="pay")
            await run.effect("look", semantics="at-least-once").call(lambda: {"found": 1})
            with pytest.raises(ZeroDivisionError):
                await run.effect("pay", semantics="at-most-once").call(lambda: 1 // 0)
        async with board.run("closed", State, start=State) as run:
            await run.finish("result")


def test_ls(command: Command) -> None:
    rows = command.json("ls")
    assert [(row["thread"], row["status"]) for row in rows] == [("closed", "finished"), ("open/1", "running")]
    assert [row["thread"] for row in command.json("ls", "--status", "finished")] == ["closed"]
    assert "open/1  running" in command("ls")


def test_show(command: Command) -> None:
    shown = command.json("show", "open/1")
    assert isinstance(shown, dict)
    assert (shown["status"], shown["step"], shown["next"], shown["cursors"]) == ("running", 1, "pay", {"page": 7})
    assert shown["state"] == {"count": 2, "names": []}
    older = command.json("show", "open/1", "--at", shown["parent"])
    assert isinstance(older, dict)
    assert older["state"]["count"] == 0
    assert "pay" in command("show", "open/1")


def test_show_says_what_is_not_there(command: Command) -> None:
    assert "no thread 'nobody'" in command("show", "nobody", expect=1)
    assert "no checkpoint 'x'" in command("show", "open/1", "--at", "x", expect=1)


def test_history(command: Command) -> None:
    rows = command.json("history", "open/1")
    assert isinstance(rows, list)
    assert [row["step"] for row in rows] == [1, 0]
    page = command.json("history", "open/1", "--limit", "1", "--before", rows[0]["checkpoint"])
    assert page == [rows[1]]


def test_effects_are_listed_and_decided(command: Command) -> None:
    rows = command.json("effects", "open/1")
    assert isinstance(rows, list)
    assert [(row["effect"], row["state"], row["result"]) for row in rows] == [
        ("1/look", "done", {"found": 1}),
        ("1/pay", "unknown", None),
    ]
    assert "no open effect '1/look'; open: 1/pay" in command("resolve", "open/1", "1/look", "--abandon", "x", expect=2)
    assert "is not JSON" in command("resolve", "open/1", "1/pay", "--result", "{", expect=2)
    assert "say either" in command("resolve", "open/1", "1/pay", expect=2)
    command("resolve", "open/1", "1/pay", "--result", '{"paid": true}')
    rows = command.json("effects", "open/1")
    assert isinstance(rows, list)
    assert (rows[1]["state"], rows[1]["result"]) == ("done", {"paid": True})


def test_locks_are_listed_and_broken(command: Command) -> None:
    async def held() -> None:
        async with Blackboard.open(directory=command.directory) as board:
            async with board.lease("open/1", owner="me", ttl=60) as lease:
                rows = await asyncio.to_thread(command.json, "locks")
                assert isinstance(rows, list)
                assert [(row["thread"], row["holder"], row["live"]) for row in rows] == [("open/1", "me", True)]
                broken = await asyncio.to_thread(command.json, "break-lock", "open/1")
                assert isinstance(broken, dict)
                assert (broken["holder"], broken["fence"]) == ("me", lease.fence)
                lease.given_back = True
            assert await board.thread("open/1").holder() is None

    asyncio.run(held())
    assert command.json("locks") == []
    assert command.json("break-lock", "open/1") is None


def test_doctor(command: Command) -> None:
    report = command.json("doctor")
    assert isinstance(report, dict)
    assert report["rivals"] == []
    verdicts = {check["name"]: check["verdict"] for check in report["checks"]}
    assert (verdicts["eviction"], verdicts["epoch"]) == ("PROVEN", "PROVEN")
    assert report["verdict"] in command("doctor")


def test_looking_makes_no_data_directory(tmp_path: Path) -> None:
    command = Command(tmp_path / "nothing")
    assert "run `blackboard up`" in command("ls", expect=2)
    assert command("down") == "no server was running\n"
    assert not command.directory.exists()


@pytest.mark.parametrize(
    ("url", "code", "said"), [("gopher://x", 2, "'gopher'"), ("unix:///nowhere/at/all", 1, "ServerUnavailable")]
)
def test_a_wrong_url_is_named(url: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLACKBOARD_BACKEND__RETRY_DEADLINE", "300ms")
    done = CliRunner().invoke(app, ["--url", url, "ls"])
    assert (done.exit_code, said in done.stderr) == (code, True), done.output


def test_it_is_a_command(command: Command) -> None:
    """As a process, the way a user runs it."""
    words = [sys.executable, "-m", "blackboard", "--directory", str(command.directory), "ls", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=60, check=True)
    assert [row["thread"] for row in json.loads(done.stdout)] == ["closed", "open/1"]
