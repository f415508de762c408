"""Forks, rewinds, pins and differences, as a user asks for them."""

from __future__ import annotations

import asyncio

import pytest

from blackboard import Settings
from blackboard.board import Blackboard
from blackboard.errors import AlreadyFinished, CheckpointMissing, LeaseHeld, ThreadExists, ThreadQuarantined
from blackboard.runs.compare import Change
from blackboard.runs.run import PRUNE_EVERY
from blackboard.store.client import Store
from blackboard.testing.proxy import FaultProxy, drop_request
from blackboard.testing.servers import Server

from .conftest import Message, Review, die


async def talk(board: Blackboard, thread: str, texts: list[str]) -> list[str]:
    """Append a message a step; returns the ids of the checkpoints, the first without any."""
    ids = []
    async with board.run(thread, Review, start=Review) as run:
        for text in texts:
            ids.append(run.checkpoint or "")
            run.state.messages.append(Message(text=text))
            run.state.verdict = text
            await run.commit(next=text)
        ids.append(run.checkpoint or "")
    return ids


async def test_a_fork_is_driven_like_any_thread(board: Blackboard, thread: str) -> None:
    ids = await talk(board, thread, ["a", "b", "c"])
    fork = await board.thread(thread).fork(f"{thread}-fork", at=ids[1])
    async with board.run(fork.id, Review) as run:
        assert ([m.text for m in run.state.messages], run.step, run.next) == (["a"], 1, "a")
        run.state.messages.append(Message(text="other"))
        await run.finish("other")
    latest = await board.thread(thread).latest(Review)
    assert latest is not None
    assert [m.text for m in latest.state.messages] == ["a", "b", "c"]
    assert (await fork.meta()).parent == thread
    with pytest.raises(ThreadExists):
        await board.thread(thread).fork(f"{thread}-fork")


async def test_settled_effects_are_not_repeated_in_a_fork(board: Blackboard, thread: str) -> None:
    ran: list[str] = []
    async with board.run(thread, Review, start=Review) as run:
        await run.effect("pay", semantics="at-most-once", scope="thread").call(lambda: ran.append("pay"))
        await run.commit(next="x")
        await run.effect("later", semantics="at-most-once", scope="thread").call(lambda: ran.append("later"))
        await run.commit(next="y")
    at = (await board.thread(thread).history())[1].checkpoint
    await board.thread(thread).fork(f"{thread}-fork", at=at)
    async with board.run(f"{thread}-fork", Review) as run:
        await run.effect("pay", semantics="at-most-once", scope="thread").call(lambda: ran.append("again"))
        await run.effect("later", semantics="at-most-once", scope="thread").call(lambda: ran.append("later again"))
    assert ran == ["pay", "later", "later again"]


async def test_rewind_goes_on_from_an_earlier_checkpoint(board: Blackboard, thread: str) -> None:
    ids = await talk(board, thread, ["a", "b", "c"])
    rewound = await board.thread(thread).rewind(ids[1], reason="b was wrong")
    history = await board.thread(thread).history()
    assert [m.checkpoint for m in history] == [rewound, *ids[::-1]]
    assert (history[0].parent, history[0].next, history[0].step) == (ids[1], "a", 4)
    assert b"b was wrong" in history[0].extra
    async with board.run(thread, Review) as run:
        assert [m.text for m in run.state.messages] == ["a"]
        run.state.messages.append(Message(text="B"))
        await run.commit(next="B")
    old = await board.thread(thread).at(ids[3], Review)
    assert old is not None
    assert [m.text for m in old.state.messages] == ["a", "b", "c"]


async def test_effects_run_again_after_a_rewind(board: Blackboard, thread: str) -> None:
    ran: list[int] = []
    async with board.run(thread, Review, start=Review) as run:
        first = run.checkpoint
        await run.effect("e", semantics="at-most-once").call(lambda: ran.append(1))
        await run.commit(next="x")
    assert first is not None
    await board.thread(thread).rewind(first, reason="try again")
    async with board.run(thread, Review) as run:
        await run.effect("e", semantics="at-most-once").call(lambda: ran.append(2))
    assert ran == [1, 2]


async def test_a_rewind_needs_the_thread(board: Blackboard, thread: str) -> None:
    ids = await talk(board, thread, ["a"])
    with pytest.raises(CheckpointMissing):
        await board.thread(thread).rewind("nowhere", reason="r")
    async with board.run(thread, Review) as run:
        with pytest.raises(LeaseHeld):
            await board.thread(thread).rewind(ids[0], reason="r")
        await run.finish()
    with pytest.raises(AlreadyFinished):
        await board.thread(thread).rewind(ids[0], reason="r")


async def test_diff(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=lambda: Review(notes=["x" * 200, "y"], counts={"a": 1, "b": 2})) as run:
        first = run.checkpoint or ""
        run.state.messages.append(Message(text="m"))
        run.state.notes[1:] = ["z", "w"]
        run.state.counts = {"a": 1, "b": 3, "c": 4}
        run.state.verdict = "v"
        await run.commit()
        second = run.checkpoint or ""
    found = {change.channel: change for change in await board.thread(thread).diff(first, second)}
    assert set(found) == {"messages", "notes", "counts", "verdict"}
    assert found["notes"] == Change("notes", "changed", ["y"], ["z", "w"], kept=1)
    assert found["counts"] == Change("counts", "changed", {"b": 2}, {"b": 3, "c": 4})
    assert found["verdict"] == Change("verdict", "changed", None, "v")
    assert (found["messages"].before, found["messages"].kept, len(found["messages"].after)) == ([], 0, 1)
    assert await board.thread(thread).diff(second, second) == []


async def test_pins_outlive_a_prune(board: Blackboard, thread: str) -> None:
    ids = await talk(board, thread, ["a", "b", "c", "d"])
    await board.thread(thread).pin(ids[1])
    pruned = await board.thread(thread).prune(keep_last=1)
    assert pruned.checkpoints == 3
    assert [m.checkpoint for m in await board.thread(thread).history()] == [ids[4], ids[1]]
    pinned = await board.thread(thread).at(ids[1], Review)
    assert pinned is not None
    assert [m.text for m in pinned.state.messages] == ["a"]
    async with board.run(thread, Review) as run:
        assert len(run.state.messages) == 4
        await run.commit()


async def test_a_thread_that_kills_its_drivers_is_quarantined(store: Store, thread: str) -> None:
    settings = Settings.load(namespaces={"checkpoint": {"takeover_cap": 2}})
    board = Blackboard(store, settings, None, None)

    async def nothing(_: object) -> None:
        await asyncio.sleep(0)

    for _ in range(3):
        await die(board, thread, nothing)
        await store.command("HSET", f"bb:checkpoint:thread:{{{thread}}}:meta", "holder", "dead")
    with pytest.raises(ThreadQuarantined) as caught:
        async with board.run(thread, Review):
            pass
    assert "takeover_cap 2" in caught.value.reason
    assert await board.thread(thread).status() == "quarantined"
    with pytest.raises(ThreadQuarantined):
        async with board.run(thread, Review):
            pass
    await board.thread(thread).readmit()
    async with board.run(thread, Review) as run:
        run.state.verdict = "fine"
        await run.commit()
    assert (await board.thread(thread).meta()).takeovers == 0


async def test_a_namespace_keeps_only_the_last(store: Store, thread: str) -> None:
    board = Blackboard(store, Settings.load(namespaces={"checkpoint": {"keep_last": 5}}), None, None)
    async with board.run(thread, Review, start=Review) as run:
        for number in range(40):
            run.state.messages.append(Message(text=str(number)))
            await run.commit()
        assert run.step == 40
    history = await board.thread(thread).history(limit=100)
    assert 5 <= len(history) < 5 + 16
    async with board.run(thread, Review) as run:
        assert [m.text for m in run.state.messages] == [str(number) for number in range(40)]


async def test_a_life_that_ends_at_once_is_no_loss(store: Store, thread: str) -> None:
    """Every key may be gone before the run is left: what it finished is finished."""
    board = Blackboard(store, Settings.load(namespaces={"checkpoint": {"ttl": "1ms"}}), None, None)
    async with board.run(thread, Review, start=Review) as run:
        await run.finish("done")
        assert await board.thread(thread).holder() is None
        await asyncio.sleep(0.05)
        assert run.done
    assert await board.thread(thread).latest() is None


async def test_a_prune_that_fails_does_not_undo_the_commit(solo: Server, thread: str) -> None:
    """The commit was acknowledged: telling of an outage would let the caller take the step again."""
    settings = Settings.load(namespaces={"checkpoint": {"keep_last": 2}})
    async with await FaultProxy.start(solo.url) as proxy:
        store = await Store.connect(proxy.url, retry_deadline=0.5)
        board, fault = Blackboard(store, settings, None, None), 0
        async with board.run(thread, Review, start=Review) as run:
            for number in range(PRUNE_EVERY):
                if run.step == PRUNE_EVERY - 2:
                    proxy.reset()
                    proxy.fault(drop_request(), when=lambda command: command.name == "ZCARD", times=1000)
                run.state.verdict = str(number)
                await run.commit(next="go on")
            fault = proxy.names.count("ZCARD")
            proxy.reset()
            run.state.verdict = "after"
            await run.commit(next="go on")
        latest = await board.thread(thread).latest(Review)
        await store.close()
    assert fault > 0
    assert latest is not None
    assert (latest.step, latest.state.verdict) == (PRUNE_EVERY + 1, "after")
