"""Leases on a server in trouble: full, killed and restarted, holding something else under a key."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from blackboard import keys
from blackboard.claims.effect import Effects, Start
from blackboard.claims.lease import Leases
from blackboard.claims.registry import enter
from blackboard.errors import LeaseHeld, LeaseLost, ServerRefused
from blackboard.store.client import Store
from blackboard.testing.contracts.leases import NAMESPACE, open_thread
from blackboard.testing.servers import binaries, start_server

LONG = 60.0


async def test_leases_are_kept_and_given_back_on_a_full_server(tmp_path: Path, thread: str) -> None:
    async with await start_server(next(iter(binaries().values())), tmp_path, maxmemory="8mb") as server:
        store = await Store.connect(server.url)
        leases = Leases(store, NAMESPACE)
        first = await leases.acquire(thread, "a", ttl=LONG)
        await _fill(store)
        await store.command("PEXPIRE", keys.ThreadKeys.of(NAMESPACE, thread).lock, 5_000)
        await first.renew()
        holder = await leases.holder(thread)
        assert holder is not None
        assert holder.remaining > LONG - 10
        await first.release()
        assert await leases.holder(thread) is None
        await _fill(store)
        with pytest.raises(ServerRefused):
            await leases.acquire(thread, "b", ttl=LONG)
        assert await leases.holder(thread) is None
        await store.close()


async def test_an_undo_gives_a_lock_back_on_a_full_server(tmp_path: Path, thread: str) -> None:
    async with await start_server(next(iter(binaries().values())), tmp_path, maxmemory="8mb") as server:
        store = await Store.connect(server.url)
        leases = Leases(store, NAMESPACE)
        await leases.acquire(thread, "a", ttl=LONG)
        await _fill(store)
        await leases._undo(keys.ThreadKeys.of(NAMESPACE, thread), "a", 5.0)
        assert await leases.holder(thread) is None
        await store.close()


async def test_a_killed_server_knows_holder_fence_and_effect_again(tmp_path: Path, thread: str) -> None:
    async with await start_server(next(iter(binaries().values())), tmp_path, fsync="always") as server:
        store = await Store.connect(server.url)
        leases, effects = Leases(store, NAMESPACE), Effects(store, NAMESPACE)
        lease = await leases.acquire(thread, "a", ttl=LONG)
        lease.opened(await open_thread(store, thread))
        op = store.op_id()
        begun = await effects.begin(lease.token, "mail", semantics="at-most-once", fingerprint="f", op=op)
        await server.restart(kill=True)
        assert await effects.begin(lease.token, "mail", semantics="at-most-once", fingerprint="f", op=op) == begun
        with pytest.raises(LeaseHeld):
            await leases.acquire(thread, "b", ttl=LONG)
        await lease.renew()
        await lease.release()
        assert (await leases.acquire(thread, "b", ttl=LONG)).fence > lease.fence
        await store.close()


async def test_a_fence_given_after_the_server_forgot_all_is_higher(tmp_path: Path, thread: str) -> None:
    async with await start_server(next(iter(binaries().values())), tmp_path) as server:
        store = await Store.connect(server.url)
        leases = Leases(store, NAMESPACE)
        lease = await leases.acquire(thread, "a", ttl=LONG)
        await store.command("FLUSHALL")
        other = await leases.acquire(thread, "b", ttl=LONG)
        assert other.fence > lease.fence
        with pytest.raises(LeaseLost):
            await lease.renew()
        await store.close()


@pytest.mark.parametrize("key", ["meta", "lock", "ops"])
async def test_a_key_of_another_type_refuses_the_grant_and_nothing_is_written(
    direct: Store, thread: str, key: str
) -> None:
    where = keys.ThreadKeys.of(NAMESPACE, thread)
    damaged = getattr(where, key)
    await direct.command("RPUSH", damaged, "no such thing")
    with pytest.raises(ServerRefused):
        await Leases(direct, NAMESPACE).acquire(thread, ttl=LONG)
    standing = [where.meta, where.lock, where.ops]
    assert sum(await direct.batch([("EXISTS", one) for one in standing])) == 1


async def test_a_thread_is_entered_once_and_keeps_its_due_time(direct: Store, thread: str) -> None:
    key = keys.threads(NAMESPACE, keys.shard(thread))
    await enter(direct, NAMESPACE, thread)
    assert float(await direct.command("ZSCORE", key, thread)) > direct.server_time() // 1000
    await direct.command("ZADD", key, 17, thread)
    await enter(direct, NAMESPACE, thread)
    assert await direct.command("ZSCORE", key, thread) == b"17"


async def test_an_effect_is_never_given_a_ttl(direct: Store, thread: str) -> None:
    lease = await Leases(direct, NAMESPACE).acquire(thread, ttl=LONG)
    lease.opened(await open_thread(direct, thread))
    effects = Effects(direct, NAMESPACE)
    begun = await effects.begin(lease.token, "mail", semantics="at-most-once", fingerprint="f")
    assert isinstance(begun, Start)
    where = keys.ThreadKeys.of(NAMESPACE, thread)
    assert await direct.command("PTTL", where.effects_open) == -1
    await effects.complete(begun, b"1")
    assert await direct.command("PTTL", where.effects) == -1


async def _fill(store: Store) -> None:
    """Fill the server's memory to the brim: coarse, then fine."""
    for size in (100_000, 1_000, 10):
        with pytest.raises(ServerRefused):
            for _ in range(20_000):
                await store.command("SET", f"filler-{uuid.uuid4().hex}", b"x" * size)
