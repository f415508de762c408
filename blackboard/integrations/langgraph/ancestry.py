"""What the state of a delta channel is put together from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite

from blackboard import keys
from blackboard.checkpoints.ancestry import ancestors, until_met
from blackboard.checkpoints.engine import Engine
from blackboard.integrations.langgraph.listing import manifests
from blackboard.integrations.langgraph.spelling import Spelling

__all__ = ["delta_history", "needed", "needed_by_newest"]

PAGE = 128
"""Manifests in a page; a delta channel is snapshotted every 100 updates."""


async def delta_history(
    engine: Engine, spelling: Spelling, place: tuple[str, str, str | None], channels: Collection[str]
) -> Mapping[str, DeltaChannelHistory]:
    """Collect the writes to each channel back to the nearest ancestor that holds its value, which is the seed.

    One round trip for each 1,000 ancestors.
    """
    writes: dict[str, list[PendingWrite]] = {name: [] for name in channels}
    seeds: dict[str, Any] = {}
    for snapshot in await until_met(engine, place, channels):
        pending = spelling.writes(snapshot.writes, channels)
        for name in channels:
            if name not in seeds:
                writes[name] += [write for write in reversed(pending) if write[1] == name]
        for name, content in snapshot.contents.items():
            seeds[name] = spelling.value(snapshot.manifest.refs[name], content)
    found: dict[str, DeltaChannelHistory] = {}
    for name in channels:
        found[name] = {"writes": writes[name][::-1]}
        if name in seeds:
            found[name]["seed"] = seeds[name]
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
    async for manifest in manifests(engine, *place, page=PAGE):
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
