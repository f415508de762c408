"""Effects of a thread: what must not silently happen twice, recorded before it starts and after it ends.

The window between an effect in the outside world and its record cannot be closed from here. Give the downstream key to
whoever carries the effect out, and attach the reference by which they know it as soon as there is one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from blackboard import keys
from blackboard.claims.lease import Token
from blackboard.claims.outcome import (
    Busy,
    Done,
    Failed,
    Mismatch,
    Refusal,
    Unknown,
    check_semantics,
    check_text,
    downstream_key,
    refused,
)
from blackboard.claims.record import OpenEffect, Semantics, SettledEffect, SettledState, Settlement, body_kind, pack
from blackboard.claims.refusal import About, Reply, expect, number, text
from blackboard.codec.cipher import Seal, opened, sealed
from blackboard.errors import BlackboardError, ConfigError, ThreadGone
from blackboard.store.client import Store
from blackboard.store.script import Script

__all__ = [
    "Answer", "Busy", "Done", "Effects", "Failed", "Mismatch", "OpenEffect", "Semantics", "SettledEffect", "Settlement",
    "Start", "Unknown", "downstream_key",
]  # fmt: skip

PRELUDE = ("guard.lua", "frames.lua", "records.lua")
BEGIN = Script("blackboard.claims", "begin.lua", prelude=PRELUDE)
SETTLE = Script("blackboard.claims", "settle.lua", prelude=PRELUDE)
ATTACH = Script("blackboard.claims", "attach.lua", prelude=PRELUDE)
LIST = Script("blackboard.claims", "effects.lua", prelude=("guard.lua",), read_only=True)


@dataclass(frozen=True, slots=True)
class Start:
    """Go: the effect is recorded as running, and this attempt is ours. Pass `downstream_key` to the outside world."""

    token: Token
    key: str
    attempt: int
    downstream_key: str
    semantics: Semantics
    fingerprint: str
    op: str


Answer = Start | Refusal

Judge = Callable[[ThreadGone], Awaitable[BlackboardError]]
"""Tells a thread that is gone from one that the store has lost."""


class Effects:
    """The effects of the threads of one namespace. Only the newest holder of a thread may touch its effects.

    A lapsed lease is enough as long as nobody else was granted one. Every method takes an op id, so that a lost reply
    does no harm: the same call with the same id has the same answer. Besides what `Store.call` raises: LeaseLost
    (taken over, or another attempt won; `holder`, `newest` and `state` say which), ThreadGone (deleted, expired, or
    nothing committed yet), StoreRegressed, CorruptValue.
    """

    def __init__(self, store: Store, namespace: str, seal: Seal | None = None, judge: Judge | None = None) -> None:
        keys.threads(namespace, 0)
        self._store = store
        self._namespace = namespace
        self._seal = seal
        self._judge = judge

    async def begin(
        self, token: Token, key: str, *, semantics: Semantics, fingerprint: str, op: str | None = None
    ) -> Answer:
        """Record that an effect starts now, or say why it must not; the record is acknowledged before it may start.

        `fingerprint` stands for the arguments. A started effect of a driver that is gone is started again, attempt + 1,
        if it is at-least-once, and Unknown if it is (or was begun as) at-most-once.
        """
        about, thread, op = self._about(token, key), token.thread, op or self._store.op_id()
        if self._seal is None:
            return self._open(thread, key, await self._begin(about, token, semantics, fingerprint, op))
        own = self._seal.fingerprint(fingerprint, thread, key)
        answer = await self._begin(about, token, semantics, own, op)
        if isinstance(answer, Mismatch):
            # The record may have been made with a key that was replaced since, or in the thread that this is a copy of.
            again = self._seal.fingerprint(fingerprint, thread, key, like=answer.fingerprint)
            if again == answer.fingerprint:
                answer = await self._begin(about, token, semantics, again, op)
        return self._open(thread, key, answer)

    async def _begin(self, about: About, token: Token, semantics: Semantics, fingerprint: str, op: str) -> Answer:
        key = about.effect or ""
        where = keys.ThreadKeys.of(self._namespace, token.thread)
        asked = (where.meta, where.lock, where.effects, where.effects_open, where.latest(), where.history())
        args = (token.owner, token.fence, token.incarnation or "", key, check_semantics(semantics), fingerprint, op)
        reply = await self._store.call(BEGIN, asked, args)
        answer = refused(key, reply)
        if answer is not None:
            return answer
        await self._expect(about, reply, "RUN")
        downstream = downstream_key(self._namespace, token.thread, text(reply[2]), key)
        return Start(token, key, number(reply[1]), downstream, semantics, fingerprint, op)

    def _open(self, thread: str, key: str, answer: Answer) -> Answer:
        match answer:
            case Done():
                return replace(answer, result=opened(self._seal, answer.result, "result", thread, key))
            case Failed() if answer.error:
                return replace(answer, error=opened(self._seal, answer.error, "error", thread, key))
            case _:
                return answer

    async def complete(self, start: Start, result: bytes, *, op: str | None = None) -> None:
        """Record the result; from then on every begin answers Done with it."""
        await self._settle(start.token, start.key, _claim(start), "done", body=result, op=op)

    async def fail(self, start: Start, error: bytes, *, final: bool = False, op: str | None = None) -> None:
        """Record that the attempt failed. `final`: every begin answers Failed with this error.

        Else an at-least-once effect may be begun again, and the outcome of an at-most-once effect is unknown.
        """
        retry: Literal["retry", "unknown"] = "retry" if start.semantics == "at-least-once" else "unknown"
        await self._settle(start.token, start.key, _claim(start), "failed" if final else retry, body=error, op=op)

    async def interrupt(self, start: Start, *, op: str | None = None) -> None:
        """Record that the outcome of the attempt is unknown, as after a cancellation."""
        await self._settle(start.token, start.key, _claim(start), "unknown", body=b"", op=op)

    async def attach(self, start: Start, external_ref: str) -> None:
        """Note the reference by which the outside world knows the effect; an Unknown carries it."""
        where = keys.ThreadKeys.of(self._namespace, start.token.thread)
        args = (
            start.token.fence,
            start.token.incarnation or "",
            start.key,
            _claim(start),
            check_text(external_ref, "external_ref"),
        )
        reply = await self._store.call(ATTACH, _settled_keys(where), args)
        await self._expect(self._about(start.token, start.key), reply, "OK")

    async def resolve(
        self,
        token: Token,
        effect: Unknown | OpenEffect | Start,
        state: SettledState,
        result: bytes = b"",
        *,
        op: str | None = None,
    ) -> None:
        """Decide about an open effect that nobody else can record: done, failed, abandoned, or retry to run it again.

        `effect` is what a begin or `open` said; if it has changed since, LeaseLost. Whoever holds the thread decides.
        """
        grant = effect.token if isinstance(effect, Start) else effect
        claim = pack(grant.fence, grant.owner, effect.attempt)
        await self._settle(token, effect.key, claim, state, body=result, op=op)

    def settlement(self, start: Start, result: bytes) -> Settlement:
        """Spell the result for a commit, which records it together with the state: exactly once with it."""
        now, token = self._store.server_time(), start.token
        record = pack(
            "",
            now,
            "done",
            start.attempt,
            start.fingerprint,
            self._store.op_id(),
            token.fence,
            token.owner,
            start.op,
            sealed(self._seal, result, "result", token.thread, start.key),
        )
        return Settlement(start.key, _claim(start), record)

    async def open(self, thread: str) -> list[OpenEffect]:
        """List the effects that are running or unknown, the oldest first. Needs no lease."""
        unsettled, _ = await self._list(thread, 0)
        return sorted(_parsed(OpenEffect, unsettled), key=lambda effect: (effect.started_at, effect.key))

    async def all(self, thread: str) -> list[OpenEffect | SettledEffect]:
        """List every effect of a thread, by key; an open one comes before a settled one. Needs no lease."""
        unsettled, settled = await self._list(thread, 1)
        found = [*_parsed(OpenEffect, unsettled), *(self._show(thread, one) for one in _parsed(SettledEffect, settled))]
        return sorted(found, key=lambda effect: effect.key)

    async def settled(self, thread: str, names: Sequence[str]) -> dict[str, SettledEffect]:
        """Read the settled effects among `names`, by key; one that is not settled is left out."""
        where = keys.ThreadKeys.of(self._namespace, thread)
        records = await self._store.command("HMGET", where.effects, *names)
        pairs = zip(names, records, strict=True)
        found = {name: SettledEffect.parse(name.encode(), record) for name, record in pairs if record is not None}
        return {name: self._show(thread, effect) for name, effect in found.items()}

    async def _list(self, thread: str, settled: int) -> tuple[list[bytes], list[bytes]]:
        where = keys.ThreadKeys.of(self._namespace, thread)
        unsettled, rest = await self._store.call(LIST, (where.meta, where.effects, where.effects_open), (settled,))
        return unsettled, rest

    def _show(self, thread: str, effect: SettledEffect) -> SettledEffect:
        if effect.state != "done" and not effect.result:
            return effect
        return replace(effect, result=opened(self._seal, effect.result, body_kind(effect.state), thread, effect.key))

    async def _settle(
        self,
        token: Token,
        key: str,
        claim: bytes,
        state: SettledState | Literal["unknown"],
        *,
        body: bytes,
        op: str | None,
    ) -> None:
        about = self._about(token, key)
        where = keys.ThreadKeys.of(self._namespace, token.thread)
        op = op or self._store.op_id()
        if body or state == "done":
            body = sealed(self._seal, body, body_kind(state), token.thread, key)
        args = (token.owner, token.fence, token.incarnation or "", key, claim, state, op, body)
        await self._expect(about, await self._store.call(SETTLE, _settled_keys(where), args), "OK")

    async def _expect(self, about: About, reply: Reply, outcome: str) -> None:
        try:
            expect(about, reply, outcome)
        except ThreadGone as gone:
            if self._judge is None:
                raise
            raise await self._judge(gone) from None

    def _about(self, token: Token, key: str) -> About:
        keys.check_id(key, "effect key")
        if token.fence <= 0 or token.namespace != self._namespace:
            raise ConfigError(
                f"effects of namespace {self._namespace!r} need the token of a lease in it, got {token!r}"
            )
        return About.of(token, key)


def _claim(start: Start) -> bytes:
    return pack(start.token.fence, start.token.owner, start.attempt)


def _settled_keys(where: keys.ThreadKeys) -> tuple[str, ...]:
    return where.meta, where.effects, where.effects_open, where.latest(), where.history()


def _parsed(kind: Any, pairs: list[bytes]) -> Iterator[Any]:
    flat: Iterable[bytes] = iter(pairs)
    return (kind.parse(key, data) for key, data in zip(flat, flat, strict=True))
