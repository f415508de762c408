"""Public bug reports about threads, their order, their owners and their end, as inputs with the right answer, for the saver."""

import asyncio
import math
import operator
import resource
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
from typing_extensions import TypedDict

from blackboard import Blackboard, Settings, keys
from blackboard.claims.lease import Leases, Token
from blackboard.errors import BlackboardError, ConfigError, LeaseHeld, LeaseLost, ServerUnavailable, ThreadGone
from blackboard.testing.contracts.thread import all_keys
from blackboard.testing.proxy import Command as Sent
from blackboard.testing.proxy import FaultProxy, delay_reply, drop_reply
from blackboard.testing.servers import Server, binaries, start_server

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from blackboard.integrations.langgraph import BlackboardSaver
from blackboard.testing.contracts.savers.case import checkpoint, config, ids, latest, names, put, seen

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def savers(url: str, **policy: Any) -> AsyncIterator[BlackboardSaver]:
    settings = Settings(namespaces={"langgraph": {"kind": "checkpoint", **policy}})
    async with Blackboard.open(url, settings=settings, proof=False) as board:
        yield BlackboardSaver(board)


@pytest.fixture
async def saver(backend: str) -> AsyncIterator[BlackboardSaver]:
    async with savers(backend) as made:
        yield made


async def standing(saver: BlackboardSaver, thread: str) -> set[str]:
    prefix = keys.ThreadKeys.of("langgraph", thread).prefix
    return set(await all_keys(saver.engine.store, f"{prefix}:"))


FILTERS: list[dict[str, Any]] = [
    {"user_id": '") or true or ("'}, {"user_id": {"$ne": ""}}, {"user_id": {"$regex": ".*"}}, {"v' OR 1=1 --": 1},
    {"user_id": "*"}, {"user_id": "alice|bob"}, {"user_id": "alice} @user_id:{bob"}, {"user_id": ["alice", "bob"]},
    {"": "x"}, {"a.b": 1}, {"__class__": 1},
]  # fmt: skip


async def test_c26_no_filter_widens_the_scope(saver: BlackboardSaver, thread: str) -> None:
    for tenant in ("alice", "bob"):
        for name in names(5):
            await put(saver, config(f"{thread}-{tenant}", user_id=tenant), checkpoint(name))
    for tenant, other in (("alice", "bob"), ("bob", "alice")):
        where = config(f"{thread}-{tenant}")
        for asked in (*FILTERS, {"user_id": other}):
            assert await ids(saver, where, filter=asked) == [], asked
        found = [one.metadata async for one in saver.alist(None, filter={"user_id": tenant})]
        assert {one.get("user_id") for one in found} == {tenant}
        assert len(await ids(saver, where, filter={"user_id": tenant})) == 5
    assert [one async for one in saver.alist(None, filter=FILTERS[0])] == []


IDS = ("user1", "user2", "user[12]", "user*", "user?", "user[^1]", "my-doc.md#0", "a b", "a:b", "a.b", "a|b", "a\\b", "{a}b",
       "u@example.com", "%2A", "ключ", "日本", "-dash", "(x)", "$x", "a'b", 'a"b')  # fmt: skip


async def test_c31_ids_are_never_patterns(saver: BlackboardSaver, thread: str) -> None:
    threads = [f"{thread}{tail}" for tail in IDS]
    for name in threads:
        await put(saver, config(name), checkpoint(n=name))
    for gone in (f"{thread}user[12]", f"{thread}user*"):
        await saver.adelete_thread(gone)
        threads.remove(gone)
        listed = [one.config["configurable"]["thread_id"] async for one in saver.alist(None)]
        assert sorted(name for name in listed if name.startswith(thread)) == sorted(threads)
        for name in threads:
            assert (await latest(saver, config(name))).checkpoint["channel_values"] == {"n": name}
    for none in ("", "x" * 1025, "\ud800"):
        with pytest.raises(ValueError, match="id"):
            await put(saver, config(none), checkpoint())


async def test_c38_parallel_writes_of_two_processes(solo: Server, thread: str) -> None:
    program = textwrap.dedent(f"""
        import asyncio
        from blackboard import Blackboard, Settings
        from blackboard.integrations.langgraph import BlackboardSaver
        from blackboard.testing.contracts.savers.case import config
        async def main():
            async with Blackboard.open({solo.url!r}, settings=Settings(), proof=False) as board:
                saver = BlackboardSaver(board)
                for _ in range(2):
                    calls = [saver.aput_writes(config({thread!r}, "c1"), [("chan", n)], f"task-{{n}}") for n in range(64)]
                    await asyncio.gather(*calls)
        asyncio.run(main())
    """)
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    writers = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(2)]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    async with savers(solo.url) as saver:
        await put(saver, config(thread), checkpoint("c1"))
        found = (await latest(saver, config(thread))).pending_writes
    assert sorted(found or []) == sorted((f"task-{n}", "chan", n) for n in range(64))


async def test_c39_the_other_server_resumes_a_live_thread(saver: BlackboardSaver, thread: str) -> None:
    made = names(3)
    async with saver.lease(thread, ttl=30) as lease:
        first = await put(saver, config(thread, lease=lease), checkpoint(made[0], n=1))
        with pytest.raises(LeaseHeld):
            async with saver.lease(thread, ttl=30):
                pass
        stale = Token("langgraph", thread, "b", lease.fence - 1, lease.token.incarnation)
        for token, refused in ((None, LeaseHeld), (stale, LeaseLost)):
            with pytest.raises(refused):
                await put(saver, config(thread, made[0], lease=token), checkpoint(made[1], n="B"))
        await put(saver, config(thread, made[0], lease=lease), checkpoint(made[2], n=2))
    assert first["configurable"]["checkpoint_id"] == made[0]
    assert await seen(saver, thread) == {"": [(made[2], {"n": 2}, made[0], []), (made[0], {"n": 1}, None, [])]}


async def test_c43_late_writes_do_not_bring_a_thread_back(saver: BlackboardSaver, thread: str) -> None:
    where = await put(saver, config(thread), checkpoint(text="t" * 300))
    await saver.adelete_thread(thread)
    with pytest.raises(ThreadGone):
        await saver.aput_writes(where, [("x", 1)], "task")
    with pytest.raises(ThreadGone):
        await put(saver, where, checkpoint())
    assert await seen(saver, thread) == {}
    assert await standing(saver, thread) == {keys.ThreadKeys.of("langgraph", thread).meta}
    await saver.adelete_thread(thread)


async def test_c50_one_lost_reply_each(solo: Server, thread: str) -> None:
    def scripts(command: Sent) -> bool:
        return command.name in ("EVAL", "EVALSHA")

    async with await FaultProxy.start(solo.url) as proxy, savers(proxy.url) as saver:
        await put(saver, config(f"{thread}-warm"), checkpoint())
        proxy.fault(drop_reply(), when=scripts)
        where = await put(saver, config(thread), checkpoint("a", items=["x" * 90] * 3))
        proxy.fault(drop_reply(), when=scripts)
        await saver.aput_writes(where, [("x", 1)], "task")
        proxy.fault(drop_reply(), when=scripts)
        async with saver.lease(thread, ttl=30) as lease:
            assert (await saver.engine.meta(thread)).fence == lease.fence
            proxy.fault(drop_reply(), when=scripts)
            await put(saver, config(thread, "a", lease=lease), checkpoint("b", items=["x" * 90] * 4))
        assert proxy.names.count("EVALSHA") + proxy.names.count("EVAL") >= 9
        assert [(name, len(values["items"]), writes) for name, values, _, writes in (await seen(saver, thread))[""]] == [
            ("b", 4, []), ("a", 3, [("task", "x", 1)]),
        ]  # fmt: skip


async def test_c54_cancelled_while_taking_or_giving_back_the_lease(solo: Server, thread: str) -> None:
    async with await FaultProxy.start(solo.url) as proxy, savers(proxy.url) as saver, savers(solo.url) as other:
        for moment in ("acquire", "release"):
            name = f"{thread}-{moment}"
            held: list[Any] = []

            async def hold(name: str = name, held: list[Any] = held) -> None:
                async with saver.lease(name, ttl=1) as lease:
                    held.append(lease)
                    await put(saver, config(name, lease=lease), checkpoint(n="first"))
                    proxy.fault(delay_reply(0.05), when=lambda _: True, times=100)

            if moment == "acquire":
                proxy.fault(delay_reply(0.05), when=lambda _: True, times=100)
            work = asyncio.ensure_future(hold())
            while moment == "release" and not held:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.02)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            proxy.reset()
            async with other.lease(name, ttl=1, wait=3) as lease:
                await put(other, config(name, lease=lease), checkpoint(n="second"))
                for stale in held:
                    with pytest.raises(LeaseLost):
                        await put(saver, config(name, lease=stale), checkpoint(n="late"))
            assert (await latest(other, config(name))).checkpoint["channel_values"] == {"n": "second"}


async def test_c58_a_worker_stalls_past_its_lease(solo: Server, thread: str) -> None:
    made = names(3)
    async with savers(solo.url) as stalled, savers(solo.url) as other:
        lease = await Leases(stalled.engine.store, "langgraph").acquire(thread, "stalled", ttl=0.3)
        where = await put(stalled, config(thread, lease=lease), checkpoint(made[0], n=1))
        time.sleep(0.6)
        async with other.lease(thread, ttl=30, wait=5) as newer:
            assert newer.fence > lease.fence
            await put(other, config(thread, made[0], lease=newer), checkpoint(made[1], n=2))
            with pytest.raises(LeaseLost):
                await lease.renew()
            with pytest.raises(LeaseLost):
                await put(stalled, config(thread, made[0], lease=lease), checkpoint(made[2], n=3))
            with pytest.raises(LeaseLost):
                await stalled.aput_writes(config(thread, made[0], lease=lease), [("x", 3)], "task")
            with pytest.raises(LeaseHeld):
                await put(stalled, where, checkpoint(made[2], n=3))
        assert [name for name, _, _, _ in (await seen(other, thread))[""]] == [made[1], made[0]]


async def test_c66_every_key_has_its_expiry_when_finish_returns(saver: BlackboardSaver, thread: str) -> None:
    where = config(thread)
    for number in range(3):
        made = checkpoint(n=number, text=f"{number}" * 300, items=["i" * 90] * (number + 1))
        where = await put(saver, where, made)
        await saver.aput_writes(where, [("x", number)], "task")
        await put(saver, config(thread, ns=f"child:{number}"), checkpoint(text="c" * 300))
    await saver.afinish(thread, ttl=1)
    stand = await standing(saver, thread)
    assert len(stand) >= 12
    assert all([0 < await saver.engine.store.command("PTTL", name) <= 1000 for name in stand])
    for _ in range(500):
        if not await standing(saver, thread):
            break
        await asyncio.sleep(0.01)
    assert await standing(saver, thread) == set()
    await saver.engine.retention.sweep(10_000)
    row = keys.threads("langgraph", keys.shard(thread))
    assert await saver.engine.store.command("ZSCORE", row, thread) is None


@pytest.mark.parametrize("ttl", [0, -5, math.nan, math.inf, 1e15])
async def test_c69_durations_that_are_none_are_refused(solo: Server, thread: str, ttl: float) -> None:
    with pytest.raises(ConfigError, match="idle_ttl"):
        Settings(namespaces={"langgraph": {"kind": "checkpoint", "idle_ttl": ttl}})
    async with savers(solo.url) as saver:
        await put(saver, config(thread), checkpoint(n=1))
        assert (await latest(saver, config(thread))).checkpoint["channel_values"] == {"n": 1}


@pytest.mark.parametrize(("ttl", "most"), [(0.5, 500), (None, None)])
async def test_c69_half_a_second_is_honoured(solo: Server, thread: str, ttl: float | None, most: int | None) -> None:
    async with savers(solo.url, idle_ttl=ttl) as saver:
        await put(saver, config(thread), checkpoint(n=1))
        meta = await saver.engine.meta(thread)
        assert (meta.expires is None) == (most is None)
        if most is not None and meta.expires is not None:
            assert 0 < meta.expires - meta.updated // 1000 <= most


async def test_c74_time_travel_then_continue(saver: BlackboardSaver, thread: str) -> None:
    """A new branch from an old checkpoint: its own id and parent, the newest, and asked anew instead of answered."""

    class Asked(TypedDict):
        log: Annotated[list[str], operator.add]

    built = StateGraph(Asked).add_node("ask", lambda _: {"log": [interrupt("which")]})
    built.add_node("end", lambda _: {"log": ["end"]})
    graph = built.add_edge(START, "ask").add_edge("ask", "end").add_edge("end", END).compile(checkpointer=saver)
    await graph.ainvoke({"log": []}, config(thread))
    before = await graph.aget_state(config(thread))
    await graph.ainvoke(Command(resume="old"), config(thread))
    old = await ids(saver, config(thread))
    again = await graph.ainvoke(None, before.config)
    assert [one.value for one in again["__interrupt__"]] == ["which"]
    ended = await graph.ainvoke(Command(resume="new"), config(thread))
    assert ended["log"] == ["new", "end"]
    now = await ids(saver, config(thread))
    assert set(old) < set(now)
    newest = await latest(saver, config(thread))
    assert newest.checkpoint["id"] == now[0] != old[0]
    assert {"old"} == {
        one for state in [await graph.aget_state(config(thread, old[0]))] for one in state.values["log"][:1]
    }


async def test_c81_a_page_reads_a_page(solo: Server, thread: str) -> None:
    """A long history: two trips and no more bodies than are asked for."""
    async with await FaultProxy.start(solo.url) as proxy, savers(solo.url) as writer, savers(proxy.url) as saver:
        made = names(2000)
        for start in range(0, 2000, 250):
            some = made[start : start + 250]
            await asyncio.gather(*(put(writer, config(thread), checkpoint(name, text=name * 50)) for name in some))
        await ids(saver, config(f"{thread}-warm"))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for asked, expected in (
            ({"limit": 20}, made[:-21:-1]),
            ({"limit": 1, "before": config(thread, made[1000])}, [made[999]]),
        ):
            proxy.reset()
            assert await ids(saver, config(thread), **asked) == expected
            assert proxy.round_trips <= 2
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


async def test_c86_an_outage_is_an_error_and_never_nothing(tmp_path: Path) -> None:
    async with await start_server(next(iter(binaries().values())), tmp_path) as server:
        settings = Settings(backend={"url": server.url, "retry_deadline": 0.3})
        async with Blackboard.open(settings=settings, proof=False) as board:
            saver = BlackboardSaver(board)
            where = await put(saver, config("t"), checkpoint("a", text="v" * 500))
            named = keys.ThreadKeys.of("langgraph", "t").checkpoint("a")
            whole = await board.store.command("GET", named)
            for damaged in (b"", whole[:-3], b"bb1", b"\x00" * 50):
                await board.store.command("SET", named, damaged)
                for read in (saver.aget_tuple(config("t")), saver.aget_tuple(where), ids(saver, config("t"))):
                    with pytest.raises(BlackboardError):
                        await read
            server.kill()
            reads = (saver.aget_tuple(config("t")), ids(saver, config("t")), saver.aget_tuple(config("never")))
            for call in (*reads, ids(saver, None), put(saver, where, checkpoint()), saver.adelete_thread("t")):
                with pytest.raises(ServerUnavailable):
                    await call
