"""Runs of an encrypted namespace: nothing readable is stored, nothing that was moved is believed, keys can be replaced."""

from __future__ import annotations

import asyncio
import io
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blackboard import Call, keys
from blackboard.board import Blackboard
from blackboard.checkpoints.channels import digest
from blackboard.checkpoints.engine import Write
from blackboard.claims.outcome import Done
from blackboard.claims.shared import Claim
from blackboard.codec import encode
from blackboard.errors import (
    BlackboardError,
    ConfigError,
    EffectMismatch,
    KeyMissing,
    NotEncrypted,
    Parked,
    ThreadExists,
)
from blackboard.runs.portable import export_thread, import_thread
from blackboard.runs.run import Run
from blackboard.store.client import Store
from blackboard.testing.contracts.thread import all_keys
from blackboard.testing.servers import Server

from .conftest import Message, Review, die
from .encrypted import KEYS, LONG, Boards, opened, two


@pytest_asyncio.fixture
async def store(own: Server) -> AsyncIterator[Store]:
    connected = await Store.connect(own.url)
    yield connected
    await connected.close()


@pytest.fixture
def boards(store: Store) -> Boards:
    """Make a board whose namespace has these keys."""
    return lambda names="a", **more: opened(store, names, **more)


@pytest.fixture
def board(boards: Boards) -> Blackboard:
    return boards("a")


async def contents(store: Store) -> dict[str, list[bytes]]:
    """Read everything in every key."""
    reads = {
        b"string": ("GET",), b"hash": ("HGETALL",), b"list": ("LRANGE", 0, -1), b"zset": ("ZRANGE", 0, -1),
        b"set": ("SMEMBERS",), b"stream": ("XRANGE", "-", "+"),
    }  # fmt: skip
    found = {}
    for key in await all_keys(store):
        kind = await store.command("TYPE", key)
        if kind == b"none":
            continue  # it has expired since it was listed
        name, *rest = reads[kind]
        reply = await store.command(name, key, *rest)
        dump = await store.command("DUMP", key)
        found[key] = [key.encode(), dump or b"", *_flat(reply)]
    return found


def _flat(reply: Any) -> list[bytes]:
    if isinstance(reply, list):
        return [one for part in reply for one in _flat(part)]
    return [reply if isinstance(reply, bytes) else str(reply).encode()]


async def live(board: Blackboard, thread: str, marker: str) -> None:
    """Put a marker wherever a user's data goes."""
    async with board.run(thread, Review, start=Review) as run:
        run.state.question = marker
        run.state.verdict = marker * 20
        run.state.messages.append(Message(text=marker))
        run.state.notes = [marker * 10] * 5
        run.state.counts = {f"{marker} {number}": number for number in range(20)}
        run.cursors["page"] = marker
        await run.effect("pay", str, semantics="at-least-once").call(lambda arg: f"{arg} result", marker)
        await run.effect("in", str, semantics="at-most-once", record="commit").call(lambda arg: arg, marker)
        with pytest.raises(RuntimeError):
            await run.effect("bad", semantics="at-least-once").call(fail, marker)
        async with run.effect("gone", semantics="at-most-once") as gone:
            await gone.abandon(marker)
        async with run.effect("open", semantics="at-least-once", fingerprint=marker) as running:
            await running.complete(marker)
        await run.commit(next="wait", pending=[Call("call", "tool", {"arg": marker})])
    await board.note(thread, marker)
    await board.signal(thread, "other", marker)
    await board.engine("checkpoint").put_writes(thread, "x", [Write("task", 0, marker.encode())], lineage="sub")
    first = (await board.thread(thread).history())[-1].checkpoint
    await board.thread(thread).rewind(first, reason=marker)
    shared = board.effects()
    claim = await shared.begin(f"shared-{thread}", semantics="at-least-once", fingerprint="f", ttl=60.0)
    assert isinstance(claim, Claim)
    await shared.complete(claim, marker.encode())
    with pytest.raises(Parked):
        async with board.run(thread, Review) as run:
            run.state.question = marker
            await run.wait("answer")


def fail(marker: str) -> None:
    raise RuntimeError(marker)


def again(ran: list[str], name: str) -> str:
    """Note that an effect ran which should have been answered from its record."""
    ran.append(name)
    return "again"


async def test_nothing_readable_is_stored(boards: Boards, store: Store, thread: str) -> None:
    marker = f"marker{uuid.uuid4().hex}"
    await live(boards("a"), thread, marker)
    async with boards("a").run(f"{thread}-end", Review, start=Review) as run:
        await run.finish(marker)
    async with boards("a").run(f"{thread}-fail", Review, start=Review) as run:
        await run.fail(marker)
    await boards("a").thread(thread).copy(f"{thread}-copy")
    await boards("a").thread(thread).fork(f"{thread}-fork")
    stored = await contents(store)
    ours = {key for key in stored if thread in key}
    assert len(ours) > 30
    assert [key for key, parts in stored.items() if any(marker.encode() in part for part in parts)] == []


async def test_the_search_finds_what_is_not_encrypted(boards: Boards, store: Store, thread: str) -> None:
    """The same life without keys leaves the marker in every kind of key, so the search above can fail."""
    marker = f"marker{uuid.uuid4().hex}"
    await live(boards(""), thread, marker)
    found = {key for key, parts in (await contents(store)).items() if any(marker.encode() in part for part in parts)}
    kinds = {key.partition("}:")[2].partition(":")[0].partition("@")[0] for key in found}
    assert kinds == {"checkpoint", "values", "log", "writes", "effects", "inbox", ""}


async def test_all_of_it_reads_as_it_was_written(board: Blackboard, thread: str) -> None:
    await live(board, thread, "text")
    newest = await board.thread(thread).latest(Review)
    older = (await board.thread(thread).history())[2]
    at = await board.thread(thread).at(older.checkpoint, Review)
    assert newest is not None
    assert at is not None
    assert newest.state == Review(question="text")
    assert (at.state.question, at.state.verdict, at.state.messages[0].text) == ("text", "text" * 20, "text")
    assert (at.state.notes, len(at.state.counts)) == (["text" * 10] * 5, 20)
    assert (dict(at.cursors), at.pending[0].args) == ({"page": "text"}, {"arg": "text"})
    recorded = {one.key: one.result for one in await board.thread(thread).effects() if hasattr(one, "result")}
    assert recorded == {
        "0/pay": b'"text result"', "0/in": b'"text"', "0/bad": b'"RuntimeError: text"', "0/gone": b'"text"', "0/open": b'"text"',
    }  # fmt: skip
    assert [(one.name, one.open()) for one in await board.thread(thread).unread()] == [("", "text"), ("other", "text")]
    writes = await board.engine("checkpoint").store.command(
        "HGETALL", keys.ThreadKeys.of("checkpoint", thread).writes("x", "sub")
    )
    assert len(writes) == 2
    read = await board.effects().read(f"shared-{thread}")
    assert read is not None
    assert read.result == b"text"
    assert isinstance(
        await board.effects().begin(f"shared-{thread}", semantics="at-least-once", fingerprint="f", ttl=1.0), Done
    )
    await board.signal(thread, "answer", LONG)
    async with board.run(thread, Review) as run:
        assert await run.wait("answer", str) == LONG
        assert await run.notes() == ["text"]


STATES: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    question=st.text(max_size=200),
    messages=st.lists(st.builds(Message, text=st.text(max_size=20)), max_size=5),
    notes=st.lists(st.text(max_size=80), max_size=6),
    counts=st.dictionaries(st.text(max_size=10), st.integers(), max_size=20),
    verdict=st.none() | st.text(max_size=300),
)


@given(st.lists(STATES, min_size=1, max_size=4))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_states_come_back(solo: Server, states: list[dict[str, Any]]) -> None:
    """Every step reads as it was committed, whatever changed between the steps."""
    asyncio.run(_come_back(solo.url, states))


async def _come_back(url: str, states: list[dict[str, Any]]) -> None:
    store, thread = await Store.connect(url), f"thread-{uuid.uuid4().hex}"
    try:
        board, committed = opened(store, "ab"), []
        for state in states:
            async with board.run(thread, Review, start=Review) as run:
                run.state.messages.extend(state["messages"])
                for name in ("question", "notes", "counts", "verdict"):
                    setattr(run.state, name, state[name])
                await run.commit(next="x")
                committed.append((run.checkpoint, run.state.model_copy(deep=True).model_dump()))
        for checkpoint, state in committed:
            found = await board.thread(thread).at(checkpoint or "", Review)
            assert found is not None
            assert found.state.model_dump() == state
    finally:
        await store.close()


async def test_equal_contents_do_not_show(board: Blackboard, store: Store, thread: str) -> None:
    wheres = [await two(board, f"{thread}-{name}") for name in "xy"]
    digests = [set(await store.command("HKEYS", where.values)) for where in wheres]
    assert [len(some) for some in digests] == [4, 4]
    assert digests[0] & digests[1] == set()
    records = [(await board.engine("checkpoint").effects.all(f"{thread}-{name}"))[0] for name in "xy"]
    assert len({one.fingerprint.rpartition(":")[2] for one in records}) == 2
    assert not any(digest(encode([[], {}])) in one.fingerprint for one in records)


async def test_what_did_not_change_is_not_sent_again(board: Blackboard, store: Store, thread: str) -> None:
    where = await two(board, thread)
    before = await store.command("HGETALL", where.values)
    items = await contents(store)
    async with board.run(thread, Review) as run:
        run.state.messages.append(Message(text="three"))
        await run.commit(next="x")
    assert await store.command("HGETALL", where.values) == before
    (log,) = [key for key in items if key.startswith(where.logs())]
    assert (await store.command("LRANGE", log, 0, -1))[:-1] == items[log][2:]


async def test_keys_are_replaced(boards: Boards, store: Store, thread: str) -> None:
    where = await two(boards("a"), thread)
    ran: list[str] = []
    async with boards("ab").run(thread, Review) as run:
        run.state.messages.append(Message(text="new"))
        effect = run.effect("one", str, semantics="at-least-once", scope="thread")
        assert await effect.call(partial(again, ran, "one")) == "one"
        with pytest.raises(EffectMismatch):
            await run.effect("two", str, semantics="at-least-once", scope="thread").call(str, "other")
        await run.commit(next="x")
        checkpoint = run.checkpoint or ""
    assert ran == []
    manifest = await store.command("GET", where.checkpoint(checkpoint))
    assert b"\xbbbb\x01\x01b" in manifest
    assert b"\xbbbb\x01\x01a" not in manifest
    with pytest.raises(KeyMissing, match="'a'") as missing:
        await boards("b").thread(thread).latest()
    assert missing.value.key_id == "a"
    await boards("ab").thread(thread).copy(f"{thread}-copy")
    found = await boards("b").thread(f"{thread}-copy").latest(Review)
    assert found is not None
    assert [one.text for one in found.state.messages] == ["one 1", "one 2", "two 1", "two 2", "new"]
    assert len(await boards("b").thread(f"{thread}-copy").history()) == 4


async def test_plaintext_is_not_taken_for_ours(boards: Boards, thread: str) -> None:
    await two(boards(""), thread)
    await boards("").note(thread, "note")
    strict, lenient = boards("a"), boards("a", accept_plaintext=True)
    for work in (strict.thread(thread).latest, strict.thread(thread).history, strict.thread(thread).unread):
        with pytest.raises(NotEncrypted, match="accept_plaintext"):
            await work()
    with pytest.raises(NotEncrypted):
        await strict.thread(thread).effects()
    with pytest.raises(NotEncrypted):
        await strict.thread(thread).fork(f"{thread}-fork")
    ran: list[str] = []
    async with lenient.run(thread, Review) as run:
        assert await run.notes() == ["note"]
        effect = run.effect("one", str, semantics="at-least-once", scope="thread")
        assert await effect.call(partial(again, ran, "one")) == "one"
        run.state.messages.append(Message(text="new"))
        await run.commit(next="x")
    with pytest.raises(NotEncrypted):
        await strict.thread(thread).latest()  # the newest checkpoint still refers to items of before
    await lenient.thread(thread).copy(f"{thread}-copy")
    found = await strict.thread(f"{thread}-copy").latest(Review)
    assert found is not None
    assert [one.text for one in found.state.messages] == ["one 1", "one 2", "two 1", "two 2", "new"]
    assert ran == []


async def test_without_keys_nothing_is_shown(boards: Boards, thread: str) -> None:
    await two(boards("a"), thread)
    await boards("a").note(thread, "note")
    plain = boards("").thread(thread)
    works: list[Callable[[], Awaitable[Any]]] = [plain.latest, plain.history, plain.effects, plain.unread]
    works += [lambda: plain.fork(f"{thread}-fork"), lambda: plain.copy(f"{thread}-copy")]
    for work in works:
        with pytest.raises(KeyMissing, match="'a'.*name no key"):
            await work()
    with pytest.raises(KeyMissing):
        async with boards("").run(thread, Review):
            pytest.fail("entered without the key")
    assert await boards("").thread(thread).delete(drop_unread=True)


async def test_a_file_shows_nothing_of_it(boards: Boards, thread: str) -> None:
    """Neither does a file hold what is encrypted, nor does an encrypted namespace take a file's plaintext."""
    await two(boards("a"), thread)
    await two(boards(""), f"{thread}-plain")
    with pytest.raises(ConfigError, match="is encrypted"):
        [line async for line in export_thread(boards("a").engine("checkpoint"), thread)]
    with pytest.raises(KeyMissing, match="'a'"):
        [line async for line in export_thread(boards("").engine("checkpoint"), thread)]
    lines = [line async for line in export_thread(boards("").engine("checkpoint"), f"{thread}-plain")]
    with pytest.raises(ConfigError, match="is encrypted"):
        await import_thread(boards("a").engine("checkpoint"), io.BytesIO(b"".join(lines)), to=f"{thread}-new")


async def test_a_fork_goes_on_alone(board: Blackboard, store: Store, thread: str) -> None:
    where = await two(board, thread)
    older = (await board.thread(thread).history())[1].checkpoint
    fork = await board.thread(thread).fork(f"{thread}-fork", at=older)
    with pytest.raises(ThreadExists):
        await board.thread(thread).fork(f"{thread}-fork")
    await board.thread(thread).delete()
    ran: list[str] = []
    async with board.run(fork.id, Review) as run:
        assert ([one.text for one in run.state.messages], run.next) == (["one 1", "one 2"], "one")
        for text, expected in (("one", "one"), ("two", "again")):
            effect = run.effect(text, str, semantics="at-least-once", scope="thread")
            assert await effect.call(partial(again, ran, text)) == expected
        run.state.messages.append(Message(text="other"))
        await run.finish("done")
    assert ran == ["two"]
    assert await fork.result() == "done"
    assert await all_keys(store, where.prefix + ":") == [where.meta]


async def test_pruning_needs_no_key(boards: Boards, thread: str) -> None:
    await two(boards("a"), thread)
    pruned = await boards("").thread(thread).prune(keep_last=1)
    assert (pruned.checkpoints, pruned.values) == (2, 2)
    found = await boards("a").thread(thread).latest(Review)
    assert found is not None
    assert found.state.question == f"two {LONG}"


async def test_differences_are_those_of_the_contents(board: Blackboard, thread: str) -> None:
    await two(board, thread)
    newer, older, _ = [one.checkpoint for one in await board.thread(thread).history()]
    found = {one.channel: (one.before, one.after) for one in await board.thread(thread).diff(older, newer)}
    assert sorted(found) == ["messages", "question", "verdict"]
    assert found["question"] == (f"one {LONG}", f"two {LONG}")


async def test_a_crash_is_resumed(board: Blackboard, thread: str) -> None:
    async def body(run: Run[Review]) -> None:
        run.state.messages.append(Message(text="kept"))
        await run.commit(next="pay", pending=[Call("pay", "pay", {"amount": 1}, "at-most-once")])
        await run.effect(run.pending[0].call)._begin()

    await die(board, thread, body)
    async with board.run(thread, Review) as run:
        assert [one.text for one in run.state.messages] == ["kept"]
        assert [(one.standing, one.call.args) for one in run.pending] == [("unknown", {"amount": 1})]
        async with run.effect(run.pending[0].call, fingerprint=None) as effect:
            assert effect.standing == "unknown"
            await effect.complete("paid")
    async with board.run(thread, Review) as run:
        assert [(one.standing, one.result) for one in run.pending] == [("done", "paid")]


async def test_pending_writes_of_a_lineage_are_copied(board: Blackboard, thread: str) -> None:
    await two(board, thread)
    engine, write = board.engine("checkpoint"), Write("task", 0, b"written")
    newest = (await board.thread(thread).history())[0].checkpoint
    await engine.put_writes(thread, newest, [write])
    await engine.put_writes(thread, "later", [write], lineage="sub")
    await board.thread(thread).copy(f"{thread}-copy")
    found = await engine.latest(f"{thread}-copy")
    assert found is not None
    assert found.writes == {"task:0": b"written"}
    where = keys.ThreadKeys.of("checkpoint", f"{thread}-copy")
    ((field, body),) = [await engine.store.command("HGETALL", where.writes("later", "sub"))]
    assert engine.seal is not None
    assert engine.seal.open(body, "write", f"{thread}-copy", "sub", "later", field.decode()) == b"written"


async def test_no_key_is_in_an_error(boards: Boards, thread: str) -> None:
    await two(boards("a"), thread)
    for board in (boards(""), boards("b")):
        with pytest.raises(BlackboardError) as raised:
            await board.thread(thread).latest()
        assert not any(secret in f"{raised.value} {raised.value.ids} {board!r}" for secret in KEYS.values())
