"""A run waits for days without a worker, and the first answer wakes it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import BaseModel

from blackboard import keys
from blackboard.board import Blackboard
from blackboard.errors import ConfigError, CorruptValue, Parked, ThreadGone, UnreadSignals

from .conftest import Review


async def ask(board: Blackboard, thread: str, name: str = "verdict", **more: object) -> object:
    """Drive the thread until it waits, or has its answer and is finished."""
    async with board.run(thread, Review, start=Review) as run:
        run.state.verdict = await run.wait(name, str, **more)
        await run.finish(run.state.verdict)
    return await board.thread(thread).result()


async def test_it_parks_holding_nothing(board: Blackboard, thread: str) -> None:
    with pytest.raises(Parked) as caught:
        await ask(board, thread)
    assert (caught.value.name, caught.value.wake) == ("verdict", None)
    meta = await board.thread(thread).meta()
    assert (meta.status, meta.awaits, meta.expires, meta.holder, meta.failures) == (
        "parked",
        "signal:verdict",
        None,
        None,
        0,
    )
    assert await board.store.command("EXISTS", keys.ThreadKeys.of("checkpoint", thread).lock) == 0


async def test_the_answer_wakes_it(board: Blackboard, thread: str) -> None:
    with pytest.raises(Parked):
        await ask(board, thread)
    assert thread not in await board.runnable()
    assert await board.signal(thread, "verdict", "yes") == "ACCEPTED"
    assert thread in await board.runnable()
    assert await ask(board, thread) == "yes"
    assert thread not in await board.runnable()


async def test_an_answer_may_come_first(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review):
        assert await board.signal(thread, "verdict", "early") == "ACCEPTED"
    assert await ask(board, thread) == "early"


async def test_the_first_answer_wins(board: Blackboard, thread: str) -> None:
    with pytest.raises(Parked):
        await ask(board, thread)
    answers = await asyncio.gather(*(board.signal(thread, "verdict", str(i)) for i in range(20)))
    assert sorted(answers) == ["ACCEPTED"] + ["ALREADY"] * 19
    assert await ask(board, thread) == str(answers.index("ACCEPTED"))


async def test_a_late_second_answer_is_not_kept_for_the_next_question(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        assert await board.signal(thread, "verdict", "first") == "ACCEPTED"
        assert await run.wait("verdict", str) == "first"
        await run.commit(next="again")
        assert await board.signal(thread, "verdict", "late") == "ALREADY"
    with pytest.raises(Parked):
        await ask(board, thread)
    assert await board.signal(thread, "verdict", "second") == "ACCEPTED"
    assert await ask(board, thread) == "second"


async def test_a_key_makes_a_signal_idempotent(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        assert await board.signal(thread, "a", 1, key="form-7") == "ACCEPTED"
        assert await board.signal(thread, "b", 1, key="form-7") == "ALREADY"
        assert await run.wait("a", int) == 1
        await run.commit()
        assert await board.signal(thread, "a", 1, key="form-7") == "ALREADY"


async def test_nobody_home(board: Blackboard, thread: str) -> None:
    assert await board.signal(thread, "verdict", "x") == "GONE"
    async with board.run(thread, Review, start=Review) as run:
        await run.finish()
    assert await board.signal(thread, "verdict", "x") == "GONE"
    assert await board.note(thread, "x") == "GONE"
    await board.thread(thread).delete()
    assert await board.signal(thread, "verdict", "x") == "GONE"
    assert await board.thread(thread).unread() == []


async def test_effects_before_the_wait_are_not_repeated(board: Blackboard, thread: str) -> None:
    asked: list[int] = []

    async def drive() -> str:
        async with board.run(thread, Review, start=Review) as run:
            await run.effect("ask", semantics="at-least-once").call(lambda: asked.append(1))
            answer = await run.wait("verdict", str)
            await run.finish(answer)
            return answer

    with pytest.raises(Parked):
        await drive()
    with pytest.raises(Parked):
        await drive()
    await board.signal(thread, "verdict", "yes")
    assert await drive() == "yes"
    assert asked == [1]


async def test_two_waits_in_one_step(board: Blackboard, thread: str) -> None:
    async def drive() -> tuple[str, str]:
        async with board.run(thread, Review, start=Review) as run:
            both = await run.wait("one", str), await run.wait("two", str)
            await run.finish(both)
            return both

    with pytest.raises(Parked):
        await drive()
    await board.signal(thread, "one", "1")
    with pytest.raises(Parked) as caught:
        await drive()
    assert caught.value.name == "two"
    await board.signal(thread, "two", "2")
    assert await drive() == ("1", "2")


async def test_an_answer_survives_a_crash_of_its_reader(board: Blackboard, thread: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with board.run(thread, Review, start=Review) as run:
            await board.signal(thread, "verdict", "yes")
            assert await run.wait("verdict", str) == "yes"
            raise ZeroDivisionError
    assert await ask(board, thread) == "yes"


async def test_answers_keep_their_type(board: Blackboard, thread: str) -> None:
    class Verdict(BaseModel):
        accepted: bool
        when: datetime

    verdict = Verdict(accepted=True, when=datetime.now(UTC))
    async with board.run(thread, Review, start=Review) as run:
        await board.signal(thread, "verdict", verdict)
        assert await run.wait("verdict", Verdict) == verdict
        with pytest.raises(CorruptValue):
            await run.wait("verdict", int)
        await run.commit()


async def test_a_wait_times_out(board: Blackboard, thread: str) -> None:
    with pytest.raises(Parked) as caught:
        await ask(board, thread, within=0.2)
    wake = caught.value.wake
    with pytest.raises(Parked) as again:
        await ask(board, thread, within=3600)
    assert again.value.wake == wake
    for _ in range(500):
        if thread in await board.runnable():
            break
        await asyncio.sleep(0.01)
    with pytest.raises(TimeoutError):
        await ask(board, thread, within=0.2)


async def test_it_sleeps_without_a_worker(board: Blackboard, thread: str) -> None:
    slept: list[int] = []
    wakes: list[object] = []

    async def drive() -> None:
        async with board.run(thread, Review, start=Review) as run:
            await run.sleep(timedelta(milliseconds=150))
            slept.append(1)
            await run.sleep("100ms")
            await run.finish()

    for _ in range(200):
        try:
            await drive()
            break
        except Parked as parked:
            wakes.append(parked.wake)
            await asyncio.sleep(0.02)
    assert await board.thread(thread).status() == "finished"
    assert len(slept) >= 2
    assert {type(wake) for wake in wakes} == {int}


async def test_a_moment_that_has_passed_is_no_sleep(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        await run.sleep(datetime.now(UTC) - timedelta(seconds=5))
        with pytest.raises(ConfigError):
            await run.sleep(datetime.now())  # noqa: DTZ005 - a time without a zone is refused
        with pytest.raises(ConfigError):
            await run.sleep(None)
    assert len(await board.thread(thread).history()) == 1


async def test_notes_are_read_in_order_and_once(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        for number in range(5):
            assert await board.note(thread, {"n": number}) == "ACCEPTED"
        assert [note["n"] for note in await run.notes()] == [0, 1, 2, 3, 4]
        assert await run.notes() == []
        await board.note(thread, {"n": 5}, key="k")
        assert await board.note(thread, {"n": 5}, key="k") == "ALREADY"
    async with board.run(thread, Review) as run:
        assert [note["n"] for note in await run.notes()] == [0, 1, 2, 3, 4, 5]
        await run.commit()
        assert await run.notes() == []
    assert await board.thread(thread).unread() == []


async def test_unread_letters_are_not_dropped_by_accident(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        await board.note(thread, "unread")
        with pytest.raises(UnreadSignals) as caught:
            await run.finish()
        assert caught.value.unread == 1
        with pytest.raises(UnreadSignals):
            await board.thread(thread).delete()
        await run.notes()
        await run.finish()
    async with board.run(f"{thread}-2", Review, start=Review) as run:
        await board.note(f"{thread}-2", "unread")
        await run.finish(drop_unread=True)
    prefix = keys.ThreadKeys.of("checkpoint", f"{thread}-2")
    assert await board.store.command("PTTL", prefix.inbox) > 0
    async with board.run(f"{thread}-3", Review, start=Review):
        await board.signal(f"{thread}-3", "x", 1, key="k")
    assert await board.thread(f"{thread}-3").delete(drop_unread=True)
    gone = keys.ThreadKeys.of("checkpoint", f"{thread}-3")
    assert await board.store.command("EXISTS", gone.inbox, gone.answers) == 0


async def test_a_parked_thread_can_be_deleted(board: Blackboard, thread: str) -> None:
    with pytest.raises(Parked):
        await ask(board, thread)
    assert await board.thread(thread).delete()
    assert await board.signal(thread, "verdict", "x") == "GONE"
    with pytest.raises(ThreadGone):
        await board.thread(thread).result()


async def test_a_sweep_leaves_parked_threads_alone(board: Blackboard, thread: str) -> None:
    with pytest.raises(Parked):
        await ask(board, thread)
    await board.signal(thread, "verdict", "yes")
    await board.sweep(10_000)
    assert thread in await board.runnable(10_000)
    assert await ask(board, thread) == "yes"


async def test_parking_and_signalling_race(board: Blackboard, thread: str) -> None:
    """Whichever comes first, the wake is not lost and no second answer is accepted."""

    async def one(name: str) -> None:
        async def drive() -> str | None:
            try:
                async with board.run(name, Review, start=Review) as run:
                    answer = await run.wait("verdict", str)
                    await run.finish(answer)
                    return answer
            except Parked:
                return None

        async def signal() -> list[str]:
            answers = []
            while "ACCEPTED" not in answers:
                answers.append(await board.signal(name, "verdict", "yes"))
            return [*answers, await board.signal(name, "verdict", "no")]

        answer, answers = await asyncio.gather(drive(), signal())
        assert answers[-2:] in (["ACCEPTED", "ALREADY"], ["ACCEPTED", "GONE"])
        if answer is None:
            assert (await board.thread(name).meta()).status == "parked"
            answer = await drive()
        assert answer == "yes"

    for start in range(0, 200, 50):
        await asyncio.gather(*(one(f"{thread}-{start + i}") for i in range(50)))


async def test_who_waits_for_the_next_answer_cannot_go_on(board: Blackboard, thread: str) -> None:
    async def both() -> None:
        async with board.run(thread, Review, start=Review) as run:
            await run.wait("first")
            await run.wait("second")
            await run.finish(drop_unread=True)

    for name in ("first", "second"):
        with pytest.raises(Parked):
            await both()
        assert [one for one in await board.runnable(10_000) if one == thread] == []
        assert await board.signal(thread, name) == "ACCEPTED"
        assert [one for one in await board.runnable(10_000) if one == thread] == [thread]
    await both()


@pytest.mark.parametrize("within", [None, "1h"])
async def test_an_answer_before_the_thread_is_listed_wakes_it(
    board: Blackboard, thread: str, within: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention = board.engine("checkpoint").retention
    due = retention.due

    async def answered(name: str, at_ms: int, **more: bool) -> None:
        assert await board.signal(name, "verdict", "yes") == "ACCEPTED"
        await due(name, at_ms, **more)

    async with board.run(thread, Review, start=Review):
        pass
    with monkeypatch.context() as patch, pytest.raises(Parked):
        patch.setattr(retention, "due", answered)
        await ask(board, thread, within=within)
    assert thread in await board.runnable(10_000)
    assert await ask(board, thread) == "yes"


async def test_rows_that_are_due_for_a_look_hide_nobody(board: Blackboard, thread: str) -> None:
    with pytest.raises(Parked):
        await ask(board, thread)
    await board.signal(thread, "verdict", "yes")
    shard = keys.threads("checkpoint", keys.shard(thread))
    for number in range(5):
        await board.store.command("ZADD", shard, 1, f"{thread}-gone-{number}")
    for limit in (1, 3):
        found = await board.runnable(10_000)
        assert thread in found
        assert len(await board.runnable(limit)) == min(limit, len(found))
    await board.sweep(10_000)


async def test_parked_rows_hide_nobody_from_a_sweep(board: Blackboard, thread: str) -> None:
    shard = keys.threads("checkpoint", keys.shard(thread))
    with pytest.raises(Parked):
        await ask(board, thread)
    await board.store.command("ZADD", shard, 1, thread)
    await board.sweep(10_000)
    names = (f"{thread}-{number}" for number in range(1000))
    gone = next(name for name in names if keys.shard(name) == keys.shard(thread))
    await board.store.command("ZADD", shard, 2, gone)
    assert await board.sweep(1) == 1
    assert await board.store.command("ZSCORE", shard, gone) is None
    assert thread in await board.runnable(10_000)


async def test_old_op_ids_of_letters_are_forgotten(board: Blackboard, thread: str) -> None:
    """A thread that is told something every second for months does not remember each time."""
    async with board.run(thread, Review, start=Review):
        ops = keys.ThreadKeys.of("checkpoint", thread).ops
        for age in (3600, 1):
            await board.store.command("ZADD", ops, board.store.server_time() - age * 1_000_000, f"signal:{age}")
        await board.store.command("PEXPIRE", ops, 500)
        await board.note(thread, "one more")
        left = await board.store.command("ZRANGE", ops, 0, -1)
        assert left[0] == b"signal:1"
        assert len(left) == 2
        assert await board.store.command("PTTL", ops) > 500
