"""A walk over all keys of a namespace: each has an owner, and an end where it should have one."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from blackboard import keys
from blackboard.checkpoints.engine import Engine
from blackboard.runs.inbox import Inbox
from blackboard.store.client import Store
from blackboard.testing.contracts.thread import all_keys
from blackboard.testing.life import Life

__all__ = ["Keyspace"]

FIXED = {"meta", "lock", "ops", "parts", "values", "artifacts", "effects", "effects:open", "inbox", "answers"}
TOMBSTONE = {"meta", "lock"}


@dataclass(frozen=True, slots=True)
class Keyspace:
    """The keys of one namespace on a server that others may use as well."""

    store: Store
    namespace: str

    async def walk(self, lives: Mapping[str, Life]) -> int:
        """Look at every key; returns how many there are.

        A thread that stands is listed, and its keys are reached from it; of a closed one that is not kept every key has an
        expiry. Of any other id nothing stands but a tombstone, which ends by itself. A removal that was cut short has to
        have been swept before.
        """
        by_thread: defaultdict[str, set[str]] = defaultdict(set)
        prefix = f"bb:{keys.encode(self.namespace)}:thread:{{"
        walked = await self._keys()
        for key in walked:
            if key.startswith(prefix):
                thread, _, name = key.removeprefix(prefix).partition("}:")
                by_thread[keys.decode(thread)].add(name)
        for thread, names in by_thread.items():
            await self._owned(thread, names, lives.get(thread) or Life())
        return len(walked)

    async def no_garbage(self, thread: str, life: Life) -> None:
        """After a prune nothing is stored that no checkpoint refers to."""
        where = keys.ThreadKeys.of(self.namespace, thread)
        digests: set[str] = set()
        segments: set[str] = set()
        for lineage, of in life.lineages.items():
            for stored in of.stored.values():
                digests |= {ref.digest for ref in stored.refs.values() if ref.digest is not None}
                segments |= {
                    where.log(name, one, lineage) for name, ref in stored.refs.items() for one, _ in ref.segments
                }
        values = await self.store.command("HKEYS", where.values)
        parts = await self.store.command("SMEMBERS", where.parts)
        logs = {f"{where.prefix}:{part.decode()}" for part in parts if part.startswith(b"log")}
        assert {value.decode() for value in values} == digests
        assert logs == segments

    async def agrees(self, engine: Engine, thread: str, life: Life) -> None:
        """Everything that is read of a thread is what the model holds, bit by bit."""
        meta = await engine.meta(thread)
        assert (meta.status, meta.incarnation) == (life.status, life.incarnation)
        for lineage in ("", "side"):
            of = life.lineage(lineage)
            latest, history = await asyncio.gather(
                engine.latest(thread, lineage=lineage), engine.history(thread, lineage=lineage, limit=1000)
            )
            assert (latest.manifest.checkpoint if latest else None) == of.latest
            assert [one.checkpoint for one in history] == sorted(of.stored, key=keys.encode, reverse=True)
            found = await asyncio.gather(*(engine.at(thread, name, lineage=lineage) for name in of.stored))
            for (name, stored), snapshot in zip(of.stored.items(), found, strict=True):
                assert snapshot is not None
                assert snapshot.contents == stored.contents
                assert (snapshot.manifest.parent, snapshot.manifest.step) == (stored.parent, stored.step)
                assert snapshot.writes == of.writes.get(name, {})
        letters = {letter.id: letter.name for letter in await Inbox(engine).unread(thread)}
        assert letters == life.letters
        if life.awaits is not None and life.answered(life.awaits):
            assert await self._due(thread), "a thread that was answered is not found by those who drive it"

    async def clear(self) -> None:
        """Delete every key of the namespace."""
        found = await self._keys()
        if found:
            await self.store.batch([("DEL", key) for key in found])

    async def _keys(self) -> list[str]:
        start = f"bb:{keys.encode(self.namespace)}:"
        return await all_keys(self.store, start)

    async def _due(self, thread: str) -> bool:
        row = await self.store.command("ZSCORE", keys.threads(self.namespace, keys.shard(thread)), thread)
        return row is not None and 0 < float(row) <= self.store.server_time() // 1000

    async def _owned(self, thread: str, names: set[str], life: Life) -> None:
        where = keys.ThreadKeys.of(self.namespace, thread)
        lives = await self.store.batch([("PTTL", f"{where.prefix}:{name}") for name in names])
        lasting = {name for name, life_ms in zip(names, lives, strict=True) if life_ms == -1}
        if not life.stands:
            assert names <= TOMBSTONE, f"left of {thread!r}: {names - TOMBSTONE}"
            assert not lasting, f"left of {thread!r} for ever: {lasting}"
            return
        assert names <= await self._reached(where), f"nobody's, of {thread!r}: {names - await self._reached(where)}"
        row = await self.store.command("ZSCORE", keys.threads(self.namespace, keys.shard(thread)), thread)
        assert row is not None, f"{thread!r} is not listed"
        if life.closed and not life.keeps:
            assert not lasting, f"{thread!r} is closed, and without an end: {lasting}"

    async def _reached(self, where: keys.ThreadKeys) -> set[str]:
        """Names of all that is found from the thread's fixed keys, its parts and its histories."""
        parts = {part.decode() for part in await self.store.command("SMEMBERS", where.parts)}
        names = FIXED | {part for part in parts if part[0] != "@"}
        for at in ("", *(part for part in parts if part[0] == "@")):
            names |= {f"latest{at}", f"history{at}", f"pins{at}"}
            for one in await self.store.command("ZRANGE", f"{where.prefix}:history{at}", 0, -1):
                names |= {f"checkpoint{at}:{one.decode()}", f"writes{at}:{one.decode()}"}
        return names
