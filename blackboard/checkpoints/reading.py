"""Reading a checkpoint with all that it refers to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from blackboard import keys
from blackboard.checkpoints.channels import Ref
from blackboard.checkpoints.manifest import Manifest, Meta, parse
from blackboard.checkpoints.outside import Outside
from blackboard.checkpoints.sealing import open_content, open_manifest, open_writes
from blackboard.codec.cipher import Seal
from blackboard.errors import CheckpointMissing, CorruptValue, ServerRefused, ServerUnavailable, StoreRegressed
from blackboard.store.client import Store
from blackboard.store.script import Script
from blackboard.telemetry import logger

__all__ = ["Reader", "Reading", "Snapshot"]

_READ = Script("blackboard.checkpoints", "read.lua", prelude=("thread.lua",), read_only=True)
_DECLARED = Script("blackboard.checkpoints", "declared.lua", prelude=("thread.lua",), read_only=True)
_ANCESTORS = Script("blackboard.checkpoints", "ancestors.lua", prelude=("thread.lua",), read_only=True)
_HISTORY = Script("blackboard.checkpoints", "history.lua", prelude=("thread.lua",), read_only=True)

log = logger("checkpoints")

_ROUNDS = 20
"""How often a thread may move between two trips of one read."""

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
    """Reads checkpoints of one namespace; never answers "not found" unless the server said so.

    One trip follows references inside the thread's slot. Where the server refuses scripts that touch keys which they do
    not declare, the same is read in two trips more; `declares` remembers that it has to be.
    """

    def __init__(
        self,
        store: Store,
        namespace: str,
        *,
        declares: bool = False,
        seal: Seal | None = None,
        outside: Outside | None = None,
    ) -> None:
        self._store, self._namespace, self._seal, self._outside = store, namespace, seal, outside
        self.declares = declares

    async def read(self, thread: str, checkpoint: str | None, lineage: str) -> Reading:
        """Read meta and one checkpoint as they stood at one moment, in one trip, or two if its logs are long."""
        place = _Place(keys.ThreadKeys.of(self._namespace, thread), thread, checkpoint, lineage)
        if not self.declares:
            try:
                return await self._opened(place, await self._follow(place))
            except ServerRefused as refused:
                log.debug("a read that follows references was refused: %s", refused, extra={"thread_id": thread})
        reading = await self._declare(place)
        self.declares = True
        return await self._opened(place, reading)

    async def _opened(self, place: _Place, reading: Reading) -> Reading:
        """Fetch what was moved out and decrypt, or refuse what the namespace's settings cannot show."""
        snapshot = reading.snapshot
        if snapshot is None:
            return reading
        thread, lineage = place.thread, place.lineage
        manifest = open_manifest(self._seal, thread, lineage, snapshot.manifest)
        (whole,) = await self._fetched(thread, [replace(snapshot, manifest=manifest)])
        return replace(reading, snapshot=self._filled(thread, lineage, whole))

    async def _fetched(self, thread: str, snapshots: list[Snapshot]) -> list[Snapshot]:
        """Put the values that were moved out in place of their pointers; no trip if there are none."""
        refs = [ref for one in snapshots for ref in one.manifest.refs.values() if ref.artifact]
        if not refs or self._outside is None:
            return snapshots
        found = await self._outside.fetch(thread, refs)

        def whole(name: str, data: Content, refs: Mapping[str, Ref]) -> Content:
            return data if refs[name].artifact is None else found[refs[name].artifact or ""]

        return [
            replace(one, contents={name: whole(name, data, one.manifest.refs) for name, data in one.contents.items()})
            for one in snapshots
        ]

    def _filled(self, thread: str, lineage: str, snapshot: Snapshot) -> Snapshot:
        """Decrypt contents and writes; the manifest is open already."""
        seal, manifest, contents = self._seal, snapshot.manifest, snapshot.contents
        if seal is not None:
            refs = manifest.refs
            contents = {n: open_content(seal, (thread, lineage, n), refs[n], data) for n, data in contents.items()}
        return Snapshot(manifest, contents, open_writes(seal, thread, lineage, manifest.checkpoint, snapshot.writes))

    def _listed(
        self, thread: str, lineage: str, names: Sequence[bytes], bodies: Sequence[bytes | None]
    ) -> list[Manifest]:
        pairs = zip(names, bodies, strict=True)
        found = [parse(keys.decode(name.decode()), data) for name, data in pairs if data is not None]
        return [open_manifest(self._seal, thread, lineage, manifest) for manifest in found]

    async def history(self, thread: str, lineage: str, limit: int, before: str | None) -> list[Manifest]:
        """List manifests, newest first, in one trip; see `Engine.history`."""
        where = keys.ThreadKeys.of(self._namespace, thread)
        names = [where.meta, where.history(lineage)]
        page: list[str | int] = ["" if before is None else keys.encode(before), limit]
        if not self.declares:
            try:
                reply = await self._page(thread, names, [*page, where.checkpoints(lineage)])
                return self._listed(thread, lineage, reply[2::2], reply[3::2])
            except ServerRefused as refused:
                log.debug("a history that follows references was refused: %s", refused, extra={"thread_id": thread})
        for _ in range(_ROUNDS):
            reply = await self._page(thread, names, [*page, ""])
            gets = [("GET", where.checkpoints(lineage) + name.decode()) for name in reply[2::2]]
            *found, incarnation = await self._store.batch([*gets, ("HGET", where.meta, "incarnation")])
            if not gets or incarnation == reply[1]:
                return self._listed(thread, lineage, reply[2::2], found)
        raise _restless(thread)

    async def ancestors(
        self, thread: str, lineage: str, start: tuple[str | None, bool], most: int, channels: Collection[str]
    ) -> tuple[list[Snapshot], str | None]:
        """Read at most so many ancestors in one trip, and tell where the next page begins; see `ancestry.until_met`.

        `start` is a checkpoint, None for the newest, and whether the page begins with it or with its parent. Raises
        ServerRefused where scripts may not touch keys which they do not declare.
        """
        where = keys.ThreadKeys.of(self._namespace, thread)
        first, inclusive = start
        args: list[str | int] = ["" if first is None else keys.encode(first), int(inclusive), most, MOST_ITEMS]
        args += [where.checkpoints(lineage), where.logs(lineage), where.writes("-", lineage)[:-1]]
        args += [keys.encode(name, "channel") for name in channels]
        names = [where.meta, where.latest(lineage), where.history(lineage), where.values]
        reply = await self._store.call(_ANCESTORS, names, args)
        if reply[0] == b"REGRESSED":
            raise _regressed(thread, reply[1].decode())
        if reply[0] == b"CORRUPT":
            raise _corrupt(thread, reply[1].decode())
        found, long, wanted = list[Snapshot](), list[Manifest](), set(channels)
        for name, data, pending, values, logs in reply[2:]:
            manifest = open_manifest(self._seal, thread, lineage, parse(keys.decode(name.decode()), data))
            manifest = replace(manifest, refs={n: ref for n, ref in manifest.refs.items() if n in wanted})
            wanted -= manifest.refs.keys()
            if logs == b"":
                long.append(manifest)
            else:
                contents = dict(_contents(thread, manifest, values, logs))
                found.append(Snapshot(manifest, contents, _pairs(pending)))
        found = [self._filled(thread, lineage, one) for one in await self._fetched(thread, found)]
        found += await self.contents(thread, lineage, long) if long else []
        following = keys.decode(reply[1].decode()) if len(reply) > 1 and reply[1] else None
        return found, following

    async def contents(self, thread: str, lineage: str, manifests: Sequence[Manifest]) -> list[Snapshot]:
        """Read what manifests refer to and the writes pending on them, each stored item once, in one trip.

        A checkpoint that was pruned meanwhile is left out.
        """
        where = keys.ThreadKeys.of(self._namespace, thread)
        digests = sorted({ref.digest for m in manifests for ref in m.refs.values() if ref.digest is not None})
        longest: dict[tuple[str, str], int] = {}
        for manifest in manifests:
            for name, segment, count in _segments(manifest):
                longest[name, segment] = max(count, longest.get((name, segment), 0))
        asked: list[Sequence[str | int]] = [("HMGET", where.values, *digests)] if digests else []
        asked += [("LRANGE", where.log(*place, lineage), 0, max(0, count - 1)) for place, count in longest.items()]
        asked += [("HGETALL", where.writes(m.checkpoint, lineage)) for m in manifests]
        asked += [("EXISTS", where.checkpoint(m.checkpoint, lineage)) for m in manifests]
        found = await self._store.batch(asked) if asked else []
        values = dict(zip(digests, found.pop(0) if digests else [], strict=True))
        items = dict(zip(longest, found[: len(longest)], strict=True))
        writes, standing = found[len(longest) :][: len(manifests)], found[len(longest) + len(manifests) :]
        snapshots: list[Snapshot] = []
        for manifest, pending, stands in zip(manifests, writes, standing, strict=True):
            if stands:
                logs = [[items[n, s][:c] for s, c in r.segments] for n, r in manifest.refs.items() if r.kind != "value"]
                bodies = [values[ref.digest] for ref in manifest.refs.values() if ref.digest is not None]
                snapshots.append(Snapshot(manifest, dict(_contents(thread, manifest, bodies, logs)), _pairs(pending)))
        return [self._filled(thread, lineage, one) for one in await self._fetched(thread, snapshots)]

    async def _page(self, thread: str, names: Sequence[str], args: Sequence[str | int]) -> Sequence[bytes]:
        reply: Sequence[bytes] = await self._store.call(_HISTORY, names, args)
        if reply[0] == b"REGRESSED":
            raise _regressed(thread, reply[1].decode())
        return reply

    async def _follow(self, place: _Place) -> Reading:
        where, lineage = place.where, place.lineage
        writes = where.writes("-", lineage)[:-1]
        args = (place.asked, where.checkpoints(lineage), where.logs(lineage), writes, MOST_ITEMS)
        reply = await self._store.call(_READ, place.names, args)
        if reply[0] == b"LONG":
            _, now, meta, name, data, values, opened, pending = reply
            logs = await self._long(place, parse(keys.decode(name.decode()), data))
            reply = [b"OK", now, meta, name, data, values, logs, pending, opened]
        return place.reading(reply)

    async def _declare(self, place: _Place) -> Reading:
        """Find the id, then its manifest, then all that it refers to; from the start if the thread moved meanwhile."""
        where, lineage = place.where, place.lineage
        for _ in range(_ROUNDS):
            reply = await self._store.call(_READ, place.names, [place.asked, "", "", "", 0])
            if reply[0] != b"AT":
                return place.reading(reply)
            name = reply[2].decode()
            key = where.checkpoints(lineage) + name
            data = await self._store.command("GET", key) or b""
            manifest = parse(keys.decode(name), data) if data else None
            refs = list(manifest.refs.values()) if manifest else []
            parts = [] if manifest is None or _long(manifest) else _segments(manifest)
            digests = [ref.digest for ref in refs if ref.digest is not None]
            names = [*place.names, key, where.writes(keys.decode(name), lineage)]
            names += [where.log(channel, segment, lineage) for channel, segment, _ in parts]
            args: list[bytes | str | int] = [
                int(not place.asked),
                name,
                reply[1],
                data,
                len(digests),
                *digests,
                *(count for *_, count in parts),
            ]
            reply = await self._store.call(_DECLARED, names, args)
            if reply[0] == b"MOVED":
                continue
            if manifest is None:
                return place.reading([b"ABSENT"] if place.asked else [b"REGRESSED", b"checkpoint"])
            reply[6] = await self._long(place, manifest) if _long(manifest) else _grouped(manifest, reply[6])
            return place.reading(reply)
        raise _restless(place.thread)

    async def _long(self, place: _Place, manifest: Manifest) -> list[list[list[bytes]]]:
        """Fetch the logs by plain reads; segments only grow, so the prefixes stand as they stood."""
        asked = [(place.where.log(name, segment, place.lineage), count) for name, segment, count in _segments(manifest)]
        found = iter(await self._store.batch([("LRANGE", key, 0, count - 1) for key, count in asked if count]))
        return _grouped(manifest, [next(found) if count else [] for _, count in asked])


@dataclass(frozen=True, slots=True)
class _Place:
    """What is read: a thread's lineage, and the checkpoint that was asked for, None for the newest."""

    where: keys.ThreadKeys
    thread: str
    checkpoint: str | None
    lineage: str

    @property
    def asked(self) -> str:
        return "" if self.checkpoint is None else keys.encode(self.checkpoint, "checkpoint id")

    @property
    def names(self) -> list[str]:
        w, lineage = self.where, self.lineage
        return [w.meta, w.latest(lineage), w.history(lineage), w.values, w.effects_open]

    def reading(self, reply: Sequence[Any]) -> Reading:
        """Turn an answer into what was found, or into the error that it stands for."""
        thread = self.thread
        match reply[0]:
            case b"NONE":
                return Reading(Meta.of(reply[2]), int(reply[1]))
            case b"ABSENT":
                raise CheckpointMissing(
                    f"thread {thread!r} has no checkpoint {self.checkpoint!r}; `history` lists those that it has",
                    thread=thread,
                    checkpoint=self.checkpoint,
                )
            case b"REGRESSED":
                raise _regressed(thread, reply[1].decode())
            case b"CORRUPT":
                raise _corrupt(thread, reply[1].decode())
            case _:
                _, now, meta, name, data, values, logs, pending, opened = reply
                manifest = parse(keys.decode(name.decode()), data)
                contents = dict(_contents(thread, manifest, values, logs))
                return Reading(Meta.of(meta), int(now), Snapshot(manifest, contents, _pairs(pending)), _pairs(opened))


def _segments(manifest: Manifest) -> list[tuple[str, str, int]]:
    """List (channel, segment, count) of every log and map, as the manifest names them."""
    refs = manifest.refs.items()
    return [(name, segment, count) for name, ref in refs for segment, count in ref.segments]


def _long(manifest: Manifest) -> bool:
    return sum(ref.count for ref in manifest.refs.values()) > MOST_ITEMS


def _grouped(manifest: Manifest, segments: Sequence[list[bytes]]) -> list[list[list[bytes]]]:
    """Give every log its own segments."""
    each = iter(segments)
    return [[next(each) for _ in ref.segments] for ref in manifest.refs.values() if ref.kind != "value"]


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
        f"the store has lost the {lost} of thread {thread!r}, which it had acknowledged: restore it, or delete the thread",
        thread=thread,
        lost=lost,
    )


def _corrupt(thread: str, checkpoint: str) -> CorruptValue:
    return CorruptValue(
        f"checkpoint {checkpoint!r} of thread {thread!r} is not what was written", thread=thread, checkpoint=checkpoint
    )


def _restless(thread: str) -> ServerUnavailable:
    return ServerUnavailable(f"thread {thread!r} changes faster than this server lets it be read", thread=thread)
