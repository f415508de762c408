"""Copying a thread, or one checkpoint of it, to a new id: in slices, invisible until it is complete."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from blackboard import keys
from blackboard.checkpoints.channels import Ref
from blackboard.checkpoints.manifest import Manifest, Meta, parse, spell
from blackboard.checkpoints.refusal import still_standing
from blackboard.checkpoints.retention import Retention
from blackboard.claims import registry
from blackboard.claims.record import SettledEffect
from blackboard.errors import CheckpointMissing, StoreRegressed, ThreadExists, ThreadGone
from blackboard.store.client import Store
from blackboard.store.script import Script

__all__ = ["Copier"]

_SEED = Script("blackboard.checkpoints", "seed.lua", prelude=("thread.lua",))
_OPEN = Script("blackboard.checkpoints", "open.lua", prelude=("thread.lua",))

SLICE_ITEMS, SLICE_BYTES = 500, 1 << 18
"""A slice ends at so many items or bytes: less than a few ms of the server's time."""

UNFINISHED_MS = 3_600_000
"""When a copy that nobody completed is swept away."""


@dataclass(frozen=True, slots=True)
class _Target:
    """The new id while it is written: what names a key comes before the key, so that a sweep finds all of it."""

    store: Store
    where: keys.ThreadKeys
    thread: str
    copy: str
    retention: Retention

    async def reserve(self) -> None:
        """Take the id, or raise ThreadExists."""
        await self._slice("hash", self.where.effects, "", 0, [])

    async def string(self, key: str, data: bytes) -> None:
        await self._slice("string", key, "", 0, [data])

    async def items(
        self, kind: str, key: str, items: Sequence[bytes | str], *, part: str = "", offset: int = 0
    ) -> None:
        """Write items in slices; a hash's are field and value in turn."""
        batch: list[bytes | str] = []
        size, start = 0, offset
        step = 2 if kind == "hash" else 1
        for at in range(0, len(items), step):
            batch += items[at : at + step]
            size += sum(len(one) for one in items[at : at + step])
            if len(batch) >= SLICE_ITEMS or size >= SLICE_BYTES:
                await self._slice(kind, key, part, start, batch)
                start, batch, size = start + len(batch), [], 0
        if batch or part:
            await self._slice(kind, key, part, start, batch)

    async def _slice(self, kind: str, key: str, part: str, offset: int, items: Sequence[bytes | str]) -> None:
        names = [self.where.meta, self.where.latest(), self.where.parts, key]
        for _ in range(8):
            reply = await self.store.call(_SEED, names, [self.copy, kind, part, offset, *items])
            if reply[0] == b"OK":
                return
            if reply[0] != b"REMOVING":
                break
            await self.retention.remove(self.thread, reply[1].decode())
        else:
            raise still_standing(self.thread)
        if reply[0] == b"MOVED":
            raise ThreadGone(
                f"thread {self.thread!r} was taken while it was copied to", thread=self.thread, why="reused"
            )
        status = reply[1].decode()
        raise ThreadExists(
            f"thread {self.thread!r} exists already ({status}): copy to an unused id", thread=self.thread
        )


class Copier:
    """Copies threads of one namespace; the source is only read, and the copy owes it nothing."""

    def __init__(self, store: Store, namespace: str) -> None:
        self._store, self._namespace = store, namespace

    async def fork(self, thread: str, to: str, *, checkpoint: str | None = None, lineage: str = "") -> str:
        """Make a new thread that stands where a checkpoint of another stood (the newest, or the one named).

        Effects that were settled by then come along, later ones do not; nothing that is open does. Returns the new
        thread's incarnation. If it does not come to the end, nothing of it is seen, and what was written goes with a
        sweep. Raises ThreadExists, CheckpointMissing, ThreadGone.
        """
        source = keys.ThreadKeys.of(self._namespace, thread)
        manifest = await self._manifest(source, thread, checkpoint, lineage)
        target = await self._target(to)
        digests = [ref.digest for ref in manifest.refs.values() if ref.digest is not None]
        await self._values(source, target, digests)
        for name, ref in manifest.refs.items():
            await self._segments(source, target, name, ref, lineage)
        effects = [one async for one in self._effects(source, manifest)]
        await target.items("hash", target.where.effects, effects)
        alone = replace(manifest, parent=None)
        await target.items("history", target.where.history(), [keys.encode(manifest.checkpoint)])
        await target.string(target.where.checkpoint(manifest.checkpoint), spell(alone))
        return await self._open(target, manifest.checkpoint, await self._sequence(source), thread)

    async def copy(self, thread: str, to: str) -> str:
        """Copy a whole thread: every lineage with its history, pending writes, pins and settled effects."""
        source = keys.ThreadKeys.of(self._namespace, thread)
        newest = await self._manifest(source, thread, None, "")
        target = await self._target(to)
        parts = [part.decode() async for part in self._members(source.parts)]
        for part in parts:
            if part.startswith("@"):
                await target.items("set", target.where.parts, [part])
            else:
                await self._whole(f"{source.prefix}:{part}", target, f"{target.where.prefix}:{part}", part)
        async for pairs in self._pairs(source.values):
            await target.items("hash", target.where.values, pairs)
        async for pairs in self._pairs(source.effects):
            await target.items("hash", target.where.effects, pairs)
        for lineage in ["", *(keys.decode(part[1:]) for part in parts if part.startswith("@"))]:
            await self._lineage(source, target, lineage)
        return await self._open(target, newest.checkpoint, await self._sequence(source), thread)

    async def _lineage(self, source: keys.ThreadKeys, target: _Target, lineage: str) -> None:
        start = 0
        while True:
            names = await self._store.command("ZRANGE", source.history(lineage), start, start + SLICE_ITEMS - 1)
            if not names:
                break
            start += len(names)
            ids = [keys.decode(name.decode()) for name in names]
            found = await self._store.batch([("GET", source.checkpoint(one, lineage)) for one in ids])
            await target.items("history", target.where.history(lineage), names)
            for one, data in zip(ids, found, strict=True):
                if data is not None:
                    await target.string(target.where.checkpoint(one, lineage), data)
                    await self._writes(source, target, one, lineage)
        pins = [pin async for pin in self._members(source.pins(lineage))]
        if pins:
            await target.items("set", target.where.pins(lineage), pins)
        newest = await self._store.command("GET", source.latest(lineage))
        if lineage and newest is not None:
            await target.string(target.where.latest(lineage), newest)

    async def _writes(self, source: keys.ThreadKeys, target: _Target, checkpoint: str, lineage: str) -> None:
        pairs = await self._store.command("HGETALL", source.writes(checkpoint, lineage))
        if pairs:
            await target.items("hash", target.where.writes(checkpoint, lineage), pairs)

    async def _manifest(self, source: keys.ThreadKeys, thread: str, checkpoint: str | None, lineage: str) -> Manifest:
        meta = Meta.of(await self._store.command("HGETALL", source.meta))
        expired = meta.expires is not None and meta.expires * 1000 <= self._store.server_time()
        if meta.incarnation is None or expired:
            raise ThreadGone(f"there is no thread {thread!r} to copy", thread=thread, why="missing")
        name = (
            await self._store.command("GET", source.latest(lineage))
            if checkpoint is None
            else keys.encode(checkpoint).encode()
        )
        data = None if name is None else await self._store.command("GET", source.checkpoints(lineage) + name.decode())
        if name is None or data is None:
            raise CheckpointMissing(
                f"thread {thread!r} has no checkpoint {checkpoint!r}", thread=thread, checkpoint=checkpoint
            )
        return parse(keys.decode(name.decode()), data)

    async def _target(self, to: str) -> _Target:
        where = keys.ThreadKeys.of(self._namespace, to)
        await registry.enter(self._store, self._namespace, to)
        shard, due = keys.threads(self._namespace, keys.shard(to)), self._store.server_time() // 1000 + UNFINISHED_MS
        target = _Target(self._store, where, to, self._store.op_id(), Retention(self._store, self._namespace))
        await target.reserve()
        await self._store.command("ZADD", shard, due, to)
        return target

    async def _values(self, source: keys.ThreadKeys, target: _Target, digests: Sequence[str]) -> None:
        for start in range(0, len(digests), 50):
            some = digests[start : start + 50]
            bodies = await self._store.command("HMGET", source.values, *some)
            if None in bodies:
                raise StoreRegressed("a value of the thread that is copied is not there", lost="value")
            await target.items(
                "hash", target.where.values, [x for pair in zip(some, bodies, strict=True) for x in pair]
            )

    async def _segments(self, source: keys.ThreadKeys, target: _Target, name: str, ref: Ref, lineage: str) -> None:
        for segment, count in ref.segments:
            key = target.where.log(name, segment)
            part = key[len(target.where.prefix) + 1 :]
            await self._list(source.log(name, segment, lineage), target, key, part, count)

    async def _list(self, old: str, target: _Target, new: str, part: str, count: int) -> None:
        for start in range(0, count, SLICE_ITEMS):
            items = await self._store.command("LRANGE", old, start, min(start + SLICE_ITEMS, count) - 1)
            if not items:
                raise StoreRegressed("a segment of the thread that is copied is shorter than it was", lost="segment")
            await target.items("list", new, items, part=part, offset=start)

    async def _whole(self, old: str, target: _Target, new: str, part: str) -> None:
        """Copy what a part names: a segment, or writes that came before their checkpoint."""
        if part.startswith("writes"):
            pairs = await self._store.command("HGETALL", old)
            await target.items("hash", new, pairs, part=part)
        else:
            await self._list(old, target, new, part, await self._store.command("LLEN", old))

    async def _effects(self, source: keys.ThreadKeys, manifest: Manifest) -> AsyncIterator[bytes]:
        """Yield field and record of every effect that was settled when the checkpoint was made."""
        async for pairs in self._pairs(source.effects):
            for at in range(0, len(pairs), 2):
                effect = SettledEffect.parse(pairs[at], pairs[at + 1])
                if _before(effect, manifest):
                    yield pairs[at]
                    yield pairs[at + 1]

    async def _pairs(self, key: str) -> AsyncIterator[list[bytes]]:
        cursor = 0
        while True:
            reply = await self._store.command("HSCAN", key, cursor, "COUNT", SLICE_ITEMS)
            cursor = int(reply[0])
            if reply[1]:
                yield reply[1]
            if cursor == 0:
                return

    async def _members(self, key: str) -> AsyncIterator[bytes]:
        cursor = 0
        while True:
            reply = await self._store.command("SSCAN", key, cursor, "COUNT", SLICE_ITEMS)
            cursor = int(reply[0])
            for member in reply[1]:
                yield member
            if cursor == 0:
                return

    async def _sequence(self, source: keys.ThreadKeys) -> str:
        return (await self._store.command("HGET", source.meta, "sequence") or b"0").decode()

    async def _open(self, target: _Target, latest: str, sequence: str, parent: str) -> str:
        names = [target.where.meta, target.where.latest()]
        reply = await self._store.call(_OPEN, names, [target.copy, keys.encode(latest), sequence, parent, latest])
        if reply[0] != b"OK":
            raise still_standing(target.thread)
        shard = keys.threads(self._namespace, keys.shard(target.thread))
        await self._store.command("ZADD", shard, 0, target.thread)
        incarnation: str = reply[1].decode()
        return incarnation


def _before(effect: SettledEffect, manifest: Manifest) -> bool:
    if effect.checkpoint is not None:
        return keys.decode(effect.checkpoint) <= manifest.checkpoint
    return effect.settled_at <= manifest.time
