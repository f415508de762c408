"""Scenes of those who keep threads in order: old checkpoints are pruned, threads are copied to other ids."""

from __future__ import annotations

import asyncio

from blackboard.checkpoints.channels import Channel, Items, Value
from blackboard.checkpoints.commit import Commit
from blackboard.checkpoints.engine import Write
from blackboard.checkpoints.fork import Copier
from blackboard.checkpoints.prune import Pruner
from blackboard.errors import LeaseHeld
from blackboard.runs.hold import hold
from tests.chaos.stage import NAMESPACE, TTL, Stage

STEPS, KEPT = 5, 2


def grown(number: int) -> Commit:
    """A checkpoint of a log that has grown, and a value of its own."""
    items = [b'"%d"' % i for i in range(number + 1)]
    channels: dict[str, Channel] = {
        "items": Items("log", (), items, lambda: items),
        "big": Value(b"%d" % number * 500),
    }
    return Commit(number, channels, parent=f"c{number - 1}" if number else None)


async def pruning(on: Stage) -> None:
    """Old checkpoints go but for a pinned one, and what only they referred to."""
    pruner = Pruner(on.store, NAMESPACE)
    if not on.acknowledged("grown"):
        for number in range(STEPS):
            await on.engine.put(on.thread, f"c{number}", grown(number))
        on.ack("grown")
    if not on.acknowledged("pruned"):
        await pruner.pin(on.thread, "c1")
    await pruner.prune(on.thread, keep_last=KEPT)
    on.ack("pruned")
    await pruner.unpin(on.thread, "c1")
    await pruner.prune(on.thread, keep_last=KEPT)
    on.ack("complete")


async def copying(on: Stage) -> None:
    """A thread is copied whole and a checkpoint of it alone, each time to an id that nobody used."""
    copier, attempt = Copier(on.store, NAMESPACE), len(on.acknowledged("attempt"))
    on.ack("attempt")
    for lineage in ("", "inner"):
        for number in range(2):
            await on.engine.put(on.thread, f"c{number}", grown(number), lineage=lineage)
    await copier.copy(on.thread, f"{on.thread}-copy-{attempt}")
    on.ack("copied", to=f"{on.thread}-copy-{attempt}", newest="c1", checkpoints=2)
    await copier.fork(on.thread, f"{on.thread}-fork-{attempt}", checkpoint="c0")
    on.ack("copied", to=f"{on.thread}-fork-{attempt}", newest="c0", checkpoints=1)
    on.ack("complete")


async def referring(on: Stage) -> None:
    """A checkpoint and a pending write mention an artifact, which is kept for both."""
    ref = await on.engine.outside.artifacts.put(f"page of {on.thread}".encode())
    mention = b'"%b"' % ref.uri.encode()
    await on.engine.put(on.thread, "c0", Commit(0, {"page": Value(mention)}))
    on.ack("put", lineage="", checkpoint="c0")
    await on.engine.put_writes(on.thread, "c0", [Write("task", 0, mention)])
    on.ack("write", lineage="", checkpoint="c0", field="task:0", data=mention.decode())
    on.ack("complete")


async def setting_aside(on: Stage) -> None:
    """A thread is quarantined by its driver and given back by a person."""
    while (await on.engine.meta(on.thread)).status == "quarantined":
        try:
            await on.engine.readmit(on.thread)
        except LeaseHeld as held:
            await asyncio.sleep(held.remaining + 0.001)
    async with hold(on.engine, on.thread, owner=None, ttl=TTL, wait=TTL + 1) as lease:
        if lease.incarnation is None:
            lease.opened((await on.engine.commit(on.thread, grown(0), token=lease.token)).incarnation)
        await on.engine.quarantine(on.thread, lease.token, "stuck")
    await on.engine.readmit(on.thread)
    on.ack("complete")
