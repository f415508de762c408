"""What an effect is asked with: what is refused before it begins, and what counts as the same."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from blackboard.board import Blackboard
from blackboard.claims.outcome import Done
from blackboard.claims.shared import Claim
from blackboard.errors import ConfigError, CorruptValue, EffectMismatch, UncommittedChanges

from .conftest import Review


class Page(BaseModel):
    text: str


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("key", ["", 5, None, "\ud800", "k" * 1025])
async def test_keys_that_are_none(board: Blackboard, thread: str, key: Any) -> None:
    async with board.run(thread, Review, start=Review) as run:
        with pytest.raises(ConfigError, match="effect key"):
            run.effect(key, int, semantics="at-least-once")
        assert await board.thread(thread).effects() == []


@pytest.mark.parametrize("function", [5, None, "search"])
async def test_what_cannot_be_called_was_not_begun(board: Blackboard, thread: str, function: Any) -> None:
    """Else an at-most-once effect would be unknown that nobody has tried."""
    async with board.run(thread, Review, start=Review) as run:
        effect = run.effect("pay", int, semantics="at-most-once")
        with pytest.raises(ConfigError, match="calls a function"):
            await effect.call(function)
        assert await board.thread(thread).effects() == []
        assert await effect.call(lambda: 3) == 3


async def test_the_order_of_keywords_is_no_difference(board: Blackboard, thread: str) -> None:
    def add(**numbers: int) -> int:
        return sum(numbers.values())

    async with board.run(thread, Review, start=Review) as run:
        assert await run.effect("add", int, semantics="at-most-once").call(add, a=1, b=2) == 3
    async with board.run(thread, Review) as run:
        assert await run.effect("add", int, semantics="at-most-once").call(add, b=2, a=1) == 3
    async with board.run(thread, Review) as run:
        with pytest.raises(EffectMismatch):
            await run.effect("add", int, semantics="at-most-once").call(add, a=2, b=1)


async def test_an_error_without_a_text_passes_and_is_recorded(board: Blackboard, thread: str) -> None:
    def fail() -> int:
        raise Unspeakable

    with pytest.raises(Unspeakable):
        async with board.run(thread, Review, start=Review) as run:
            await run.effect("e", int, semantics="at-least-once").call(fail)
    (recorded,) = await board.thread(thread).effects()
    assert (recorded.state, getattr(recorded, "result", None)) == ("retry", b'"Unspeakable"')


@pytest.mark.parametrize("ref", ["", None, 7, "\ud800"])
async def test_references_that_are_none(board: Blackboard, thread: str, ref: Any) -> None:
    with pytest.raises(UncommittedChanges):
        async with board.run(thread, Review, start=Review) as run, run.effect("e", semantics="at-most-once") as effect:
            with pytest.raises(ConfigError, match="external_ref"):
                await effect.attach(ref)
            await effect.attach("charge-77")
    (recorded,) = await board.thread(thread).effects()
    assert (recorded.state, getattr(recorded, "external_ref", None)) == ("unknown", "charge-77")


@pytest.mark.parametrize("declared", [None, dict, list[Any]])
async def test_classes_of_the_run_come_back_from_an_effect(board: Blackboard, thread: str, declared: Any) -> None:
    made: Any = {"page": Page(text="a")} if declared is dict else [Page(text="a")]
    for _ in range(2):
        async with board.run(thread, Review, start=Review, classes=(Page,)) as run:
            assert await run.effect("read", declared, semantics="at-least-once").call(lambda: made) == made


async def test_classes_of_the_run_come_back_from_a_wait(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review, classes=(Page,)) as run:
        assert await board.signal(thread, "page", {"page": Page(text="a")}) == "ACCEPTED"
        assert await run.wait("page", dict) == {"page": Page(text="a")}
        await run.commit()


@pytest.mark.parametrize("wrong", [None, 5, "\ud800"])
async def test_what_is_claimed_across_threads(board: Blackboard, thread: str, wrong: Any) -> None:
    effects = board.effects()
    with pytest.raises(ConfigError, match="fingerprint"):
        await effects.begin(thread, semantics="at-most-once", fingerprint=wrong, ttl=30)
    claim = await effects.begin(thread, semantics="at-most-once", fingerprint="f", ttl=30)
    assert isinstance(claim, Claim)
    with pytest.raises(ConfigError, match="must be bytes"):
        await effects.complete(claim, wrong)
    await effects.complete(claim, b"sent")
    answer = await effects.begin(thread, semantics="at-most-once", fingerprint="f", ttl=30)
    assert (type(answer), getattr(answer, "result", None)) == (Done, b"sent")


class Plain:
    """No type that a stored value could be compared with."""


@pytest.mark.parametrize(
    ("declared", "error", "told"),
    [(Plain, ConfigError, "cannot be checked against Plain"), (Page, CorruptValue, "is not of type Page")],
)
async def test_a_recorded_result_of_another_type(
    board: Blackboard, thread: str, declared: Any, error: type[Exception], told: str
) -> None:
    async with board.run(thread, Review, start=Review) as run:
        assert await run.effect("e", int, semantics="at-most-once").call(lambda: 5) == 5
    with pytest.raises(error, match=told):
        async with board.run(thread, Review) as run:
            await run.effect("e", declared, semantics="at-most-once").call(lambda: 5)
    async with board.run(thread, Review) as run:
        assert await run.effect("e", int, semantics="at-most-once").call(lambda: 5) == 5
