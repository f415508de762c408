"""An effect happens, is recorded, and is never silently repeated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from pydantic import BaseModel

from blackboard import Call, EffectUnknown, LeaseLost, Run
from blackboard.board import Blackboard
from blackboard.errors import (
    ConfigError,
    CorruptValue,
    EffectFailed,
    EffectMismatch,
    EncodeError,
    UncommittedChanges,
    UnresolvedEffects,
)
from blackboard.points import watch
from blackboard.runs.call import Semantics

from .conftest import Review, die


class Page(BaseModel):
    text: str
    number: int


def counter() -> tuple[list[int], Callable[[], int]]:
    """Make a function that counts how often it ran."""
    ran: list[int] = []

    def run() -> int:
        ran.append(1)
        return len(ran)

    return ran, run


async def crash(board: Blackboard, thread: str, semantics: Semantics, fingerprint: object = None) -> None:
    """Begin an effect and die before it is recorded."""
    await die(
        board, thread, lambda run: run.effect("pay", int, semantics=semantics, fingerprint=fingerprint).__aenter__()
    )


async def test_a_recorded_effect_is_not_run_again(board: Blackboard, thread: str) -> None:
    ran, function = counter()
    for _ in range(3):
        async with board.run(thread, Review, start=Review) as run:
            assert await run.effect("e", int, semantics="at-least-once").call(function) == 1
    assert len(ran) == 1


async def test_the_next_step_has_effects_of_its_own(board: Blackboard, thread: str) -> None:
    ran, function = counter()
    async with board.run(thread, Review, start=Review) as run:
        for _ in range(2):
            await run.effect("e", int, semantics="at-least-once").call(function)
            await run.effect("once", int, semantics="at-least-once", scope="thread").call(lambda: 5)
            await run.commit(next="again")
    assert len(ran) == 2


async def test_results_keep_their_type(board: Blackboard, thread: str) -> None:
    async def fetch(number: int) -> Page:
        return Page(text="t", number=number)

    for _ in range(2):
        async with board.run(thread, Review, start=Review) as run:
            assert await run.effect("e", Page, semantics="at-least-once").call(fetch, 3) == Page(text="t", number=3)


async def test_a_result_of_another_type_is_said(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        await run.effect("e", str, semantics="at-least-once").call(lambda: "text")
    async with board.run(thread, Review) as run:
        with pytest.raises(CorruptValue):
            await run.effect("e", int, semantics="at-least-once").call(lambda: 1)


async def test_a_key_is_used_once_in_a_step(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        await run.effect("e", semantics="at-least-once").call(lambda: 1)
        with pytest.raises(ConfigError):
            run.effect("e", semantics="at-least-once")


@pytest.mark.parametrize("asked", [{}, {"semantics": "exactly-once"}, {"semantics": "at-least-once", "scope": "run"}])
async def test_semantics_and_scope_are_checked(board: Blackboard, thread: str, asked: dict[str, object]) -> None:
    async with board.run(thread, Review, start=Review) as run:
        with pytest.raises(ConfigError):
            run.effect("e", **asked)  # type: ignore[call-overload]


async def test_other_arguments_are_refused(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        await run.effect("e", semantics="at-least-once").call(lambda x: x, 1)
    async with board.run(thread, Review) as run:
        with pytest.raises(EffectMismatch):
            await run.effect("e", semantics="at-least-once").call(lambda x: x, 2)


async def test_a_fingerprint_replaces_the_arguments(board: Blackboard, thread: str) -> None:
    for client in (object(), object()):
        async with board.run(thread, Review, start=Review) as run:
            effect = run.effect("e", semantics="at-least-once", fingerprint=["order", 1])
            assert await effect.call(lambda _: "sent", client) == "sent"


async def test_at_most_once_is_never_repeated_after_a_crash(board: Blackboard, thread: str) -> None:
    ran, function = counter()
    await crash(board, thread, "at-most-once", [[], {}])
    for _ in range(2):
        async with board.run(thread, Review) as run:
            assert [(e.key, e.state) for e in run.unresolved] == [("0/pay", "running")]
            with pytest.raises(EffectUnknown) as caught:
                await run.effect("pay", int, semantics="at-most-once", fingerprint=None).call(function)
            assert caught.value.attempt == 1
    assert ran == []


async def test_at_least_once_runs_again_under_the_same_key(board: Blackboard, thread: str) -> None:
    await crash(board, thread, "at-least-once", "f")
    keys = []
    async with board.run(thread, Review) as run:
        async with run.effect("pay", int, semantics="at-least-once", fingerprint="f") as effect:
            assert (effect.standing, effect.attempt) == ("run", 2)
            keys.append(effect.key)
            await effect.complete(1)
        await run.commit()
        keys.append(run.effect("pay", int, semantics="at-least-once").key)
    assert len(set(keys)) == 2


@pytest.mark.parametrize("decision", ["complete", "abandon", "retry"])
async def test_an_unknown_effect_is_decided(board: Blackboard, thread: str, decision: str) -> None:
    await crash(board, thread, "at-most-once", "f")
    async with (
        board.run(thread, Review) as run,
        run.effect("pay", int, semantics="at-most-once", fingerprint="f") as effect,
    ):
        assert effect.standing == "unknown"
        if decision == "complete":
            await effect.complete(42)
        elif decision == "abandon":
            await effect.abandon("never arrived")
        else:
            await effect.retry()
            assert (effect.standing, effect.attempt) == ("run", 2)
            await effect.complete(43)
    async with board.run(thread, Review) as run:
        assert run.unresolved == ()
        again = run.effect("pay", int, semantics="at-most-once", fingerprint="f")
        if decision == "abandon":
            with pytest.raises(EffectFailed, match="never arrived"):
                await again.call(lambda: 0)
        else:
            assert await again.call(lambda: 0) == (42 if decision == "complete" else 43)
        await run.finish()


async def test_a_failed_attempt_is_tried_again(board: Blackboard, thread: str) -> None:
    for attempt in (1, 2, 3):
        with pytest.raises(ZeroDivisionError):
            async with board.run(thread, Review, start=Review) as run:
                effect = run.effect("e", semantics="at-least-once")
                await effect.call(lambda: 1 // 0)
        assert effect.attempt == attempt
    async with board.run(thread, Review) as run:
        assert await run.effect("e", semantics="at-least-once").call(lambda: "fine") == "fine"
        await run.finish()


async def test_a_cancelled_effect_is_unknown(board: Blackboard, thread: str) -> None:
    begun = asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.sleep(60)

    async def drive() -> None:
        async with board.run(thread, Review, start=Review) as run:
            await run.effect("e", semantics="at-most-once").call(hang)

    task = asyncio.create_task(drive())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with board.run(thread, Review) as run:
        assert [e.state for e in run.unresolved] == ["unknown"]
        with pytest.raises(EffectUnknown):
            await run.effect("e", semantics="at-most-once").call(hang)


async def test_a_result_that_cannot_be_stored_leaves_it_unknown(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        with pytest.raises(EncodeError):
            await run.effect("e", semantics="at-most-once").call(object)
    async with board.run(thread, Review) as run:
        assert [e.state for e in run.unresolved] == ["unknown"]


async def test_left_without_complete_is_unknown(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        with pytest.raises(UncommittedChanges):
            async with run.effect("e", semantics="at-most-once"):
                pass
    async with board.run(thread, Review) as run:
        assert [e.state for e in run.unresolved] == ["unknown"]


async def test_an_external_reference_survives(board: Blackboard, thread: str) -> None:
    async def body(run: Run[Review]) -> None:
        effect = await run.effect("pay", semantics="at-most-once").__aenter__()
        await effect.attach("charge-77")

    await die(board, thread, body)
    async with board.run(thread, Review) as run:
        assert run.unresolved[0].external_ref == "charge-77"


async def test_settled_with_the_commit_or_not_at_all(board: Blackboard, thread: str) -> None:
    await die(
        board, thread, lambda run: run.effect("book", int, semantics="at-least-once", record="commit").call(lambda: 7)
    )
    async with board.run(thread, Review) as run:
        assert run.unresolved[0].key == "0/book"
        effect = run.effect("book", int, semantics="at-least-once", record="commit")
        run.state.verdict = str(await effect.call(lambda: 8))
        assert effect.attempt == 2
        await run.commit(next="x")
    async with board.run(thread, Review) as run:
        assert (run.unresolved, run.state.verdict) == ((), "8")
        await run.finish()


async def test_leaving_with_an_effect_to_settle_is_refused(board: Blackboard, thread: str) -> None:
    with pytest.raises(UncommittedChanges):
        async with board.run(thread, Review, start=Review) as run:
            await run.effect("book", int, semantics="at-least-once", record="commit").call(lambda: 7)


async def test_effects_in_parallel(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        effects = [run.effect(f"e{i}", int, semantics="at-least-once").call(lambda i=i: i) for i in range(30)]
        assert await asyncio.gather(*effects) == list(range(30))
    assert len(await board.thread(thread).effects()) == 30


async def test_a_dangling_call_stays_pending(board: Blackboard, thread: str) -> None:
    """The process dies after tool A answered and before tool B did (C104)."""
    ran: list[str] = []
    calls = [
        Call("call_A", "book_room", {"room": "R1"}, "at-most-once"),
        Call("call_B", "send_mail", {"to": "t"}, "at-most-once"),
    ]

    def book() -> str:
        ran.append("A")
        return "booked"

    async def body(run: Run[Review]) -> None:
        run.state.notes.append("assistant: A, B")
        await run.commit(next="tools", pending=calls)
        await run.effect(calls[0], str).call(book)
        await run.effect(calls[1], str).__aenter__()

    await die(board, thread, body)
    async with board.run(thread, Review) as run:
        assert [(p.key, p.standing, p.result) for p in run.pending] == [
            ("call_A", "done", "booked"),
            ("call_B", "unknown", None),
        ]
        assert run.pending[1].call == calls[1]
        assert await run.effect(run.pending[0].call, str).call(book) == "booked"
        async with run.effect(run.pending[1].call, str) as effect:
            await effect.complete("sent")
        run.state.notes += ["tool A: booked", "tool B: sent"]
        await run.commit(next="user")
        assert run.pending == ()
    async with board.run(thread, Review) as run:
        assert run.state.notes == ["assistant: A, B", "tool A: booked", "tool B: sent"]
        run.state.notes.append("user: thanks")
        await run.commit(next="model")
    assert ran == ["A"]


async def test_pending_keys_are_unique(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        with pytest.raises(ConfigError):
            await run.commit(pending=[Call("a", "x"), Call("a", "y")])
    assert len(await board.thread(thread).history()) == 1


async def test_a_new_incarnation_has_new_downstream_keys(board: Blackboard, thread: str) -> None:
    found = []
    for _ in range(2):
        async with board.run(thread, Review, start=Review) as run:
            found.append(run.effect("e", semantics="at-least-once").key)
        await board.thread(thread).delete()
    assert found[0] != found[1]


@pytest.mark.parametrize("form", ["call", "probe"])
async def test_a_driver_that_slept_beyond_its_lease_does_not_act(board: Blackboard, thread: str, form: str) -> None:
    """It is stopped right after it was told to go: by then another may have looked outside and found nothing."""
    ran, function = counter()

    def sleep(point: str) -> None:
        if point == "begin.lua:after":
            time.sleep(0.4)

    with pytest.raises(LeaseLost), watch(sleep):
        async with board.run(thread, Review, start=Review, lease_ttl=0.3) as run:
            effect = run.effect("pay", int, semantics="at-most-once")
            if form == "call":
                await effect.call(function)
            else:
                async with effect:
                    function()
    assert ran == []
    async with board.run(thread, Review, wait=5) as run:
        assert [e.key for e in run.unresolved] == ["0/pay"]


@pytest.mark.parametrize("semantics", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize("decision", ["abandon", "complete", "retry"])
async def test_an_effect_that_timed_out_can_be_decided_by_its_run(
    board: Blackboard, thread: str, semantics: Semantics, decision: str
) -> None:
    """Otherwise a tool that is given up after a while would keep the thread from being finished."""
    async with board.run(thread, Review, start=Review) as run:
        effect = run.effect("slow", int, semantics=semantics)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await effect.call(asyncio.sleep, 30)
        assert effect.standing == "unknown"
        with pytest.raises(UnresolvedEffects):
            await run.finish()
        if decision == "abandon":
            await effect.abandon("took too long")
        else:
            if decision == "retry":
                await effect.retry()
            await effect.complete(7)
        await run.finish()
    found = [(one.attempt, one.state) for one in await board.thread(thread).effects()]
    assert found == [(2 if decision == "retry" else 1, "abandoned" if decision == "abandon" else "done")]
