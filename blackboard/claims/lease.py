"""Leases: who drives a thread. The lease decides who works, its fence decides whose write counts."""

from __future__ import annotations

import asyncio
import os
import platform
import random
import secrets
import time
from dataclasses import dataclass, replace
from typing import Any

from blackboard import keys
from blackboard.claims.keeper import LONGEST_FAREWELL, Keeper, shielded
from blackboard.claims.refusal import About, expect, number, text
from blackboard.claims.registry import enter
from blackboard.errors import BlackboardError, ConfigError, LeaseHeld, LeaseLost, OutcomeUnknown, ThreadGone
from blackboard.quantities import seconds
from blackboard.store.client import Store
from blackboard.store.script import Script
from blackboard.telemetry import logger

__all__ = ["Holder", "Lease", "Leases", "Token", "new_owner", "patience"]

FIRST_POLL, LONGEST_POLL = 0.02, 0.5
"""Seconds between two questions of a waiting acquire: half as long again each time, jittered."""

GRANTS = 3
"""How many grants in a row may have lapsed before their answer came; then the TTL is too short for this backend."""

DEAD_MS = 60_000
"""How long the owner of a cancelled acquire is remembered as dead: longer than any request stays on its way."""

log = logger("claims")


def _script(name: str, *, read_only: bool = False) -> Script:
    return Script("blackboard.claims", name, prelude=("guard.lua",), read_only=read_only)


ACQUIRE, RENEW, RELEASE = _script("acquire.lua"), _script("renew.lua"), _script("release.lua")
UNDO, BREAK, HOLDER = _script("undo.lua"), _script("break.lua"), _script("holder.lua", read_only=True)


@dataclass(frozen=True, slots=True)
class Token:
    """What a writer shows: which thread it means, and the fence of its grant. `incarnation` is None until one is open."""

    namespace: str
    thread: str
    owner: str
    fence: int
    incarnation: str | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a thread, under which fence, and for how many more seconds; 0.0: it lapsed without being released."""

    owner: str
    fence: int
    remaining: float


class Lease:
    """One grant of a thread, shared by nobody. Ends at `deadline` (monotonic clock) unless renewed.

    `status` is the thread's when it was granted (`new`: nothing is stored yet), `takeover` says that the holder before
    neither finished nor released. The deadline counts from before the request was sent, so it is never later than
    the server's; times are in seconds. `parting` is set while a script of the thread's own is to give the lease back
    (what ends or parks the thread): a renewal that finds it gone says nothing then.
    """

    def __init__(self, store: Store, token: Token, *, ttl: float, sent: float, status: str, takeover: bool) -> None:
        self._store = store
        self._thread = keys.ThreadKeys.of(token.namespace, token.thread)
        self._lost: LeaseLost | None = None
        self._answered = False
        self.token = token
        self.ttl = ttl
        self.deadline = sent + ttl
        self.status = status
        self.takeover = takeover
        self.given_back = self.parting = False

    def __repr__(self) -> str:
        return f"<Lease {self.token.thread!r} owner={self.owner!r} fence={self.fence} remaining={self.remaining:.3f}>"

    @property
    def owner(self) -> str:
        """The owner id of this grant."""
        return self.token.owner

    @property
    def fence(self) -> int:
        """The fence of this grant: higher than that of every grant before it."""
        return self.token.fence

    @property
    def incarnation(self) -> str | None:
        """The thread's incarnation, None while nothing is stored under its id."""
        return self.token.incarnation

    @property
    def remaining(self) -> float:
        """Seconds until the deadline; 0.0 when it is lost or was given back."""
        return 0.0 if self._lost or self.given_back else max(0.0, self.deadline - time.monotonic())

    def opened(self, incarnation: str) -> None:
        """Note the incarnation that the first checkpoint under this lease has opened."""
        self.token = replace(self.token, incarnation=incarnation)

    def check(self) -> None:
        """Raise LeaseLost if the lease was given back or lost, or its deadline has passed. Asks nobody."""
        if self.remaining <= 0:
            raise self.overdue()

    def overdue(self) -> LeaseLost:
        """Return the error that says why the lease is not ours any more."""
        if self._lost is not None:
            return self._lost
        what = "was released" if self.given_back else f"passed its deadline (ttl {self.ttl} s) without a renewal"
        return self._about.lost(f"the lease of thread {self.token.thread!r} {what}")

    async def renew(self) -> None:
        """Extend the lease by its TTL from now.

        Raises LeaseLost (once lost, it stays lost), ThreadGone, StoreRegressed; OutcomeUnknown and ServerUnavailable
        leave the lease as it was: try again until the deadline.
        """
        sent, left = time.monotonic(), self.remaining
        if left <= 0:
            raise self.overdue()
        args = (self.owner, self.fence, milliseconds(self.ttl))
        reply = await self._store.call(RENEW, (self._thread.meta, self._thread.lock), args, lane="lease", deadline=left)
        if not (self.parting or self.given_back) or text(reply[0]) == "OK":
            self._judge(reply)
            self.deadline = sent + self.ttl

    async def release(self) -> None:
        """Give the lease back, so that the next owner need not wait. Once it was answered, doing it again does nothing.

        Raises LeaseLost if another grant came meanwhile (which is left alone), and as `Store.call` does; then the
        lease ends with its TTL.
        """
        if self._answered:
            return
        self.given_back = True
        args = (self.owner, self.fence)
        reply = await self._store.call(RELEASE, (self._thread.meta, self._thread.lock), args, lane="lease")
        self._answered = True
        self._judge(reply)

    @property
    def _about(self) -> About:
        return About.of(self.token)

    def _judge(self, reply: Any) -> None:
        try:
            expect(self._about, reply, "OK")
        except LeaseLost as lost:
            self._lost = lost
            raise


class Leases:
    """The leases of one namespace. One grant per thread at a time; none without a TTL."""

    def __init__(self, store: Store, namespace: str) -> None:
        keys.threads(namespace, 0)
        self._store = store
        self._namespace = namespace

    async def acquire(
        self, thread: str, owner: str | None = None, *, ttl: float, wait: float | None = None, stored: bool = False
    ) -> Lease:
        """Take the lease of a thread for `ttl` seconds, waiting for it up to `wait` seconds if another holds it.

        An owner id stands for one acquisition: without one, a new id is made. The owner who holds the lease already
        gets it extended, under the same fence. A cancelled acquire gives up whatever its owner held, and that owner
        id is never granted this lease again. An unused id is reserved for 7 days; with `stored` a thread without a
        checkpoint is refused instead, and nothing is left of having asked.

        Raises LeaseHeld (holder, remaining), ThreadGone (with `removing` set while parts of a deleted or expired thread
        still stand), LeaseLost if the owner id was given up or `ttl` is shorter than the answer takes, StoreRegressed, and as
        `Store.call` does.
        """
        life, longest = seconds(ttl, what="ttl"), patience(wait)
        token = Token(self._namespace, thread, keys.check_id(new_owner() if owner is None else owner, "owner"), 0)
        until = time.monotonic() + longest
        poll = FIRST_POLL
        while True:
            try:
                return await self._ask(token, life, stored=stored)
            except LeaseHeld as held:
                left = until - time.monotonic()
                if left <= 0:
                    raise
                await asyncio.sleep(min(held.remaining + 0.001, left, poll * random.uniform(0.5, 1)))
                poll = min(poll * 1.5, LONGEST_POLL)

    def hold(self, thread: str, owner: str | None = None, *, ttl: float, wait: float | None = None) -> Keeper[Lease]:
        """Hold the lease while the body of `async with` runs, and renew it; see `Keeper` and `acquire`."""
        return Keeper(lambda: self.acquire(thread, owner, ttl=ttl, wait=wait), Lease.release)

    async def holder(self, thread: str) -> Holder | None:
        """Tell who holds a thread; None if it was released or never taken."""
        where = keys.ThreadKeys.of(self._namespace, thread)
        reply = await self._store.call(HOLDER, (where.meta, where.lock), (), lane="lease")
        if text(reply[0]) == "FREE":
            return None
        return Holder(text(reply[1]), number(reply[2]), max(0, reply[3]) / 1000)

    async def break_lock(self, thread: str) -> Holder | None:
        """End the grant that holds a thread, on an administrator's word, and return whose it was; None if none is.

        Its holder can neither write nor renew from then on. A grant that came meanwhile is left alone.
        """
        held = await self.holder(thread)
        if held is not None:
            where = keys.ThreadKeys.of(self._namespace, thread)
            reply = await self._store.call(BREAK, (where.meta, where.lock), (held.fence,), lane="lease")
            expect(About(self._namespace, thread), reply, "OK")
        return held

    async def _ask(self, token: Token, ttl: float, *, stored: bool) -> Lease:
        where = keys.ThreadKeys.of(token.namespace, token.thread)
        try:
            for _ in range(GRANTS):
                sent = time.monotonic()
                reply = await self._store.call(
                    ACQUIRE,
                    (where.meta, where.lock, where.ops, where.latest()),
                    (token.owner, milliseconds(ttl), int(stored)),
                    lane="lease",
                )
                lease = self._granted(token, ttl, sent, reply)
                if lease.status in ("new", "deleted"):
                    await enter(self._store, token.namespace, token.thread)
                if lease.remaining > 0:
                    return lease
        except (asyncio.CancelledError, OutcomeUnknown):
            await self._undo(where, token.owner, ttl)
            raise
        raise too_short(About.of(token), ttl)

    def _granted(self, token: Token, ttl: float, sent: float, reply: Any) -> Lease:
        outcome = text(reply[0])
        about = About.of(token)
        if outcome == "HELD":
            raise about.held(f"thread {token.thread!r}", text(reply[1]), reply[2])
        if outcome == "DEAD":
            raise about.lost(f"owner {token.owner!r} gave up the lease of thread {token.thread!r}; use a new owner id")
        if outcome == "REMOVING":
            raise ThreadGone(
                f"thread {token.thread!r} is gone and its parts are not removed yet",
                removing=text(reply[1]),
                **about.ids,
            )
        expect(about, reply, "OK")
        granted = replace(token, fence=number(reply[1]), incarnation=text(reply[2]) or None)
        return Lease(self._store, granted, ttl=ttl, sent=sent, status=text(reply[3]), takeover=bool(reply[4]))

    async def _undo(self, where: keys.ThreadKeys, owner: str, ttl: float) -> None:
        try:
            await shielded(self._give_up(where, owner, min(ttl, LONGEST_FAREWELL)))
        except (BlackboardError, TimeoutError) as unknown:
            log.warning("a cancelled acquire was not undone (%s); what it may have taken ends with its TTL", unknown)

    async def _give_up(self, where: keys.ThreadKeys, owner: str, longest: float) -> None:
        asked = (where.meta, where.lock, where.ops)
        await self._store.call(UNDO, asked, (owner, DEAD_MS), lane="lease", deadline=longest)


def new_owner() -> str:
    """Make an owner id: where it was made, for people to read, and 64 random bits."""
    return f"{platform.node()[:64]}-{os.getpid()}-{secrets.token_hex(8)}"


def too_short(about: About, ttl: float) -> LeaseLost:
    """Make the error for grants that lapse before they are known."""
    return about.lost(f"{about}: {GRANTS} grants lapsed before their answer came; a ttl of {ttl} s is too short")


def milliseconds(duration: float) -> int:
    return max(1, round(duration * 1000))


def patience(wait: Any) -> float:
    """Return how long to wait in seconds: not at all, 0 or more seconds (infinity too), or a duration as people write it.

    ConfigError for anything else.
    """
    if wait is None:
        return 0.0
    if isinstance(wait, (int, float)) and not isinstance(wait, bool):
        if not wait >= 0:
            raise ConfigError(f"wait must be 0 or more seconds, got {wait!r}", value=wait)
        return float(wait)
    return seconds(wait, what="wait")
