"""The client on a cluster: slots that move, calls that cross them, nodes that die."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from blackboard.errors import ServerRefused, ServerUnavailable
from blackboard.store.client import NewServer, Store
from blackboard.store.cluster import slot
from blackboard.store.script import Script
from blackboard.testing.cluster import Cluster, start_cluster
from blackboard.testing.servers import Server, binaries

BINARY = next(iter(binaries().values()))


@pytest_asyncio.fixture
async def moving(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster that the test may change."""
    async with await start_cluster(BINARY, tmp_path) as started:
        yield started


async def identity(node: Server) -> bytes:
    name: bytes = await node.ask("CLUSTER", "MYID")
    return name


def pair(cluster: Cluster, key: str) -> tuple[Server, Server]:
    """The owner of a key and another node."""
    owner = cluster.node_of(slot(key))
    return owner, next(node for node in cluster.nodes if node is not owner)


async def calls(node: Server, name: str) -> int:
    """How often the node was sent a command, those that it redirected included."""
    for line in (await node.ask("INFO", "commandstats")).decode().splitlines():
        if line.startswith(f"cmdstat_{name}:"):
            counts = dict(field.split("=") for field in line.partition(":")[2].split(","))
            return int(counts["calls"]) + int(counts["rejected_calls"])
    return 0


@pytest.mark.parametrize("key", ["123456789", "{123456789}x", "a{123456789}{b}", "{}123", "a{", "a}{b}", "é", "{{x}}"])
async def test_slots_are_those_of_the_server(cluster: Cluster, key: str) -> None:
    assert slot("123456789") == 12739  # the check value of the specification
    assert slot(key) == await cluster.nodes[0].ask("CLUSTER", "KEYSLOT", key)


async def test_moved_slot_is_followed_and_learned(moving: Cluster, increment: Script) -> None:
    store = await Store.connect(moving.url)
    keys = ["{moved}count", "{moved}ops"]
    await store.call(increment, keys, [store.op_id()])
    owner, other = pair(moving, "{moved}")
    await migrate(owner, other, [b"{moved}count", b"{moved}ops"])
    assert [await store.call(increment, keys, [store.op_id()]) for _ in range(3)] == [[b"OK", n] for n in (2, 3, 4)]
    before = await calls(owner, "evalsha")
    replies = await asyncio.gather(*(store.call(increment, keys, [store.op_id()]) for _ in range(50)))
    assert sorted(count for _, count in replies) == list(range(5, 55))
    assert await calls(owner, "evalsha") == before
    await store.close()


async def migrate(owner: Server, other: Server, keys: list[bytes], *, settle: bool = True) -> None:
    number = slot(keys[0])
    await other.ask("CLUSTER", "SETSLOT", number, "IMPORTING", await identity(owner))
    await owner.ask("CLUSTER", "SETSLOT", number, "MIGRATING", await identity(other))
    for key in keys:
        await owner.ask("MIGRATE", "127.0.0.1", other.port or 0, key, 0, 5000)
    if settle:
        for node in (other, owner):
            await node.ask("CLUSTER", "SETSLOT", number, "NODE", await identity(other))


async def test_ask_is_followed_but_not_learned(moving: Cluster, increment: Script) -> None:
    store = await Store.connect(moving.url)
    keys = ["{asked}count", "{asked}ops"]
    await store.call(increment, keys, [store.op_id()])
    await store.command("SET", "{asked}stays", "here")
    owner, other = pair(moving, "{asked}")
    await migrate(owner, other, [b"{asked}count", b"{asked}ops"], settle=False)
    assert await store.call(increment, keys, [store.op_id()]) == [b"OK", 2]
    replies = await asyncio.gather(*(store.call(increment, keys, [store.op_id()]) for _ in range(50)))
    assert sorted(count for _, count in replies) == list(range(3, 53))
    assert await store.command("GET", "{asked}stays") == b"here"
    assert str(store._topology.node("{asked}count")) == f"127.0.0.1:{owner.port}"
    await store.close()


async def test_keys_on_both_sides_are_waited_for(moving: Cluster, increment: Script) -> None:
    """TRYAGAIN: one key of the call has moved, the other not yet."""
    store = await Store.connect(moving.url)
    keys = ["{split}count", "{split}ops"]
    await store.call(increment, keys, [store.op_id()])
    owner, other = pair(moving, "{split}")
    await migrate(owner, other, [b"{split}count"], settle=False)
    with pytest.raises(ServerUnavailable, match="TRYAGAIN"):
        await store.call(increment, keys, [store.op_id()], deadline=0.2)
    waiting = asyncio.create_task(store.call(increment, keys, [store.op_id()]))
    await asyncio.sleep(0.1)
    await owner.ask("MIGRATE", "127.0.0.1", other.port or 0, "{split}ops", 0, 5000)
    assert await waiting == [b"OK", 2]
    await store.close()


async def test_batch_is_spread_and_stays_in_order(cluster: Cluster, thread: str) -> None:
    store = await Store.connect(cluster.url)
    before = [await calls(node, "set") for node in cluster.nodes]
    keys = [f"{thread}:{number}" for number in range(300)]
    assert await store.batch([("SET", key, key) for key in keys]) == [b"OK"] * 300
    assert await store.batch([("GET", key) for key in keys]) == [key.encode() for key in keys]
    after = [await calls(node, "set") for node in cluster.nodes]
    assert sum(after) - sum(before) == 300
    assert all(now - then > 50 for now, then in zip(after, before, strict=True))
    assert len(await store.primaries()) == 3
    await store.close()


async def test_call_across_slots_names_its_keys(cluster: Cluster, increment: Script) -> None:
    """C83: the atomic unit is one hash tag."""
    store = await Store.connect(cluster.url)
    with pytest.raises(ServerRefused, match=r"share a hash tag in a cluster: 'one', 'two'") as refused:
        await store.call(increment, ["one", "two"], [store.op_id()])
    assert refused.value.code == "CROSSSLOT"
    with pytest.raises(ServerRefused, match="'one', 'two', 'three'"):
        await store.command("DEL", "one", "two", "three")
    await store.close()


async def test_cluster_behind_a_plain_address_names_the_mend(cluster: Cluster) -> None:
    store = await Store.connect(f"redis://127.0.0.1:{cluster.nodes[0].port}")
    foreign = next(key for key in map(str, range(100)) if cluster.node_of(slot(key)) is not cluster.nodes[0])
    with pytest.raises(ServerRefused, match=r"use a redis\+cluster:// URL"):
        await store.command("GET", foreign)
    await store.close()


async def test_plain_server_behind_a_cluster_address_names_the_mend(server: Server) -> None:
    with pytest.raises(ServerRefused, match="use a redis:// URL"):
        await Store.connect(f"redis+cluster://127.0.0.1:{server.port}", retry_deadline=0.5)


async def test_deadline_holds_while_the_whole_cluster_is_silent(moving: Cluster) -> None:
    """Looking for the new owner of a slot takes no longer than the call that asks for it."""
    store = await Store.connect(moving.url, response_timeout=0.1)
    for node in moving.nodes:
        node.pause()
    began = time.monotonic()
    with pytest.raises(ServerUnavailable):
        await store.command("GET", "key", deadline=0.5)
    assert time.monotonic() - began < 1.5
    for node in moving.nodes:
        node.resume()
    assert await store.command("GET", "key") is None
    await store.close()


async def test_dead_node_is_an_outage_of_its_slots_alone(moving: Cluster, increment: Script) -> None:
    await asyncio.gather(*(node.configure(cluster_require_full_coverage=False) for node in moving.nodes))
    store = await Store.connect(moving.url, retry_deadline=0.5)
    shown: list[NewServer] = []

    async def look(new: NewServer) -> None:
        shown.append(new)

    store.on_new_server(look)
    victim, other = pair(moving, "{dead}")
    alive = next(key for key in map(str, range(100)) if moving.node_of(slot(key)) is other)
    victim.kill()
    with pytest.raises(ServerUnavailable):
        await store.command("GET", "{dead}")
    assert await store.command("SET", alive, 1) == b"OK"
    await victim.start()
    keys = ["{dead}count", "{dead}ops"]
    assert await store.call(increment, keys, [store.op_id()], deadline=10) == [b"OK", 1]
    assert len(shown) == 1
    await store.close()
