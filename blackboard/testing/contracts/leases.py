"""What every server must let the leases promise: run `LeaseContract` over yours.

A subclass needs the fixtures `store` (a connected Store) and `thread` (an id that nobody used before).
"""

from __future__ import annotations

import asyncio
import time

import pytest

from blackboard import keys
from blackboard.claims.lease import Leases
from blackboard.errors import ConfigError, LeaseHeld, LeaseLost, StoreRegressed, ThreadGone
from blackboard.store.client import Store

__all__ = ["NAMESPACE", "LeaseContract", "lapse", "open_thread"]

NAMESPACE = "contract"
LONG = 30.0
SEVEN_DAYS_MS = 7 * 86_400_000


async def lapse(store: Store, thread: str) -> None:
    """Let the lease of a thread run out now, as time would."""
    await store.command("DEL", keys.ThreadKeys.of(NAMESPACE, thread).lock)


async def open_thread(store: Store, thread: str) -> str:
    """Give a thread a first checkpoint by hand, and return its incarnation."""
    where = keys.ThreadKeys.of(NAMESPACE, thread)
    incarnation = str(store.server_time())
    await store.command("HSET", where.meta, "status", "running", "incarnation", incarnation)
    await store.command("PERSIST", where.meta)
    await store.command("SET", where.latest(), keys.sequence_id(1))
    await store.command("ZADD", where.history(), 0, keys.sequence_id(1))
    return incarnation


class LeaseContract:
    """Grant, extend, refuse, renew, release, lapse, break, undo; the fence only ever grows."""

    @pytest.fixture
    def leases(self, store: Store) -> Leases:
        """The leases of the contract's namespace."""
        return Leases(store, NAMESPACE)

    async def test_a_grant_is_exclusive_until_it_is_released(self, leases: Leases, thread: str) -> None:
        first = await leases.acquire(thread, "a", ttl=LONG)
        with pytest.raises(LeaseHeld) as held:
            await leases.acquire(thread, "b", ttl=LONG)
        assert held.value.holder == "a"
        assert LONG - 5 < held.value.remaining <= LONG
        await first.release()
        second = await leases.acquire(thread, "b", ttl=LONG)
        assert second.fence > first.fence
        assert not second.takeover

    async def test_only_what_is_stored_is_granted_if_that_is_asked(
        self, store: Store, leases: Leases, thread: str
    ) -> None:
        where = keys.ThreadKeys.of(NAMESPACE, thread)
        with pytest.raises(ThreadGone):
            await leases.acquire(thread, "a", ttl=LONG, stored=True)
        assert await store.command("EXISTS", where.meta, where.lock, where.ops) == 0
        incarnation = await open_thread(store, thread)
        assert (await leases.acquire(thread, "a", ttl=LONG, stored=True)).incarnation == incarnation

    async def test_the_same_owner_is_extended_under_the_same_fence(self, leases: Leases, thread: str) -> None:
        first = await leases.acquire(thread, "a", ttl=1.0)
        again = await leases.acquire(thread, "a", ttl=LONG)
        assert again.fence == first.fence
        holder = await leases.holder(thread)
        assert holder is not None
        assert (holder.owner, holder.fence) == ("a", first.fence)
        assert LONG - 5 < holder.remaining <= LONG

    async def test_every_owner_is_new_unless_named(self, leases: Leases, thread: str) -> None:
        first = await leases.acquire(thread, ttl=LONG)
        with pytest.raises(LeaseHeld) as held:
            await leases.acquire(thread, ttl=LONG)
        assert held.value.holder == first.owner

    async def test_the_fence_is_the_servers_clock_at_least(self, store: Store, leases: Leases, thread: str) -> None:
        before = store.server_time() - 1_000_000
        lease = await leases.acquire(thread, ttl=LONG)
        assert lease.fence >= before
        assert await self.meta(store, thread, "fence") == str(lease.fence)

    async def test_the_fence_grows_past_a_clock_that_stepped_back(
        self, store: Store, leases: Leases, thread: str
    ) -> None:
        ahead = store.server_time() + 3_600_000_000
        where = keys.ThreadKeys.of(NAMESPACE, thread)
        await store.command("HSET", where.meta, "status", "running", "fence", ahead)
        grants: list[int] = []
        for _ in range(3):
            lease = await leases.acquire(thread, ttl=LONG)
            grants.append(lease.fence)
            await lease.release()
        assert grants == [ahead + 1, ahead + 2, ahead + 3]

    async def test_the_fence_grows_although_the_store_forgot_everything(
        self, store: Store, leases: Leases, thread: str
    ) -> None:
        before = await leases.acquire(thread, ttl=LONG)
        await self.forget(store, thread)
        after = await leases.acquire(thread, ttl=LONG)
        assert after.fence > before.fence

    async def test_a_lapsed_lease_is_taken_over_and_counted(self, store: Store, leases: Leases, thread: str) -> None:
        first = await leases.acquire(thread, "a", ttl=LONG)
        await lapse(store, thread)
        second = await leases.acquire(thread, "b", ttl=LONG)
        assert second.takeover
        assert second.fence > first.fence
        assert await self.meta(store, thread, "takeovers") == "1"
        assert (await leases.acquire(thread, "b", ttl=LONG)).takeover

    async def test_a_stale_holder_is_refused_everywhere(self, store: Store, leases: Leases, thread: str) -> None:
        stale = await leases.acquire(thread, "a", ttl=LONG)
        await lapse(store, thread)
        current = await leases.acquire(thread, "b", ttl=LONG)
        with pytest.raises(LeaseLost) as renewed:
            await stale.renew()
        assert renewed.value.holder == "b"
        assert renewed.value.newest == current.fence
        with pytest.raises(LeaseLost):
            await stale.release()
        holder = await leases.holder(thread)
        assert holder is not None
        assert (holder.owner, holder.fence) == ("b", current.fence)

    async def test_a_lapsed_lease_cannot_be_renewed_but_released(
        self, store: Store, leases: Leases, thread: str
    ) -> None:
        lease = await leases.acquire(thread, "a", ttl=LONG)
        await lapse(store, thread)
        with pytest.raises(LeaseLost):
            await lease.renew()
        await lease.release()
        assert not (await leases.acquire(thread, "b", ttl=LONG)).takeover

    async def test_a_renewal_extends(self, store: Store, leases: Leases, thread: str) -> None:
        lease = await leases.acquire(thread, ttl=LONG)
        where = keys.ThreadKeys.of(NAMESPACE, thread)
        await store.command("PEXPIRE", where.lock, 2_000)
        await lease.renew()
        assert await store.command("PTTL", where.lock) > (LONG - 5) * 1000

    async def test_a_lease_ends_by_itself(self, store: Store, leases: Leases, thread: str) -> None:
        lease = await leases.acquire(thread, "a", ttl=0.05)
        other = await leases.acquire(thread, "b", ttl=LONG, wait=10.0)
        assert other.takeover
        assert lease.remaining == 0.0
        with pytest.raises(LeaseLost):
            lease.check()

    async def test_the_local_deadline_is_never_later_than_the_servers(
        self, store: Store, leases: Leases, thread: str
    ) -> None:
        lease = await leases.acquire(thread, ttl=LONG)
        for _ in range(2):
            remaining = await store.command("PTTL", keys.ThreadKeys.of(NAMESPACE, thread).lock)
            assert lease.deadline <= time.monotonic() + remaining / 1000 + 0.002
            await lease.renew()

    async def test_a_lock_never_stands_without_a_ttl(self, store: Store, leases: Leases, thread: str) -> None:
        lease = await leases.acquire(thread, ttl=LONG)
        lock = keys.ThreadKeys.of(NAMESPACE, thread).lock
        assert 0 < await store.command("PTTL", lock) <= LONG * 1000
        await lease.renew()
        assert 0 < await store.command("PTTL", lock) <= LONG * 1000

    async def test_an_unused_id_is_reserved_for_seven_days(self, store: Store, leases: Leases, thread: str) -> None:
        lease = await leases.acquire(thread, ttl=LONG)
        where = keys.ThreadKeys.of(NAMESPACE, thread)
        assert lease.status == "new"
        assert lease.incarnation is None
        assert SEVEN_DAYS_MS - 60_000 < await store.command("PTTL", where.meta) <= SEVEN_DAYS_MS + LONG * 1000
        row = float(await store.command("ZSCORE", keys.threads(NAMESPACE, keys.shard(thread)), thread))
        assert abs(row - store.server_time() // 1000 - SEVEN_DAYS_MS) < 60_000

    async def test_an_open_thread_keeps_its_meta(self, store: Store, leases: Leases, thread: str) -> None:
        await (await leases.acquire(thread, ttl=LONG)).release()
        incarnation = await open_thread(store, thread)
        lease = await leases.acquire(thread, ttl=LONG)
        assert (lease.status, lease.incarnation) == ("running", incarnation)
        assert await store.command("PTTL", keys.ThreadKeys.of(NAMESPACE, thread).meta) == -1

    async def test_lost_meta_beside_latest_is_a_regression(self, store: Store, leases: Leases, thread: str) -> None:
        lease = await leases.acquire(thread, ttl=LONG)
        await open_thread(store, thread)
        where = keys.ThreadKeys.of(NAMESPACE, thread)
        await store.command("DEL", where.meta)
        await store.command("DEL", where.lock)
        with pytest.raises(StoreRegressed):
            await leases.acquire(thread, ttl=LONG)
        with pytest.raises(StoreRegressed):
            await lease.renew()
        assert await store.command("EXISTS", where.meta) == 0

    async def test_a_fence_above_the_stored_one_is_a_regression(
        self, store: Store, leases: Leases, thread: str
    ) -> None:
        lease = await leases.acquire(thread, "a", ttl=LONG)
        where = keys.ThreadKeys.of(NAMESPACE, thread)
        await store.command("HSET", where.meta, "fence", lease.fence - 1)
        with pytest.raises(StoreRegressed):
            await lease.renew()
        with pytest.raises(StoreRegressed):
            await leases.acquire(thread, "b", ttl=LONG)

    async def test_an_expired_thread_must_be_removed_first(self, store: Store, leases: Leases, thread: str) -> None:
        lease = await leases.acquire(thread, "a", ttl=LONG)
        incarnation = await open_thread(store, thread)
        where = keys.ThreadKeys.of(NAMESPACE, thread)
        await store.command("HSET", where.meta, "expires", store.server_time() // 1000 - 1_000)
        with pytest.raises(ThreadGone) as gone:
            await leases.acquire(thread, "b", ttl=LONG)
        assert gone.value.removing == incarnation
        with pytest.raises(ThreadGone):
            await lease.renew()

    async def test_a_tombstone_is_granted_once_its_parts_are_removed(
        self, store: Store, leases: Leases, thread: str
    ) -> None:
        where = keys.ThreadKeys.of(NAMESPACE, thread)
        await store.command("HSET", where.meta, "status", "deleted", "fence", 7, "removing", "5")
        await store.command("PEXPIRE", where.meta, 2 * SEVEN_DAYS_MS)
        with pytest.raises(ThreadGone) as gone:
            await leases.acquire(thread, ttl=LONG)
        assert gone.value.removing == "5"
        await store.command("HDEL", where.meta, "removing")
        lease = await leases.acquire(thread, ttl=LONG)
        assert (lease.status, lease.incarnation) == ("deleted", None)
        assert await store.command("PTTL", where.meta) > 2 * SEVEN_DAYS_MS - 60_000

    async def test_an_administrator_breaks_a_grant(self, store: Store, leases: Leases, thread: str) -> None:
        assert await leases.break_lock(thread) is None
        lease = await leases.acquire(thread, "a", ttl=LONG)
        broken = await leases.break_lock(thread)
        assert broken is not None
        assert broken.owner == "a"
        assert await leases.holder(thread) is None
        with pytest.raises(LeaseLost):
            await lease.renew()
        after = await leases.acquire(thread, "b", ttl=LONG)
        assert not after.takeover
        assert after.fence > lease.fence + 1

    async def test_a_lapsed_grant_is_shown_and_broken(self, store: Store, leases: Leases, thread: str) -> None:
        lease = await leases.acquire(thread, "a", ttl=LONG)
        await lapse(store, thread)
        holder = await leases.holder(thread)
        assert holder is not None
        assert (holder.owner, holder.fence, holder.remaining) == ("a", lease.fence, 0.0)
        assert await leases.break_lock(thread) == holder
        with pytest.raises(LeaseLost):
            await lease.release()

    async def test_waiting_ends_with_the_release(self, leases: Leases, thread: str) -> None:
        first = await leases.acquire(thread, "a", ttl=LONG)
        waiting = asyncio.create_task(leases.acquire(thread, "b", ttl=LONG, wait=20.0))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await first.release()
        assert (await waiting).fence > first.fence

    async def test_waiting_is_bounded(self, leases: Leases, thread: str) -> None:
        await leases.acquire(thread, "a", ttl=LONG)
        with pytest.raises(LeaseHeld):
            await leases.acquire(thread, "b", ttl=LONG, wait=0.1)

    async def test_a_queue_is_served_one_by_one(self, leases: Leases, thread: str) -> None:
        inside = 0
        fences: list[int] = []

        async def work() -> None:
            nonlocal inside
            async with leases.hold(thread, ttl=LONG, wait=60.0) as lease:
                inside += 1
                assert inside == 1
                fences.append(lease.fence)
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*(work() for _ in range(12)))
        assert len(fences) == 12
        assert fences == sorted(set(fences))

    async def test_a_released_lease_is_over(self, leases: Leases, thread: str) -> None:
        lease = await leases.acquire(thread, ttl=LONG)
        await lease.release()
        await lease.release()
        with pytest.raises(LeaseLost, match="was released"):
            lease.check()
        with pytest.raises(LeaseLost, match="was released"):
            await lease.renew()

    @pytest.mark.parametrize("ttl", [0, -1.0, float("nan"), float("inf")])
    async def test_there_is_no_lease_without_a_ttl(self, store: Store, leases: Leases, thread: str, ttl: float) -> None:
        with pytest.raises(ConfigError, match="ttl"):
            await leases.acquire(thread, ttl=ttl)
        assert await store.command("EXISTS", keys.ThreadKeys.of(NAMESPACE, thread).meta) == 0

    async def meta(self, store: Store, thread: str, field: str) -> str | None:
        """Read one field of a thread's meta."""
        value = await store.command("HGET", keys.ThreadKeys.of(NAMESPACE, thread).meta, field)
        return None if value is None else value.decode()

    async def forget(self, store: Store, thread: str) -> None:
        """Lose everything about a thread, as a server without persistence does."""
        where = keys.ThreadKeys.of(NAMESPACE, thread)
        await store.command("DEL", where.meta, where.lock, where.ops)
