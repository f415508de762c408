"""The client on every backend: calls, batches, round trips, cancellation, bounded connections."""

from __future__ import annotations

import asyncio
import random
import re
import time
from pathlib import Path

import pytest

from blackboard.errors import ConfigError, ServerRefused, ServerUnavailable
from blackboard.store.client import Store
from blackboard.store.script import Script
from blackboard.testing.proxy import FaultProxy
from blackboard.testing.servers import Server


async def test_commands_reply_raw(store: Store, thread: str) -> None:
    key = f"{{{thread}}}:a"
    assert await store.command("SET", key, b"\x00\xff") == b"OK"
    assert await store.command("GET", key) == b"\x00\xff"
    assert await store.command("HSET", f"{key}:h", "number", 2**53 + 1) == 1
    assert await store.command("HGETALL", f"{key}:h") == [b"number", b"9007199254740993"]
    assert await store.command("GET", f"{key}:absent") is None


async def test_script_is_loaded_when_the_server_lacks_it(store: Store, thread: str, increment: Script) -> None:
    keys = [f"{{{thread}}}:count", f"{{{thread}}}:ops"]
    assert await store.call(increment, keys, [store.op_id()]) == [b"OK", 1]
    for primary in await store.primaries():
        await primary.command("SCRIPT", "FLUSH")
    assert await asyncio.gather(*(store.call(increment, keys, [store.op_id()]) for _ in range(50))) == [
        [b"OK", number] for number in range(2, 52)
    ]


async def test_op_id_met_again_changes_nothing(store: Store, thread: str, increment: Script) -> None:
    keys, op = [f"{{{thread}}}:count", f"{{{thread}}}:ops"], store.op_id()
    assert await store.call(increment, keys, [op]) == [b"OK", 1]
    assert await store.call(increment, keys, [op]) == [b"DUP", 1]


async def test_batch_replies_in_order(store: Store, thread: str) -> None:
    keys = [f"{thread}:{number}" for number in range(200)]
    assert await store.batch([("SET", key, at) for at, key in enumerate(keys)]) == [b"OK"] * 200
    assert await store.batch([("GET", key) for key in keys]) == [b"%d" % at for at in range(200)]
    assert await store.batch([]) == []


async def test_batch_raises_the_first_error_and_sends_all(store: Store, thread: str) -> None:
    key = f"{{{thread}}}"
    with pytest.raises(ServerRefused) as refused:
        await store.batch([("SET", f"{key}:1", 1), ("LPUSH", f"{key}:1", 2), ("SET", f"{key}:3", 3)])
    assert refused.value.code == "WRONGTYPE"
    assert "server or database of its own" in str(refused.value)
    assert await store.command("GET", f"{key}:3") == b"3"


async def test_op_ids_begin_with_server_time(store: Store) -> None:
    before = await store.command("TIME")
    ids = [store.op_id() for _ in range(1000)]
    after = await store.command("TIME")
    first, last = (int(seconds) * 1_000_000 + int(micros) for seconds, micros in (before, after))
    assert len(set(ids)) == 1000
    assert all(re.fullmatch(r"\d{16}-[0-9a-f]{10}", op) for op in ids)
    assert first - 100_000 < int(ids[0][:16]) <= int(ids[-1][:16]) < last + 100_000


async def test_primaries_are_asked_one_by_one(store: Store) -> None:
    for primary in await store.primaries():
        key = primary.key(f"bb:probe:{random.randbytes(4).hex()}")
        role, written, read = await primary.batch([["ROLE"], ["SET", key, "x", "PX", 1000], ["GET", key]])
        assert (role[0], written, read) == (b"master", b"OK", b"x")
        assert primary.identity
        assert re.fullmatch(r"[0-9a-f]{40}", primary.identity.run_id)


async def test_what_cannot_be_sent_is_refused_first(store: Store) -> None:
    for wrong in (None, True, 1.5j, "\ud800", ["x"]):
        with pytest.raises(ConfigError, match=r"SET"):
            await store.command("SET", "key", wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a command needs a name"):
        await store.command()
    with pytest.raises(ConfigError, match="deadline must be a positive number, got 0"):
        await store.command("PING", deadline=0)


async def test_large_values_pass_beside_small_ones(store: Store, thread: str) -> None:
    big = random.randbytes(3 << 20)

    async def trip(number: int) -> bool:
        key, value = f"{{{thread}}}:{number}", big if number % 10 == 0 else b"%d" % number
        await store.command("SET", key, value)
        return bool(await store.command("GET", key) == value)

    assert await asyncio.gather(*(trip(number) for number in range(60))) == [True] * 60


async def test_one_call_is_one_round_trip(server: Server, thread: str, increment: Script) -> None:
    async with await FaultProxy.start(server.url) as proxy:
        store = await Store.connect(proxy.url)
        keys = [f"{{{thread}}}:count", f"{{{thread}}}:ops"]
        await store.call(increment, keys, [store.op_id()])
        proxy.reset()
        await store.call(increment, keys, [store.op_id()])
        assert (proxy.names, proxy.round_trips) == (["EVALSHA"], 1)
        proxy.reset()
        await store.batch([("GET", thread)] * 100)
        assert (len(proxy.commands), proxy.round_trips) == (100, 1)
        await store.close()


async def test_a_thousand_tasks_share_few_connections(server: Server, thread: str) -> None:
    store = await Store.connect(server.url)
    before = _connections(await server.ask("CLIENT", "LIST"))

    async def trip(number: int) -> None:
        assert await store.command("SET", f"{thread}:{number}", b"x" * 1000) == b"OK"
        assert await store.command("STRLEN", f"{thread}:{number}", lane="lease") == 1000

    await asyncio.gather(*(trip(number) for number in range(1000)))
    assert _connections(await server.ask("CLIENT", "LIST")) - before <= 4
    await store.close()


async def test_cancelled_callers_disturb_nobody(store: Store, thread: str) -> None:
    chance = random.Random(7)

    async def caller(number: int) -> bool:
        return bool(await store.command("ECHO", f"{thread}-{number}") == f"{thread}-{number}".encode())

    results: list[bool | BaseException] = []
    for wave in range(10):
        tasks = [asyncio.create_task(caller(number)) for number in range(100)]
        for _ in range(wave % 3 + 1):  # before they are written, just written, perhaps answered
            await asyncio.sleep(0)
        for task in chance.sample(tasks, 50):
            task.cancel()
        results += await asyncio.gather(*tasks, return_exceptions=True)
    assert results.count(True) >= 500
    assert sum(isinstance(result, asyncio.CancelledError) for result in results) >= 200
    assert results.count(False) == 0
    assert await store.command("ECHO", "still right") == b"still right"


async def test_a_lease_is_not_delayed_by_a_large_write(server: Server, thread: str) -> None:
    """The lanes have connections of their own."""
    async with await FaultProxy.start(server.url) as proxy:
        store = await Store.connect(proxy.url)
        await store.command("PING")
        await store.command("PING", lane="lease")
        proxy.reset()
        await store.command("PING")
        await store.command("PING", lane="lease")
        first, second = proxy.commands
        assert first.connection != second.connection
        await store.close()


def test_a_store_belongs_to_its_loop(server: Server) -> None:
    async def connect() -> Store:
        return await Store.connect(server.url)

    async def use(store: Store) -> None:
        with pytest.raises(ConfigError, match="belongs to the event loop that connected it"):
            await store.command("PING")

    loop, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        store = loop.run_until_complete(connect())
        other.run_until_complete(use(store))
        loop.run_until_complete(store.close())
    finally:
        loop.close()
        other.close()


async def test_a_closed_store_says_so(server: Server) -> None:
    store = await Store.connect(server.url)
    waiting = asyncio.create_task(store.command("BLPOP", "bb:nothing", 5, idempotent=False))
    reading = asyncio.create_task(store.command("XREAD", "BLOCK", 5000, "STREAMS", "bb:nothing", 0))
    await asyncio.sleep(0.05)
    await store.close()
    await store.close()
    results = await asyncio.gather(waiting, reading, return_exceptions=True)
    assert [type(result).__name__ for result in results] == ["OutcomeUnknown", "ServerUnavailable"]
    with pytest.raises(ConfigError, match="the store is closed"):
        await store.command("PING")
    assert "closed" in repr(store)


async def test_nobody_there_is_an_outage(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(ServerUnavailable) as caught:
        await Store.connect(f"unix://{tmp_path}/nobody", retry_deadline=0.3)
    assert str(caught.value) == f"{tmp_path}/nobody cannot be reached: No such file or directory"
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://127.0.0.1:1", "127.0.0.1:1 cannot be reached: Connection refused"),
        ("redis+cluster://127.0.0.1:1,127.0.0.1:2", "no node tells the cluster's slots"),
        ("redis+sentinel://127.0.0.1:1,127.0.0.1:2/main", "no sentinel names a live master 'main'"),
    ],
)
async def test_an_outage_names_every_address_once(url: str, told: str) -> None:
    with pytest.raises(ServerUnavailable) as caught:
        await Store.connect(url, retry_deadline=0.2)
    said = str(caught.value)
    assert told in said
    assert (said.count("127.0.0.1:1"), said.count("127.0.0.1:2")) == (1, url.count("127.0.0.1:2"))
    assert said.count("Connection refused") == url.count("127.0.0.1")
    assert "Errno" not in said


async def test_a_call_that_was_not_answered_names_the_server_once(own: Server) -> None:
    store = await Store.connect(own.url, retry_deadline=0.2)
    own.kill()
    for command, outcome in ((("GET", "a"), "nothing was changed"), (("SET", "a", "1"), "it was not executed")):
        with pytest.raises(
            ServerUnavailable, match=rf"did not answer {command[0]} in time \(.*\); {outcome}"
        ) as caught:
            await store.command(*command)
        assert str(caught.value).count(caught.value.server) == 1
    await store.close()


def _connections(clients: bytes) -> int:
    return clients.count(b"\n")
