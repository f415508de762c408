"""Checkpoint tuples out of what the engine read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from langgraph.checkpoint.base import Checkpoint, CheckpointTuple

from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.reading import Snapshot
from blackboard.errors import CheckpointMissing
from blackboard.integrations.langgraph.originals import Originals
from blackboard.integrations.langgraph.place import Place
from blackboard.integrations.langgraph.spelling import Spelling

__all__ = ["TASKS", "find", "has_no_tasks", "tuple_of"]

TASKS = "__pregel_tasks"
"""LangGraph's channel of the tasks to come; before format 4 they were pending writes of the parent."""

FORMAT = 4
"""LangGraph's format of checkpoints since which these tasks are a channel; one that names no format is taken for it."""


def has_no_tasks(checkpoint: Checkpoint) -> bool:
    """Tell whether a checkpoint is of a format in which the tasks to come are pending writes of its parent."""
    return (checkpoint.get("v") or FORMAT) < FORMAT


async def find(engine: Engine, place: Place) -> Snapshot | None:
    """Read a checkpoint; None only if the server said that it is not there."""
    try:
        return (await engine.read(place.thread, place.checkpoint, lineage=place.lineage)).snapshot
    except CheckpointMissing:
        return None


async def tuple_of(
    engine: Engine, spelling: Spelling, place: Place, snapshot: Snapshot, originals: Originals | None = None
) -> CheckpointTuple:
    """Put a tuple together, one of several with `originals`.

    A checkpoint of a format before 4 has its parent's pending tasks looked up.
    """
    manifest = snapshot.manifest
    checkpoint, metadata = spelling.rest(manifest)
    refs, contents = manifest.refs, snapshot.contents.items()
    if originals is None:
        checkpoint["channel_values"] = {name: spelling.value(refs[name], data) for name, data in contents}
    else:
        checkpoint["channel_values"] = {name: originals.value(name, refs[name], data) for name, data in contents}
    parent = None if manifest.parent is None else place.at(manifest.parent)
    if parent is not None and has_no_tasks(checkpoint):
        await _migrate(engine, spelling, parent, checkpoint)
    return CheckpointTuple(
        place.at(manifest.checkpoint).config(),
        checkpoint,
        metadata,
        None if parent is None else parent.config(),
        spelling.writes(snapshot.writes),
    )


async def _migrate(engine: Engine, spelling: Spelling, parent: Place, checkpoint: Checkpoint) -> None:
    snapshot = await find(engine, parent)
    sends = [] if snapshot is None else [value for _, _, value in spelling.writes(snapshot.writes, (TASKS,))]
    if sends:
        versions = cast("Mapping[str, Any]", checkpoint["channel_versions"])
        checkpoint["channel_values"][TASKS] = sends
        newest = max(versions.values()) if versions else 1
        checkpoint["channel_versions"] = {**versions, TASKS: newest}
