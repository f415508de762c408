"""A run begins, is interrupted anywhere, and goes on as if it had never stopped."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter

import pytest
from pydantic import BaseModel

from blackboard import LeaseHeld, LeaseLost, Log, OutcomeUnknown, ThreadGone, keys
from blackboard.board import Blackboard
from blackboard.checkpoints.commit import Commit
from blackboard.errors import (
    AlreadyFinished,
    CheckpointMissing,
    ConfigError,
    EncodeError,
    UncommittedChanges,
    UnresolvedEffects,
)

from .conftest import Message, Review


async def test_a_new_thread_begins_with_a_checkpoint(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        assert (run.step, run.next, run.status, run.done) == (0, "start", "running", False)
        latest = await board.thread(thread).latest(Review)
        assert latest is not None
        assert latest.state == Review()


async def test_start_may_be_a_coroutine(board: Blackboard, thread: str) -> None:
    async def begin() -> Review:
        return Review(question="async")

    async with board.run(thread, Review, start=begin) as run:
        assert run.state.question == "async"


async def test_it_goes_on_where_it_stood(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        run.state.messages.append(Message(text="one"))
        run.state.notes.append("n")
        run.state.counts["a"] = 1
        run.cursors["page"] = 3
        await run.commit(next="approve")
        run.state.messages.extend([Message(text="two"), Message(text="three")])
        run.state.counts["b"] = 2
        await run.commit(next="approve")
    async with board.run(thread, Review) as run:
        assert (run.step, run.next, run.cursors) == (2, "approve", {"page": 3})
        assert [m.text for m in run.state.messages] == ["one", "two", "three"]
        assert (run.state.notes, run.state.counts) == (["n"], {"a": 1, "b": 2})
        run.state.messages.append(Message(text="four"))
        await run.finish("done")
    latest = await board.thread(thread).latest(Review)
    assert latest is not None
    assert len(latest.state.messages) == 4


async def test_a_finished_thread_enters_done(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        run.state.verdict = "yes"
        await run.finish({"verdict": "yes"})
        assert run.done
        with pytest.raises(AlreadyFinished):
            await run.commit()
    async with board.run(thread, Review, start=Review) as run:
        assert (run.done, run.status, run.result, run.state.verdict) == (True, "finished", {"verdict": "yes"}, "yes")
    assert await board.thread(thread).result() == {"verdict": "yes"}
    meta = await board.thread(thread).meta()
    assert meta.expires is not None
    assert abs(meta.expires - meta.updated // 1000 - 7 * 86400 * 1000) < 1000


async def test_a_failed_thread_keeps_its_reason(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        await run.fail("no budget")
    async with board.run(thread, Review) as run:
        assert (run.done, run.status, run.result) == (True, "failed", "no budget")
    assert (await board.thread(thread).meta()).expires is None


async def test_nothing_stored_and_no_start(board: Blackboard, thread: str) -> None:
    with pytest.raises(CheckpointMissing):
        async with board.run(thread, Review):
            pass
    assert await board.thread(thread).latest() is None
    assert await board.thread(thread).holder() is None


async def test_a_start_that_fails_leaves_nothing(board: Blackboard, thread: str) -> None:
    def begin() -> Review:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with board.run(thread, Review, start=begin):
            pass
    assert await board.thread(thread).status() == "new"
    assert await board.thread(thread).holder() is None


async def test_one_driver_at_a_time(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review, owner="first"):
        with pytest.raises(LeaseHeld) as caught:
            async with board.run(thread, Review, start=Review):
                pass
        assert caught.value.holder == "first"
        assert 0 < caught.value.remaining <= 30


async def test_a_driver_can_queue(board: Blackboard, thread: str) -> None:
    order: list[str] = []

    async def second() -> None:
        async with board.run(thread, Review, start=Review, wait=10) as run:
            order.append(f"second at {run.step}")

    async with board.run(thread, Review, start=Review) as run:
        waiting = asyncio.create_task(second())
        await asyncio.sleep(0.05)
        await run.commit(next="x")
        order.append("first")
    await waiting
    assert order == ["first", "second at 1"]


async def test_an_exception_passes_and_nothing_is_committed(board: Blackboard, thread: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with board.run(thread, Review, start=Review) as run:
            run.state.verdict = "half"
            raise ZeroDivisionError
    async with board.run(thread, Review) as run:
        assert run.state.verdict is None
    assert (await board.thread(thread).meta()).failures == 1
    assert await board.thread(thread).holder() is None


async def test_a_cancellation_passes_and_gives_the_lease_back(board: Blackboard, thread: str) -> None:
    entered = asyncio.Event()

    async def drive() -> None:
        async with board.run(thread, Review, start=Review):
            entered.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(drive())
    await entered.wait()
    task.cancel("from outside")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await board.thread(thread).holder() is None


async def test_a_clean_exit_with_changes_is_refused(board: Blackboard, thread: str) -> None:
    for change in (
        lambda run: setattr(run.state, "verdict", "x"),
        lambda run: run.state.messages.append(Message(text="x")),
        lambda run: run.state.notes.append("x"),
        lambda run: run.cursors.update(page=1),
    ):
        with pytest.raises(UncommittedChanges):
            async with board.run(thread, Review, start=Review) as run:
                change(run)
    latest = await board.thread(thread).latest(Review)
    assert latest is not None
    assert latest.state == Review()


async def test_an_unchanged_exit_is_fine(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        run.state.notes.append("x")
        run.state.notes.pop()
    assert len(await board.thread(thread).history()) == 1


async def test_the_body_is_cancelled_when_the_lease_is_lost(board: Blackboard, thread: str) -> None:
    with pytest.raises(LeaseLost):
        async with board.run(thread, Review, start=Review, lease_ttl=0.3):
            await board.thread(thread).break_lock()
            await asyncio.sleep(30)


async def test_a_blocked_loop_does_not_outlive_its_lease(board: Blackboard, thread: str) -> None:
    with pytest.raises(LeaseLost):
        async with board.run(thread, Review, start=Review, lease_ttl=0.2) as run:
            time.sleep(0.3)  # the loop is blocked on purpose
            run.state.verdict = "late"
            await run.commit()
    latest = await board.thread(thread).latest(Review)
    assert latest is not None
    assert latest.state.verdict is None


async def test_a_stale_driver_cannot_write(board: Blackboard, thread: str) -> None:
    """It stalls, is taken over, and wakes up (C58): everything it tries is refused, the winner's data untouched."""
    stalled, woken = asyncio.Event(), asyncio.Event()
    refused: list[str] = []

    async def stale() -> None:
        async with board.run(thread, Review, start=Review) as run:
            stalled.set()
            await woken.wait()
            run.state.verdict = "stale"
            for name, late in (
                ("commit", run.commit(next="off")),
                ("effect", run.effect("x", semantics="at-least-once").call(lambda: None)),
                ("finish", run.finish()),
                ("renew", run.lease.renew()),
            ):
                try:
                    await late
                except LeaseLost:
                    refused.append(name)
            raise ZeroDivisionError

    driver = asyncio.create_task(stale())
    await stalled.wait()
    await board.thread(thread).break_lock()
    async with board.run(thread, Review) as winner:
        winner.state.verdict = "winner"
        await winner.commit(next="on")
        woken.set()
        with pytest.raises(ZeroDivisionError):
            await driver
        winner.check()
    assert refused == ["commit", "effect", "finish", "renew"]
    latest = await board.thread(thread).latest(Review)
    assert latest is not None
    assert (latest.state.verdict, latest.next) == ("winner", "on")


async def test_the_loser_gets_the_winners_result(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        waiting = asyncio.create_task(board.thread(thread).result(wait=10))
        await asyncio.sleep(0.05)
        await run.finish(Message(text="typed"))
    assert await waiting is not None
    assert await board.thread(thread).result(type=Message) == Message(text="typed")


async def test_a_result_that_does_not_come(board: Blackboard, thread: str) -> None:
    with pytest.raises(TimeoutError, match=f"thread '{thread}' has not begun after 0.05 s"):
        await board.thread(thread).result(wait=0.05)
    async with board.run(thread, Review, start=Review):
        with pytest.raises(TimeoutError, match=f"thread '{thread}' is running, not finished, after 0.05 s"):
            await board.thread(thread).result(wait=0.05)
    for wait in (-1, float("nan")):
        with pytest.raises(ConfigError, match="wait"):
            await board.thread(thread).result(wait=wait)


async def test_a_deleted_thread_takes_no_more_writes(board: Blackboard, thread: str) -> None:
    with pytest.raises(ThreadGone):
        async with board.run(thread, Review, start=Review) as run:
            assert await board.thread(thread).delete()
            run.state.verdict = "late"
            await run.commit()
    assert await board.thread(thread).status() == "deleted"
    assert await board.thread(thread).latest() is None
    async with board.run(thread, Review, start=Review) as run:
        assert (run.step, run.state.verdict) == (0, None)


async def test_a_replaced_log_is_refused_before_anything_is_sent(board: Blackboard, thread: str) -> None:
    with pytest.raises(EncodeError) as caught:
        async with board.run(thread, Review, start=Review) as run:
            run.state.messages = Log([Message(text="other")])
            await run.commit()
    assert caught.value.path.startswith("state.messages")
    assert len(await board.thread(thread).history()) == 1


async def test_what_cannot_be_stored_is_named(board: Blackboard, thread: str) -> None:
    class Loose(BaseModel):
        items: list[object] = []

    with pytest.raises(EncodeError) as caught:
        async with board.run(thread, Loose, start=Loose) as run:
            run.state.items = [1, {"price": lambda: 1}]
            await run.commit()
    assert caught.value.path == "state.items[1].price"


async def test_a_changed_model_resumes(board: Blackboard, thread: str) -> None:
    class Old(BaseModel):
        kept: int = 1
        dropped: list[str] = []

    class New(BaseModel):
        kept: int
        added: str = "default"

    async with board.run(thread, Old, start=lambda: Old(kept=7, dropped=["a", "b"])) as run:
        await run.commit(next="x")
    async with board.run(thread, New) as fresh:
        assert (fresh.state.kept, fresh.state.added) == (7, "default")
        fresh.state.added = "set"
        await fresh.commit(next="y")
    async with board.run(thread, Old) as run:
        assert run.state.dropped == ["a", "b"]


async def test_a_model_that_refuses_what_is_stored_names_the_field(board: Blackboard, thread: str) -> None:
    class Old(BaseModel):
        price: str = "free"

    class New(BaseModel):
        price: int = 0

    async with board.run(thread, Old, start=Old):
        pass
    with pytest.raises(ConfigError, match="price"):
        async with board.run(thread, New):
            pass
    async with board.run(thread, Old) as run:
        assert run.state.price == "free"


async def test_after_an_unknown_outcome_nothing_more_is_committed(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        task = asyncio.create_task(run.commit(next="lost"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(OutcomeUnknown):
            await run.commit(next="more")


async def test_two_commits_at_once_are_refused(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        answers = await asyncio.gather(run.commit(next="a"), run.commit(next="b"), return_exceptions=True)
        assert [type(a) for a in answers] == [type(None), ConfigError]
    assert len(await board.thread(thread).history()) == 2


async def test_finish_waits_for_open_effects(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        with pytest.raises(ZeroDivisionError):
            await run.effect("mail", semantics="at-most-once", scope="thread").call(lambda: 1 // 0)
        with pytest.raises(UnresolvedEffects) as caught:
            await run.finish()
        assert caught.value.effects == ("*/mail",)
        with pytest.raises(UnresolvedEffects):
            await board.thread(thread).delete()
        assert await board.thread(thread).status() == "running"


async def test_threads_are_listed_by_status(board: Blackboard, thread: str) -> None:
    names = {f"{thread}-{i}": "finished" if i % 2 else "running" for i in range(6)}
    for name, status in names.items():
        async with board.run(name, Review, start=Review) as run:
            if status == "finished":
                await run.finish()
    for status in ("finished", "running"):
        found = {row.thread async for row in board.threads(status=status) if row.thread.startswith(f"{thread}-")}
        assert found == {name for name, stands in names.items() if stands == status}


async def test_a_listing_misses_nobody_while_threads_are_deleted(
    board: Blackboard, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More threads in one list than a page holds, and than a server keeps in one piece (128 or 256)."""
    monkeypatch.setattr("blackboard.board.PAGE", 20)
    engine, every = board.engine("checkpoint"), (f"{thread}-{number}" for number in itertools.count())
    names = list(itertools.islice((name for name in every if keys.shard(name) == 0), 300))
    await asyncio.gather(*(engine.commit(name, Commit(0, {})) for name in names))
    seen = Counter[str]()
    async for row in board.threads():
        if row.thread.startswith(thread):
            seen[row.thread] += 1
            await board.thread(row.thread).delete()
    assert seen == Counter(names)


async def test_every_key_of_a_run_has_an_owner(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        await run.effect("e", semantics="at-least-once").call(lambda: 1)
        run.state.messages.append(Message(text="x" * 500))
        await run.finish()
    prefix = keys.ThreadKeys.of("checkpoint", thread).prefix
    standing = [
        key
        for primary in await board.store.primaries()
        for key in (await primary.command("SCAN", 0, "COUNT", 100_000))[1]
        if key.decode().startswith(prefix)
    ]
    assert len(standing) >= 6
    assert [key for key in standing if await board.store.command("PTTL", key) < 0] == []
