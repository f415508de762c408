"""Holding a thread's lease, whatever stood under its id before."""

from __future__ import annotations

from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.refusal import still_standing
from blackboard.claims.keeper import Keeper
from blackboard.claims.lease import Lease, Leases
from blackboard.errors import ThreadGone

__all__ = ["grant", "hold"]


def hold(
    engine: Engine, thread: str, *, owner: str | None, ttl: float, wait: float | None, stored: bool = False
) -> Keeper[Lease]:
    """Hold the lease of a thread as `grant` gives it."""
    return Keeper(lambda: grant(engine, thread, owner=owner, ttl=ttl, wait=wait, stored=stored), Lease.release)


async def grant(
    engine: Engine, thread: str, *, owner: str | None, ttl: float, wait: float | None, stored: bool
) -> Lease:
    """Take the lease of a thread, after removing what is left of a thread that had its id before.

    With `stored` a thread without a checkpoint raises ThreadGone, and nothing is written or removed.
    """
    leases = Leases(engine.store, engine.namespace)
    for _ in range(8):
        try:
            return await leases.acquire(thread, owner, ttl=ttl, wait=wait, stored=stored)
        except ThreadGone as gone:
            if "removing" not in gone.ids:
                raise
            await engine.retention.remove(thread, gone.ids["removing"])
    raise still_standing(thread)
