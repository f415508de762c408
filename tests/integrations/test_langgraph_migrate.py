"""Threads are taken over from other savers whole and can be gone on with; a copying can be cut off at any point."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from blackboard import Blackboard, Settings
from blackboard.errors import ConfigError, EncodeError
from blackboard.testing.servers import Server
from tests.test_docs import ROOT, played, script

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

import numpy as np
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Send

from blackboard.integrations.langgraph import BlackboardSaver, BlackboardSerializer, Copied, Difference, copy_threads
from tests.integrations.moving import (
    GRAPHS,
    KINDS,
    LIVES,
    SERVED,
    Saver,
    chat,
    count,
    made,
    postgres,
    put,
    redis,
    sqlite,
    work,
)
from tests.integrations.test_langgraph_graphs import config, history

PAGE = ROOT / "docs" / "how-to" / "langgraph-migrate.md"


@pytest.fixture
async def target(solo: Server, thread: str) -> AsyncIterator[BlackboardSaver]:
    async with Blackboard.open(solo.url, settings=Settings(), proof=False) as board:
        yield BlackboardSaver(board, namespace=thread)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
@pytest.mark.filterwarnings("ignore")
async def test_a_thread_goes_on_where_it_was(
    kind: Callable[[Path], Any], life: Callable[..., Any], target: BlackboardSaver, tmp_path: Path
) -> None:
    async with kind(tmp_path) as (writer, reader):
        before = await life(writer, "moved", 0)
        size = await count(reader, "moved")
        assert await copy_threads(reader, target) == Copied(1, size, 0, ())
        assert await count(target, "moved") == size
        there = await history(GRAPHS[life](target), config("moved"))
        assert there == (before[1] if life is work else before)
        assert await life(target, "moved", 10) == await life(writer, "moved", 10)


@pytest.mark.filterwarnings("ignore")
async def test_only_the_threads_that_are_named(target: BlackboardSaver) -> None:
    source = InMemorySaver()
    for name in ("a", "b", "c:{*}"):
        await chat(source, name, 0)
    assert (await copy_threads(source, target, ["c:{*}", "c:{*}", "none"])).threads == 1
    assert [await count(target, name) for name in ("a", "b")] == [0, 0]
    assert (await copy_threads(source, target)).threads == 3
    assert await count(target, "b") == await count(source, "b")


@pytest.mark.filterwarnings("ignore")
async def test_cut_off_at_every_write_and_called_again(
    target: BlackboardSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = InMemorySaver()
    await work(source, "moved", 0)
    left = 0

    def limited(write: Any) -> Any:
        async def act(*args: Any) -> Any:
            nonlocal left
            if left == 0:
                raise ConnectionError("cut off")
            left -= 1
            return await write(*args)

        return act

    monkeypatch.setattr(target, "aput", limited(target.aput))
    monkeypatch.setattr(target, "aput_writes", limited(target.aput_writes))
    size, cuts = await count(source, "moved"), 0
    ended = None
    while ended is None and cuts < 200:
        left = 2
        try:
            ended = await copy_threads(source, target)
        except ConnectionError:
            cuts += 1
    assert cuts > size and ended is not None
    assert ended.differences == ()
    assert ended.checkpoints + ended.standing == size
    assert await copy_threads(source, target) == Copied(1, 0, size, ())


async def test_what_differs_is_named(target: BlackboardSaver) -> None:
    """Checkpoints of the same ids stood there before: they are left as they are, and told."""
    source = InMemorySaver()
    for saver, number, parent in ((source, 1, "0"), (target, 2, "1")):
        await put(saver, "1", n=number, same=[1])
        where = await put(saver, "2", parent, n=1)
        await saver.aput_writes(where, [("x", number)], "task")
    told = await copy_threads(source, target)
    assert (told.checkpoints, told.standing) == (0, 2)
    named = [(difference.checkpoint, difference.what) for difference in told.differences]
    # The time is that at which each was made.
    assert [one for one in named if one[1] != "ts"] == [("1", "channel 'n'"), ("2", "parent"), ("2", "pending writes")]
    assert told.differences[0] == Difference("t", "", "1", "channel 'n'")


async def test_values_that_are_not_equal_to_themselves(target: BlackboardSaver) -> None:
    source = InMemorySaver()
    where = await put(source, "1", nan=float("nan"), array=np.arange(4.0), items=[{1, 2}, float("inf")])
    await source.aput_writes(where, [("b", 2), ("__error__", ValueError("no")), ("a", float("nan"))], "z", "path 1")
    await source.aput_writes(where, [("b", 3)], "a", "path 2")
    assert (await copy_threads(source, target)).differences == ()
    found = await target.aget_tuple(where)
    assert found is not None
    writes = [write[:2] for write in found.pending_writes or ()]
    assert writes == [("z", "__error__"), ("z", "b"), ("z", "a"), ("a", "b")]


@pytest.mark.parametrize("kind", [sqlite, postgres], ids=lambda kind: kind.__name__)
async def test_a_checkpoint_of_an_old_format_keeps_its_tasks(
    kind: Callable[[Path], Any], target: BlackboardSaver, tmp_path: Path
) -> None:
    async with kind(tmp_path) as (source, reader):
        where = await put(source, "1")
        await source.aput_writes(where, [("__pregel_tasks", Send("n", 1))], "task")
        old: Any = {**made("2", n=1), "v": 3}
        await source.aput(where, old, {"source": "loop", "step": 2}, {"n": 1})
        assert (await copy_threads(reader, target)).differences == ()
    found = await target.aget_tuple(config("t"))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"n": 1, "__pregel_tasks": [Send("n", 1)]}


async def test_a_refusal_names_the_checkpoint(target: BlackboardSaver) -> None:
    strict = BlackboardSaver(target.board, namespace=target.engine.namespace, serde=BlackboardSerializer())
    source = InMemorySaver(serde=BlackboardSerializer([Difference]))
    await put(source, "1", n=1)
    await put(source, "2", "1", kept=Difference("t", "", "1", "x"))
    with pytest.raises(EncodeError, match=r"channel 'kept': .*classes=\[Difference\]") as refused:
        await copy_threads(source, strict)
    assert refused.value.__notes__ == ["while checkpoint '2' of thread 't' was copied"]
    assert await count(strict, "t") == 1


async def test_threads_that_are_named_by_numbers(target: BlackboardSaver) -> None:
    """In memory 7 is another thread than "7"; here its text names it."""
    memory = InMemorySaver()
    made: Any = {**empty_checkpoint(), "channel_values": {"n": 1}, "channel_versions": {"n": 1}}
    del made["v"]
    memory.put({"configurable": {"thread_id": 7, "checkpoint_ns": ""}}, made, {}, {"n": 1})
    for threads, stands in ((None, 0), ([7], 1)):
        copied = await copy_threads(memory, target, threads)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert copied == Copied(threads=1, checkpoints=1 - stands, standing=stands, differences=())
    found = await target.aget_tuple(config("7"))
    assert found is not None
    assert found.checkpoint == made


async def test_one_text_is_not_many_threads(target: BlackboardSaver) -> None:
    with pytest.raises(ConfigError, match="abc"):
        await copy_threads(InMemorySaver(), target, "abc")


class Short(InMemorySaver):
    """Lists so many checkpoints at most."""

    most: int | None = None

    async def alist(self, *args: Any, **more: Any) -> AsyncIterator[Any]:
        async for one in super().alist(*args, **{**more, "limit": self.most}):
            yield one


@pytest.mark.filterwarnings("ignore")
async def test_a_listing_with_a_limit(target: BlackboardSaver) -> None:
    """Ancestors are found by their children, and the newest checkpoint by the thread's name."""
    source = Short()
    await chat(source, "moved", 0)
    size = await count(source, "moved")
    source.most = 0
    assert await copy_threads(source, target) == Copied(0, 0, 0, ())
    # The newest checkpoint is a fork, and no child of the last one of the branch beside it.
    assert await copy_threads(source, target, ["moved"]) == Copied(1, size - 1, 0, ())
    source.most = 1
    assert await copy_threads(source, target) == Copied(1, 0, size - 1, ())
    source.most = 2
    assert await copy_threads(source, target) == Copied(1, 1, size - 1, ())


@pytest.mark.filterwarnings("ignore")
async def test_names_that_a_search_index_does_not_tell_apart(target: BlackboardSaver, tmp_path: Path) -> None:
    """To the index of the Redis saver, "Bob" is "bob", and "a,b" is both "a" and "b"."""
    names = ["Bob", "bob", "a,b", "a", "c:{*}", "customer@example.org", "x y"]
    async with redis(tmp_path) as (source, _):
        for name in names:
            await put(source, "1", thread=name, n=1)
        for name in names:
            assert await copy_threads(source, target, [name]) == Copied(1, 1, 0, ())
        assert await copy_threads(source, target) == Copied(len(names), 0, len(names), ())


async def put_twisted(source: Saver) -> Any:
    """Two tasks with many writes each, an error and an interrupt after them; bytes and NUL in all of it."""
    where = await put(source, "1", text=["a\0b"], raw=b"\0\xff", none=None, empty="")
    for task in ("z", "a"):
        writes = [(f"c{number}", bytes([number, 0])) for number in range(12)]
        await source.aput_writes(where, [*writes, ("text", "x\0y")], task)
        await source.aput_writes(where, [("__error__", "no"), ("__interrupt__", ["how many"])], task)
    return where


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.filterwarnings("ignore")
async def test_writes_in_another_order(kind: Callable[[Path], Any], target: BlackboardSaver, tmp_path: Path) -> None:
    """The Redis saver tells the tasks by turns, and where an error stands among the writes."""
    async with kind(tmp_path) as (writer, reader):
        where = await put_twisted(writer)
        assert await copy_threads(reader, target) == Copied(1, 1, 0, ())
    found = await target.aget_tuple(where)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"text": ["a\0b"], "raw": b"\0\xff", "none": None, "empty": ""}
    writes: dict[str, list[Any]] = {"z": [], "a": []}
    for task, channel, value in found.pending_writes or ():
        writes[task].append((channel, value))
    ordinary = [*((f"c{number}", bytes([number, 0])) for number in range(12)), ("text", "x\0y")]
    for told in writes.values():
        assert dict(told[:2]) == {"__error__": "no", "__interrupt__": ["how many"]}
        assert told[2:] == ordinary


@pytest.mark.filterwarnings("ignore")
async def test_a_saver_that_leaves_out_pending_writes_is_refused(target: BlackboardSaver) -> None:
    """A sync RedisSaver does not tell the writes that came before their checkpoint, which an AsyncRedisSaver does."""
    async with SERVED["redis"]() as (address, source):
        parent = await put(source, "1", n=1)
        where: Any = {"configurable": {**parent["configurable"], "checkpoint_id": "2"}}
        await source.aput_writes(where, [("__interrupt__", "how many")], "task")
        await put(source, "2", "1", n=2)
        with pytest.importorskip("langgraph.checkpoint.redis").RedisSaver.from_conn_string(address) as forgetful:
            forgetful.setup()
            assert forgetful.get_tuple(where).pending_writes == []
            with pytest.raises(ConfigError, match="copy from an AsyncRedisSaver"):
                await copy_threads(forgetful, target)
        assert await copy_threads(source, target) == Copied(1, 2, 0, ())
    found = await target.aget_tuple(where)
    assert found is not None
    assert found.pending_writes == [("task", "__interrupt__", "how many")]


@pytest.mark.filterwarnings("ignore")
async def test_a_saver_that_keeps_the_newest_alone(target: BlackboardSaver) -> None:
    """Asked for another checkpoint it gives the newest again."""
    async with SERVED["redis"]() as (address, _):
        module = pytest.importorskip("langgraph.checkpoint.redis.ashallow")
        async with module.AsyncShallowRedisSaver.from_conn_string(address) as source:
            await put(source, "1", n=1)
            await put(source, "2", "1", n=2)
            assert await copy_threads(source, target) == Copied(1, 1, 0, ())
            assert await copy_threads(source, target, ["t"]) == Copied(1, 0, 1, ())
        sync = pytest.importorskip("langgraph.checkpoint.redis.shallow").ShallowRedisSaver
        with sync.from_conn_string(address) as forgetful, pytest.raises(ConfigError, match="AsyncShallowRedisSaver"):
            await copy_threads(forgetful, target)
    assert await count(target, "t") == 1


async def test_what_is_listed_and_not_given_is_missing(target: BlackboardSaver) -> None:
    class Empty(InMemorySaver):
        async def aget_tuple(self, _config: Any) -> None:
            return None

    source = Empty()
    await put(source, "1", n=1)
    assert await copy_threads(source, target) == Copied(1, 0, 0, (Difference("t", "", "1", "missing"),))


@pytest.mark.parametrize("peer", SERVED)
@pytest.mark.filterwarnings("ignore")
async def test_the_page_moves_a_thread(peer: str, tmp_path: Path) -> None:
    """The blocks of the page that ask for a server, with all the others, in a process of their own."""
    async with SERVED[peer]() as (address, source):
        await chat(source, "thread-1", 0)
        size = await count(source, "thread-1")
        program = script(PAGE, peer)
        told = await asyncio.to_thread(played, program, tmp_path, OLD_STORE=address)
    assert told == f"1 {size}\n"
