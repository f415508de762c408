"""What every server must let the effects of a thread promise: run `EffectContract` over yours.

A subclass needs the fixtures `store` (a connected Store) and `thread` (an id that nobody used before).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from blackboard import keys
from blackboard.claims.effect import (
    Busy,
    Done,
    Effects,
    Failed,
    Mismatch,
    OpenEffect,
    Semantics,
    SettledEffect,
    Start,
    Unknown,
)
from blackboard.claims.lease import Lease, Leases, Token
from blackboard.errors import (
    ConfigError,
    CorruptValue,
    LeaseLost,
    ServerRefused,
    StoreRegressed,
    ThreadGone,
)
from blackboard.store.client import Store
from blackboard.testing.contracts.leases import NAMESPACE, lapse, open_thread

__all__ = ["EffectContract"]

LONG = 30.0
BOTH: tuple[Semantics, ...] = ("at-least-once", "at-most-once")


async def drive(store: Store, thread: str) -> Lease:
    """Take the lease of a thread that has a checkpoint, over whoever had it."""
    leases = Leases(store, NAMESPACE)
    await lapse(store, thread)
    lease = await leases.acquire(thread, ttl=LONG)
    if lease.incarnation is None:
        lease.opened(await open_thread(store, thread))
    return lease


async def start(effects: Effects, token: Token, semantics: Semantics, key: str = "mail", **more: str) -> Start:
    """Begin an effect that must be allowed to run."""
    answer = await effects.begin(token, key, semantics=semantics, fingerprint="f", **more)
    assert isinstance(answer, Start)
    return answer


class EffectContract:
    """Begin, complete, fail, interrupt, resolve, take over, settle in a commit: one answer each, and never twice."""

    @pytest.fixture
    def effects(self, store: Store) -> Effects:
        """The effects of the contract's namespace."""
        return Effects(store, NAMESPACE)

    @pytest.mark.parametrize("semantics", BOTH)
    async def test_it_runs_once_and_is_done(
        self, store: Store, effects: Effects, thread: str, semantics: Semantics
    ) -> None:
        token = (await drive(store, thread)).token
        begun = await start(effects, token, semantics)
        assert begun.attempt == 1
        await effects.complete(begun, b'"sent"')
        assert await effects.begin(token, "mail", semantics=semantics, fingerprint="f") == Done(b'"sent"', 1)
        assert await effects.open(thread) == []

    @pytest.mark.parametrize("semantics", BOTH)
    async def test_done_outlives_the_driver(
        self, store: Store, effects: Effects, thread: str, semantics: Semantics
    ) -> None:
        first = (await drive(store, thread)).token
        await effects.complete(await start(effects, first, semantics), b"1")
        second = (await drive(store, thread)).token
        assert await effects.begin(second, "mail", semantics=semantics, fingerprint="f") == Done(b"1", 1)

    async def test_another_begin_in_the_same_run_is_busy(self, store: Store, effects: Effects, thread: str) -> None:
        token = (await drive(store, thread)).token
        await start(effects, token, "at-least-once")
        answer = await effects.begin(token, "mail", semantics="at-least-once", fingerprint="f")
        assert isinstance(answer, Busy)
        assert answer.holder == token.owner
        assert 0 < answer.retry_after <= LONG

    @pytest.mark.parametrize("semantics", BOTH)
    async def test_the_same_op_id_has_the_same_answer(
        self, store: Store, effects: Effects, thread: str, semantics: Semantics
    ) -> None:
        token = (await drive(store, thread)).token
        op = store.op_id()
        first = await start(effects, token, semantics, op=op)
        assert await start(effects, token, semantics, op=op) == first
        done = store.op_id()
        await effects.complete(first, b"1", op=done)
        await effects.complete(first, b"1", op=done)
        assert await effects.begin(token, "mail", semantics=semantics, fingerprint="f", op=op) == Done(b"1", 1)

    async def test_a_begin_that_arrives_again_after_its_failure_starts_nothing(
        self, store: Store, effects: Effects, thread: str
    ) -> None:
        token = (await drive(store, thread)).token
        op = store.op_id()
        first = await start(effects, token, "at-least-once", op=op)
        await effects.fail(first, b"no")
        assert (await start(effects, token, "at-least-once", op=op)).attempt == 1
        assert await effects.open(thread) == []

    async def test_other_arguments_are_a_mismatch(self, store: Store, effects: Effects, thread: str) -> None:
        token = (await drive(store, thread)).token
        begun = await start(effects, token, "at-least-once")
        assert await effects.begin(token, "mail", semantics="at-least-once", fingerprint="g") == Mismatch("f")
        await effects.complete(begun, b"1")
        assert await effects.begin(token, "mail", semantics="at-least-once", fingerprint="g") == Mismatch("f")

    async def test_takeover_runs_an_at_least_once_effect_again_under_the_same_downstream_key(
        self, store: Store, effects: Effects, thread: str
    ) -> None:
        first = await start(effects, (await drive(store, thread)).token, "at-least-once")
        second = await start(effects, (await drive(store, thread)).token, "at-least-once")
        assert second.attempt == 2
        assert second.downstream_key == first.downstream_key

    @pytest.mark.parametrize("asked", [("at-most-once", "at-most-once"), ("at-most-once", "at-least-once"),
                                       ("at-least-once", "at-most-once")])  # fmt: skip
    async def test_takeover_never_runs_an_at_most_once_effect_again(
        self, store: Store, effects: Effects, thread: str, asked: tuple[Semantics, Semantics]
    ) -> None:
        begun = await start(effects, (await drive(store, thread)).token, asked[0])
        await effects.attach(begun, "message-17")
        token = (await drive(store, thread)).token
        for _ in range(3):
            answer = await effects.begin(token, "mail", semantics=asked[1], fingerprint="f")
            assert isinstance(answer, Unknown)
            assert (answer.attempt, answer.external_ref, answer.owner) == (1, "message-17", begun.token.owner)
            assert abs(answer.started_at - store.server_time()) < 60_000_000

    @pytest.mark.parametrize("semantics", BOTH)
    async def test_a_zombie_is_refused_and_told_who_drives(
        self, store: Store, effects: Effects, thread: str, semantics: Semantics
    ) -> None:
        zombie = await start(effects, (await drive(store, thread)).token, semantics)
        token = (await drive(store, thread)).token
        for call in (
            effects.complete(zombie, b"stale"),
            effects.fail(zombie, b"stale"),
            effects.interrupt(zombie),
            effects.attach(zombie, "stale"),
        ):
            with pytest.raises(LeaseLost) as lost:
                await call
            assert (lost.value.holder, lost.value.newest) == (token.owner, token.fence)
        with pytest.raises(LeaseLost):
            await effects.begin(zombie.token, "other", semantics=semantics, fingerprint="f")
        assert [effect.attempt for effect in await effects.open(thread)] == [1]

    async def test_the_winners_result_stands_against_a_zombie(
        self, store: Store, effects: Effects, thread: str
    ) -> None:
        zombie = await start(effects, (await drive(store, thread)).token, "at-least-once")
        token = (await drive(store, thread)).token
        await effects.complete(await start(effects, token, "at-least-once"), b"winner")
        with pytest.raises(LeaseLost) as lost:
            await effects.complete(zombie, b"stale")
        assert lost.value.state == "done"
        assert await effects.begin(token, "mail", semantics="at-least-once", fingerprint="f") == Done(b"winner", 2)

    async def test_a_lapsed_but_unchallenged_lease_is_enough(self, store: Store, effects: Effects, thread: str) -> None:
        token = (await drive(store, thread)).token
        begun = await start(effects, token, "at-most-once")
        await lapse(store, thread)
        await effects.complete(begun, b"1")
        assert (await start(effects, token, "at-most-once", key="next")).attempt == 1

    async def test_a_failed_attempt_may_run_again(self, store: Store, effects: Effects, thread: str) -> None:
        token = (await drive(store, thread)).token
        await effects.fail(await start(effects, token, "at-least-once"), b"timeout")
        assert await effects.open(thread) == []
        again = await start(effects, token, "at-least-once")
        assert again.attempt == 2
        await effects.complete(again, b"1")
        assert [effect.attempt for effect in await effects.all(thread)] == [2]

    async def test_a_failed_at_most_once_attempt_is_unknown(self, store: Store, effects: Effects, thread: str) -> None:
        token = (await drive(store, thread)).token
        await effects.fail(await start(effects, token, "at-most-once"), b"timeout")
        assert isinstance(await effects.begin(token, "mail", semantics="at-most-once", fingerprint="f"), Unknown)

    @pytest.mark.parametrize("semantics", BOTH)
    async def test_a_final_failure_is_kept(
        self, store: Store, effects: Effects, thread: str, semantics: Semantics
    ) -> None:
        token = (await drive(store, thread)).token
        await effects.fail(await start(effects, token, semantics), b"refused", final=True)
        answer = await effects.begin(token, "mail", semantics=semantics, fingerprint="f")
        assert answer == Failed(b"refused", 1, "failed")

    async def test_an_interrupted_effect_is_unknown_or_runs_again(
        self, store: Store, effects: Effects, thread: str
    ) -> None:
        token = (await drive(store, thread)).token
        await effects.interrupt(await start(effects, token, "at-least-once", key="again"))
        await effects.interrupt(await start(effects, token, "at-most-once", key="never"))
        assert {effect.state for effect in await effects.open(thread)} == {"unknown"}
        assert (await start(effects, token, "at-least-once", key="again")).attempt == 2
        assert isinstance(await effects.begin(token, "never", semantics="at-most-once", fingerprint="f"), Unknown)

    async def test_an_interrupted_effect_may_still_be_completed(
        self, store: Store, effects: Effects, thread: str
    ) -> None:
        token = (await drive(store, thread)).token
        begun = await start(effects, token, "at-most-once")
        await effects.interrupt(begun)
        await effects.complete(begun, b"1")
        assert await effects.begin(token, "mail", semantics="at-most-once", fingerprint="f") == Done(b"1", 1)

    async def test_an_attempt_that_was_overtaken_cannot_be_completed(
        self, store: Store, effects: Effects, thread: str
    ) -> None:
        token = (await drive(store, thread)).token
        first = await start(effects, token, "at-least-once")
        await effects.interrupt(first)
        second = await start(effects, token, "at-least-once")
        with pytest.raises(LeaseLost) as lost:
            await effects.complete(first, b"late")
        assert (lost.value.attempt, lost.value.state) == (2, "running")
        await effects.complete(second, b"2")
        with pytest.raises(LeaseLost, match="done already"):
            await effects.complete(second, b"twice")

    async def test_an_unknown_effect_is_resolved(self, store: Store, effects: Effects, thread: str) -> None:
        first = (await drive(store, thread)).token
        for key in ("done", "failed", "retry", "abandoned"):
            await start(effects, first, "at-most-once", key=key)
        token = (await drive(store, thread)).token
        for unknown in await effects.open(thread):
            await effects.resolve(token, unknown, unknown.key, b"probed")  # type: ignore[arg-type]
        answers = {
            key: await effects.begin(token, key, semantics="at-most-once", fingerprint="f")
            for key in ("done", "failed", "abandoned")
        }
        assert answers == {
            "done": Done(b"probed", 1), "failed": Failed(b"probed", 1, "failed"), "abandoned": Failed(b"probed", 1, "abandoned")
        }  # fmt: skip
        assert (await start(effects, token, "at-most-once", key="retry")).attempt == 2

    async def test_a_decision_about_something_else_is_refused(
        self, store: Store, effects: Effects, thread: str
    ) -> None:
        await start(effects, (await drive(store, thread)).token, "at-most-once")
        token = (await drive(store, thread)).token
        unknown = await effects.begin(token, "mail", semantics="at-most-once", fingerprint="f")
        assert isinstance(unknown, Unknown)
        with pytest.raises(LeaseLost):
            await effects.resolve(token, replace(unknown, attempt=2), "abandoned")
        await effects.resolve(token, unknown, "done", b"1")
        with pytest.raises(LeaseLost):
            await effects.resolve(token, unknown, "abandoned")
        assert await effects.begin(token, "mail", semantics="at-most-once", fingerprint="f") == Done(b"1", 1)

    async def test_a_settlement_counts_once_its_checkpoint_is_reached(
        self, store: Store, effects: Effects, thread: str
    ) -> None:
        """A server that stops inside a commit may keep the record and lose the checkpoint: then the effect is open."""
        token = (await drive(store, thread)).token
        begun = await start(effects, token, "at-most-once")
        settlement = effects.settlement(begun, b"1")
        where = keys.ThreadKeys.of(NAMESPACE, thread)
        record = await store.command("HGET", where.effects_open, settlement.key)
        assert record.startswith(settlement.expect)
        await store.command("HSET", where.effects, settlement.key, settlement.within(keys.sequence_id(2)))
        second = (await drive(store, thread)).token
        assert isinstance(await effects.begin(second, "mail", semantics="at-most-once", fingerprint="f"), Unknown)
        await store.command("SET", where.latest(), keys.sequence_id(2))
        assert await effects.begin(second, "mail", semantics="at-most-once", fingerprint="f") == Done(b"1", 1)
        assert await effects.open(thread) == []
        await store.command("SET", where.latest(), keys.sequence_id(900))
        assert await effects.begin(second, "mail", semantics="at-most-once", fingerprint="f") == Done(b"1", 1)

    async def test_a_settlement_reads_as_a_record(self, store: Store, effects: Effects, thread: str) -> None:
        token = (await drive(store, thread)).token
        settlement = effects.settlement(await start(effects, token, "at-least-once"), b"\x00:1")
        outside = SettledEffect.parse(b"mail", settlement.record)
        inside = SettledEffect.parse(b"mail", settlement.within("000000000002"))
        assert outside.checkpoint is None
        assert inside == replace(outside, checkpoint="000000000002")
        assert (inside.state, inside.attempt, inside.result, inside.fence) == ("done", 1, b"\x00:1", token.fence)

    async def test_effects_are_listed_without_a_lease(self, store: Store, effects: Effects, thread: str) -> None:
        token = (await drive(store, thread)).token
        await effects.complete(await start(effects, token, "at-least-once", key="a"), b"1")
        begun = await start(effects, token, "at-most-once", key="b")
        await effects.attach(begun, "ref")
        opened = await effects.open(thread)
        assert [(effect.key, effect.state, effect.attempt, effect.external_ref) for effect in opened] == [
            ("b", "running", 1, "ref")
        ]
        settled, running = await effects.all(thread)
        assert isinstance(settled, SettledEffect)
        assert isinstance(running, OpenEffect)
        assert (settled.key, settled.state, settled.result, settled.checkpoint) == ("a", "done", b"1", None)
        assert running == opened[0]

    async def test_without_a_checkpoint_there_is_no_effect(self, store: Store, effects: Effects, thread: str) -> None:
        lease = await Leases(store, NAMESPACE).acquire(thread, ttl=LONG)
        with pytest.raises(ThreadGone):
            await effects.begin(lease.token, "mail", semantics="at-least-once", fingerprint="f")
        assert await store.command("EXISTS", keys.ThreadKeys.of(NAMESPACE, thread).effects_open) == 0

    async def test_an_expired_thread_takes_no_effect(self, store: Store, effects: Effects, thread: str) -> None:
        begun = await start(effects, (await drive(store, thread)).token, "at-least-once")
        meta = keys.ThreadKeys.of(NAMESPACE, thread).meta
        await store.command("HSET", meta, "expires", store.server_time() // 1000 - 1_000)
        with pytest.raises(ThreadGone):
            await effects.begin(begun.token, "other", semantics="at-least-once", fingerprint="f")
        with pytest.raises(ThreadGone):
            await effects.complete(begun, b"1")
        assert await effects.open(thread) == []

    async def test_a_reused_id_takes_nothing_from_the_old_thread(
        self, store: Store, effects: Effects, thread: str
    ) -> None:
        begun = await start(effects, (await drive(store, thread)).token, "at-least-once")
        await store.command("HSET", keys.ThreadKeys.of(NAMESPACE, thread).meta, "incarnation", "1")
        with pytest.raises(ThreadGone):
            await effects.complete(begun, b"1")

    async def test_a_fence_from_the_future_and_a_lost_record_are_regressions(
        self, store: Store, effects: Effects, thread: str
    ) -> None:
        begun = await start(effects, (await drive(store, thread)).token, "at-most-once")
        ahead = replace(begun.token, fence=begun.token.fence + 1)
        with pytest.raises(StoreRegressed):
            await effects.begin(ahead, "mail", semantics="at-most-once", fingerprint="f")
        await store.command("DEL", keys.ThreadKeys.of(NAMESPACE, thread).effects_open)
        with pytest.raises(StoreRegressed):
            await effects.complete(begun, b"1")

    async def test_damage_is_told_and_left_alone(self, store: Store, effects: Effects, thread: str) -> None:
        begun = await start(effects, (await drive(store, thread)).token, "at-most-once")
        where = keys.ThreadKeys.of(NAMESPACE, thread)
        await store.command("HSET", where.effects_open, "mail", b"9:short")
        with pytest.raises(CorruptValue):
            await effects.begin(begun.token, "mail", semantics="at-most-once", fingerprint="f")
        with pytest.raises(CorruptValue):
            await effects.open(thread)
        await store.command("SET", where.effects, "no hash")
        with pytest.raises(ServerRefused):
            await effects.begin(begun.token, "other", semantics="at-most-once", fingerprint="f")
        assert await store.command("HGET", where.effects_open, "other") is None

    async def test_unfenced_callers_and_wrong_words_are_refused(
        self, store: Store, effects: Effects, thread: str
    ) -> None:
        token = (await drive(store, thread)).token
        with pytest.raises(ConfigError):
            await effects.begin(replace(token, fence=0), "mail", semantics="at-least-once", fingerprint="f")
        with pytest.raises(ConfigError):
            await effects.begin(replace(token, namespace="other"), "mail", semantics="at-least-once", fingerprint="f")
        with pytest.raises(ConfigError):
            await effects.begin(token, "", semantics="at-least-once", fingerprint="f")
        with pytest.raises(ConfigError, match="exactly-once"):
            await effects.begin(token, "mail", semantics="exactly-once", fingerprint="f")  # type: ignore[arg-type]
