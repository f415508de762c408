"""Effects that are claimed across threads: each with an owner, a fence and a lease of its own."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from blackboard import keys
from blackboard.claims.keeper import Keeper
from blackboard.claims.lease import GRANTS, milliseconds, new_owner, too_short
from blackboard.claims.outcome import (
    Done,
    Failed,
    Mismatch,
    Refusal,
    Unknown,
    check_bytes,
    check_semantics,
    check_text,
    downstream_key,
    refused,
)
from blackboard.claims.record import Semantics, SettledState, body_kind
from blackboard.claims.refusal import About, expect, number, text
from blackboard.codec.cipher import Seal, opened, sealed
from blackboard.codec.limit import within
from blackboard.errors import LeaseLost
from blackboard.quantities import seconds
from blackboard.store.client import Store
from blackboard.store.script import Script

__all__ = ["Claim", "SharedEffect", "SharedEffects"]

KEEP = 7 * 86400.0
"""Seconds for which a settled effect is remembered unless told otherwise."""

FIELDS = ("state", "owner", "fence", "attempt", "started", "semantics", "fingerprint", "external_ref", "body")


def _script(name: str) -> Script:
    return Script("blackboard.claims", name, prelude=("guard.lua",))


BEGIN, RENEW, SETTLE, ATTACH = map(
    _script, ("begin_shared.lua", "renew_shared.lua", "settle_shared.lua", "attach_shared.lua")
)


@dataclass(frozen=True, slots=True)
class SharedEffect:
    """What is recorded about an effect that is claimed across threads. `started_at` is server time in microseconds."""

    key: str
    state: SettledState | Literal["running", "unknown"]
    owner: str
    fence: int
    attempt: int
    started_at: int
    semantics: Semantics
    fingerprint: str
    external_ref: str | None
    result: bytes


class Claim:
    """Go: the effect is recorded as running, and this attempt is ours until `deadline` (monotonic clock) unless renewed.

    Pass `downstream_key` to the outside world.
    """

    def __init__(
        self,
        store: Store,
        about: About,
        attempt: int,
        *,
        semantics: Semantics,
        fingerprint: str,
        ttl: float,
        sent: float,
    ) -> None:
        assert about.effect is not None
        assert about.owner is not None
        assert about.fence is not None
        self._store = store
        self.about = about
        self.key: str = about.effect
        self.owner: str = about.owner
        self.fence: int = about.fence
        self.attempt = attempt
        self.semantics = semantics
        self.fingerprint = fingerprint
        self.downstream_key = downstream_key(about.namespace, self.key)
        self.ttl = ttl
        self.deadline = sent + ttl
        self.given_back = False

    def __repr__(self) -> str:
        return f"<Claim {self.key!r} owner={self.owner!r} fence={self.fence} attempt={self.attempt}>"

    @property
    def remaining(self) -> float:
        """Seconds until the deadline; 0.0 when it has passed or the effect was recorded."""
        return 0.0 if self.given_back else max(0.0, self.deadline - time.monotonic())

    def overdue(self) -> LeaseLost:
        """Return the error that says why the claim is not ours any more."""
        what = "was recorded" if self.given_back else f"passed its deadline (ttl {self.ttl} s) without a renewal"
        return self.about.lost(f"{self.about} {what}")

    def check(self) -> None:
        """Raise LeaseLost if the deadline has passed or the effect was recorded. Asks nobody."""
        if self.remaining <= 0:
            raise self.overdue()

    async def renew(self) -> None:
        """Extend the claim by its TTL from now; raises as `Lease.renew`."""
        sent, left = time.monotonic(), self.remaining
        if left <= 0:
            raise self.overdue()
        key = keys.effect(self.about.namespace, self.key)
        args = (self.owner, self.fence, milliseconds(self.ttl))
        reply = await self._store.call(RENEW, (key,), args, lane="lease", deadline=left)
        expect(self.about, reply, "OK")
        self.deadline = sent + self.ttl


class SharedEffects:
    """The effects of one namespace that are claimed across threads; a settled one is forgotten after `keep` seconds.

    They cannot be settled inside a commit. A running or unknown one never expires. A renewal writes, so on a full
    server it is refused and the claim ends at its deadline. Besides what `Store.call` raises: LeaseLost if the
    effect was taken over, resolved or settled by another (`holder`, `newest` and `state` say which), EffectBusy; and
    EncodeError for a result, an error or a reference of more than `limit` bytes.
    """

    def __init__(
        self, store: Store, namespace: str, *, keep: float = KEEP, seal: Seal | None = None, limit: int = sys.maxsize
    ) -> None:
        keys.threads(namespace, 0)
        self._store, self._seal, self._limit = store, seal, limit
        self._namespace = namespace
        self._keep = milliseconds(seconds(keep, what="keep"))

    async def begin(
        self, key: str, *, semantics: Semantics, fingerprint: str, ttl: float,
        owner: str | None = None, op: str | None = None,
    ) -> Claim | Refusal:  # fmt: skip
        """Claim an effect for `ttl` seconds, or say why it must not run now; see `Effects.begin`.

        After its lease has lapsed, an at-least-once effect is claimed anew, attempt + 1; an at-most-once one is Unknown.
        LeaseLost if `ttl` is shorter than the answer takes.
        """
        owner, life = keys.check_id(owner or new_owner(), "owner"), seconds(ttl, what="ttl")
        plain, op = check_text(fingerprint, "fingerprint", least=0), op or self._store.op_id()
        if self._seal is not None:
            fingerprint = self._seal.fingerprint(plain, "", key)
        for _ in range(1 + GRANTS):
            sent = time.monotonic()
            args = (owner, milliseconds(life), check_semantics(semantics), fingerprint, op)
            reply = await self._store.call(BEGIN, (keys.effect(self._namespace, key),), args)
            answer = refused(key, reply)
            if isinstance(answer, Mismatch) and self._seal is not None and fingerprint != answer.fingerprint:
                # The record may have been made with a key that was replaced since.
                fingerprint = self._seal.fingerprint(plain, "", key, like=answer.fingerprint)
                if fingerprint == answer.fingerprint:
                    continue
            if answer is not None:
                return self._open(key, answer)
            expect(About(self._namespace, effect=key), reply, "RUN")
            about = About(self._namespace, owner=owner, fence=number(reply[2]), effect=key)
            claim = Claim(
                self._store, about, number(reply[1]), semantics=semantics, fingerprint=fingerprint, ttl=life, sent=sent
            )
            if claim.remaining > 0:
                return claim
        raise too_short(About(self._namespace, owner=owner, effect=key), life)

    def _open(self, key: str, answer: Refusal) -> Refusal:
        match answer:
            case Done():
                return replace(answer, result=opened(self._seal, answer.result, "result", "", key))
            case Failed() if answer.error:
                return replace(answer, error=opened(self._seal, answer.error, "error", "", key))
            case _:
                return answer

    def hold(self, claim: Claim) -> Keeper[Claim]:
        """Renew a claim while the body of `async with` runs; see `Keeper`. Leaving records nothing."""

        async def take() -> Claim:
            claim.check()
            return claim

        return Keeper(take)

    async def complete(self, claim: Claim, result: bytes, *, op: str | None = None) -> None:
        """Record the result; from then on every begin answers Done with it."""
        await self._end(claim, "done", result, op)

    async def fail(self, claim: Claim, error: bytes, *, final: bool = False, op: str | None = None) -> None:
        """Record that the attempt failed; see `Effects.fail`."""
        retry: Literal["retry", "unknown"] = "retry" if claim.semantics == "at-least-once" else "unknown"
        await self._end(claim, "failed" if final else retry, error, op)

    async def interrupt(self, claim: Claim, *, op: str | None = None) -> None:
        """Record that the outcome of the attempt is unknown, as after a cancellation."""
        await self._end(claim, "unknown", b"", op)

    async def attach(self, claim: Claim, external_ref: str) -> None:
        """Note the reference by which the outside world knows the effect; an Unknown carries it."""
        key, ref = keys.effect(self._namespace, claim.key), check_text(external_ref, "external_ref")
        self._fit(claim.key, ref.encode(), "external_ref")
        expect(claim.about, await self._store.call(ATTACH, (key,), (claim.owner, claim.fence, ref)), "OK")

    async def resolve(
        self, effect: Unknown | SharedEffect, state: SettledState, result: bytes = b"", *, op: str | None = None
    ) -> None:
        """Decide about an effect whose claim has lapsed: done, failed, abandoned, or retry to let it be claimed again.

        EffectBusy while its claim is live; whoever had it cannot record anything afterwards.
        """
        about = About(self._namespace, owner=new_owner(), fence=effect.fence, effect=effect.key)
        await self._settle(about, state, result, op)

    async def read(self, key: str) -> SharedEffect | None:
        """Tell what is recorded about an effect; None if nothing is."""
        reply = await self._store.command("HMGET", keys.effect(self._namespace, key), *FIELDS)
        if reply[0] is None:
            return None
        state, owner, fence, attempt, started, semantics, fingerprint, ref = (text(part) for part in reply[:-1])
        body = reply[-1]
        if body or state == "done":
            body = opened(self._seal, body, body_kind(state), "", key)
        return SharedEffect(
            key, cast("SettledState", state), owner, int(fence), int(attempt), int(started), cast("Semantics", semantics),
            fingerprint, ref or None, body,
        )  # fmt: skip

    async def _end(self, claim: Claim, state: SettledState | Literal["unknown"], body: bytes, op: str | None) -> None:
        await self._settle(claim.about, state, body, op)
        claim.given_back = True

    async def _settle(self, about: About, state: str, body: bytes, op: str | None) -> None:
        effect = cast("str", about.effect)
        key = keys.effect(self._namespace, effect)
        self._fit(effect, check_bytes(body, "what is recorded of an effect"), body_kind(state))
        if body or state == "done":
            body = sealed(self._seal, body, body_kind(state), "", effect)
        args: tuple[Any, ...] = (about.owner, about.fence, state, op or self._store.op_id(), body, self._keep)
        expect(about, await self._store.call(SETTLE, (key,), args), "OK")

    def _fit(self, effect: str, data: bytes, what: str) -> None:
        within(self._limit, data, f"the {what} of effect {effect!r}", path=what)
