"""Copying a thread, also to an id at which a copying broke off."""

from __future__ import annotations

from blackboard import keys
from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.fork import Copier
from blackboard.errors import ThreadExists

__all__ = ["copy"]


async def copy(engine: Engine, source: str, target: str) -> None:
    """Copy a whole thread; what another copying wrote to the target and has not completed is removed first.

    So a copy can be repeated after a crash at once. Of two that copy to one id at the same time one is told: ThreadGone.
    """
    copier = Copier(engine.store, engine.namespace, engine.seal, engine.outside)
    try:
        await copier.copy(source, target)
    except ThreadExists:
        copying = await engine.store.command("HGET", keys.ThreadKeys.of(engine.namespace, target).meta, "copying")
        if copying is None:
            raise
        await engine.retention.remove_copy(target, copying.decode())
        await copier.copy(source, target)
