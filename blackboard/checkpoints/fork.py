"""Copying a thread, or one checkpoint of it, to a new id: in slices, invisible until it is complete."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from blackboard import keys
from blackboard.checkpoints.channels import Ref
from blackboard.checkpoints.manifest import Manifest, Meta, parse, spell
from blackboard.checkpoints.seeding import SLICE_ITEMS, Seeding
from blackboard.checkpoints.walk import checkpoints, members, pairs, unmoved
from blackboard.claims.record import SettledEffect
from blackboard.errors import CheckpointMissing, StoreRegressed, ThreadGone
from blackboard.store.client import Store

__all__ = ["Copier"]


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
        target = await Seeding.begin(self._store, self._namespace, to)
        digests = [ref.digest for ref in manifest.refs.values() if ref.digest is not None]
        await self._values(source, target, digests)
        for name, ref in manifest.refs.items():
            await self._segments(source, target, name, ref, lineage)
        async for effects in self._effects(source, manifest):
            await target.items("hash", target.where.effects, effects)
        alone = replace(manifest, parent=None)
        await target.items("history", target.where.history(), [keys.encode(manifest.checkpoint)])
        await target.string(target.where.checkpoint(manifest.checkpoint), spell(alone))
        return await self._open(source, target, manifest.checkpoint, thread)

    async def copy(self, thread: str, to: str) -> str:
        """Copy a whole thread: every lineage with its history, pending writes, pins and settled effects."""
        source = keys.ThreadKeys.of(self._namespace, thread)
        newest = await self._manifest(source, thread, None, "")
        before = await unmoved(self._store, source, thread, [])
        target = await Seeding.begin(self._store, self._namespace, to)
        # Contents come after the checkpoints that refer to them: while the thread is driven they only grow.
        named = [part.decode() async for part in members(self._store, source.parts)]
        for lineage in ["", *(keys.decode(part[1:]) for part in named if part.startswith("@"))]:
            await self._lineage(source, target, lineage)
        async for part in members(self._store, source.parts):
            await self._whole(source, target, part.decode())
        async for some in pairs(self._store, source.values):
            await target.items("hash", target.where.values, some)
        async for effects in pairs(self._store, source.effects):
            await target.items("hash", target.where.effects, effects)
        await unmoved(self._store, source, thread, before)
        return await self._open(source, target, newest.checkpoint, thread)

    async def _lineage(self, source: keys.ThreadKeys, target: Seeding, lineage: str) -> None:
        newest = await self._store.command("GET", source.latest(lineage))
        if newest is None:
            return
        if lineage:
            await target.items("set", target.where.parts, [f"@{keys.encode(lineage)}"])
        async for page in checkpoints(self._store, source, lineage, newest):
            await target.items("history", target.where.history(lineage), [keys.encode(name) for name, _ in page])
            for name, data in page:
                await target.string(target.where.checkpoint(name, lineage), data)
                await self._writes(source, target, name, lineage)
        pins = [pin async for pin in members(self._store, source.pins(lineage))]
        if pins:
            await target.items("set", target.where.pins(lineage), pins)
        if lineage:
            await target.string(target.where.latest(lineage), newest)

    async def _writes(self, source: keys.ThreadKeys, target: Seeding, checkpoint: str, lineage: str) -> None:
        written = await self._store.command("HGETALL", source.writes(checkpoint, lineage))
        if written:
            await target.items("hash", target.where.writes(checkpoint, lineage), written)

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

    async def _values(self, source: keys.ThreadKeys, target: Seeding, digests: Sequence[str]) -> None:
        for start in range(0, len(digests), 50):
            some = digests[start : start + 50]
            bodies = await self._store.command("HMGET", source.values, *some)
            if None in bodies:
                raise StoreRegressed("a value of the thread that is copied is not there", lost="value")
            await target.items(
                "hash", target.where.values, [x for pair in zip(some, bodies, strict=True) for x in pair]
            )

    async def _segments(self, source: keys.ThreadKeys, target: Seeding, name: str, ref: Ref, lineage: str) -> None:
        for segment, count in ref.segments:
            key = target.where.log(name, segment)
            part = key[len(target.where.prefix) + 1 :]
            await self._list(source.log(name, segment, lineage), target, key, part, count)

    async def _list(self, old: str, target: Seeding, new: str, part: str, count: int) -> None:
        for start in range(0, count, SLICE_ITEMS):
            items = await self._store.command("LRANGE", old, start, min(start + SLICE_ITEMS, count) - 1)
            if not items:
                raise StoreRegressed("a segment of the thread that is copied is shorter than it was", lost="segment")
            await target.items("list", new, items, part=part, offset=start)

    async def _whole(self, source: keys.ThreadKeys, target: Seeding, part: str) -> None:
        """Copy what a part names: a segment, or writes that came before their checkpoint."""
        old, new = f"{source.prefix}:{part}", f"{target.where.prefix}:{part}"
        if part.startswith("writes"):
            await target.items("hash", new, await self._store.command("HGETALL", old), part=part)
        elif not part.startswith("@"):
            await self._list(old, target, new, part, await self._store.command("LLEN", old))

    async def _effects(self, source: keys.ThreadKeys, manifest: Manifest) -> AsyncIterator[list[bytes]]:
        """Yield fields and records of the effects that were settled when the checkpoint was made."""
        async for some in pairs(self._store, source.effects):
            each = [(some[at], some[at + 1]) for at in range(0, len(some), 2)]
            yield [x for one in each if _before(SettledEffect.parse(*one), manifest) for x in one]

    async def _open(self, source: keys.ThreadKeys, target: Seeding, latest: str, parent: str) -> str:
        sequence = (await self._store.command("HGET", source.meta, "sequence") or b"0").decode()
        return await target.open(latest, {"sequence": sequence, "parent": parent, "forked_at": latest})


def _before(effect: SettledEffect, manifest: Manifest) -> bool:
    if effect.checkpoint is not None:
        return keys.decode(effect.checkpoint) <= manifest.checkpoint
    return effect.settled_at <= manifest.time
