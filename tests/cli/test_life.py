"""The life of a thread by command: branch it, wind it back, talk to it, wait for it, move it, end it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from blackboard import Blackboard, Parked, Run, Settings
from blackboard.claims.lease import Leases
from blackboard.cli.app import app

from .conftest import Command

ROOT = Path(__file__).parents[2]


class State(BaseModel):
    count: int = 0
    names: list[str] = []


def on_board(command: Command, work: Callable[[Blackboard], Awaitable[Any]]) -> Any:
    async def opened() -> Any:
        async with Blackboard.open(directory=command.directory) as board:
            return await work(board)

    return asyncio.run(opened())


def drive(command: Command, thread: str, body: Callable[[Run[State]], Awaitable[Any]]) -> None:
    async def driven(board: Blackboard) -> None:
        async with board.run(thread, State, start=State) as run:
            await body(run)

    on_board(command, driven)


@pytest.fixture
def thread(command: Command, request: pytest.FixtureRequest) -> str:
    """A thread of four checkpoints."""

    async def body(run: Run[State]) -> None:
        for number in range(3):
            run.state.count += 1
            run.state.names.append(f"n{number}")
            await run.commit(next=f"step-{number}")

    drive(command, request.node.name, body)
    return str(request.node.name)


def checkpoints(command: Command, thread: str) -> list[str]:
    return [row["checkpoint"] for row in reversed(command.json("history", thread))]


def test_fork(command: Command, thread: str) -> None:
    second = checkpoints(command, thread)[1]
    assert command("fork", thread, "fork/new", "--at", second) == "fork/new\n"
    assert command.json("show", "fork/new")["state"] == {"count": 1, "names": ["n0"]}
    assert command("fork", thread, "fork/newest") == "fork/newest\n"
    assert command.json("show", "fork/newest")["state"]["count"] == 3
    assert "exists already" in command("fork", thread, "fork/new", expect=1)
    assert "no checkpoint 'x'" in command("fork", thread, "fork/other", "--at", "x", expect=1)


def test_copy(command: Command, thread: str) -> None:
    assert command("copy", thread, "copied") == "copied\n"
    assert command.json("history", "copied") == command.json("history", thread)
    assert "no thread 'nobody'" in command("copy", "nobody", "copied-2", expect=1)


def test_rewind(command: Command, thread: str) -> None:
    second = checkpoints(command, thread)[1]
    made = command("rewind", thread, second, "--reason", "wrong turn").strip()
    shown = command.json("show", thread)
    assert (shown["checkpoint"], shown["parent"], shown["next"]) == (made, second, "step-0")
    assert shown["state"] == {"count": 1, "names": ["n0"]}
    assert "--reason" in command("rewind", thread, second, expect=2)


def test_diff(command: Command, thread: str) -> None:
    _, second, *_, newest = checkpoints(command, thread)
    assert command.json("diff", thread, second, newest) == [
        {"channel": "count", "kind": "changed", "kept": 0, "before": 1, "after": 3},
        {"channel": "names", "kind": "changed", "kept": 1, "before": [], "after": ["n1", "n2"]},
    ]
    assert command("diff", thread, newest, newest) == "no channel differs\n"
    assert "no checkpoint 'x'" in command("diff", thread, newest, "x", expect=1)


def test_pinned_checkpoints_are_not_pruned(command: Command, thread: str) -> None:
    first, second, third, newest = checkpoints(command, thread)
    command("pin", thread, second)
    assert command.json("prune", thread, "--keep-last", "1")["checkpoints"] == 2
    assert checkpoints(command, thread) == [second, newest]
    command("pin", thread, second, "--off")
    assert "is not pinned" in command("pin", thread, second, "--off", expect=2)
    assert "no checkpoint" in command("pin", thread, first, expect=1)
    assert command.json("prune", thread, "--keep-last", "1")["checkpoints"] == 1
    assert checkpoints(command, thread) == [newest]
    assert "--keep-last" in command("prune", thread, "--keep-last", "0", expect=2)
    assert third > second


def test_rm(command: Command, thread: str) -> None:
    command("note", thread, '"read me"')
    assert "UnreadSignals" in command("rm", thread, expect=1)
    assert command.json("show", thread)["status"] == "running"
    assert command("rm", thread, "--drop-unread") == f"{thread} is deleted\n"
    gone = command.json("show", thread)
    assert (gone["status"], "created" in gone) == ("deleted", False)
    assert "no thread" in command("rm", thread, expect=1)


def test_rm_asks_on_a_terminal(command: Command, thread: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blackboard.cli.change.on_terminal", lambda: True)
    words = ["--directory", str(command.directory), "rm", thread]
    refused = CliRunner().invoke(app, words, input="n\n")
    assert (refused.exit_code, f"delete thread {thread}" in refused.output) == (1, True)
    assert command.json("show", thread)["status"] == "running"
    assert CliRunner().invoke(app, words, input="y\n").exit_code == 0
    assert "no thread" in command("rm", thread, "--yes", expect=1)


def test_signals_and_notes_reach_the_inbox(command: Command, thread: str) -> None:
    assert command("signal", thread, "verdict", '{"ok": true}', "--key", "k") == "ACCEPTED\n"
    assert command("signal", thread, "verdict", "2") == "ALREADY\n"
    assert command("note", thread, '"hello"', "--key", "n") == "ACCEPTED\n"
    assert command("note", thread, '"hello"', "--key", "n") == "ALREADY\n"
    assert [(row["kind"], row["name"], row["value"]) for row in command.json("inbox", thread)] == [
        ("signal", "verdict", {"ok": True}),
        ("note", "", "hello"),
    ]
    assert "verdict" in command("inbox", thread)
    assert "is not JSON" in command("signal", thread, "other", "hello", expect=2)
    assert "is not JSON: JSON has no NaN" in command("signal", thread, "other", "NaN", expect=2)
    command("signal", "nobody", "verdict", "1", expect=1)


def test_what_can_go_on_is_runnable(command: Command) -> None:
    async def waits(run: Run[State]) -> None:
        await run.wait("verdict")

    with pytest.raises(Parked):
        drive(command, "parked", waits)
    assert command.json("runnable") == []
    assert command("runnable") == "no thread can go on\n"
    command("signal", "parked", "verdict", "true")
    assert command.json("runnable") == [{"thread": "parked"}]


def test_show_tells_until_when_a_thread_waits(command: Command) -> None:
    """As a time for people, as microseconds for programs."""

    async def waits(run: Run[State]) -> None:
        await run.wait("verdict", within=datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC))

    with pytest.raises(Parked):
        drive(command, "waiting", waits)
    assert command.json("show", "waiting")["wake"] == 4_102_542_245_000_000
    assert "2100-01-02 03:04:05" in command("show", "waiting")


def test_wait_gives_the_result(command: Command, thread: str) -> None:
    assert "running, not finished" in command("wait", thread, "--within", "50ms", expect=3)

    async def finish(board: Blackboard) -> Any:
        waiting = asyncio.create_task(asyncio.to_thread(command.json, "wait", thread, "--within", "30s"))
        async with board.run(thread, State) as run:
            await run.finish({"sum": 3})
        return await waiting

    assert on_board(command, finish) == {"thread": thread, "status": "finished", "result": {"sum": 3}}
    assert '{"sum": 3}' in command("wait", thread)


def test_wait_says_that_a_thread_failed(command: Command, thread: str) -> None:
    drive(command, thread, lambda run: run.fail("no money"))
    done = CliRunner().invoke(app, ["--directory", str(command.directory), "wait", thread, "--json"])
    assert (done.exit_code, json.loads(done.stdout)["result"]) == (1, "no money")
    assert "not readable" in command("wait", thread, "--within", "soon", expect=2)


def test_sweep_removes_what_is_overdue(command: Command) -> None:
    async def finish() -> None:
        settings = Settings.model_validate({"namespaces": {"checkpoint": {"kind": "checkpoint", "ttl": "500ms"}}})
        opening = Blackboard.open(directory=command.directory, settings=settings)
        async with opening as board, board.run("short", State, start=State) as run:
            await run.finish(None)

    asyncio.run(finish())
    until, gone = time.monotonic() + 30, 0
    while not gone and time.monotonic() < until:
        gone = int(command("sweep", "--limit", "5"))
    assert (gone, command("sweep")) == (1, "0\n")
    assert "short" not in command("ls")


def test_readmit(command: Command, thread: str) -> None:
    async def quarantine(board: Blackboard) -> None:
        engine = board.engine("checkpoint")
        async with Leases(board.store, "checkpoint").hold(thread, ttl=30) as lease:
            await engine.quarantine(thread, lease.token, "poison")

    on_board(command, quarantine)
    assert command.json("show", thread)["status"] == "quarantined"
    assert command("readmit", thread) == f"{thread} can be driven again\n"
    assert command.json("show", thread)["status"] == "running"


def test_export_and_import(command: Command, thread: str, tmp_path: Path) -> None:
    file = tmp_path / "thread.jsonl"
    assert command("export", thread, "--out", str(file)) == ""
    assert command("import", str(file), "--to", "moved") == "moved\n"
    assert command.json("history", "moved") == command.json("history", thread)
    assert command.json("show", "moved")["state"] == command.json("show", thread)["state"]
    assert "exists already" in command("import", str(file), expect=1)
    command("rm", thread)
    assert command("import", str(file)) == f"{thread}\n"
    assert command("export", "moved").splitlines()[1:-1] == file.read_text("utf-8").splitlines()[1:-1]


def test_a_bad_file_is_named(command: Command, thread: str, tmp_path: Path) -> None:
    file, missing = tmp_path / "thread.jsonl", tmp_path / "missing"
    command("export", thread, "--out", str(file))
    file.write_bytes(file.read_bytes()[:-10])
    assert f"{file}, line 7: it is not readable" in command("import", str(file), "--to", "bad", expect=2)
    assert "cannot be opened: No such file" in command("import", str(missing), expect=2)
    assert "cannot be written" in command("export", thread, "--out", str(missing / "x"), expect=2)
    assert "no thread 'nobody' to export" in command("export", "nobody", "--out", str(missing), expect=1)
    assert list(tmp_path.iterdir()) == [file]


INTERRUPTIBLE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("blackboard", run_name="__main__")
"""
"""The command as a user starts it: interrupts are taken, also where whoever runs the tests has them ignored."""


@contextmanager
def tail(command: Command, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process that is looking already; ended with the block."""
    call = [sys.executable, "-u", "-c", INTERRUPTIBLE, "--directory", str(command.directory), "tail", *words, "--json"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(call, text=True, cwd=ROOT, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def commit_until_seen(command: Command, thread: str, process: subprocess.Popen[str]) -> dict[str, Any]:
    """Commit until the process has printed a checkpoint, at most for thirty seconds."""
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        drive(command, thread, lambda run: run.commit(next="seen"))
        if line := process.stdout.readline():
            return dict(json.loads(line))
    raise AssertionError("nothing was printed")


def test_tail_shows_what_is_committed_meanwhile(command: Command, thread: str) -> None:
    old = set(checkpoints(command, thread))
    with tail(command, thread, "--for", "8s") as process:
        made = commit_until_seen(command, thread, process)
        assert (made["thread"], made["next"], made["checkpoint"] in old) == (thread, "seen", False)
        assert process.wait(30) == 0


def test_tail_of_all_threads_ends_on_an_interrupt(command: Command, thread: str) -> None:
    with tail(command) as process:
        assert commit_until_seen(command, "tail/new", process)["thread"] == "tail/new"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_tail_prints_a_line_for_people(command: Command, thread: str) -> None:
    async def commit_meanwhile(board: Blackboard) -> str:
        tailing = asyncio.create_task(asyncio.to_thread(command, "tail", thread, "--for", "1500ms"))
        async with board.run(thread, State) as run:
            while not tailing.done():
                await run.commit(next="seen")
                await asyncio.sleep(0.1)
        return await tailing

    lines = on_board(command, commit_meanwhile).splitlines()
    newest = command.json("history", thread, "--limit", "100")
    seen = {f"{thread}  {row['checkpoint']}  step {row['step']}  seen" for row in newest}
    assert len(lines) > 0
    assert {line.split("  ", 1)[1] for line in lines} <= seen


def test_tail_ends_by_itself(command: Command, thread: str) -> None:
    assert command("tail", thread, "--for", "10ms") == ""
    assert "not readable" in command("tail", "--for", "ever", expect=2)
