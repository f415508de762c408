"""The fault proxy: each fault hits exactly the command it was meant for, and the counts are those of the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from blackboard.errors import ConfigError
from blackboard.store.protocol import pack
from blackboard.store.wire import Wire, close
from blackboard.testing.frames import Frames
from blackboard.testing.proxy import (
    Fault,
    FaultProxy,
    blackhole,
    cut_reply,
    cut_request,
    delay_reply,
    delay_request,
    drop_reply,
    drop_request,
    hold_request,
)
from blackboard.testing.servers import Server


@pytest_asyncio.fixture
async def proxy(server: Server) -> AsyncIterator[FaultProxy]:
    async with await FaultProxy.start(f"unix://{server.socket}") as started:
        yield started


async def wire(proxy: FaultProxy) -> Wire:
    return await Wire.open(Path(proxy.url.removeprefix("unix://")))


async def test_counts_and_transcript(proxy: FaultProxy, thread: str) -> None:
    async with await wire(proxy) as client:
        await client.ask("SET", thread, "x" * 300_000)
        await client.ask("GET", thread)
    assert proxy.names == ["SET", "GET"]
    assert proxy.commands[1].args == (thread.encode(),)
    assert (proxy.replies, proxy.round_trips, proxy.connections) == (2, 2, 1)


async def test_a_pipeline_is_one_round_trip(proxy: FaultProxy, thread: str) -> None:
    reader, writer = await asyncio.open_unix_connection(proxy.url.removeprefix("unix://"))
    writer.write(pack(("INCR", thread)) * 50)
    expected = b"".join(b":%d\r\n" % number for number in range(1, 51))
    assert await reader.readexactly(len(expected)) == expected
    await close(writer)
    assert (len(proxy.commands), proxy.replies, proxy.round_trips) == (50, 50, 1)


async def test_tcp_on_both_sides(server: Server) -> None:
    async with await FaultProxy.start(server.url, tcp=True) as proxy:
        host, port = proxy.url.removeprefix("redis://").split(":")
        async with await Wire.open((host, int(port))) as client:
            assert await client.ask("PING") == b"PONG"
        assert proxy.names == ["PING"]


@pytest.mark.parametrize(
    ("fault", "executed"),
    [
        (drop_request(), 0),
        (cut_request(9), 0),
        (cut_request(10**6), 0),
        (drop_reply(), 1),
        (cut_reply(2), 1),
        (cut_reply(10**6), 1),
    ],
)
async def test_a_lost_frame_ends_the_connection(
    proxy: FaultProxy, server: Server, thread: str, fault: Fault, executed: int
) -> None:
    """Only the second command is hit: a lost request was not executed, a lost reply was."""
    proxy.fault(fault, at=1)
    async with await wire(proxy) as client:
        assert await client.ask("SET", thread, 10) == b"OK"
        with pytest.raises((EOFError, ConnectionError)):
            await client.ask("INCR", thread)
    assert await server.ask("GET", thread) == str(10 + executed).encode()
    assert proxy.names == ["SET", "INCR"]
    assert proxy.replies == 1


@pytest.mark.parametrize(("fault", "numbers"), [(drop_request(), b"2"), (drop_reply(), b"3")])
async def test_the_third_of_a_pipeline(
    proxy: FaultProxy, server: Server, thread: str, fault: Fault, numbers: bytes
) -> None:
    """The two before it are answered, those after it are not executed."""
    proxy.fault(fault, at=2)
    reader, writer = await asyncio.open_unix_connection(proxy.url.removeprefix("unix://"))
    writer.write(pack(("INCR", thread)) * 5)
    assert await reader.read() == b":1\r\n:2\r\n"
    await close(writer)
    assert await server.ask("GET", thread) == numbers


async def test_a_predicate_chooses_and_times_bounds(proxy: FaultProxy, thread: str) -> None:
    proxy.fault(drop_reply(), when=lambda command: command.name == "GET", times=2)
    for lost in (True, True, False):
        async with await wire(proxy) as client:
            await client.ask("SET", thread, 1)
            if lost:
                with pytest.raises(EOFError):
                    await client.ask("GET", thread)
            else:
                assert await client.ask("GET", thread) == b"1"


async def test_a_delayed_reply_was_executed_at_once(proxy: FaultProxy, server: Server, thread: str) -> None:
    proxy.fault(delay_reply(0.3))
    async with await wire(proxy) as client:
        answer = asyncio.create_task(client.ask("INCR", thread))
        async with asyncio.timeout(5):
            while await server.ask("GET", thread) is None:
                await asyncio.sleep(0.005)
        assert not answer.done()
        assert await answer == 1


async def test_a_delayed_request_is_executed_later(proxy: FaultProxy, server: Server, thread: str) -> None:
    proxy.fault(delay_request(0.1))
    async with await wire(proxy) as client:
        answer = asyncio.create_task(client.ask("GETSET", thread, "late"))
        await asyncio.sleep(0.02)
        await server.ask("SET", thread, "early")
        assert await answer == b"early"


async def test_a_held_request_waits_for_its_gate(proxy: FaultProxy, server: Server, thread: str) -> None:
    gate = asyncio.Event()
    proxy.fault(hold_request(gate))
    async with await wire(proxy) as client:
        answer = asyncio.create_task(client.ask("GETSET", thread, "late"))
        while not proxy.commands:
            await asyncio.sleep(0)
        await server.ask("SET", thread, "early")
        gate.set()
        assert await answer == b"early"


async def test_a_blackhole_swallows_and_stays_open(proxy: FaultProxy, server: Server, thread: str) -> None:
    proxy.fault(blackhole())
    async with await wire(proxy) as client, await wire(proxy) as other:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.ask("INCR", thread)
        assert await other.ask("GET", thread) is None
    assert await server.ask("GET", thread) is None


async def test_an_outage_refuses_and_severs(proxy: FaultProxy) -> None:
    async with await wire(proxy) as client:
        assert await client.ask("PING") == b"PONG"
        proxy.refusing = True
        proxy.sever()
        with pytest.raises((EOFError, ConnectionError)):
            await client.ask("PING")
    async with await wire(proxy) as client:
        with pytest.raises((EOFError, ConnectionError)):
            await client.ask("PING")
    proxy.refusing = False
    async with await wire(proxy) as client:
        assert await client.ask("PING") == b"PONG"


async def test_reset_forgets_counts_and_plans(proxy: FaultProxy) -> None:
    async with await wire(proxy) as client:
        await client.ask("PING")
        proxy.fault(drop_reply(), at=1)
        proxy.reset()
        await client.ask("PING")
        await client.ask("PING")
    assert (proxy.names, proxy.replies, proxy.round_trips) == (["PING", "PING"], 2, 2)


async def test_an_upstream_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="rediss://x"):
        await FaultProxy.start("rediss://x")


FRAMES = [
    b"+OK\r\n",
    b":-5\r\n",
    b"$3\r\na\r\n\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*2\r\n*1\r\n:1\r\n$0\r\n\r\n",
    b"%1\r\n+a\r\n*2\r\n_\r\n#t\r\n",
    b"|1\r\n+ttl\r\n:5\r\n$1\r\nx\r\n",
    b">2\r\n+message\r\n+x\r\n",
    b"~1\r\n,1.5\r\n",
    b"(12345678901234567890\r\n",
    b"=7\r\ntxt:abc\r\n",
    b"!5\r\nERR x\r\n",
    b"PING\r\n",
]


@given(st.lists(st.sampled_from(FRAMES)), st.lists(st.integers(1, 7), min_size=1))
def test_frames_are_found_however_the_bytes_are_cut(frames: list[bytes], cuts: list[int]) -> None:
    stream, splitter, at, turn = b"".join(frames), Frames(), 0, 0
    found: list[bytes] = []
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        found += list(splitter.feed(stream[at : at + step]))
        at, turn = at + step, turn + 1
    assert found == frames
