"""Removing checkpoints without taking away what the state of those that stay is put together from."""

from __future__ import annotations

from collections.abc import Collection

from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.prune import Pruner
from blackboard.integrations.langgraph.ancestry import needed, needed_by_newest
from blackboard.integrations.langgraph.listing import manifests
from blackboard.integrations.langgraph.spelling import Spelling

__all__ = ["delete_runs", "keep_latest", "keep_newest"]


async def keep_latest(engine: Engine, spelling: Spelling, thread: str) -> None:
    """Drop all but the newest checkpoint of each lineage, and the ancestors that its delta channels are read from."""
    pruner = Pruner(engine.store, engine.namespace)
    for lineage in await engine.lineages(thread):
        kept, stands = await needed(engine, spelling, (thread, lineage), None)
        if stands:
            await pruner.prune(thread, keep_last=1, lineage=lineage, keep=kept)


async def keep_newest(engine: Engine, spelling: Spelling, place: tuple[str, str], keep_last: int) -> None:
    """Drop all but the newest checkpoints of one lineage, the pinned ones, and the ancestors that their delta channels need."""
    thread, lineage = place
    kept = await needed_by_newest(engine, spelling, place, keep_last)
    await Pruner(engine.store, engine.namespace).prune(thread, keep_last=keep_last, lineage=lineage, keep=kept)


async def delete_runs(engine: Engine, spelling: Spelling, thread: str, runs: Collection[str]) -> None:
    """Drop the checkpoints of some runs, but for ancestors that the delta channels of one that stays are read from.

    A thread of which nothing would stay is deleted.
    """
    dropped: dict[str, list[str]] = {}
    staying = 0
    for lineage in await engine.lineages(thread):
        gone, stays = await _chosen(engine, spelling, (thread, lineage), runs)
        staying += stays
        if gone:
            dropped[lineage] = gone
    if dropped and not staying:
        await engine.retention.delete(thread, drop_unread=True)
        return
    pruner = Pruner(engine.store, engine.namespace)
    for lineage, gone in dropped.items():
        await pruner.drop(thread, gone, lineage=lineage)


async def _chosen(
    engine: Engine, spelling: Spelling, place: tuple[str, str], runs: Collection[str]
) -> tuple[list[str], int]:
    """List a lineage's checkpoints that can go, oldest first, and count those that stay."""
    going: dict[str, None] = {}
    kept: set[str] = set()
    stays = 0
    async for manifest in manifests(engine, *place, page=500):
        _, metadata = spelling.rest(manifest)
        run: object = metadata.get("run_id")
        if run is not None and str(run) in runs:
            going[manifest.checkpoint] = None
            continue
        stays += 1
        if metadata.get("counters_since_delta_snapshot"):
            kept.update((await needed(engine, spelling, place, manifest.checkpoint))[0])
    gone = [checkpoint for checkpoint in reversed(going) if checkpoint not in kept]
    return gone, stays + len(going) - len(gone)
