"""The commands that look at artifacts, copy them out and collect them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from blackboard import Blackboard
from blackboard.artifacts.ref import ArtifactRef
from blackboard.cli.app import app

from .conftest import Command

T = TypeVar("T")


class State(BaseModel):
    page: ArtifactRef | None = None


def on_board(command: Command, work: Callable[[Blackboard], Awaitable[T]]) -> T:
    async def opened() -> T:
        async with Blackboard.open(directory=command.directory) as board:
            return await work(board)

    return asyncio.run(opened())


CONTENT = bytes(range(256)) * 10


@pytest.fixture(scope="module")
def page(command: Command) -> ArtifactRef:
    """An artifact that a thread refers to."""

    async def stored(board: Blackboard) -> ArtifactRef:
        page = await board.artifacts.put(CONTENT, media_type="text/html", name="page.html")
        async with board.run("reader", State, start=lambda: State(page=page)):
            return page

    return on_board(command, stored)


def test_ls(command: Command, page: ArtifactRef) -> None:
    (row,) = command.json("artifacts", "ls")
    assert (row["artifact"], row["size"], row["name"], row["media_type"]) == (page.uri, 2560, "page.html", "text/html")
    assert (row["place"], row["chunks"], row["marked"], row["owners"]) == (
        "backend",
        1,
        None,
        ["thread checkpoint reader"],
    )
    shown = command("artifacts", "ls")
    assert page.uri in shown and "page.html" in shown and "thread checkpoint reader" in shown


def test_get(command: Command, page: ArtifactRef, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert command("artifacts", "get", page.uri, "--out", str(out)) == ""
    assert out.read_bytes() == CONTENT
    done = CliRunner().invoke(app, ["--directory", str(command.directory), "artifacts", "get", page.digest])
    assert (done.exit_code, done.stdout_bytes) == (0, CONTENT)


def test_get_of_what_is_not_there(command: Command, page: ArtifactRef, tmp_path: Path) -> None:
    assert "ArtifactMissing: no artifact 000" in command(
        "artifacts", "get", "0" * 64, "--out", str(tmp_path / "x"), expect=1
    )
    assert "64 hex digits" in command("artifacts", "get", "page.html", expect=2)
    missing = str(tmp_path / "missing" / "x")
    assert "cannot be written: No such file" in command("artifacts", "get", page.uri, "--out", missing, expect=2)
    assert list(tmp_path.iterdir()) == []


def test_gc(command: Command, page: ArtifactRef) -> None:
    left = on_board(command, lambda board: board.artifacts.put(b"left"))
    found = command.json("artifacts", "gc", "--dry-run")
    assert found == {"standing": 2, "held": 1, "marked": 1, "waiting": 0, "removed": [], "bytes": 0, "debris": 0}
    assert command.json("artifacts", "gc")["marked"] == 1
    assert command.json("artifacts", "gc")["waiting"] == 1
    assert command.json("artifacts", "gc", "--grace", "1ms")["removed"] == [left.uri]
    assert "held" in command("artifacts", "gc")
    assert "not readable" in command("artifacts", "gc", "--grace", "soon", expect=2)
    assert [row["artifact"] for row in command.json("artifacts", "ls")] == [page.uri]


def test_nothing_is_there(tmp_path: Path) -> None:
    command = Command(tmp_path / "board")
    command("up")
    try:
        assert command("artifacts", "ls") == "no artifacts\n"
        assert command.json("artifacts", "gc")["standing"] == 0
    finally:
        command("down", "--force")
