"""The lease of a path: one tender at a time, and a fence that only ever grows."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from blackboard.errors import ConfigError, LeaseHeld, LeaseLost, StoreRegressed
from blackboard.memory.lease import Place, claim, tend
from blackboard.points import watch
from blackboard.store.client import Store

LONG = 30.0


@pytest.fixture
def place(store: Store) -> Place:
    return Place(store, "memory", f"lease/{uuid.uuid4().hex}")


async def lapse(place: Place) -> None:
    """Let the lease run out now, as time would."""
    await place.store.command("DEL", place.keys.lock)


async def test_one_tender_at_a_time(place: Place) -> None:
    first = await claim(place, "a", ttl=LONG)
    with pytest.raises(LeaseHeld) as held:
        await claim(place, "b", ttl=LONG)
    assert held.value.holder == "a"
    assert held.value.path == place.path
    assert LONG - 5 < held.value.remaining <= LONG
    await first.release()
    assert (await claim(place, "b", ttl=LONG)).fence > first.fence


async def test_other_paths_are_tended_meanwhile(place: Place) -> None:
    await claim(place, "a", ttl=LONG)
    below = Place(place.store, place.namespace, f"{place.path}/below")
    assert (await claim(below, "b", ttl=LONG)).remaining > 0


async def test_the_same_owner_is_extended_under_the_same_fence(place: Place) -> None:
    first = await claim(place, "a", ttl=5.0)
    again = await claim(place, "a", ttl=LONG)
    assert again.fence == first.fence
    assert LONG * 1000 - 5000 < await place.store.command("PTTL", place.keys.lock) <= LONG * 1000


async def test_the_fence_is_the_servers_clock_and_stays_in_the_head(place: Place) -> None:
    before = place.store.server_time() - 1_000_000
    lease = await claim(place, ttl=LONG)
    assert lease.fence >= before
    await lease.release()
    assert await place.store.command("HGET", place.keys.head, "fence") == b"%d" % lease.fence
    assert await place.store.command("EXISTS", place.keys.lock) == 0


async def test_the_fence_grows_past_a_clock_that_stepped_back(place: Place) -> None:
    ahead = place.store.server_time() + 3_600_000_000
    await place.store.command("HSET", place.keys.head, "fence", ahead)
    grants: list[int] = []
    for _ in range(3):
        lease = await claim(place, ttl=LONG)
        grants.append(lease.fence)
        await lease.release()
    assert grants == [ahead + 1, ahead + 2, ahead + 3]


async def test_a_stale_tender_is_refused_and_stays_lost(place: Place) -> None:
    stale = await claim(place, "a", ttl=LONG)
    await lapse(place)
    current = await claim(place, "b", ttl=LONG)
    with pytest.raises(LeaseLost) as lost:
        await stale.renew()
    assert (lost.value.holder, lost.value.newest, lost.value.fence) == ("b", current.fence, stale.fence)
    assert stale.remaining == 0
    with pytest.raises(LeaseLost, match="was taken over"):
        stale.check()
    with pytest.raises(LeaseLost):
        await stale.release()
    with pytest.raises(LeaseHeld):
        await claim(place, "c", ttl=LONG)


async def test_a_lapsed_lease_cannot_be_renewed_but_released(place: Place) -> None:
    lease = await claim(place, ttl=LONG)
    await lapse(place)
    with pytest.raises(LeaseLost, match="has lapsed"):
        await lease.renew()
    await lease.release()
    await lease.release()
    with pytest.raises(LeaseLost):
        await lease.renew()


async def test_a_renewal_extends(place: Place) -> None:
    lease = await claim(place, ttl=LONG)
    await place.store.command("PEXPIRE", place.keys.lock, 2_000)
    await lease.renew()
    assert await place.store.command("PTTL", place.keys.lock) > (LONG - 5) * 1000


async def test_a_store_that_lost_the_grant_is_noticed(place: Place) -> None:
    lease = await claim(place, ttl=LONG)
    await place.store.command("HDEL", place.keys.head, "fence")
    with pytest.raises(StoreRegressed):
        await lease.renew()
    with pytest.raises(StoreRegressed):
        await claim(place, "b", ttl=LONG)


async def test_it_is_kept_while_it_is_tended(place: Place) -> None:
    """Held for three times its TTL, because it is renewed; given back at the end."""
    async with tend(place, ttl=0.4) as lease:
        await asyncio.sleep(1.2)
        assert lease.remaining > 0
        with pytest.raises(LeaseHeld):
            await claim(place, ttl=LONG)
    await claim(place, ttl=LONG)


async def test_the_work_is_cancelled_when_another_took_over(place: Place) -> None:
    reached = False
    with pytest.raises(LeaseLost):
        async with tend(place, ttl=0.4):
            await lapse(place)
            await claim(place, "b", ttl=LONG)
            await asyncio.sleep(20)
            reached = True
    assert not reached


async def test_a_cancelled_claim_gives_up_what_it_got(place: Place) -> None:
    await (await claim(place, ttl=LONG)).release()
    sent = asyncio.Event()
    with watch(lambda point: sent.set() if point == "claim.lua:sent" else None):
        waiting = asyncio.create_task(claim(place, ttl=LONG))
        await sent.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert await place.store.command("EXISTS", place.keys.lock) == 0
    await claim(place, ttl=LONG)


@pytest.mark.parametrize("ttl", [0.0, -1.0, float("nan"), float("inf")])
async def test_no_lease_without_an_end(place: Place, ttl: float) -> None:
    with pytest.raises(ConfigError, match="ttl"):
        await claim(place, ttl=ttl)
