"""Who tends a path: one at a time builds snapshots, consolidates or migrates. Reading and remembering need no lease."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from blackboard.claims.keeper import LONGEST_FAREWELL, Keeper, shielded
from blackboard.claims.lease import GRANTS, milliseconds, new_owner
from blackboard.errors import BlackboardError, LeaseHeld, LeaseLost, OutcomeUnknown, StoreRegressed
from blackboard.keys import PathKeys, check_id
from blackboard.quantities import seconds
from blackboard.store.client import Store
from blackboard.store.script import Script
from blackboard.telemetry import logger

__all__ = ["PathLease", "Place", "claim", "tend"]

TTL = 15.0
"""Seconds for which a lease of a path lasts unless it is renewed: how long the next tender waits for a dead one."""

log = logger("memory")


def _script(name: str) -> Script:
    return Script("blackboard.memory", name, prelude=("blackboard.claims:guard.lua",))


CLAIM, RENEW, RELEASE = map(_script, ("claim.lua", "renew.lua", "release.lua"))


@dataclass(frozen=True, slots=True)
class Place:
    """A path of a namespace on a backend. `path` is spelled as `keys.path_text` does."""

    store: Store
    namespace: str
    path: str

    @property
    def keys(self) -> PathKeys:
        """The keys of the path."""
        return PathKeys.of(self.namespace, self.path)

    @property
    def ids(self) -> dict[str, Any]:
        """What an error about this path carries."""
        return {"namespace": self.namespace, "path": self.path}

    def judge(self, reply: Sequence[Any], *, fence: int | None = None, owner: str | None = None) -> str:
        """Return what a script of the tender answered, or raise LeaseLost or StoreRegressed if it refused the fence."""
        outcome: str = reply[0].decode()
        ids = {**self.ids, "owner": owner, "fence": fence}
        if outcome == "REGRESSED":
            raise StoreRegressed(f"the store has lost what it had acknowledged about path {self.path!r}", **ids)
        if outcome == "LOST":
            holder, newest = reply[1].decode() or None, int(reply[2])
            what = "has lapsed" if newest == fence else f"was taken over: fence {fence} is older than {newest}"
            message = f"the lease of path {self.path!r} {what}; nothing was written"
            raise LeaseLost(message, **ids, holder=holder, newest=newest)
        return outcome


class PathLease:
    """One grant of a path, shared by nobody. Ends at `deadline` (monotonic clock) unless renewed; times are in seconds.

    Whatever is written under it shows its fence, and is refused as soon as a newer one was granted.
    """

    def __init__(self, place: Place, owner: str, fence: int, *, ttl: float, sent: float) -> None:
        self._place = place
        self._lost: LeaseLost | None = None
        self.owner = owner
        self.fence = fence
        self.ttl = ttl
        self.deadline = sent + ttl
        self.given_back = False

    def __repr__(self) -> str:
        return (
            f"<PathLease {self._place.path!r} owner={self.owner!r} fence={self.fence} remaining={self.remaining:.3f}>"
        )

    @property
    def remaining(self) -> float:
        """Seconds until the deadline; 0.0 when it is lost or was given back."""
        return 0.0 if self._lost or self.given_back else max(0.0, self.deadline - time.monotonic())

    def check(self) -> None:
        """Raise LeaseLost if the lease was given back or lost, or its deadline has passed. Asks nobody."""
        if self.remaining <= 0:
            raise self.overdue()

    def overdue(self) -> LeaseLost:
        """Return the error that says why the lease is not ours any more."""
        if self._lost is not None:
            return self._lost
        what = "was released" if self.given_back else f"passed its deadline (ttl {self.ttl} s) without a renewal"
        message = f"the lease of path {self._place.path!r} {what}"
        return LeaseLost(message, **self._place.ids, owner=self.owner, fence=self.fence)

    async def renew(self) -> None:
        """Extend the lease by its TTL from now.

        Raises LeaseLost (once lost, it stays lost) and StoreRegressed; OutcomeUnknown and ServerUnavailable leave the
        lease as it was: try again until the deadline.
        """
        sent, left = time.monotonic(), self.remaining
        if left <= 0:
            raise self.overdue()
        await self._ask(RENEW, milliseconds(self.ttl), deadline=left)
        self.deadline = sent + self.ttl

    async def release(self) -> None:
        """Give the lease back, so that the next tender need not wait; doing it again does nothing.

        Raises LeaseLost if another grant came meanwhile (which is left alone), and as `Store.call` does; then the
        lease ends with its TTL.
        """
        if not self.given_back:
            self.given_back = True
            await self._ask(RELEASE)

    async def _ask(self, script: Script, *more: int, deadline: float | None = None) -> None:
        where, store = self._place.keys, self._place.store
        args: tuple[str | int, ...] = (self.owner, self.fence, *more)
        reply = await store.call(script, (where.head, where.lock), args, lane="lease", deadline=deadline)
        try:
            self._place.judge(reply, fence=self.fence, owner=self.owner)
        except LeaseLost as lost:
            self._lost = lost
            raise


async def claim(place: Place, owner: str | None = None, *, ttl: float = TTL) -> PathLease:
    """Take the lease of a path for `ttl` seconds; the owner who holds it already gets it extended, under the same fence.

    Raises LeaseHeld (`holder`, `remaining`), LeaseLost if `ttl` is shorter than the answer takes, StoreRegressed, and
    as `Store.call` does. A cancelled claim gives up what it may have got.
    """
    life, owner = seconds(ttl, what="ttl"), check_id(owner or new_owner(), "owner")
    where = place.keys
    try:
        for _ in range(GRANTS):
            sent = time.monotonic()
            reply = await place.store.call(CLAIM, (where.head, where.lock), (owner, milliseconds(life)), lane="lease")
            if place.judge(reply, owner=owner) == "HELD":
                raise _held(place, reply[1].decode(), reply[2])
            lease = PathLease(place, owner, int(reply[1]), ttl=life, sent=sent)
            if lease.remaining > 0:
                return lease
    except (asyncio.CancelledError, OutcomeUnknown):
        await _undo(place, owner, life)
        raise
    message = f"path {place.path!r}: {GRANTS} grants lapsed before their answer came; a ttl of {ttl} s is too short"
    raise LeaseLost(message, **place.ids, owner=owner)


def tend(place: Place, owner: str | None = None, *, ttl: float = TTL) -> Keeper[PathLease]:
    """Hold the lease of a path while the body of `async with` runs, and renew it; see `Keeper` and `claim`."""
    return Keeper(lambda: claim(place, owner, ttl=ttl), PathLease.release)


def _held(place: Place, holder: str, remaining_ms: int) -> LeaseHeld:
    remaining = max(0, remaining_ms) / 1000
    message = f"path {place.path!r} is tended by {holder!r} for {remaining:.3f} s more"
    return LeaseHeld(message, holder=holder, remaining=remaining, **place.ids)


async def _undo(place: Place, owner: str, ttl: float) -> None:
    async def give_up() -> None:
        longest = min(ttl, LONGEST_FAREWELL)
        where = place.keys
        await place.store.call(RELEASE, (where.head, where.lock), (owner, ""), lane="lease", deadline=longest)

    try:
        await shielded(give_up())
    except (BlackboardError, TimeoutError) as unknown:
        log.warning("a cancelled claim was not undone (%s); what it may have taken ends with its TTL", unknown)
