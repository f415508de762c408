"""The command line with the keys from the settings, and what it says without them."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
from pydantic import BaseModel

from blackboard import Blackboard, Settings

from .conftest import Command

KEY = base64.b64encode(b"\x09" * 32).decode()
PREFIX = "BLACKBOARD_NAMESPACES__CHECKPOINT__ENCRYPTION__"


class State(BaseModel):
    name: str = "hidden name"


@pytest.fixture(scope="module", autouse=True)
def threads(command: Command) -> None:
    asyncio.run(_fill(command.directory))


async def _fill(directory: Path) -> None:
    settings = Settings.load(namespaces={"checkpoint": {"encryption": {"keys": {"2026": KEY}, "current": "2026"}}})
    async with (
        Blackboard.open(directory=directory, settings=settings) as board,
        board.run("secret", State, start=State) as run,
    ):
        run.cursors["page"] = "hidden page"
        await run.effect("look", semantics="at-least-once").call(lambda: "hidden result")
        await run.commit(next="pay")


@pytest.mark.parametrize(
    ("words", "hidden"), [("show", "hidden name"), ("history", "hidden page"), ("effects", "hidden result")]
)
def test_keys_come_from_the_settings(
    command: Command, monkeypatch: pytest.MonkeyPatch, words: str, hidden: str
) -> None:
    without = command(words, "secret", expect=1)
    assert "KeyMissing" in without
    assert "encrypted with key '2026'" in without
    assert "set encryption.keys" in without
    monkeypatch.setenv(PREFIX + "KEYS__OTHER", KEY)
    monkeypatch.setenv(PREFIX + "CURRENT", "other")
    assert "has only 'other'" in command(words, "secret", expect=1)
    monkeypatch.setenv(PREFIX + "KEYS__2026", KEY)
    shown = command(words, "secret", "--json")
    assert hidden in shown
    assert KEY not in shown + without


def test_what_needs_no_key(command: Command) -> None:
    assert [row["thread"] for row in command.json("ls")] == ["secret"]
