"""What the tests of encrypted runs share: keys, boards that have them, and a thread that holds some of everything."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from blackboard import Settings, keys
from blackboard.board import Blackboard
from blackboard.store.client import Store

from .conftest import Message, Review

KEYS = {name: base64.b64encode(name.encode() * 32).decode() for name in "abc"}
LONG = "long " * 60
"""More than stays inline."""

Boards = Callable[..., Blackboard]


def policy(names: str, **more: Any) -> dict[str, Any]:
    """Spell the settings of a namespace whose last key is the current one; none for none."""
    if not names:
        return {}
    return {"encryption": {"keys": {name: KEYS[name] for name in names}, "current": names[-1], **more}}


def opened(store: Store, names: str, **more: Any) -> Blackboard:
    return Blackboard(store, Settings.load(namespaces={"checkpoint": policy(names, **more)}), None, None)


async def two(board: Blackboard, thread: str) -> keys.ThreadKeys:
    """Make a thread of two checkpoints with values, a log and effects; returns its keys."""
    async with board.run(thread, Review, start=Review) as run:
        for text in ("one", "two"):
            run.state.question, run.state.verdict = f"{text} {LONG}", f"{text} verdict {LONG}"
            run.state.messages.extend([Message(text=f"{text} 1"), Message(text=f"{text} 2")])
            run.cursors["page"] = text
            await run.effect(text, str, semantics="at-least-once", scope="thread").call(lambda text=text: text)
            await run.commit(next=text)
    return keys.ThreadKeys.of("checkpoint", thread)
