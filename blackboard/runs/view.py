"""A checkpoint as its reader sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from blackboard.checkpoints.fields import open_items
from blackboard.checkpoints.manifest import Manifest
from blackboard.checkpoints.reading import Snapshot
from blackboard.checkpoints.state import StateChannels
from blackboard.codec import Types, decode
from blackboard.runs.call import Call, read_calls

__all__ = ["Checkpoint", "plain", "view"]

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Checkpoint(Generic[S]):
    """One checkpoint: what to do next, the state, the cursors and the calls that were pending. `time` is in µs."""

    id: str
    step: int
    parent: str | None
    time: int
    next: str | None
    state: S
    cursors: Mapping[str, Any]
    pending: tuple[Call, ...]
    fence: int


def view(snapshot: Snapshot, model: type[BaseModel] | None) -> Checkpoint[Any]:
    """Build the checkpoint of a snapshot; without a model the state is a dict of channels, unknown classes opaque."""
    manifest = snapshot.manifest
    types = None if model is None else Types.of(model)
    state = plain(snapshot) if model is None else StateChannels(model).load(manifest.refs, snapshot.contents)
    return Checkpoint(
        manifest.checkpoint, manifest.step, manifest.parent, manifest.time, manifest.next, state,
        cursors(manifest, types), read_calls(manifest.pending, types), manifest.fence,
    )  # fmt: skip


def plain(snapshot: Snapshot) -> dict[str, Any]:
    """Decode every channel without any class."""
    state: dict[str, Any] = {}
    for name, content in snapshot.contents.items():
        if isinstance(content, bytes):
            state[name] = decode(content)
        else:
            state[name], _ = open_items(snapshot.manifest.refs[name], content, Types())
    return state


def cursors(manifest: Manifest, types: Types | None = None) -> dict[str, Any]:
    """Decode the cursors of a manifest."""
    return dict(decode(manifest.cursors, types=types)) if manifest.cursors else {}
