"""What LangGraph relies on and nobody wrote down, and what the library promises beyond it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from blackboard import Blackboard, Settings, keys
from blackboard.errors import (
    AlreadyFinished,
    ConfigError,
    LeaseHeld,
    LeaseLost,
    ServerUnavailable,
    ThreadExists,
    ThreadGone,
)
from blackboard.store.client import Store

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Send

from blackboard.integrations.langgraph import BlackboardSaver


@pytest.fixture
async def saver(backend: str) -> AsyncIterator[BlackboardSaver]:
    async with Blackboard.open(backend, settings=Settings(), proof=False) as board:
        yield BlackboardSaver(board)


def config(thread: str, checkpoint: str | None = None, ns: str = "", **more: Any) -> Any:
    named = {} if checkpoint is None else {"checkpoint_id": checkpoint}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, **named, **more}}


def checkpoint(name: str, versions: dict[str, Any] | None = None, **values: Any) -> Any:
    versions = dict.fromkeys(values, 1) if versions is None else versions
    return {**empty_checkpoint(), "v": 4, "id": name, "channel_values": values, "channel_versions": versions}


async def put(saver: BlackboardSaver, where: Any, made: Any, **metadata: Any) -> Any:
    told: Any = {"source": "loop", "step": 1, **metadata}
    return await saver.aput(where, made, told, made["channel_versions"])


async def ids(saver: BlackboardSaver, where: Any, **asked: Any) -> list[str]:
    return [found.checkpoint["id"] async for found in saver.alist(where, **asked)]


async def latest(saver: BlackboardSaver, thread: str, ns: str = "") -> Any:
    found = await saver.aget_tuple(config(thread, ns=ns))
    assert found is not None
    return found


async def test_latest_is_the_largest_id(saver: BlackboardSaver, thread: str) -> None:
    for name in ("b", "c", "a"):
        await put(saver, config(thread), checkpoint(name, n=name))
    assert (await latest(saver, thread)).checkpoint["channel_values"] == {"n": "c"}
    assert await ids(saver, config(thread)) == ["c", "b", "a"]


async def test_before_compares_with_ids_that_are_not_there(saver: BlackboardSaver, thread: str) -> None:
    for name in ("a", "c", "e"):
        await put(saver, config(thread), checkpoint(name))
    assert await ids(saver, config(thread), before=config("other", "d")) == ["c", "a"]
    assert await ids(saver, config(thread), before=config("other", "c"), limit=1) == ["a"]


async def test_a_put_again_replaces(saver: BlackboardSaver, thread: str) -> None:
    for number in (1, 2):
        await put(saver, config(thread), checkpoint("a", n=number, items=[number] * 200))
    found = [found async for found in saver.alist(config(thread))]
    assert [one.checkpoint["channel_values"] for one in found] == [{"n": 2, "items": [2] * 200}]


async def test_writes_before_their_checkpoint(saver: BlackboardSaver, thread: str) -> None:
    await saver.aput_writes(config(thread, "a"), [("x", 1), ("x", 2)], "task")
    assert await saver.aget_tuple(config(thread)) is None
    assert await ids(saver, config(thread)) == []
    await saver.aput_writes(config(thread, "a"), [("x", 9)], "task")
    await put(saver, config(thread), checkpoint("a"))
    assert (await latest(saver, thread)).pending_writes == [("task", "x", 1), ("task", "x", 2)]


async def test_writes_come_in_the_order_of_their_paths(saver: BlackboardSaver, thread: str) -> None:
    where = await put(saver, config(thread), checkpoint("a"))
    for task, path in (("t1", "~__pregel_pull, b"), ("t2", "~__pregel_pull, a"), ("t0", "")):
        await saver.aput_writes(where, [("x", task), ("y", task)], task, path)
    found = (await latest(saver, thread)).pending_writes
    memory = InMemorySaver()
    memory.put(config(thread), checkpoint("a"), {}, {})
    for task, path in (("t1", "~__pregel_pull, b"), ("t2", "~__pregel_pull, a"), ("t0", "")):
        memory.put_writes(where, [("x", task), ("y", task)], task, path)
    assert (expected := memory.get_tuple(config(thread))) is not None
    assert found == expected.pending_writes
    assert len(found) == 6


async def test_sync_methods_answer_from_another_thread(saver: BlackboardSaver, thread: str) -> None:
    def use() -> list[str]:
        made = checkpoint("a", n=1)
        where = saver.put(config(thread), made, {"source": "loop"}, {"n": 1})
        saver.put_writes(where, [("x", 1)], "task")
        found = saver.get_tuple(config(thread))
        assert found is not None
        assert found.pending_writes == [("task", "x", 1)]
        return [one.checkpoint["id"] for one in saver.list(config(thread))]

    assert await asyncio.to_thread(use) == ["a"]
    with pytest.raises(ConfigError, match="await its async twin"):
        saver.get_tuple(config(thread))


async def test_tasks_of_an_old_format_come_from_the_parents_writes(saver: BlackboardSaver, thread: str) -> None:
    first = await put(saver, config(thread), {**checkpoint("a"), "v": 3})
    sends = [Send("node", {"n": number}) for number in range(2)]
    await saver.aput_writes(first, [("__pregel_tasks", send) for send in sends], "task")
    await put(saver, first, {**checkpoint("b", n=1), "v": 3})
    found = await latest(saver, thread)
    assert found.checkpoint["channel_values"] == {"n": 1, "__pregel_tasks": sends}
    assert found.checkpoint["channel_versions"] == {"n": 1, "__pregel_tasks": 1}
    assert [one.checkpoint["channel_values"] async for one in saver.alist(config(thread), limit=1)] == [
        {"n": 1, "__pregel_tasks": sends}
    ]


async def test_filters_know_any_key(saver: BlackboardSaver, thread: str) -> None:
    await put(saver, config(thread), checkpoint("a"), colour="red", parts=[1, 2])
    await put(saver, {**config(thread, user="u-1"), "metadata": {"team": "t\0x"}}, checkpoint("b"))
    assert await ids(saver, config(thread), filter={"colour": "red", "parts": [1, 2]}) == ["a"]
    assert await ids(saver, config(thread), filter={"user": "u-1", "team": "tx"}) == ["b"]
    assert await ids(saver, config(thread), filter={"colour": "blue"}) == []


async def test_an_exception_comes_back_as_its_repr(saver: BlackboardSaver, thread: str) -> None:
    where = await put(saver, config(thread), checkpoint("a"))
    await saver.aput_writes(where, [("__error__", ValueError("no"))], "task")
    assert (await latest(saver, thread)).pending_writes == [("task", "__error__", "ValueError('no')")]


async def test_every_namespace_of_a_thread(saver: BlackboardSaver, thread: str) -> None:
    for name, ns in (("a", ""), ("b", "child:1"), ("c", ""), ("d", "child:1|x:2")):
        await put(saver, config(thread, ns=ns), checkpoint(name))
    everywhere: Any = {"configurable": {"thread_id": thread}}
    assert await ids(saver, everywhere) == ["d", "c", "b", "a"]
    assert await ids(saver, everywhere, limit=3) == ["d", "c", "b"]
    assert await ids(saver, config(thread)) == ["c", "a"]
    assert await ids(saver, config(thread, "a")) == ["a"]
    everything = [(t.config["configurable"]["thread_id"], t.checkpoint["id"]) async for t in saver.alist(None)]
    assert [name for where, name in everything if where == thread] == ["d", "c", "b", "a"]


@pytest.mark.parametrize("name", ["*", "a:b", "a b", "{x}", "%41", "ключ", "[ab]", "\\"])
async def test_ids_of_any_characters(saver: BlackboardSaver, thread: str, name: str) -> None:
    others = [f"{thread}{suffix}" for suffix in ("", "x", f":{name}")]
    for other in (*others, name):
        await put(saver, config(other), checkpoint(name, n=other))
        await saver.aput_writes(config(other, name), [("x", 1)], name)
    await saver.adelete_thread(name)
    assert await saver.aget_tuple(config(name)) is None
    for other in others:
        found = await latest(saver, other)
        assert (found.checkpoint["channel_values"], found.pending_writes) == ({"n": other}, [(name, "x", 1)])


async def test_late_writes_do_not_bring_a_deleted_thread_back(saver: BlackboardSaver, thread: str) -> None:
    where = await put(saver, config(thread), checkpoint("a"))
    await put(saver, config(thread, ns="child:1"), checkpoint("a"))
    await saver.adelete_thread(thread)
    with pytest.raises(ThreadGone):
        await put(saver, where, checkpoint("b"))
    with pytest.raises(ThreadGone):
        await saver.aput_writes(where, [("x", 1)], "task")
    with pytest.raises(ThreadGone):
        await put(saver, config(thread, ns="child:1"), checkpoint("b"))
    assert await saver.aget_tuple(config(thread)) is None
    assert await ids(saver, {"configurable": {"thread_id": thread}}) == []
    start = put(saver, config(thread), checkpoint("c"))
    writes = saver.aput_writes(config(thread, "c"), [("x", 1)], "task")
    await asyncio.gather(start, writes)
    assert (await latest(saver, thread)).pending_writes == [("task", "x", 1)]


async def test_a_lease_fences_every_write(saver: BlackboardSaver, thread: str) -> None:
    async with saver.lease(thread, ttl=30) as lease:
        where = await put(saver, config(thread, lease=lease), checkpoint("a"))
        assert "lease" not in (await latest(saver, thread)).metadata
        with pytest.raises(LeaseHeld):
            await put(saver, where, checkpoint("b"))
        with pytest.raises(LeaseHeld):
            await saver.aput_writes(where, [("x", 1)], "task")
        child = config(thread, ns="child:1", lease=lease.token)
        await put(saver, child, checkpoint("a"))
    async with saver.lease(thread, ttl=30) as newer:
        for stale in (config(thread, "a", lease=lease), config(thread, "a", ns="child:1", lease=lease)):
            with pytest.raises(LeaseLost):
                await put(saver, stale, checkpoint("b"))
            with pytest.raises(LeaseLost):
                await saver.aput_writes(stale, [("x", 1)], "task")
        await put(saver, config(thread, "a", lease=newer), checkpoint("c"))
    assert await ids(saver, config(thread)) == ["c", "a"]
    with pytest.raises(ConfigError, match="is a lease of thread"):
        await put(saver, config("other", lease=lease), checkpoint("a"))


async def test_a_finished_thread_is_closed(saver: BlackboardSaver, thread: str) -> None:
    where = await put(saver, config(thread), checkpoint("a", n=1))
    await saver.afinish(thread)
    with pytest.raises(AlreadyFinished):
        await put(saver, where, checkpoint("b"))
    meta = await saver.engine.meta(thread)
    assert meta.status == "finished"
    assert meta.expires is not None
    assert (await latest(saver, thread)).checkpoint["channel_values"] == {"n": 1}


async def test_a_copy_stands_alone(saver: BlackboardSaver, thread: str) -> None:
    first = await put(saver, config(thread), checkpoint("a", items=["x" * 200]))
    await put(saver, first, checkpoint("b", {"items": 2}, items=["x" * 200, "y"]))
    await saver.acopy_thread(thread, f"{thread}-copy")
    with pytest.raises(ThreadExists):
        await saver.acopy_thread(thread, f"{thread}-copy")
    await saver.adelete_thread(thread)
    found = [one.checkpoint["channel_values"] async for one in saver.alist(config(f"{thread}-copy"))]
    assert found == [{"items": ["x" * 200, "y"]}, {"items": ["x" * 200]}]


async def test_a_parent_whose_contents_are_gone_is_no_obstacle(saver: BlackboardSaver, thread: str) -> None:
    """What an unchanged channel referred to was pruned by somebody else: it is sent again."""
    first = await put(saver, config(thread), checkpoint("a", items=["x" * 200], text="t" * 200))
    where = saver.engine.store
    thread_keys = keys.ThreadKeys.of("langgraph", thread)
    await where.command("DEL", thread_keys.values)
    made = checkpoint("b", {"items": 1, "text": 1}, items=["x" * 200], text="t" * 200)
    await saver.aput(first, made, {"source": "loop", "step": 1}, {})
    assert (await latest(saver, thread)).checkpoint["channel_values"] == {"items": ["x" * 200], "text": "t" * 200}


async def test_an_outage_is_no_absence(backend: str, thread: str) -> None:
    async with Blackboard.open(backend, settings=Settings(), proof=False) as board:
        saver = BlackboardSaver(board)
    with pytest.raises((ServerUnavailable, ConfigError)):
        await saver.aget_tuple(config(thread))


async def test_round_trips(saver: BlackboardSaver, thread: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One each, however many channels and writes there are."""
    where = await put(saver, config(thread), checkpoint("a", items=["x" * 200]))
    trips: list[str] = []
    for name in ("call", "command", "batch"):
        original = getattr(Store, name)

        def counted(self: Store, *args: Any, name: str = name, original: Any = original, **more: Any) -> Any:
            trips.append(name)
            return original(self, *args, **more)

        monkeypatch.setattr(Store, name, counted)
    made = checkpoint("b", {"items": 2, "d": 1}, items=["x" * 200, "y"], d={"k": "v" * 200})
    where = await put(saver, where, made)
    assert trips == ["call"]
    await saver.aput_writes(where, [("x", 1), ("y", 2)], "task")
    assert trips == ["call"] * 2
    await latest(saver, thread)
    assert trips == ["call"] * 3
    await saver.aget_delta_channel_history(config=config(thread), channels=["d", "items"])
    assert trips == ["call"] * 4
    await ids(saver, config(thread), limit=10)
    assert trips == ["call"] * 5 + ["batch"]


async def test_a_delta_history_begins_at_the_parent(saver: BlackboardSaver, thread: str) -> None:
    """What the checkpoint itself holds is not its history, whether it is named or the newest; as with InMemorySaver."""
    memory: Any = InMemorySaver()
    for one in (saver, memory):
        where = config(thread)
        steps: list[dict[str, int]] = [{"d": 1}, {}, {"d": 3, "e": 1}, {"d": 4}]
        for version, (name, values) in enumerate(zip("abcd", steps, strict=True)):
            where = await put(one, where, checkpoint(name, dict.fromkeys(values, version), **values))
            await one.aput_writes(where, [("d", name), ("e", name)], "task")
    for place in (config(thread), config(thread, "d"), config(thread, "c"), config(thread, "a")):
        found, expected = [
            await one.aget_delta_channel_history(config=place, channels=["d", "e"]) for one in (saver, memory)
        ]
        assert found == expected


async def test_versions_count_on(saver: BlackboardSaver) -> None:
    assert [saver.get_next_version(current, None) for current in (None, 1, 41)] == [1, 2, 42]
    old = f"{7:032}.{0.25:016}"
    new = saver.get_next_version(old, None)
    assert new > old
    assert new.startswith(f"{8:032}.")


async def test_open_serves_callers_without_a_loop(backend: str, thread: str) -> None:
    def use() -> tuple[Any, Any]:
        with BlackboardSaver.open(backend, settings=Settings()) as saver:
            saver.put(config(thread), checkpoint("a", n=1), {"source": "loop"}, {"n": 1})
            found = saver.get_tuple(config(thread))
            assert found is not None
            saver.prune([thread])
            saver.finish(thread)
            return found.checkpoint["channel_values"], [one.checkpoint["id"] for one in saver.list(None)]

    values, names = await asyncio.to_thread(use)
    assert values == {"n": 1}
    assert "a" in names
    async with Blackboard.open(backend, settings=Settings(), proof=False) as board:
        with pytest.raises(ConfigError, match="on the board's event loop"):
            await asyncio.to_thread(BlackboardSaver, board)


@pytest.fixture
async def idle(backend: str) -> AsyncIterator[BlackboardSaver]:
    """A saver whose threads go an hour after their last write."""
    settings = Settings(namespaces={"langgraph": {"kind": "checkpoint", "idle_ttl": "1h"}})
    async with Blackboard.open(backend, settings=settings, proof=False) as board:
        yield BlackboardSaver(board)


async def expires(saver: BlackboardSaver, thread: str) -> bool:
    return (await saver.engine.meta(thread)).expires is not None


async def test_an_interrupted_thread_does_not_expire_for_being_idle(idle: BlackboardSaver, thread: str) -> None:
    where = await put(idle, config(thread), checkpoint("a"))
    assert await expires(idle, thread)
    await idle.aput_writes(where, [("x", 1)], "t1")
    assert await expires(idle, thread)
    await idle.aput_writes(where, [("__interrupt__", "what now")], "t2")
    assert not await expires(idle, thread)
    await idle.aput_writes(where, [("x", 1)], "t3")
    await put(idle, config(thread, ns="child:1"), checkpoint("b"))
    await put(idle, config(thread), checkpoint("a"))
    assert not await expires(idle, thread)
    await put(idle, where, checkpoint("b"))
    assert await expires(idle, thread)
    await idle.aput_writes(config(thread, "c"), [("__interrupt__", "before its checkpoint")], "t2")
    await put(idle, config(thread, "b"), checkpoint("c"))
    assert not await expires(idle, thread)
    await put(idle, config(thread, "c"), checkpoint("d"))
    assert await expires(idle, thread)


async def test_an_interrupt_may_be_the_first_that_comes(idle: BlackboardSaver, thread: str) -> None:
    await idle.aput_writes(config(thread, "a"), [("__interrupt__", "what now")], "t")
    await put(idle, config(thread), checkpoint("a"))
    assert not await expires(idle, thread)


async def test_an_idle_thread_goes_as_a_whole(backend: str, thread: str) -> None:
    """An unchanged channel of a thread that is alive stays; of one that is overdue nothing is left to read."""
    settings = Settings(namespaces={"langgraph": {"kind": "checkpoint", "idle_ttl": "1s"}})
    async with Blackboard.open(backend, settings=settings, proof=False) as board:
        saver = BlackboardSaver(board)
        where = await put(saver, config(thread), checkpoint("00", static="s" * 200, items=["0"]))
        for number in range(1, 8):
            await asyncio.sleep(0.2)
            items = [str(each) * 200 for each in range(number)]
            made = checkpoint(f"{number:02}", {"static": 1, "items": number + 1}, static="s" * 200, items=items)
            where = await saver.aput(where, made, {"source": "loop"}, {"items": number + 1})
            found = await latest(saver, thread)
            assert found.checkpoint["channel_values"] == {"static": "s" * 200, "items": items}
        for _ in range(500):
            if await saver.aget_tuple(config(thread)) is None:
                break
            await asyncio.sleep(0.01)
        assert await ids(saver, {"configurable": {"thread_id": thread}}) == []
        await put(saver, config(thread), checkpoint("new", n=1))
        assert await ids(saver, config(thread)) == ["new"]
