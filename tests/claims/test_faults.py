"""Every command of leases and effects with its request lost, its reply lost, or its connection cut mid-frame."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from blackboard import keys
from blackboard.claims.effect import Busy, Done, Effects, Semantics, Start, Unknown
from blackboard.claims.lease import Leases, Token
from blackboard.claims.shared import Claim, SharedEffects
from blackboard.errors import LeaseLost
from blackboard.store.client import Store
from blackboard.testing.contracts.leases import NAMESPACE, open_thread
from blackboard.testing.proxy import (
    Command,
    Fault,
    FaultProxy,
    cut_reply,
    cut_request,
    delay_reply,
    drop_reply,
    drop_request,
)

LONG = 60.0
FAULTS: dict[str, Callable[[], Fault]] = {
    "request lost": drop_request,
    "request cut": lambda: cut_request(40),
    "reply lost": drop_reply,
    "reply cut": lambda: cut_reply(3),
}
both = pytest.mark.parametrize("semantics", ["at-least-once", "at-most-once"])
each_fault = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)


@each_fault
async def test_a_lease_lives_through_it(
    faulty: Store, proxy: FaultProxy, thread: str, fault: Callable[[], Fault]
) -> None:
    leases = Leases(faulty, NAMESPACE)
    await _learn(leases, thread)
    hits = _Hits(proxy, fault)
    hits.arm()
    lease = await leases.acquire(thread, "a", ttl=LONG)
    assert not lease.takeover
    hits.arm()
    await lease.renew()
    holder = await leases.holder(thread)
    assert holder is not None
    assert (holder.owner, holder.fence) == ("a", lease.fence)
    hits.arm()
    await lease.release()
    assert await leases.holder(thread) is None
    second = await leases.acquire(thread, "b", ttl=LONG)
    hits.arm()
    await leases.break_lock(thread)
    assert (await leases.acquire(thread, "c", ttl=LONG)).fence > second.fence
    assert hits.count == 4


@each_fault
@both
async def test_an_effect_lives_through_it(
    faulty: Store, proxy: FaultProxy, thread: str, fault: Callable[[], Fault], semantics: Semantics
) -> None:
    effects, leases = Effects(faulty, NAMESPACE), Leases(faulty, NAMESPACE)
    await _learn(leases, thread)
    lease = await leases.acquire(thread, ttl=LONG)
    lease.opened(await open_thread(faulty, thread))
    hits = _Hits(proxy, fault)
    hits.arm()
    begun = await effects.begin(lease.token, "mail", semantics=semantics, fingerprint="f")
    assert isinstance(begun, Start)
    assert begun.attempt == 1
    hits.arm()
    await effects.attach(begun, "ref")
    hits.arm()
    await effects.interrupt(begun)
    hits.arm()
    await effects.complete(begun, b"1")
    assert await effects.begin(lease.token, "mail", semantics=semantics, fingerprint="f") == Done(b"1", 1)
    assert [effect.attempt for effect in await effects.all(thread)] == [1]
    assert hits.count == 4


@each_fault
@both
async def test_a_shared_effect_lives_through_it(
    faulty: Store, proxy: FaultProxy, thread: str, fault: Callable[[], Fault], semantics: Semantics
) -> None:
    shared = SharedEffects(faulty, NAMESPACE)
    hits = _Hits(proxy, fault)
    claim = await shared.begin(f"{thread}-first", semantics=semantics, fingerprint="f", ttl=LONG)
    hits.arm()
    claim = await shared.begin(thread, semantics=semantics, fingerprint="f", ttl=LONG)
    assert isinstance(claim, Claim)
    assert claim.attempt == 1
    hits.arm()
    await claim.renew()
    hits.arm()
    await shared.attach(claim, "ref")
    hits.arm()
    await shared.complete(claim, b"1")
    assert await shared.begin(thread, semantics=semantics, fingerprint="f", ttl=LONG) == Done(b"1", 1)
    assert hits.count == 4


ARROWS = ("before begin", "after begin", "after the effect", "after the reference", "after complete")


@both
@pytest.mark.parametrize("arrow", ARROWS)
async def test_a_driver_that_dies_at_an_arrow_is_followed_rightly(
    direct: Store, thread: str, arrow: str, semantics: Semantics
) -> None:
    """C62: what the next driver is told, wherever the one before stopped; `happened` counts the outside world."""
    effects, leases = Effects(direct, NAMESPACE), Leases(direct, NAMESPACE)
    happened: list[str] = []
    lease = await leases.acquire(thread, ttl=LONG)
    incarnation = await open_thread(direct, thread)
    lease.opened(incarnation)
    await _run_until(ARROWS.index(arrow), effects, lease.token, semantics, happened)
    await direct.command("DEL", keys.ThreadKeys.of(NAMESPACE, thread).lock)

    heir = await leases.acquire(thread, ttl=LONG)
    answer = await effects.begin(heir.token, "mail", semantics=semantics, fingerprint="f")
    match ARROWS.index(arrow):
        case 0:
            assert isinstance(answer, Start)
            assert answer.attempt == 1
        case 4:
            assert answer == Done(b"sent", 1)
        case place if semantics == "at-most-once":
            assert isinstance(answer, Unknown)
            assert answer.external_ref == ("ref" if place == 3 else None)
        case _:
            assert isinstance(answer, Start)
            assert answer.attempt == 2
            assert set(happened) <= {answer.downstream_key}
    assert len(happened) == (ARROWS.index(arrow) >= 2)


async def test_a_lost_reply_of_begin_is_not_told_as_busy(faulty: Store, proxy: FaultProxy, thread: str) -> None:
    """C50: whoever owns the claim and asks again is told so; another is told Busy."""
    shared = SharedEffects(faulty, NAMESPACE)
    await shared.begin(f"{thread}-first", semantics="at-most-once", fingerprint="f", ttl=LONG)
    proxy.fault(drop_reply())
    assert isinstance(await shared.begin(thread, semantics="at-most-once", fingerprint="f", ttl=LONG), Claim)
    assert isinstance(await shared.begin(thread, semantics="at-most-once", fingerprint="f", ttl=LONG), Busy)


async def test_a_ttl_shorter_than_the_answer_takes_is_refused(
    direct: Store, faulty: Store, proxy: FaultProxy, thread: str
) -> None:
    """Each grant has lapsed before it is known: asking again and again would never end."""
    proxy.fault(delay_reply(0.05), when=lambda _: True, times=1000)
    with pytest.raises(LeaseLost, match="too short"):
        await Leases(faulty, NAMESPACE).acquire(thread, ttl=0.02)
    with pytest.raises(LeaseLost, match="too short"):
        await SharedEffects(faulty, NAMESPACE).begin(thread, semantics="at-most-once", fingerprint="f", ttl=0.02)
    lease = await Leases(direct, NAMESPACE).acquire(thread, ttl=LONG, wait=1.0)
    assert lease.status == "new"
    assert lease.takeover


class _Hits:
    """Arms the fault for the next script, and counts the scripts that it hit."""

    def __init__(self, proxy: FaultProxy, fault: Callable[[], Fault]) -> None:
        self._proxy, self._fault = proxy, fault
        self.count = 0

    def arm(self) -> None:
        self._proxy.fault(self._fault(), when=self._hit)

    def _hit(self, command: Command) -> bool:
        hit = command.name in ("EVAL", "EVALSHA")
        self.count += hit
        return hit


async def _learn(leases: Leases, thread: str) -> None:
    """Let the server learn the scripts, so that what the fault hits is the call and not the answer that it is unknown."""
    lease = await leases.acquire(f"{thread}-first", ttl=LONG)
    await lease.renew()
    await leases.break_lock(f"{thread}-first")
    other = await leases.acquire(f"{thread}-first", ttl=LONG)
    await other.release()


async def _run_until(arrow: int, effects: Effects, token: Token, semantics: Semantics, happened: list[str]) -> None:
    if arrow == 0:
        return
    begun = await effects.begin(token, "mail", semantics=semantics, fingerprint="f")
    assert isinstance(begun, Start)
    if arrow >= 2:
        happened.append(begun.downstream_key)
    if arrow >= 3:
        await effects.attach(begun, "ref")
    if arrow >= 4:
        await effects.complete(begun, b"sent")
