"""Reading a checkpoint with all that it refers to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blackboard import keys
from blackboard.checkpoints.channels import Ref
from blackboard.checkpoints.manifest import Manifest, Meta, parse
from blackboard.errors import CheckpointMissing, CorruptValue, StoreRegressed
from blackboard.store.client import Store
from blackboard.store.script import Script

__all__ = ["Reader", "Reading", "Snapshot"]

_READ = Script("blackboard.checkpoints", "read.lua", prelude=("thread.lua",), read_only=True)

MOST_ITEMS = 4000
"""Longest logs, in items, that a script returns; above it a plain LRANGE in a second trip is faster for the server."""

Content = bytes | Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A checkpoint with its contents: bytes for a value, the items for a log or map; and the writes pending on it."""

    manifest: Manifest
    contents: Mapping[str, Content]
    writes: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


@dataclass(frozen=True, slots=True)
class Reading:
    """What one read found: meta, the checkpoint if there is one, the open effects, and the server's time in µs."""

    meta: Meta
    now: int
    snapshot: Snapshot | None = None
    open_effects: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


class Reader:
    """Reads checkpoints of one namespace; never answers "not found" unless the server said so."""

    def __init__(self, store: Store, namespace: str) -> None:
        self._store, self._namespace = store, namespace

    async def read(self, thread: str, checkpoint: str | None, lineage: str) -> Reading:
        """Read meta and one checkpoint in one trip, or two if its logs are long."""
        where = keys.ThreadKeys.of(self._namespace, thread)
        names = [where.meta, where.latest(lineage), where.history(lineage), where.values, where.effects_open]
        asked = "" if checkpoint is None else keys.encode(checkpoint, "checkpoint id")
        writes = where.writes("-", lineage)[:-1]
        reply = await self._store.call(
            _READ, names, [asked, where.checkpoints(lineage), where.logs(lineage), writes, MOST_ITEMS]
        )
        match reply[0]:
            case b"NONE":
                return Reading(Meta.of(reply[2]), int(reply[1]))
            case b"ABSENT":
                raise CheckpointMissing(
                    f"thread {thread!r} has no checkpoint {checkpoint!r}", thread=thread, checkpoint=checkpoint
                )
            case b"REGRESSED":
                raise _regressed(thread, reply[1].decode())
            case b"CORRUPT":
                raise CorruptValue(
                    f"checkpoint {reply[1].decode()!r} of thread {thread!r} is not what was written",
                    thread=thread, checkpoint=reply[1].decode(),
                )  # fmt: skip
            case b"LONG":
                _, now, meta, name, data, values, opened, pending = reply
                manifest = parse(keys.decode(name.decode()), data)
                logs = await self._long(where, lineage, manifest)
            case _:
                _, now, meta, name, data, values, logs, pending, opened = reply
                manifest = parse(keys.decode(name.decode()), data)
        contents = dict(_contents(thread, manifest, values, logs))
        return Reading(Meta.of(meta), int(now), Snapshot(manifest, contents, _pairs(pending)), _pairs(opened))

    async def _long(self, where: keys.ThreadKeys, lineage: str, manifest: Manifest) -> list[list[list[bytes]]]:
        """Fetch the logs by plain reads; segments only grow, so the prefixes stand as they stood."""
        logs = [(name, ref.segments) for name, ref in manifest.refs.items() if ref.kind != "value"]
        asked = [(name, segment, count) for name, segments in logs for segment, count in segments]
        found = iter(
            await self._store.batch(
                [("LRANGE", where.log(n, s, lineage), 0, count - 1) for n, s, count in asked if count]
            )
        )
        return [[next(found) if count else [] for _, count in segments] for _, segments in logs]


def _contents(
    thread: str, manifest: Manifest, values: Sequence[bytes | None], logs: Sequence[Sequence[Sequence[bytes]]]
) -> Iterator[tuple[str, Content]]:
    stored, segments = iter(values), iter(logs)
    for name, ref in manifest.refs.items():
        if ref.kind != "value":
            yield name, _items(thread, name, ref, next(segments))
        elif ref.inline is not None:
            yield name, ref.inline
        else:
            data = next(stored)
            if data is None:
                raise _regressed(thread, f"value of channel {name!r}")
            yield name, data


def _items(thread: str, name: str, ref: Ref, segments: Sequence[Sequence[bytes]]) -> list[bytes]:
    items: list[bytes] = []
    for (segment, count), found in zip(ref.segments, segments, strict=True):
        if len(found) != count:
            raise _regressed(thread, f"segment {segment} of channel {name!r}")
        items += found
    return items


def _pairs(flat: Sequence[Any]) -> dict[str, bytes]:
    return {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}


def _regressed(thread: str, lost: str) -> StoreRegressed:
    return StoreRegressed(
        f"the store has lost the {lost} of thread {thread!r}, which it had acknowledged", thread=thread, lost=lost
    )
