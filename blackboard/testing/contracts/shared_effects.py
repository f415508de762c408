"""What every server must let the effects across threads promise: run `SharedEffectContract` over yours.

A subclass needs the fixtures `store` (a connected Store) and `thread` (an id that nobody used before).
"""

from __future__ import annotations

import asyncio

import pytest

from blackboard import keys
from blackboard.claims.effect import Busy, Done, Failed, Mismatch, Semantics, Unknown
from blackboard.claims.shared import Claim, SharedEffects
from blackboard.errors import EffectBusy, LeaseLost
from blackboard.store.client import Store
from blackboard.testing.contracts.leases import NAMESPACE

__all__ = ["SharedEffectContract"]

LONG = 30.0
SEVEN_DAYS_MS = 7 * 86_400_000


class SharedEffectContract:
    """Claims across threads: one winner per key, whoever asks, and never two."""

    @pytest.fixture
    def shared(self, store: Store) -> SharedEffects:
        """The shared effects of the contract's namespace."""
        return SharedEffects(store, NAMESPACE)

    async def claim(self, shared: SharedEffects, key: str, semantics: Semantics, **more: str) -> Claim:
        """Begin an effect that must be allowed to run."""
        answer = await shared.begin(key, semantics=semantics, fingerprint="f", ttl=LONG, **more)
        assert isinstance(answer, Claim)
        return answer

    async def lapse(self, store: Store, key: str) -> None:
        """Let the claim run out now, as time would."""
        await store.command("HSET", keys.effect(NAMESPACE, key), "lease_until", 1)

    async def test_one_of_many_wins(self, shared: SharedEffects, thread: str) -> None:
        answers = await asyncio.gather(
            *(shared.begin(thread, semantics="at-most-once", fingerprint="f", ttl=LONG) for _ in range(100))
        )
        winners = [answer for answer in answers if isinstance(answer, Claim)]
        assert len(winners) == 1
        assert {type(answer) for answer in answers} == {Claim, Busy}
        await shared.complete(winners[0], b"1")
        assert await shared.begin(thread, semantics="at-most-once", fingerprint="f", ttl=LONG) == Done(b"1", 1)

    async def test_the_same_op_id_has_the_same_answer(self, store: Store, shared: SharedEffects, thread: str) -> None:
        op = store.op_id()
        first = await self.claim(shared, thread, "at-most-once", op=op, owner="a")
        again = await self.claim(shared, thread, "at-most-once", op=op, owner="a")
        assert (again.fence, again.attempt) == (first.fence, first.attempt)
        done = store.op_id()
        await shared.complete(first, b"1", op=done)
        await shared.complete(again, b"1", op=done)

    async def test_a_running_effect_has_no_ttl_and_a_settled_one_has(
        self, store: Store, shared: SharedEffects, thread: str
    ) -> None:
        claim = await self.claim(shared, thread, "at-least-once")
        key = keys.effect(NAMESPACE, thread)
        assert await store.command("PTTL", key) == -1
        await shared.fail(claim, b"no")
        assert await store.command("PTTL", key) > 0
        claim = await self.claim(shared, thread, "at-least-once")
        assert claim.attempt == 2
        assert await store.command("PTTL", key) == -1
        await shared.complete(claim, b"1")
        assert SEVEN_DAYS_MS - 60_000 < await store.command("PTTL", key) <= SEVEN_DAYS_MS

    async def test_a_lapsed_claim_is_taken_over_if_it_may_run_again(
        self, store: Store, shared: SharedEffects, thread: str
    ) -> None:
        zombie = await self.claim(shared, thread, "at-least-once")
        await self.lapse(store, thread)
        claim = await self.claim(shared, thread, "at-least-once")
        assert claim.attempt == 2
        assert claim.fence > zombie.fence
        assert claim.downstream_key == zombie.downstream_key
        for call in (
            shared.complete(zombie, b"stale"),
            zombie.renew(),
            shared.attach(zombie, "x"),
            shared.interrupt(zombie),
        ):
            with pytest.raises(LeaseLost) as lost:
                await call
            assert (lost.value.holder, lost.value.newest) == (claim.owner, claim.fence)
        await shared.complete(claim, b"winner")
        found = await shared.read(thread)
        assert found is not None
        assert (found.state, found.result, found.attempt) == ("done", b"winner", 2)

    async def test_a_lapsed_at_most_once_claim_is_unknown_until_resolved(
        self, store: Store, shared: SharedEffects, thread: str
    ) -> None:
        zombie = await self.claim(shared, thread, "at-most-once")
        await shared.attach(zombie, "message-17")
        await self.lapse(store, thread)
        answer = await shared.begin(thread, semantics="at-least-once", fingerprint="f", ttl=LONG)
        assert isinstance(answer, Unknown)
        assert (answer.external_ref, answer.owner, answer.fence) == ("message-17", zombie.owner, zombie.fence)
        await shared.resolve(answer, "retry")
        with pytest.raises(LeaseLost):
            await shared.complete(zombie, b"stale")
        assert (await self.claim(shared, thread, "at-most-once")).attempt == 2

    async def test_an_unchallenged_claim_may_complete_late(
        self, store: Store, shared: SharedEffects, thread: str
    ) -> None:
        claim = await self.claim(shared, thread, "at-most-once")
        await self.lapse(store, thread)
        with pytest.raises(LeaseLost):
            await claim.renew()
        await shared.complete(claim, b"1")
        assert await shared.begin(thread, semantics="at-most-once", fingerprint="f", ttl=LONG) == Done(b"1", 1)

    async def test_a_live_claim_cannot_be_resolved_by_another(self, shared: SharedEffects, thread: str) -> None:
        claim = await self.claim(shared, thread, "at-most-once")
        found = await shared.read(thread)
        assert found is not None
        with pytest.raises(EffectBusy) as busy:
            await shared.resolve(found, "abandoned")
        assert busy.value.holder == claim.owner
        await shared.interrupt(claim)
        await shared.resolve(found, "abandoned", b"why")
        answer = await shared.begin(thread, semantics="at-most-once", fingerprint="f", ttl=LONG)
        assert answer == Failed(b"why", 1, "abandoned")

    async def test_other_arguments_are_a_mismatch(self, shared: SharedEffects, thread: str) -> None:
        await self.claim(shared, thread, "at-least-once")
        answer = await shared.begin(thread, semantics="at-least-once", fingerprint="g", ttl=LONG)
        assert answer == Mismatch("f")

    async def test_a_held_claim_outlives_its_ttl(self, shared: SharedEffects, thread: str) -> None:
        claim = await shared.begin(thread, semantics="at-least-once", fingerprint="f", ttl=0.3)
        assert isinstance(claim, Claim)
        async with shared.hold(claim):
            await asyncio.sleep(0.9)
            assert isinstance(await shared.begin(thread, semantics="at-least-once", fingerprint="f", ttl=LONG), Busy)
            await shared.complete(claim, b"1")
        assert await shared.begin(thread, semantics="at-least-once", fingerprint="f", ttl=LONG) == Done(b"1", 1)

    async def test_a_claim_that_is_taken_away_cancels_its_body(
        self, store: Store, shared: SharedEffects, thread: str
    ) -> None:
        claim = await shared.begin(thread, semantics="at-least-once", fingerprint="f", ttl=0.6)
        assert isinstance(claim, Claim)
        with pytest.raises(LeaseLost):  # noqa: PT012
            async with shared.hold(claim):
                await self.lapse(store, thread)
                await self.claim(shared, thread, "at-least-once")
                await asyncio.sleep(60)

    async def test_what_is_not_recorded_any_more_cannot_be_completed(
        self, store: Store, shared: SharedEffects, thread: str
    ) -> None:
        claim = await self.claim(shared, thread, "at-least-once")
        await store.command("DEL", keys.effect(NAMESPACE, thread))
        with pytest.raises(LeaseLost, match="not recorded"):
            await shared.complete(claim, b"1")
        assert await shared.read(thread) is None
