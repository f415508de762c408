"""Pruning: old checkpoints go, and of what they held only what nobody else refers to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field

from blackboard import keys
from blackboard.checkpoints.manifest import Manifest, Meta, parse
from blackboard.checkpoints.retention import SLICE
from blackboard.errors import CheckpointMissing
from blackboard.quantities import whole
from blackboard.store.client import Store
from blackboard.store.script import Script

__all__ = ["Pruned", "Pruner"]

_DROP = Script("blackboard.checkpoints", "drop.lua", prelude=("thread.lua",))
_COLLECT = Script("blackboard.checkpoints", "collect.lua")
_PIN = Script("blackboard.checkpoints", "pin.lua", prelude=("thread.lua",))

ALWAYS, SHARE = 1000, 8
"""Garbage is looked for in every prune of a thread of at most so many checkpoints; of a longer one, whose manifests all have
to be read for that, once as many were dropped as make a share of what stands: so a checkpoint's part of it stays the same."""

_ROUNDS = 5
"""How often the thread may move while it is pruned before its garbage is left for the next time."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a prune did: checkpoints dropped, values and segments removed, and whether the thread moved too often.

    `deferred` says that the garbage of a long thread is left for a later prune.
    """

    checkpoints: int = 0
    values: int = 0
    segments: int = 0
    gave_way: bool = False
    deferred: bool = False


@dataclass(slots=True)
class _Referred:
    """What manifests refer to: digests of values, artifacts that values were moved to, and keys of segments."""

    digests: set[str] = field(default_factory=set[str])
    artifacts: set[str] = field(default_factory=set[str])
    segments: set[str] = field(default_factory=set[str])

    def add(self, where: keys.ThreadKeys, lineage: str, manifest: Manifest) -> None:
        for name, ref in manifest.refs.items():
            if ref.digest is not None:
                self.digests.add(ref.digest)
            if ref.artifact is not None:
                self.artifacts.add(ref.artifact)
            self.segments.update(where.log(name, segment, lineage) for segment, _ in ref.segments)


class Pruner:
    """Prunes the threads of one namespace; anybody may, also while the thread is driven."""

    def __init__(self, store: Store, namespace: str) -> None:
        self._store, self._namespace = store, namespace

    async def pin(self, thread: str, checkpoint: str, *, lineage: str = "") -> None:
        """Keep a checkpoint whatever is pruned, until the thread ends; CheckpointMissing if it is not stored."""
        where = keys.ThreadKeys.of(self._namespace, thread)
        name = keys.encode(checkpoint, "checkpoint id")
        reply = await self._store.call(_PIN, [where.meta, where.history(lineage), where.pins(lineage)], [name])
        if reply[0] != b"OK":
            raise CheckpointMissing(
                f"thread {thread!r} has no checkpoint {checkpoint!r}; `history` lists those that it has",
                thread=thread,
                checkpoint=checkpoint,
            )

    async def unpin(self, thread: str, checkpoint: str, *, lineage: str = "") -> bool:
        """Let a checkpoint be pruned again; True if it was pinned."""
        where = keys.ThreadKeys.of(self._namespace, thread)
        return bool(await self._store.command("SREM", where.pins(lineage), keys.encode(checkpoint, "checkpoint id")))

    async def prune(self, thread: str, *, keep_last: int, lineage: str = "", keep: Collection[str] = ()) -> Pruned:
        """Drop all but the newest `keep_last` checkpoints of a lineage, in slices, and what only they referred to.

        The newest, the pinned ones and those named in `keep` stay, and so does every value and segment that a checkpoint that stays refers to.
        If the thread is written meanwhile, the garbage is looked for again, a few times; what is left then goes with the
        next prune. Of a thread of more than 1,000 checkpoints it is looked for once an eighth as many were dropped. A kill
        in the middle leaves checkpoints readable or gone, never half.
        """
        whole(keep_last, what="keep_last")
        where = keys.ThreadKeys.of(self._namespace, thread)
        meta = Meta.of(await self._store.command("HGETALL", where.meta))
        if meta.incarnation is None:
            return Pruned()
        dropped = 0
        async for manifests in self._old(where, lineage, keep_last, keep):
            gone = await self._drop(where, lineage, meta.incarnation, [m.checkpoint for m in manifests])
            dropped += len(gone)
            if manifests and not gone:
                break
        if not await self._worth_collecting(where, lineage):
            return Pruned(dropped, deferred=True)
        return await self._collect(where, dropped)

    async def drop(self, thread: str, checkpoints: Sequence[str], *, lineage: str = "") -> Pruned:
        """Drop the checkpoints that are named, in slices, and what only they referred to; pinned ones stay.

        The newest goes as well if it is named: the newest of those that stand is `latest` then.
        """
        where = keys.ThreadKeys.of(self._namespace, thread)
        meta = Meta.of(await self._store.command("HGETALL", where.meta))
        if meta.incarnation is None:
            return Pruned()
        dropped = 0
        for start in range(0, len(checkpoints), SLICE):
            some = checkpoints[start : start + SLICE]
            dropped += len(await self._drop(where, lineage, meta.incarnation, some, newest=True))
        if not await self._worth_collecting(where, lineage):
            return Pruned(dropped, deferred=True)
        return await self._collect(where, dropped)

    async def _worth_collecting(self, where: keys.ThreadKeys, lineage: str) -> bool:
        standing = await self._store.command("ZCARD", where.history(lineage))
        uncollected = await self._store.command("HGET", where.meta, "uncollected")
        return bool(standing <= ALWAYS or int(uncollected or 0) * SHARE >= standing)

    async def _old(
        self, where: keys.ThreadKeys, lineage: str, keep_last: int, keep: Collection[str]
    ) -> AsyncIterator[list[Manifest]]:
        """Walk what is older than the newest ones, the oldest first; the caller drops what it is given."""
        pinned = {name.decode() for name in await self._store.command("SMEMBERS", where.pins(lineage))}
        pinned.update(keys.encode(checkpoint, "checkpoint id") for checkpoint in keep)
        start = 0
        while True:
            old = await self._store.command("ZCARD", where.history(lineage)) - keep_last
            if old <= start:
                return
            last = min(start + SLICE, old) - 1
            names = [n.decode() for n in await self._store.command("ZRANGE", where.history(lineage), start, last)]
            manifests = await self._manifests(where, lineage, [name for name in names if name not in pinned])
            start += len(names) - len(manifests)
            yield manifests

    async def _manifests(self, where: keys.ThreadKeys, lineage: str, names: Sequence[str]) -> list[Manifest]:
        if not names:
            return []
        prefix = where.checkpoints(lineage)
        found = await self._store.batch([("GET", prefix + name) for name in names])
        return [parse(keys.decode(name), data) for name, data in zip(names, found, strict=True) if data is not None]

    async def _drop(
        self,
        where: keys.ThreadKeys,
        lineage: str,
        incarnation: str,
        checkpoints: Sequence[str],
        *,
        newest: bool = False,
    ) -> Collection[str]:
        if not checkpoints:
            return ()
        victims = [key for one in checkpoints for key in (where.checkpoint(one, lineage), where.writes(one, lineage))]
        names = [where.meta, where.latest(lineage), where.history(lineage), where.pins(lineage), *victims]
        args: list[str | int] = [incarnation, int(newest), *(keys.encode(one) for one in checkpoints)]
        reply = await self._store.call(_DROP, names, args)
        return {keys.decode(name.decode()) for name in reply[1:]} if reply[0] == b"OK" else ()

    async def _collect(self, where: keys.ThreadKeys, dropped: int) -> Pruned:
        """Remove what is stored and not referred to, also what an earlier prune that was killed left behind."""
        for _ in range(_ROUNDS):
            meta = Meta.of(await self._store.command("HGETALL", where.meta))
            suspects, kept = await self._stored(where), await self._kept(where)
            digests = sorted(suspects.digests - kept.digests)
            artifacts = sorted(suspects.artifacts - kept.artifacts)
            segments = sorted(suspects.segments - kept.segments)
            if await self._remove(where, meta, (digests, artifacts, segments)):
                await self._store.command("HDEL", where.meta, "uncollected")
                return Pruned(dropped, len(digests), len(segments))
        return Pruned(dropped, gave_way=True)

    async def _stored(self, where: keys.ThreadKeys) -> _Referred:
        stored, cursor = _Referred(), 0
        while True:
            cursor, fields = await self._store.command("HSCAN", where.values, cursor, "COUNT", SLICE)
            stored.digests.update(field.decode() for field in fields[::2])
            if int(cursor) == 0:
                break
        parts, outside = await self._store.batch([("SMEMBERS", where.parts), ("HGETALL", where.artifacts)])
        # What contents mention is kept as long as the thread: nobody knows which checkpoint it was.
        pairs = zip(outside[::2], outside[1::2], strict=True)
        stored.artifacts.update(one.decode() for one, kind in pairs if kind == b"moved")
        stored.segments.update(f"{where.prefix}:{part.decode()}" for part in parts if part.startswith(b"log"))
        return stored

    async def _kept(self, where: keys.ThreadKeys) -> _Referred:
        """Read what every checkpoint that stands refers to; values are shared by all lineages of a thread."""
        kept = _Referred()
        parts = await self._store.command("SMEMBERS", where.parts)
        lineages = ["", *(keys.decode(part[1:].decode()) for part in parts if part.startswith(b"@"))]
        for lineage in lineages:
            last = b"-"  # by id and not by rank, which shifts when somebody else prunes
            while names := await self._store.command(
                "ZRANGEBYLEX", where.history(lineage), last, "+", "LIMIT", 0, SLICE
            ):
                last = b"(" + names[-1]
                for manifest in await self._manifests(where, lineage, [name.decode() for name in names]):
                    kept.add(where, lineage, manifest)
        return kept

    async def _remove(
        self, where: keys.ThreadKeys, meta: Meta, garbage: tuple[Sequence[str], Sequence[str], Sequence[str]]
    ) -> bool:
        """Remove digests, artifacts and segments in slices; False if the thread moved, so that they have to be looked for again."""
        for start in range(0, max(map(len, garbage)), SLICE):
            digests, artifacts, segments = (part[start : start + SLICE] for part in garbage)
            parts = [key[len(where.prefix) + 1 :] for key in segments]
            names = [where.meta, where.values, where.parts, where.artifacts, *segments]
            known = (meta.incarnation or "", meta.updated)
            args: list[str | int] = [*known, len(digests), *digests, len(artifacts), *artifacts, *parts]
            reply = await self._store.call(_COLLECT, names, args)
            if reply[0] != b"OK":
                return False
        return True
