"""Going on from an earlier checkpoint of the same thread."""

from __future__ import annotations

import json

from blackboard.checkpoints.channels import Keep
from blackboard.checkpoints.commit import Commit, Committed
from blackboard.checkpoints.engine import Engine
from blackboard.claims.lease import Token
from blackboard.errors import ThreadGone

__all__ = ["rewind"]


async def rewind(engine: Engine, thread: str, token: Token, to: str, reason: str) -> Committed:
    """Commit what the checkpoint `to` holds as the newest one; its manifest says where it comes from and why.

    Costs references only. Raises as `Engine.commit` does, and CheckpointMissing.
    """
    newest = await engine.read(thread)
    old = await engine.at(thread, to)
    if newest.snapshot is None or old is None:
        raise ThreadGone(f"there is no thread {thread!r}", thread=thread, why="missing")
    manifest = old.manifest
    commit = Commit(
        newest.snapshot.manifest.step + 1,
        {name: Keep(ref) for name, ref in manifest.refs.items()},
        parent=newest.snapshot.manifest.checkpoint,
        follows=manifest.checkpoint,
        next=manifest.next,
        cursors=manifest.cursors,
        pending=manifest.pending,
        extra=json.dumps({"rewound_from": newest.snapshot.manifest.checkpoint, "reason": reason}).encode(),
    )
    return await engine.commit(thread, commit, token=token, sequence=newest.meta.sequence)
