"""Copying a thread, or one checkpoint of it, to a new id: in slices, invisible until it is complete."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from blackboard import keys
from blackboard.artifacts.store import ArtifactStore
from blackboard.checkpoints.manifest import Manifest, Meta, parse, spell
from blackboard.checkpoints.outside import Outside
from blackboard.checkpoints.resealing import Resealing
from blackboard.checkpoints.sealing import open_manifest
from blackboard.checkpoints.seeding import SLICE_ITEMS, Seeding
from blackboard.checkpoints.walk import checkpoints, members, pairs, unmoved
from blackboard.claims.record import SettledEffect
from blackboard.codec.cipher import Seal
from blackboard.errors import BlackboardError, CheckpointMissing, ServerUnavailable, StoreRegressed, ThreadGone
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store

__all__ = ["Copier"]


class Copier:
    """Copies threads of one namespace; the source is only read, and the copy owes it nothing.

    What is encrypted is decrypted and encrypted anew with the current key, for it opens in its own thread only.
    """

    def __init__(self, store: Store, namespace: str, seal: Seal | None = None, outside: Outside | None = None) -> None:
        self._store, self._namespace, self._seal = store, namespace, seal
        policy = CheckpointNamespace()
        self._outside = outside or Outside(store, ArtifactStore(store), namespace, policy=policy, seal=seal)

    async def fork(self, thread: str, to: str, *, checkpoint: str | None = None, lineage: str = "") -> str:
        """Make a new thread that stands where a checkpoint of another stood (the newest, or the one named).

        Effects that were settled by then come along, later ones do not; nothing that is open does. Returns the new
        thread's incarnation. If it does not come to the end, nothing of it is seen, and what was written goes with a
        sweep. Raises ThreadExists, CheckpointMissing, ThreadGone, and ServerUnavailable if a prune overtook it: do it again.
        """
        source = keys.ThreadKeys.of(self._namespace, thread)
        before = await unmoved(self._store, source, thread, [])
        manifest = await self._manifest(source, thread, checkpoint, lineage)
        async with self._seeding(to) as target:
            try:
                await self._checkpoint(source, target, thread, manifest, lineage)
            except StoreRegressed:
                await unmoved(self._store, source, thread, before)  # what was pruned meanwhile is not lost
                raise
            return await self._open(source, target, manifest.checkpoint, thread)

    async def _checkpoint(
        self, source: keys.ThreadKeys, target: Seeding, thread: str, manifest: Manifest, lineage: str
    ) -> None:
        moving = self._moving(thread, target)
        await self._artifacts(source, target, {ref.artifact for ref in manifest.refs.values()})
        if moving is None:
            digests = [ref.digest for ref in manifest.refs.values() if ref.digest is not None]
            await self._values(source, target, digests)
            alone = replace(manifest, parent=None)
        else:
            alone = await moving.manifest(manifest, lineage, "", parent=None)
        for name, ref in manifest.refs.items():
            for segment, count in ref.segments:
                old, new = source.log(name, segment, lineage), target.where.log(name, segment)
                await self._list(old, target, new, count, moving)
        async for effects in self._effects(source, manifest):
            await target.items("hash", target.where.effects, moving.effects(effects) if moving else effects)
        await target.items("history", target.where.history(), [keys.encode(manifest.checkpoint)])
        await target.string(target.where.checkpoint(manifest.checkpoint), spell(alone))

    async def copy(self, thread: str, to: str) -> str:
        """Copy a whole thread: every lineage with its history, pending writes, pins and settled effects."""
        source = keys.ThreadKeys.of(self._namespace, thread)
        newest = await self._manifest(source, thread, None, "")
        before = await unmoved(self._store, source, thread, [])
        async with self._seeding(to) as target:
            await self._all(source, target, thread)
            await unmoved(self._store, source, thread, before)
            return await self._open(source, target, newest.checkpoint, thread)

    @asynccontextmanager
    async def _seeding(self, to: str) -> AsyncGenerator[Seeding]:
        """Take the id, and give it back at once if the copying fails, so that it can be done again."""
        target = await Seeding.begin(self._store, self._namespace, to)
        try:
            yield target
        except BlackboardError:
            await target.give_up()
            raise

    async def _all(self, source: keys.ThreadKeys, target: Seeding, thread: str) -> None:
        moving = self._moving(thread, target)
        # Contents come after the checkpoints that refer to them: while the thread is driven they only grow.
        named = [part.decode() async for part in members(self._store, source.parts)]
        for lineage in ["", *(keys.decode(part[1:]) for part in named if part.startswith("@"))]:
            await self._lineage(source, target, lineage, moving)
        async for part in members(self._store, source.parts):
            await self._whole(source, target, part.decode(), moving)
        await self._artifacts(source, target, None)
        if moving is None:
            async for some in pairs(self._store, source.values):
                await target.items("hash", target.where.values, some)
        async for effects in pairs(self._store, source.effects):
            await target.items("hash", target.where.effects, moving.effects(effects) if moving else effects)

    def _moving(self, thread: str, target: Seeding) -> Resealing | None:
        return None if self._seal is None else Resealing(self._seal, thread, target, self._outside)

    async def _artifacts(self, source: keys.ThreadKeys, target: Seeding, moved: Collection[str | None] | None) -> None:
        """Let the copy refer to what the thread mentions, and to values that were moved out: those named, or all.

        What is sealed is put anew with its manifest. The copy is seen later, so that it never refers to what is gone.
        """
        async for some in pairs(self._store, source.artifacts):
            kinds = {some[at].decode(): some[at + 1].decode() for at in range(0, len(some), 2)}
            kept = [
                one for one, kind in kinds.items()
                if kind == "mentioned" or (self._seal is None and (moved is None or one in moved))
            ]  # fmt: skip
            there = await self._outside.refer(target.thread, kept)
            lost = [one for one in kept if kinds[one] == "moved" and one not in there]
            if lost:
                raise StoreRegressed(f"artifact {lost[0]} of the thread that is copied is not there", lost=lost[0])
            await target.items("hash", target.where.artifacts, [x for one in there for x in (one, kinds[one])])

    async def _lineage(self, source: keys.ThreadKeys, target: Seeding, lineage: str, moving: Resealing | None) -> None:
        newest = await self._store.command("GET", source.latest(lineage))
        if newest is None:
            return
        if lineage:
            await target.items("set", target.where.parts, [f"@{keys.encode(lineage)}"])
        async for page in checkpoints(self._store, source, lineage, newest):
            await target.items("history", target.where.history(lineage), [keys.encode(name) for name, _ in page])
            for name, data in page:
                body = await moving.checkpoint(name, lineage, data) if moving else data
                await target.string(target.where.checkpoint(name, lineage), body)
                await self._writes(source, target, name, lineage, moving)
        pins = [pin async for pin in members(self._store, source.pins(lineage))]
        if pins:
            await target.items("set", target.where.pins(lineage), pins)
        if lineage:
            await target.string(target.where.latest(lineage), newest)

    async def _writes(
        self, source: keys.ThreadKeys, target: Seeding, checkpoint: str, lineage: str, moving: Resealing | None
    ) -> None:
        written = await self._store.command("HGETALL", source.writes(checkpoint, lineage))
        if written:
            written = moving.writes(lineage, checkpoint, written) if moving else written
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
        if (name is None or data is None) and checkpoint is None and not lineage:
            raise await self._newest_lost(source, thread, meta, name)
        if name is None or data is None:
            raise CheckpointMissing(
                f"thread {thread!r} has no checkpoint {checkpoint!r}; `history` lists those that it has",
                thread=thread,
                checkpoint=checkpoint,
            )
        manifest = parse(keys.decode(name.decode()), data)
        open_manifest(self._seal, thread, lineage, manifest)  # before anything is written
        return manifest

    async def _newest_lost(
        self, source: keys.ThreadKeys, thread: str, meta: Meta, name: bytes | None
    ) -> BlackboardError:
        """Tell a newest checkpoint that the store has lost from one that was deleted or pruned meanwhile."""
        newest = await self._store.command("GET", source.latest())
        if await self._store.command("HGET", source.meta, "incarnation") != str(meta.incarnation).encode():
            return ThreadGone(f"thread {thread!r} ended while it was read", thread=thread, why="deleted")
        if newest != name:
            return ServerUnavailable(f"thread {thread!r} was driven on while it was read; do it again", thread=thread)
        return StoreRegressed(
            f"the store has lost the newest checkpoint of thread {thread!r}, which it had acknowledged: restore it, or delete the thread",
            namespace=self._namespace, thread=thread, lost="latest",
        )  # fmt: skip

    async def _values(self, source: keys.ThreadKeys, target: Seeding, digests: Sequence[str]) -> None:
        for start in range(0, len(digests), 50):
            some = digests[start : start + 50]
            bodies = await self._store.command("HMGET", source.values, *some)
            if None in bodies:
                raise StoreRegressed("a value of the thread that is copied is not there", lost="value")
            await target.items(
                "hash", target.where.values, [x for pair in zip(some, bodies, strict=True) for x in pair]
            )

    async def _list(self, old: str, target: Seeding, new: str, count: int, moving: Resealing | None) -> None:
        part = new[len(target.where.prefix) + 1 :]
        for start in range(0, count, SLICE_ITEMS):
            items = await self._store.command("LRANGE", old, start, min(start + SLICE_ITEMS, count) - 1)
            if not items:
                raise StoreRegressed("a segment of the thread that is copied is shorter than it was", lost="segment")
            if moving is not None:
                items = moving.items(old, start, items)
            await target.items("list", new, items, part=part, offset=start)

    async def _whole(self, source: keys.ThreadKeys, target: Seeding, part: str, moving: Resealing | None) -> None:
        """Copy what a part names: a segment, or writes that came before their checkpoint."""
        old, new = f"{source.prefix}:{part}", f"{target.where.prefix}:{part}"
        if part.startswith("writes"):
            written = await self._store.command("HGETALL", old)
            if moving is not None:
                lineage, checkpoint = (keys.decode(one) for one in part.removeprefix("writes").lstrip("@").split(":"))
                written = moving.writes(lineage, checkpoint, written)
            await target.items("hash", new, written, part=part)
        elif not part.startswith("@") and (moving is None or moving.knows(old)):
            await self._list(old, target, new, await self._store.command("LLEN", old), moving)

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
