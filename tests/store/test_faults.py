"""What the client makes of a broken wire, a dead server and a silent one: nothing runs twice, nothing is made up."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from blackboard.errors import OutcomeUnknown, ServerRefused, ServerUnavailable
from blackboard.store.client import NewServer, Store
from blackboard.store.script import Script
from blackboard.testing.proxy import (
    Command,
    Fault,
    FaultProxy,
    blackhole,
    cut_reply,
    cut_request,
    delay_reply,
    drop_reply,
    drop_request,
    hold_request,
)
from blackboard.testing.servers import Server, binaries, start_server

BINARY = next(iter(binaries().values()))


@pytest_asyncio.fixture
async def proxy(server: Server) -> AsyncIterator[FaultProxy]:
    async with await FaultProxy.start(server.url) as started:
        yield started


@pytest_asyncio.fixture
async def flaky(proxy: FaultProxy) -> AsyncIterator[Store]:
    """A store behind the proxy that soon loses patience."""
    store = await Store.connect(proxy.url, retry_deadline=3, response_timeout=0.3, connections=1)
    yield store
    await store.close()


@pytest_asyncio.fixture
async def own(tmp_path: Path) -> AsyncIterator[Server]:
    """A server that the test may kill."""
    async with await start_server(BINARY, tmp_path, fsync="always") as started:
        yield started


def keys(thread: str) -> list[str]:
    return [f"{{{thread}}}:count", f"{{{thread}}}:ops"]


def named(name: str) -> Callable[[Command], bool]:
    return lambda command: command.name == name


FAULTS = {
    "request lost": (drop_request(), b"OK"),
    "request cut": (cut_request(30), b"OK"),
    "reply lost": (drop_reply(), b"DUP"),
    "reply cut": (cut_reply(3), b"DUP"),
    "reply late": (delay_reply(0.8), b"DUP"),
    "silence": (blackhole(), b"OK"),
}


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest) -> tuple[Fault, bytes]:
    """What happens to a call, and what its second attempt is told."""
    return FAULTS[request.param]


async def test_a_call_is_executed_once(
    proxy: FaultProxy, flaky: Store, thread: str, increment: Script, fault: Any
) -> None:
    """C50: the wire breaks at one call; the answer says what the server did with it."""
    await flaky.call(increment, keys(thread), [flaky.op_id()])
    kind, outcome = fault
    proxy.reset()
    proxy.fault(kind, when=named("EVALSHA"))
    assert await flaky.call(increment, keys(thread), [flaky.op_id()]) == [outcome, 2]
    assert proxy.names.count("EVALSHA") == 2
    assert await flaky.command("GET", keys(thread)[0]) == b"2"


async def test_many_calls_under_way_are_executed_once(
    proxy: FaultProxy, flaky: Store, thread: str, increment: Script, fault: Any
) -> None:
    kind, _ = fault
    await flaky.call(increment, keys(thread), [flaky.op_id()])
    proxy.reset()
    proxy.fault(kind, at=20)
    replies = await asyncio.gather(*(flaky.call(increment, keys(thread), [flaky.op_id()]) for _ in range(50)))
    assert sorted(count for _, count in replies) == list(range(2, 52))
    assert await flaky.command("GET", keys(thread)[0]) == b"51"


async def test_not_idempotent_is_never_sent_again(proxy: FaultProxy, flaky: Store, thread: str) -> None:
    proxy.fault(drop_reply(), when=named("INCR"))
    with pytest.raises(OutcomeUnknown, match="INCR .* may have been executed"):
        await flaky.command("INCR", thread, idempotent=False)
    assert proxy.names.count("INCR") == 1
    assert await flaky.command("GET", thread) == b"1"


async def test_not_idempotent_is_sent_again_if_it_was_never_written(own: Server) -> None:
    """The connection was lost while nobody used it: nothing was on its way."""
    store = await Store.connect(own.url)
    await own.restart(kill=True)
    await asyncio.sleep(0.01)
    assert await store.command("INCR", "count", idempotent=False) == 1
    await store.close()


async def test_batch_goes_on_after_a_lost_reply(proxy: FaultProxy, flaky: Store, thread: str) -> None:
    proxy.reset()
    proxy.fault(drop_reply(), at=10)
    assert await flaky.batch([("SET", f"{thread}:{number}", number) for number in range(30)]) == [b"OK"] * 30
    assert await flaky.batch([("GET", f"{thread}:{number}") for number in range(30)]) == [
        b"%d" % number for number in range(30)
    ]


async def test_silence_of_a_write_is_unknown_and_of_a_read_an_outage(
    proxy: FaultProxy, flaky: Store, thread: str, increment: Script, read: Script
) -> None:
    proxy.fault(blackhole(), when=lambda command: command.name not in ("TIME", "INFO"), times=1000)
    began = time.monotonic()
    with pytest.raises(OutcomeUnknown):
        await flaky.call(increment, keys(thread), [flaky.op_id()], deadline=0.7)
    with pytest.raises(ServerUnavailable, match="nothing was changed"):
        await flaky.call(read, keys(thread), [], deadline=0.7)
    with pytest.raises(ServerUnavailable):
        await flaky.command("GET", thread, deadline=0.7)
    assert time.monotonic() - began < 2.5


async def test_silence_at_connect_is_an_outage(proxy: FaultProxy, server: Server) -> None:
    proxy.fault(blackhole(), when=lambda command: command.index >= 0, times=1000)
    with pytest.raises(ServerUnavailable, match="did not greet within 0.1 s"):
        await Store.connect(proxy.url, retry_deadline=0.5, connect_timeout=0.1)


async def test_a_paused_server_is_waited_for(own: Server) -> None:
    store = await Store.connect(own.url, response_timeout=0.2)
    own.pause()
    waiting = [asyncio.create_task(store.command("SET", "key", number)) for number in range(20)]
    await asyncio.sleep(0.5)
    own.resume()
    assert await asyncio.gather(*waiting) == [b"OK"] * 20
    await store.close()


async def test_killed_server_executes_each_operation_once(own: Server, increment: Script, read: Script) -> None:
    """SIGKILL in the middle of 200 increments and a new start on the same files."""
    store = await Store.connect(own.url)
    done = 0

    async def worker() -> list[int]:
        nonlocal done
        counts: list[int] = []
        for _ in range(25):
            counts.append((await store.call(increment, keys("t"), [store.op_id()]))[1])
            done += 1
        return counts

    async def nemesis() -> None:
        for threshold in (40, 120):
            while done < threshold:
                await asyncio.sleep(0)
            await own.restart(kill=True)

    *counts, _ = await asyncio.gather(*(worker() for _ in range(8)), nemesis())
    assert sorted(count for some in counts for count in some or []) == list(range(1, 201))
    assert await store.call(read, keys("t"), []) == [b"200", 200]
    await store.close()


async def test_an_outage_is_never_not_found(own: Server, read: Script, increment: Script) -> None:
    """C86: the backend is down; nothing answers None."""
    store = await Store.connect(own.url, retry_deadline=0.3)
    await store.command("SET", "key", 1)
    own.kill()
    await asyncio.sleep(0.01)
    calls = [
        store.command("GET", "key"),
        store.call(read, keys("t"), []),
        store.call(increment, keys("t"), [store.op_id()]),
        store.batch([("GET", "key"), ("GET", "other")]),
        store.primaries(),
    ]
    for call in calls:
        with pytest.raises(ServerUnavailable):
            await call
    await own.start()
    assert await store.command("GET", "key") == b"1"
    await store.close()


async def test_new_server_is_shown_before_anything_is_sent(own: Server) -> None:
    async with await FaultProxy.start(own.url) as proxy:
        store = await Store.connect(proxy.url)
        shown: list[NewServer] = []

        async def look(new: NewServer) -> None:
            shown.append(new)
            assert [(await primary.command("PING")) for primary in await store.primaries()] == [b"PONG"]
            await asyncio.sleep(0.05)

        store.on_new_server(look)
        proxy.sever()
        assert await store.command("SET", "key", 0) == b"OK"
        assert not shown
        await own.restart()
        proxy.reset()
        await asyncio.gather(*(store.command("SET", "key", number) for number in range(20)))
        assert len(shown) == 1
        assert proxy.names.index("PING") < proxy.names.index("SET")
        assert shown[0].identity == (await store.primaries())[0].identity
        await store.close()


async def test_new_server_that_is_not_accepted_is_not_used(own: Server) -> None:
    store = await Store.connect(own.url)
    refusals = 3

    async def refuse(new: NewServer) -> None:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise ServerRefused("it forgets", server=new.server)

    store.on_new_server(refuse)
    await own.restart()
    await asyncio.sleep(0.01)
    for _ in range(3):
        with pytest.raises(ServerRefused, match="it forgets"):
            await store.command("SET", "key", 1)
        assert await own.ask("EXISTS", "key") == 0
    assert await store.command("SET", "key", 1) == b"OK"
    await store.close()


async def test_full_server_refuses_at_once(own: Server, increment: Script) -> None:
    store = await Store.connect(own.url)
    await own.configure(maxmemory=1)
    for call in (store.command("SET", "key", 1), store.call(increment, keys("t"), [store.op_id()])):
        with pytest.raises(ServerRefused, match="raise maxmemory") as refused:
            await call
        assert refused.value.code == "OOM"
    assert await store.command("EXISTS", "key") == 0
    await store.close()


async def test_refusal_after_a_lost_reply_is_unknown(own: Server, thread: str) -> None:
    """The second attempt is refused; the first may have been executed all the same, and here was."""
    async with await FaultProxy.start(own.url) as proxy:
        store = await Store.connect(proxy.url)
        gate = asyncio.Event()
        proxy.fault(drop_reply(), when=named("SET"))
        proxy.fault(hold_request(gate), when=named("SET"))
        waiting = asyncio.create_task(store.command("SET", thread, 1))
        async with asyncio.timeout(5):
            while proxy.names.count("SET") < 2:
                await asyncio.sleep(0.005)
        await own.configure(maxmemory=1)
        gate.set()
        with pytest.raises(OutcomeUnknown, match="may have been executed"):
            await waiting
        assert await store.command("GET", thread) == b"1"
        await store.close()


async def test_loading_server_is_waited_for(tmp_path: Path) -> None:
    slow: Any = {"key_load_delay": 50_000, "loading_process_events_interval_bytes": 1024}
    values = [random.Random(number).randbytes(2_000) for number in range(200)]  # each longer than the interval
    async with await start_server(BINARY, tmp_path, **slow) as server:
        store = await Store.connect(server.url, retry_deadline=20)
        await store.batch([("SET", f"key:{number}", value) for number, value in enumerate(values)])
        await server.ask("BGREWRITEAOF")
        async with asyncio.timeout(10):
            while b"aof_rewrite_in_progress:1" in await server.ask("INFO", "persistence"):
                await asyncio.sleep(0.01)
        server.kill()
        starting = asyncio.create_task(server.start())
        async with asyncio.timeout(10):
            while True:
                try:
                    await store.command("GET", "key:0", deadline=0.1)
                except ServerUnavailable as outage:
                    if "LOADING" in str(outage):
                        break
        reading = asyncio.create_task(store.command("GET", "key:199"))
        await server.ask("CONFIG", "SET", "key-load-delay", 0)
        assert await reading == values[199]
        await starting
        await store.close()


async def test_replica_refuses_after_the_deadline(own: Server) -> None:
    store = await Store.connect(own.url)
    await own.ask("REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(ServerRefused, match=r"give the primary's address") as refused:
        await store.command("SET", "key", 1, deadline=3)
    assert refused.value.code == "READONLY"
    waiting = asyncio.create_task(store.command("SET", "key", 1))
    await asyncio.sleep(0.1)
    await own.ask("REPLICAOF", "NO", "ONE")
    assert await waiting == b"OK"
    await store.close()


async def test_busy_server_is_waited_for(own: Server) -> None:
    store = await Store.connect(own.url)
    await own.configure(busy_reply_threshold=10)
    other = await Store.connect(own.url, retry_deadline=0.5)
    busy = asyncio.create_task(other.command("EVAL", "while true do end", 0))
    await asyncio.sleep(0.1)
    with pytest.raises(ServerUnavailable, match="BUSY"):
        await store.command("SET", "key", 1, deadline=0.2)
    waiting = asyncio.create_task(store.command("SET", "key", 1))
    await asyncio.sleep(0.05)
    assert await own.ask("SCRIPT", "KILL") == b"OK"
    assert await waiting == b"OK"
    with pytest.raises(ServerRefused):
        await busy
    await store.close()
    await other.close()


async def test_one_fault_spares_other_lanes(proxy: FaultProxy, flaky: Store, thread: str) -> None:
    fault: Fault = blackhole()
    await flaky.command("PING", lane="lease")
    proxy.fault(fault, when=named("SET"))
    stuck = asyncio.create_task(flaky.command("SET", thread, 1))
    await asyncio.sleep(0.05)
    assert await flaky.command("GET", thread, lane="lease", deadline=0.1) is None
    assert await stuck == b"OK"
