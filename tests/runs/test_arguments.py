"""Times, numbers and names that threads are asked with: what nobody could mean is refused by name."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from blackboard import Settings
from blackboard.board import Blackboard
from blackboard.errors import ConfigError, LeaseHeld
from blackboard.settings import Backend

from .conftest import Review


@pytest.mark.parametrize("wait", ["20ms", timedelta(milliseconds=20), 0.02, 0, 0.0003, None])
async def test_how_long_to_wait_for_a_lease(board: Blackboard, thread: str, wait: Any) -> None:
    async with board.run(thread, Review, start=Review):
        with pytest.raises(LeaseHeld):
            async with board.run(thread, Review, wait=wait):
                pass
        with pytest.raises(TimeoutError):
            await board.thread(thread).result(wait=wait)


@pytest.mark.parametrize("wait", ["soon", -1, float("nan"), True, timedelta(-1), [1]])
async def test_waits_that_are_none(board: Blackboard, thread: str, wait: Any) -> None:
    with pytest.raises(ConfigError, match="wait"):
        async with board.run(thread, Review, start=Review, wait=wait):
            pass
    with pytest.raises(ConfigError, match="wait"):
        await board.thread(thread).result(wait=wait)
    assert await board.thread(thread).status() == "none"


@pytest.mark.parametrize("owner", ["", 5, "\ud800"])
async def test_owners_that_are_none(board: Blackboard, thread: str, owner: Any) -> None:
    with pytest.raises(ConfigError, match="owner"):
        async with board.run(thread, Review, start=Review, owner=owner):
            pass
    assert await board.thread(thread).status() == "none"


@pytest.mark.parametrize("number", ["5", None, 1.5, True, -1])
async def test_numbers_that_are_none(board: Blackboard, thread: str, number: Any) -> None:
    async with board.run(thread, Review, start=Review):
        pass
    handle = board.thread(thread)
    for asked in (
        handle.history(limit=number), handle.prune(keep_last=number), board.runnable(number), board.sweep(number),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match="must be a whole number of at least"):
            await asked
    assert len(await handle.history()) == 1


async def test_a_status_that_no_thread_has(board: Blackboard) -> None:
    with pytest.raises(ConfigError, match="'runing'"):
        assert [one async for one in board.threads(status="runing")] == []


@pytest.mark.parametrize("url", ["", " ", 5])
async def test_an_empty_url_is_not_the_embedded_server(tmp_path: Path, url: Any) -> None:
    """As of an environment variable that is not set: the threads would go to another store."""
    settings = Settings(backend={"directory": tmp_path / "data"})
    with pytest.raises(ConfigError, match="URL"):
        async with Blackboard.open(url, settings=settings):
            pass
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("settings", ["profile.toml", {}, {"backend": {"url": "redis://host"}}, Backend()])
def test_settings_that_are_none(settings: Any) -> None:
    with pytest.raises(ConfigError, match="settings must be made by"):
        Blackboard.open("redis://host", settings=settings)


@pytest.mark.parametrize("directory", ["", 5])
async def test_directories_that_are_none(directory: Any) -> None:
    with pytest.raises(ConfigError, match="directory must be a path"):
        async with Blackboard.open(directory=directory):
            pass
