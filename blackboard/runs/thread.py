"""A thread as anybody may look at it, without its lease."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from blackboard import keys
from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.fork import Copier
from blackboard.checkpoints.manifest import Manifest, Meta
from blackboard.checkpoints.prune import Pruned, Pruner
from blackboard.checkpoints.rewind import rewind
from blackboard.claims.effect import OpenEffect, SettledEffect
from blackboard.claims.lease import Holder, Leases, patience
from blackboard.codec import Types, decode, encode
from blackboard.codec.limit import within
from blackboard.errors import ConfigError, ThreadGone
from blackboard.runs.compare import Change, changes
from blackboard.runs.hold import hold
from blackboard.runs.inbox import Inbox, Letter
from blackboard.runs.view import Checkpoint, view

__all__ = ["Thread"]

S = TypeVar("S", bound=BaseModel)

FIRST_POLL, LONGEST_POLL = 0.02, 0.5
"""Seconds between two looks at a thread whose result is waited for."""


@dataclass(frozen=True, slots=True)
class Thread:
    """A handle on one thread: reading takes no lease and changes nothing; nothing is sent before a method is called."""

    engine: Engine
    id: str

    def __post_init__(self) -> None:
        keys.check_id(self.id, "thread id")

    async def meta(self) -> Meta:
        """Read what is true of the whole thread; its status is `none` if nothing is stored."""
        return (await self.engine.read(self.id)).meta

    async def status(self) -> str:
        """Read the status: none, new, running, parked, finished, failed, quarantined or deleted."""
        reading = await self.engine.read(self.id)
        expired = reading.snapshot is None and reading.meta.incarnation is not None
        return "deleted" if expired else reading.meta.status

    async def latest(self, model: type[S] | None = None) -> Checkpoint[Any] | None:
        """Read the newest checkpoint, its state as `model` (or as a dict of channels); None if there is none."""
        snapshot = await self.engine.latest(self.id)
        return None if snapshot is None else view(snapshot, model)

    async def at(self, checkpoint: str, model: type[S] | None = None) -> Checkpoint[Any] | None:
        """Read one checkpoint by id; CheckpointMissing if it is not stored, None if the thread is not."""
        snapshot = await self.engine.at(self.id, checkpoint)
        return None if snapshot is None else view(snapshot, model)

    async def history(self, *, limit: int = 50, before: str | None = None) -> list[Manifest]:
        """List at most `limit` checkpoints without their contents, newest first, older than the id `before`."""
        return await self.engine.history(self.id, limit=limit, before=before)

    async def effects(self) -> Sequence[OpenEffect | SettledEffect]:
        """List the effects of the thread, settled and open."""
        return await self.engine.effects.all(self.id)

    async def holder(self) -> Holder | None:
        """Tell who drives the thread."""
        return await Leases(self.engine.store, self.engine.namespace).holder(self.id)

    async def break_lock(self) -> Holder | None:
        """End the lease of whoever holds the thread, on a person's word; returns whose it was."""
        return await Leases(self.engine.store, self.engine.namespace).break_lock(self.id)

    async def resolve(self, effect: str, result: Any) -> None:
        """Record, on a person's word, that an open effect happened, with this result; see `abandon`."""
        await self._decide(effect, "done", encode(result, path="result"))

    async def abandon(self, effect: str, reason: str) -> None:
        """Record, on a person's word, that an open effect is given up; `effect` is its key as `effects` lists it.

        Takes the thread's lease for the moment, so LeaseHeld while somebody drives it. Raises ConfigError if no effect
        of that key is open, ThreadGone if there is no such thread.
        """
        await self._decide(effect, "abandoned", encode(reason, path="reason"))

    async def delete(self, *, drop_unread: bool = False) -> bool:
        """Delete the thread and all of it, whoever drives it; True if there was one. Late writes are refused for 7 days.

        Raises UnresolvedEffects while an effect is running or unknown, and UnreadSignals while the inbox holds letters,
        unless they are to be dropped. It is also the way out of StoreRegressed: what is left of the thread goes.
        """
        return await self.engine.retention.delete(self.id, drop_unread=drop_unread)

    async def fork(self, to: str, *, at: str | None = None) -> Thread:
        """Make a new thread that stands where this one stands, or stood at a checkpoint; it owes this one nothing.

        Effects that were settled by then come along, later ones do not, and letters do not. Raises ThreadExists,
        CheckpointMissing, ThreadGone. If it does not come to the end, nothing of the new thread is seen.
        """
        await self._copier.fork(self.id, to, checkpoint=at)
        return Thread(self.engine, to)

    async def copy(self, to: str) -> Thread:
        """Copy the whole thread, its history with it, to an unused id."""
        await self._copier.copy(self.id, to)
        return Thread(self.engine, to)

    async def pin(self, checkpoint: str) -> None:
        """Keep a checkpoint whatever is pruned, until the thread ends."""
        await Pruner(self.engine.store, self.engine.namespace).pin(self.id, checkpoint)

    async def unpin(self, checkpoint: str) -> bool:
        """Let a checkpoint be pruned again; True if it was pinned."""
        return await Pruner(self.engine.store, self.engine.namespace).unpin(self.id, checkpoint)

    async def prune(self, *, keep_last: int) -> Pruned:
        """Drop all but the newest `keep_last` and the pinned checkpoints, and what only the dropped ones held.

        In slices, also while the thread is driven. If it is written meanwhile, the garbage is looked for again, a few
        times, and then left for the next prune (`gave_way`); that of a thread of more than 1,000 checkpoints is looked for
        once an eighth as many were dropped (`deferred`). A kill in the middle leaves every checkpoint readable or gone.
        """
        return await Pruner(self.engine.store, self.engine.namespace).prune(self.id, keep_last=keep_last)

    async def diff(self, before: str, after: str) -> list[Change]:
        """Tell what differs between two checkpoints, channel by channel; a channel that is the same is left out."""
        older, newer = await self.engine.at(self.id, before), await self.engine.at(self.id, after)
        if older is None or newer is None:
            raise ThreadGone(f"there is no thread {self.id!r}", thread=self.id, why="missing")
        return changes(older, newer)

    async def rewind(self, to: str, *, reason: str) -> str:
        """Let the thread go on from an earlier checkpoint, for a reason; returns the id of the new checkpoint.

        The new checkpoint holds what that one held and names it as its parent; what came after it stays in the history.
        Its step is new, so effects scoped to a step run again. Takes the lease for the moment, so LeaseHeld while
        somebody drives the thread. Raises AlreadyFinished on a closed thread: fork it instead; CheckpointMissing, ThreadGone.
        """
        policy = self.engine.policy
        async with hold(self.engine, self.id, owner=None, ttl=policy.lease_ttl, wait=None, stored=True) as lease:
            return (await rewind(self.engine, self.id, lease.token, to, reason)).checkpoint

    async def readmit(self) -> None:
        """Let a quarantined thread be driven again, after somebody has looked at it."""
        await self.engine.readmit(self.id)

    async def unread(self) -> list[Letter]:
        """List the letters in the inbox that the thread has not taken."""
        return await Inbox(self.engine).unread(self.id)

    @property
    def _copier(self) -> Copier:
        engine = self.engine
        return Copier(engine.store, engine.namespace, engine.seal, engine.outside)

    async def _decide(self, effect: str, state: Literal["done", "abandoned"], body: bytes) -> None:
        effects = self.engine.effects
        policy = self.engine.policy
        within(policy.value_limit, body, f"what is recorded of effect {effect!r}", path="result")
        async with hold(self.engine, self.id, owner=None, ttl=policy.lease_ttl, wait=None, stored=True) as lease:
            opened = {one.key: one for one in await effects.open(self.id)}
            if effect not in opened:
                raise ConfigError(
                    f"thread {self.id!r} has no open effect {effect!r}; open: {', '.join(sorted(opened)) or 'none'}",
                    value=effect,
                )
            await effects.resolve(lease.token, opened[effect], state, body)

    async def result(self, *, wait: float = 0.0, type: Any = None) -> Any:
        """Return what the thread was finished with, waiting for it up to `wait` seconds.

        A thread that has not begun is waited for, too. Raises TimeoutError if it is not closed by then, ThreadGone if it was
        deleted or has expired. A thread that failed returns the reason; `status` tells the two apart.
        """
        until, pause = time.monotonic() + patience(wait), FIRST_POLL
        while True:
            reading = await self.engine.read(self.id)
            if reading.snapshot is None and reading.meta.status not in ("none", "new"):
                raise ThreadGone(
                    f"thread {self.id!r} is gone: it was deleted or has expired", thread=self.id, why="deleted"
                )
            if reading.meta.status in ("finished", "failed") and reading.snapshot is not None:
                stored = reading.snapshot.manifest.result
                return decode(stored, types=None if type is None else Types.of(type)) if stored else None
            left = until - time.monotonic()
            if left <= 0:
                status = reading.meta.status
                stands = "has not begun" if status in ("none", "new") else f"is {status}, not finished,"
                raise TimeoutError(f"thread {self.id!r} {stands} after {wait} s")
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 1.5, LONGEST_POLL)
