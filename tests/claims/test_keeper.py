from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from blackboard.claims.keeper import shielded
from blackboard.claims.lease import Leases
from blackboard.errors import LeaseHeld, LeaseLost
from blackboard.store.client import Store
from blackboard.testing.contracts.leases import NAMESPACE, open_thread
from blackboard.testing.proxy import FaultProxy, delay_reply
from blackboard.testing.servers import Server

LONG = 30.0


class Sentinel(Exception):
    """What a body raises."""


@pytest.fixture
def leases(direct: Store) -> Leases:
    return Leases(direct, NAMESPACE)


async def test_a_held_lease_outlives_its_ttl_and_is_released(leases: Leases, thread: str) -> None:
    async with leases.hold(thread, ttl=0.3) as lease:
        first = lease.deadline
        await asyncio.sleep(0.9)
        assert lease.deadline > first
        with pytest.raises(LeaseHeld):
            await leases.acquire(thread, ttl=LONG)
    assert await leases.holder(thread) is None


async def test_a_definite_loss_cancels_the_body_at_once(leases: Leases, thread: str) -> None:
    cancelled = False
    with pytest.raises(LeaseLost, match="taken over"):
        async with leases.hold(thread, ttl=1.5) as lease:
            await leases.break_lock(thread)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled = True
                assert lease.deadline > time.monotonic()
                raise
    assert cancelled
    assert _is_calm()


async def test_a_silent_server_costs_the_lease_at_its_deadline(faulty: Store, proxy: FaultProxy, thread: str) -> None:
    leases = Leases(faulty, NAMESPACE)
    with pytest.raises(LeaseLost, match="deadline"):
        async with leases.hold(thread, ttl=0.5) as lease:
            proxy.refusing = True
            proxy.sever()
            try:
                await asyncio.sleep(60)
            finally:
                late = time.monotonic() - lease.deadline
    assert 0 <= late < 0.5
    assert _is_calm()


async def test_an_outage_shorter_than_the_ttl_is_survived(faulty: Store, proxy: FaultProxy, thread: str) -> None:
    async with Leases(faulty, NAMESPACE).hold(thread, ttl=2.0) as lease:
        first = lease.deadline
        proxy.refusing = True
        proxy.sever()
        await asyncio.sleep(1.0)
        assert lease.deadline == first
        proxy.refusing = False
        await asyncio.sleep(1.5)
        lease.check()
        assert lease.deadline > first


async def test_a_blocked_loop_loses_the_lease_on_a_clean_exit(leases: Leases, thread: str) -> None:
    with pytest.raises(LeaseLost, match="deadline"):
        async with leases.hold(thread, ttl=0.2) as lease:
            time.sleep(0.4)
            with pytest.raises(LeaseLost):
                lease.check()
    assert _is_calm()
    assert (await leases.acquire(thread, ttl=LONG)).takeover


async def test_a_body_that_swallows_its_cancellation_loses_all_the_same(leases: Leases, thread: str) -> None:
    with pytest.raises(LeaseLost):
        async with leases.hold(thread, ttl=0.2):
            time.sleep(0.4)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
    assert _is_calm()


async def test_an_exception_of_the_body_leaves_unchanged_and_releases(leases: Leases, thread: str) -> None:
    raised = Sentinel()
    with pytest.raises(Sentinel) as caught:
        async with leases.hold(thread, ttl=LONG):
            raise raised
    assert caught.value is raised
    assert await leases.holder(thread) is None


async def test_an_exception_of_the_body_outweighs_the_loss(leases: Leases, thread: str) -> None:
    with pytest.raises(Sentinel):
        async with leases.hold(thread, ttl=0.2):
            time.sleep(0.4)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise Sentinel from None
    assert _is_calm()


async def test_cancellation_from_outside_passes_and_releases(leases: Leases, thread: str) -> None:
    entered = asyncio.Event()

    async def body() -> None:
        async with leases.hold(thread, ttl=LONG):
            entered.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(body())
    await entered.wait()
    task.cancel("from outside")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert await leases.holder(thread) is None


async def test_a_timeout_around_stays_a_timeout(leases: Leases, thread: str) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2), leases.hold(thread, ttl=LONG):
            await asyncio.sleep(60)
    assert await leases.holder(thread) is None
    assert _is_calm()


async def test_a_task_group_inside_raises_no_group(leases: Leases, thread: str) -> None:
    with pytest.raises(LeaseLost):
        async with leases.hold(thread, ttl=0.6), asyncio.TaskGroup() as group:
            await leases.break_lock(thread)
            group.create_task(asyncio.sleep(60))
    assert _is_calm()


async def test_loss_and_cancellation_from_outside_at_once_is_a_cancellation(leases: Leases, thread: str) -> None:
    async def body() -> None:
        async with leases.hold(thread, ttl=0.2):
            time.sleep(0.4)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                task.cancel()
                raise

    task = asyncio.create_task(body())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_cancellation_during_the_release_waits_for_it(faulty: Store, proxy: FaultProxy, thread: str) -> None:
    leases = Leases(faulty, NAMESPACE)
    leaving = asyncio.Event()

    async def body() -> None:
        async with leases.hold(thread, ttl=LONG):
            proxy.fault(delay_reply(0.1))
            leaving.set()

    task = asyncio.create_task(body())
    await leaving.wait()
    await asyncio.sleep(0.03)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await leases.holder(thread) is None


async def test_a_release_that_fails_is_no_failure_of_the_body(solo: Server, proxy: FaultProxy, thread: str) -> None:
    store = await Store.connect(proxy.url, retry_deadline=0.2)
    async with Leases(store, NAMESPACE).hold(thread, ttl=LONG):
        proxy.refusing = True
        proxy.sever()
    await store.close()
    other = await Store.connect(solo.url)
    holder = await Leases(other, NAMESPACE).holder(thread)
    await other.close()
    assert holder is not None
    assert 0 < holder.remaining <= LONG


async def test_a_body_may_release_early(leases: Leases, thread: str) -> None:
    async with leases.hold(thread, ttl=0.3) as lease:
        await lease.release()
        other = await leases.acquire(thread, ttl=LONG)
        await asyncio.sleep(0.5)
    holder = await leases.holder(thread)
    assert holder is not None
    assert holder.fence == other.fence


async def test_a_clean_exit_from_a_broken_lease_is_told(direct: Store, leases: Leases, thread: str) -> None:
    with pytest.raises(LeaseLost, match="taken over"):
        async with leases.hold(thread, ttl=LONG) as lease:
            lease.opened(await open_thread(direct, thread))
            await leases.break_lock(thread)


async def test_shielded_work_ends_before_the_cancellation_is_raised() -> None:
    done = asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0.05)
        done.set()

    task = asyncio.create_task(shielded(work()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.is_set()


async def test_shielded_work_is_bounded() -> None:
    with pytest.raises(TimeoutError):
        await shielded(asyncio.sleep(60), longest=0.05)


def _is_calm() -> bool:
    """Whether no cancellation of the keeper's is left over in the task."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling() == 0
