"""Walking from a checkpoint to its ancestors, a page of manifests at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace
from typing import Any

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite

from blackboard import keys
from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.manifest import Manifest
from blackboard.errors import CheckpointMissing
from blackboard.integrations.langgraph.listing import manifests
from blackboard.integrations.langgraph.spelling import Spelling

__all__ = ["ancestors", "delta_history", "needed", "needed_by_newest"]

PAGES = 128, 1024
"""Manifests in the first page of a walk and in those that follow; a delta channel is snapshotted every 100 updates."""


async def ancestors(engine: Engine, thread: str, lineage: str, checkpoint: str | None) -> AsyncIterator[Manifest]:
    """Yield a checkpoint (the newest without an id) and then its parent, its parent's parent, and so on, each once."""
    # The page begins with the checkpoint itself: of all ids it alone sorts right before this one.
    before = None if checkpoint is None else f"{checkpoint}\0"
    page = await engine.history(thread, lineage=lineage, before=before, limit=PAGES[0])
    known = {manifest.checkpoint: manifest for manifest in page}
    wanted = checkpoint if checkpoint is not None or not page else page[0].checkpoint
    passed: set[str] = set()
    while wanted is not None and wanted not in passed:
        passed.add(wanted)
        while wanted not in known and page and keys.encode(wanted) < keys.encode(page[-1].checkpoint):
            page = await engine.history(thread, lineage=lineage, before=page[-1].checkpoint, limit=PAGES[1])
            known.update((manifest.checkpoint, manifest) for manifest in page)
        found = known.pop(wanted, None) or await _one(engine, thread, lineage, wanted)
        if found is None:
            return
        yield found
        wanted = found.parent


async def _one(engine: Engine, thread: str, lineage: str, checkpoint: str) -> Manifest | None:
    try:
        snapshot = await engine.at(thread, checkpoint, lineage=lineage)
    except CheckpointMissing:
        return None
    return None if snapshot is None else snapshot.manifest


async def delta_history(
    engine: Engine, spelling: Spelling, place: tuple[str, str, str | None], channels: Collection[str]
) -> Mapping[str, DeltaChannelHistory]:
    """Collect each channel's writes back to the nearest ancestor that holds its value, which is the seed.

    Two round trips for 127 ancestors, one more for each further 1,024.
    """
    thread, lineage, checkpoint = place
    chain: list[Manifest] = []
    seeds: dict[str, str] = {}
    async for manifest in ancestors(engine, thread, lineage, checkpoint):
        if chain or manifest.checkpoint != checkpoint:
            here = [name for name in channels if name in manifest.refs and name not in seeds]
            seeds.update((name, manifest.checkpoint) for name in here)
        chain.append(manifest)
        if len(seeds) == len(set(channels)):
            break
    return await _collected(engine, spelling, (thread, lineage), chain[1:], (channels, seeds))


async def _collected(
    engine: Engine,
    spelling: Spelling,
    place: tuple[str, str],
    chain: list[Manifest],
    asked: tuple[Collection[str], Mapping[str, str]],
) -> Mapping[str, DeltaChannelHistory]:
    channels, seeds = asked
    trimmed = [
        replace(one, refs={name: one.refs[name] for name, at in seeds.items() if at == one.checkpoint}) for one in chain
    ]
    writes: dict[str, list[PendingWrite]] = {name: [] for name in channels}
    values: dict[str, Any] = {}
    for snapshot in await engine.contents(place[0], trimmed, lineage=place[1]):
        pending = spelling.writes(snapshot.writes, channels)
        for name in channels:
            if name not in values:
                writes[name] += [write for write in reversed(pending) if write[1] == name]
        for name, content in snapshot.contents.items():
            values[name] = spelling.value(snapshot.manifest.refs[name], content)
    found: dict[str, DeltaChannelHistory] = {}
    for name in channels:
        found[name] = {"writes": writes[name][::-1]}
        if name in values:
            found[name]["seed"] = values[name]
    return found


async def needed(
    engine: Engine, spelling: Spelling, place: tuple[str, str], checkpoint: str | None
) -> tuple[list[str], bool]:
    """List the ancestors without which a checkpoint's delta channels cannot be put together, and whether it is stored."""
    kept: list[str] = []
    open_channels: set[str] = set()
    first = True
    async for manifest in ancestors(engine, *place, checkpoint):
        if first:
            _, metadata = spelling.rest(manifest)
            open_channels = set(metadata.get("counters_since_delta_snapshot") or ())
            first = False
        else:
            kept.append(manifest.checkpoint)
        open_channels -= manifest.refs.keys()
        if not open_channels:
            break
    return kept, not first


async def needed_by_newest(engine: Engine, spelling: Spelling, place: tuple[str, str], newest: int) -> list[str]:
    """List the ancestors, older than the newest checkpoints, that the delta channels of those are put together from.

    Walks from the newest id to the oldest that is needed; where a parent's id is larger than its child's, it is walked to alone.
    """
    kept: dict[str, None] = {}
    missing: dict[str, set[str]] = {}
    number = 0
    async for manifest in manifests(engine, *place, page=PAGES[0]):
        number += 1
        open_channels = missing.pop(manifest.checkpoint, set())
        if number <= newest:
            _, metadata = spelling.rest(manifest)
            open_channels |= set(metadata.get("counters_since_delta_snapshot") or ())
        elif open_channels:
            kept[manifest.checkpoint] = None
        open_channels -= manifest.refs.keys()
        if open_channels and manifest.parent is not None:
            if keys.encode(manifest.parent) < keys.encode(manifest.checkpoint):
                missing.setdefault(manifest.parent, set()).update(open_channels)
            else:
                kept.update(dict.fromkeys((await needed(engine, spelling, place, manifest.checkpoint))[0]))
        if number >= newest and not missing:
            break
    return list(kept)
