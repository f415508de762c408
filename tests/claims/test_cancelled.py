from __future__ import annotations

import asyncio
import random
import uuid

import pytest

from blackboard import keys
from blackboard.claims.lease import ACQUIRE, Lease, Leases
from blackboard.errors import LeaseHeld, LeaseLost, OutcomeUnknown
from blackboard.store.client import Store
from blackboard.testing.contracts.leases import NAMESPACE
from blackboard.testing.proxy import Command, FaultProxy, delay_reply, delay_request, drop_reply

LONG = 60.0
TOGETHER = 200


async def test_ten_thousand_cancelled_acquires_leave_no_orphan(direct: Store) -> None:
    """The moments are spread so that some acquires win the race, however slow the machine is."""
    chance = random.Random(54)
    leases = Leases(direct, NAMESPACE)
    threads = [f"cancelled-{uuid.uuid4().hex}" for _ in range(TOGETHER)]
    cancelled = granted = 0
    longest = 0.02
    while cancelled < 10_000 or not granted:
        outcomes = await _cancel_some(leases, threads, chance, longest=longest)
        held = [lease for lease in outcomes if lease is not None]
        await asyncio.gather(*(lease.release() for lease in held))
        cancelled += len(outcomes) - len(held)
        granted += len(held)
        longest *= 1.5 if len(held) < TOGETHER / 4 else 0.8
        assert await _locks(direct, threads) == 0
    assert await _takeable(leases, threads) == TOGETHER


async def test_cancelled_acquires_on_a_slow_line_leave_no_orphan(
    faulty: Store, proxy: FaultProxy, direct: Store
) -> None:
    chance = random.Random(50)
    leases = Leases(faulty, NAMESPACE)
    threads = [f"slow-{uuid.uuid4().hex}" for _ in range(20)]
    cancelled = 0
    while cancelled < 200:
        proxy.fault(chance.choice([delay_request, delay_reply])(chance.uniform(0, 0.05)), when=_is_script, times=2)
        outcomes = await _cancel_some(leases, threads, chance, longest=0.06)
        cancelled += outcomes.count(None)
        for lease in filter(None, outcomes):
            await lease.release()
        assert await _locks(direct, threads) == 0
    assert await _takeable(Leases(direct, NAMESPACE), threads) == len(threads)


async def test_an_acquire_cancelled_on_its_way_is_undone_and_its_owner_dead(
    faulty: Store, proxy: FaultProxy, direct: Store, thread: str
) -> None:
    leases = Leases(faulty, NAMESPACE)
    proxy.fault(delay_request(0.05), when=_is_script)
    task = asyncio.create_task(leases.acquire(thread, "a", ttl=LONG))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await leases.holder(thread) is None
    with pytest.raises(LeaseLost, match="gave up"):
        await leases.acquire(thread, "a", ttl=LONG)
    assert (await Leases(direct, NAMESPACE).acquire(thread, "b", ttl=LONG)).owner == "b"


async def test_an_acquire_that_arrives_after_its_undo_is_refused(direct: Store, thread: str) -> None:
    """The request overtaken by its undo, as it can be on two connections."""
    leases = Leases(direct, NAMESPACE)
    await leases._undo(keys.ThreadKeys.of(NAMESPACE, thread), "a", 5.0)
    with pytest.raises(LeaseLost):
        await leases.acquire(thread, "a", ttl=LONG)
    assert await leases.holder(thread) is None


async def test_a_cancelled_wait_does_not_touch_the_holder(direct: Store, thread: str) -> None:
    leases = Leases(direct, NAMESPACE)
    held = await leases.acquire(thread, "a", ttl=LONG)
    for pause in (0.0, 0.001, 0.01, 0.05):
        task = asyncio.create_task(leases.acquire(thread, ttl=LONG, wait=60.0))
        await asyncio.sleep(pause)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await held.renew()
    assert await _locks(direct, [thread]) == 1


async def test_a_cancelled_release_ends_within_the_ttl(
    faulty: Store, proxy: FaultProxy, direct: Store, thread: str
) -> None:
    lease = await Leases(faulty, NAMESPACE).acquire(thread, "a", ttl=0.5)
    proxy.fault(delay_request(0.05))
    task = asyncio.create_task(lease.release())
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    other = await Leases(direct, NAMESPACE).acquire(thread, "b", ttl=LONG, wait=5.0)
    with pytest.raises(LeaseLost):
        lease.check()
    assert other.fence > lease.fence


async def test_an_acquire_whose_outcome_is_unknown_is_undone(proxy: FaultProxy, direct: Store, thread: str) -> None:
    store = await Store.connect(proxy.url, response_timeout=0.1, retry_deadline=0.3)
    await (await Leases(store, NAMESPACE).acquire(f"{thread}-first", ttl=LONG)).release()
    proxy.fault(drop_reply(), when=_is_acquire, times=1000)
    with pytest.raises(OutcomeUnknown):
        await Leases(store, NAMESPACE).acquire(thread, "a", ttl=LONG)
    await store.close()
    assert sum(map(_is_acquire, proxy.commands)) > 0
    assert await _locks(direct, [thread]) == 0
    assert await direct.command("HGET", keys.ThreadKeys.of(NAMESPACE, thread).meta, "status") == b"new"


async def _cancel_some(
    leases: Leases, threads: list[str], chance: random.Random, *, longest: float
) -> list[Lease | None]:
    """Start one acquire per thread and cancel each at a random moment; None stands for a cancelled one."""
    loop = asyncio.get_running_loop()
    tasks = [asyncio.create_task(leases.acquire(thread, ttl=LONG)) for thread in threads]
    for task in tasks:
        loop.call_later(chance.uniform(0, longest), task.cancel)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    unexpected = [outcome for outcome in outcomes if not isinstance(outcome, (Lease, asyncio.CancelledError))]
    assert unexpected == []
    return [outcome if isinstance(outcome, Lease) else None for outcome in outcomes]


async def _locks(store: Store, threads: list[str]) -> int:
    """How many of these threads are locked."""
    locks = [keys.ThreadKeys.of(NAMESPACE, thread).lock for thread in threads]
    return sum(await store.batch([("EXISTS", lock) for lock in locks]))


async def _takeable(leases: Leases, threads: list[str]) -> int:
    """How many of these threads another agent gets at once."""
    answers = await asyncio.gather(*(leases.acquire(thread, ttl=LONG) for thread in threads), return_exceptions=True)
    assert not any(isinstance(answer, LeaseHeld) for answer in answers)
    return sum(isinstance(answer, Lease) for answer in answers)


def _is_script(command: Command) -> bool:
    return command.name in ("EVAL", "EVALSHA")


def _is_acquire(command: Command) -> bool:
    return _is_script(command) and command.args[0] in (ACQUIRE.sha.encode(), ACQUIRE.source)
