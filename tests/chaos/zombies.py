"""A driver that is stopped while it works and wakes up when another has taken over: it tries everything that it could."""

from __future__ import annotations

import json
import signal
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from blackboard.checkpoints.channels import Value
from blackboard.checkpoints.commit import Commit
from blackboard.checkpoints.engine import Write
from blackboard.claims.effect import Effects, Start
from blackboard.errors import BlackboardError
from blackboard.points import watch
from blackboard.testing.crash import Spot, strike
from tests.chaos.stage import NAMESPACE, Stage, append, stage

TTL = 0.4
"""Lease of the driver that is stopped, in seconds."""


async def sleepwalk(url: str, thread: str, directory: str, first: str, point: str) -> None:
    """After one commit and one begun effect stop at a point of the first try; awake, try all and note the answers."""
    async with stage(url, thread, directory) as on:
        lease = await on.leases.acquire(thread, "zombie", ttl=TTL)
        done = await on.engine.commit(thread, Commit(0, {"n": Value(b"0")}), token=lease.token)
        lease.opened(done.incarnation)
        effects = Effects(on.store, NAMESPACE)
        start = await effects.begin(lease.token, "effect", semantics="at-most-once", fingerprint="f")
        assert isinstance(start, Start)
        token = lease.token
        again = Commit(1, {"n": Value(b"stale")}, parent=done.checkpoint)
        settling = Commit(1, {}, parent=done.checkpoint, settlements=[effects.settlement(start, b'"stale"')])
        with watch(strike(Spot(point, 1), signal.SIGSTOP)):
            tries: list[tuple[str, Awaitable[Any]]] = [
                ("commit", on.engine.commit(thread, again, token=token, sequence=1)),
                ("commit with a settlement", on.engine.commit(thread, settling, token=token, sequence=1)),
                ("put_writes", on.engine.put_writes(thread, done.checkpoint, [Write("t", 0, b"stale")], token=token)),
                ("close", on.engine.retention.close(thread, status="failed", ttl=None, token=token)),
                ("attach", effects.attach(start, "stale")),
                ("complete", effects.complete(start, b'"stale"')),
                ("interrupt", effects.interrupt(start)),
                ("begin", effects.begin(token, "other", semantics="at-most-once", fingerprint="f")),
                ("renew by its own clock", lease.renew()),
                ("renew", _renewed_blindly(on, lease)),
                ("release", lease.release()),
            ]
            for name, attempt in sorted(tries, key=lambda each: each[0] != first):
                await _note(on.journal, name, attempt)


async def _renewed_blindly(on: Stage, lease: Any) -> None:
    """As a driver whose clock had stood still would."""
    lease.deadline += 3600
    await lease.renew()


async def _note(journal: Path, name: str, attempt: Awaitable[Any]) -> None:
    try:
        await attempt
        answer = "accepted"
    except BlackboardError as error:
        answer = type(error).__name__
    append(journal, json.dumps({"what": "answer", "name": name, "answer": answer}))
