"""What a run refuses before anything is sent, so that the thread stays as it was and can be entered again."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from blackboard import Call, Parked
from blackboard.board import Blackboard
from blackboard.errors import ConfigError, UncommittedChanges, UnreadSignals

from .conftest import Review


@pytest.mark.parametrize("cursors", [[1], [("a", 1)], "page", None, ("a", 1)])
async def test_cursors_that_are_no_dict(board: Blackboard, thread: str, cursors: Any) -> None:
    """They would be stored, and nobody could enter the thread any more."""
    with pytest.raises(ConfigError, match=r"run\.cursors must be a dict"):
        async with board.run(thread, Review, start=Review) as run:
            run.cursors = cursors
            await run.commit()
    async with board.run(thread, Review) as run:
        assert (run.step, run.cursors) == (0, {})


@pytest.mark.parametrize("following", [1, True, b"judge", ["judge"]])
async def test_next_that_is_no_text(board: Blackboard, thread: str, following: Any) -> None:
    async with board.run(thread, Review, start=Review) as run:
        with pytest.raises(ConfigError, match="next must be text"):
            await run.commit(next=following)
        assert (run.step, run.next) == (0, "start")
        await run.commit(next="judge")
        assert (run.step, run.next) == (1, "judge")


@pytest.mark.parametrize(
    ("pending", "why"),
    [
        (Call("a", "look"), "pending takes a list of Call"),
        (None, "pending takes a list of Call"),
        (["a"], "pending takes Call"),
        ([Call("a", "look"), Call("a", "mail")], "two pending calls"),
    ],
)
async def test_pending_that_are_no_calls(board: Blackboard, thread: str, pending: Any, why: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        with pytest.raises(ConfigError, match=why):
            await run.commit(pending=pending)
        assert len(await board.thread(thread).history()) == 1
        await run.commit(pending=(Call(name, "look") for name in "ab"))
        assert [one.key for one in run.pending] == ["a", "b"]


@pytest.mark.parametrize("start", [Review(), {"question": "why?"}, "start"])
async def test_start_that_is_no_function(board: Blackboard, thread: str, start: Any) -> None:
    with pytest.raises(ConfigError, match="start must be a function"):
        async with board.run(thread, Review, start=start):
            pass
    assert await board.thread(thread).status() == "none"


@pytest.mark.parametrize("model", [BaseModel, dict, None, Review()])
async def test_a_state_that_is_no_model(board: Blackboard, thread: str, model: Any) -> None:
    with pytest.raises(ConfigError, match="a state is declared as a subclass"):
        async with board.run(thread, model, start=Review):
            pass
    assert await board.thread(thread).status() == "none"


@pytest.mark.parametrize("how", ["finished", "parked"])
async def test_changes_after_the_last_write_are_not_lost_in_silence(board: Blackboard, thread: str, how: str) -> None:
    with pytest.raises(UncommittedChanges, match="nothing is stored any more"):
        async with board.run(thread, Review, start=Review) as run:
            if how == "finished":
                await run.finish()
            else:
                with pytest.raises(Parked):
                    await run.wait("verdict")
            run.state.verdict = "yes"
    async with board.run(thread, Review) as run:
        assert (run.done, run.state.verdict) == (how == "finished", None)
        if run.done:
            run.state.verdict = "scratch"  # it was closed before: a reader may do as it likes


async def test_letters_that_a_finish_dropped_do_not_stand_in_the_way_of_a_deletion(
    board: Blackboard, thread: str
) -> None:
    async with board.run(thread, Review, start=Review) as run:
        await board.note(thread, "unread")
        with pytest.raises(UnreadSignals):
            await board.thread(thread).delete()
        await run.finish(drop_unread=True)
    assert await board.thread(thread).delete()
    assert await board.thread(thread).status() == "deleted"
