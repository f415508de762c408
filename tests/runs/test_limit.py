"""Nothing single over the namespace's `value_limit` is stored, whatever it is; the thread stays as it was and goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from blackboard import EffectUnknown, Run, Settings
from blackboard.board import Blackboard
from blackboard.checkpoints.engine import Engine, Write
from blackboard.claims.shared import Claim
from blackboard.errors import EncodeError
from blackboard.runs.call import Call, Semantics
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store

from .conftest import Message, Review

LIMIT = 1000
LONG, FITS = "x" * LIMIT, "x" * (LIMIT - 2)
"""Their encodings, with quotes, have 1,002 bytes and 1,000."""


@pytest.fixture
def small(store: Store) -> Blackboard:
    """A board whose namespace takes short values only."""
    namespaces = {"checkpoint": {"kind": "checkpoint", "value_limit": LIMIT}}
    return Blackboard(store, Settings.load(namespaces=namespaces), None, None)


async def cursors(run: Run[Review]) -> None:
    run.cursors["page"] = LONG
    await run.commit()


async def item(run: Run[Review]) -> None:
    run.state.messages.append(Message(text=LONG))
    await run.commit()


async def value(run: Run[Review]) -> None:
    run.state.verdict = LONG
    await run.commit()


COMMITTED: dict[str, Callable[[Run[Review]], Awaitable[Any]]] = {
    "the text of the cursors": cursors,
    "an item of channel 'messages'": item,
    "channel 'verdict'": value,
    "the text of the pending calls": lambda run: run.commit(pending=[Call("a", "look", LONG)]),
    "the result, or the reason of a failure,": lambda run: run.finish(LONG),
}


@pytest.mark.parametrize("what", COMMITTED)
async def test_a_commit_with_something_too_long(small: Blackboard, thread: str, what: str) -> None:
    with pytest.raises(
        EncodeError, match=rf"^{what} has 1\d+ bytes, over the namespace's value_limit of 1000: store it"
    ):
        async with small.run(thread, Review, start=Review) as run:
            await COMMITTED[what](run)
    async with small.run(thread, Review) as run:
        assert (run.step, run.status) == (0, "running")
        run.cursors["page"] = "x" * (LIMIT - 11)
        run.state.messages.append(Message(text="short"))
        await run.finish(FITS)
    assert await small.thread(thread).result() == FITS


@pytest.mark.parametrize("semantics", ["at-least-once", "at-most-once"])
async def test_a_result_that_is_too_long_is_not_recorded(small: Blackboard, thread: str, semantics: Semantics) -> None:
    async def call(result: str) -> str:
        async with small.run(thread, Review, start=Review) as run:
            return await run.effect("e", str, semantics=semantics).call(lambda: result)

    with pytest.raises(
        EncodeError, match="the result of effect '0/e' has 1002 bytes, over the namespace's value_limit"
    ):
        await call(LONG)
    states = [one.state for one in await small.thread(thread).effects()]
    if semantics == "at-least-once":
        assert (states, await call(FITS), await call("not run")) == (["retry"], FITS, FITS)
    else:
        assert states == ["unknown"]
        with pytest.raises(EffectUnknown):
            await call(FITS)


async def test_a_result_that_goes_with_the_commit(small: Blackboard, thread: str) -> None:
    async with small.run(thread, Review, start=Review) as run:
        with pytest.raises(EncodeError, match="the result of effect"):
            await run.effect("e", str, semantics="at-most-once", record="commit").call(lambda: LONG)
    assert [one.state for one in await small.thread(thread).effects()] == ["unknown"]


async def test_what_else_an_effect_records(small: Blackboard, thread: str) -> None:
    async with small.run(thread, Review, start=Review) as run:
        async with run.effect("e", str, semantics="at-most-once") as effect:
            with pytest.raises(EncodeError, match="the external_ref of effect '0/e' has 1001 bytes"):
                await effect.attach("x" * (LIMIT + 1))
            await effect.attach("x" * LIMIT)
            with pytest.raises(EncodeError, match="the reason for effect '0/e' has 1002 bytes"):
                await effect.abandon(LONG)
            with pytest.raises(EncodeError, match="the result of effect '0/e' has 1002 bytes"):
                await effect.complete(LONG)
            assert effect.standing == "run"
            await effect.abandon(FITS)
        with pytest.raises(ZeroDivisionError):
            await run.effect("other", int, semantics="at-most-once").call(lambda: 1 // 0)
    for decided in (small.thread(thread).resolve("0/other", LONG), small.thread(thread).abandon("0/other", LONG)):
        with pytest.raises(EncodeError, match="what is recorded of effect '0/other' has 1002 bytes"):
            await decided
    states = {one.key: one.state for one in await small.thread(thread).effects()}
    assert states == {"0/e": "failed", "0/other": "unknown"}


async def test_an_error_that_is_long_is_noted_in_short(small: Blackboard, thread: str) -> None:
    """It is the library's own note, and what must be recorded is that the attempt is over."""

    def fail() -> None:
        raise ValueError(LONG)

    async with small.run(thread, Review, start=Review) as run:
        with pytest.raises(ValueError, match=LONG):
            await run.effect("e", semantics="at-least-once").call(fail)
    assert [one.state for one in await small.thread(thread).effects()] == ["retry"]


async def test_letters(small: Blackboard, thread: str) -> None:
    async with small.run(thread, Review, start=Review) as run:
        with pytest.raises(EncodeError, match="the value of signal 'verdict' has 1002 bytes"):
            await small.signal(thread, "verdict", LONG)
        with pytest.raises(EncodeError, match="the note has 1002 bytes"):
            await small.note(thread, LONG)
        assert await small.thread(thread).unread() == []
        assert await small.signal(thread, "verdict", FITS) == "ACCEPTED"
        assert await small.note(thread, FITS) == "ACCEPTED"
        assert (await run.wait("verdict", str), await run.notes()) == (FITS, [FITS])
        await run.finish()


async def test_an_effect_that_is_claimed_across_threads(small: Blackboard, thread: str) -> None:
    effects = small.effects()
    claim = await effects.begin(thread, semantics="at-most-once", fingerprint="f", ttl=30)
    assert isinstance(claim, Claim)
    for wrong in (
        effects.complete(claim, b"x" * (LIMIT + 1)),
        effects.fail(claim, b"x" * (LIMIT + 1), final=True),
        effects.attach(claim, "x" * (LIMIT + 1)),
    ):
        with pytest.raises(EncodeError, match=f"of effect '{thread}' has 1001 bytes, over"):
            await wrong
    await effects.complete(claim, b"x" * LIMIT)
    stored = await effects.read(thread)
    assert stored is not None
    assert (stored.state, len(stored.result), stored.external_ref) == ("done", LIMIT, None)


@pytest.mark.parametrize("oversize", ["refuse", "artifact"])
async def test_pending_writes(store: Store, thread: str, oversize: str) -> None:
    """Where the checkpoint would refuse the value its write is refused, and not where the checkpoint moves it out."""
    engine = Engine(store, "checkpoint", CheckpointNamespace(value_limit=LIMIT, oversize=oversize))
    write = Write("task", 0, b"x" * (LIMIT + 1))
    if oversize == "artifact":
        assert await engine.put_writes(thread, "c1", [write]) == 1
    else:
        with pytest.raises(EncodeError, match="write 0 of task 'task' has 1001 bytes"):
            await engine.put_writes(thread, "c1", [write])
        assert await engine.put_writes(thread, "c1", [Write("task", 0, b"x" * LIMIT)]) == 1
