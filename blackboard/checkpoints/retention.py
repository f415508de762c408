"""How threads end: expiry for every key of a closed thread, tombstones, and the removal of what is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Literal

from blackboard import keys
from blackboard.checkpoints.commit import shown
from blackboard.checkpoints.refusal import Asked, refusal
from blackboard.claims import registry
from blackboard.claims.lease import Token
from blackboard.errors import ServerRefused
from blackboard.quantities import whole
from blackboard.store.client import Store
from blackboard.store.script import Script

__all__ = ["RESERVE_MS", "SLICE", "Retention"]

_CLOSE = Script("blackboard.checkpoints", "close.lua", prelude=("thread.lua",))
_DELETE = Script("blackboard.checkpoints", "delete.lua", prelude=("thread.lua",))
_EXPIRE = Script("blackboard.checkpoints", "expire.lua")
_REMOVE = Script("blackboard.checkpoints", "remove.lua")

RESERVE_MS = 7 * 24 * 3600 * 1000
"""How long a tombstone, and a thread without its first checkpoint, stay: longer than any call waits."""

SLICE = 100
"""Checkpoints per slice: 200 keys in one script, which holds the server for 2 ms or so; 250 checkpoints took up to 7 ms."""

AT_ONCE = 10
"""Overdue threads that a sweep removes at the same time; each takes a dozen round trips."""


class Retention:
    """The end of the threads of one namespace; every part of it can be repeated and resumed by anybody."""

    def __init__(self, store: Store, namespace: str) -> None:
        self._store, self._namespace = store, namespace

    async def close(
        self,
        thread: str,
        *,
        status: Literal["finished", "failed"],
        ttl: float | None,
        token: Token | None = None,
        drop_unread: bool = False,
    ) -> None:
        """Finish or fail a thread without a checkpoint and give every key of it the expiry, `ttl` seconds from now.

        Raises UnresolvedEffects while an effect is open, UnreadSignals; otherwise as a commit does. If it raises after
        the thread was closed (an outage), the thread is closed all the same, and calling again goes on with the slices.
        """
        where = keys.ThreadKeys.of(self._namespace, thread)
        fence, incarnation = shown(token)
        ttl_ms = "" if ttl is None else max(1, int(ttl * 1000))
        names = [where.meta, where.lock, where.latest(), where.effects_open, where.inbox]
        reply = await self._store.call(_CLOSE, names, [fence, incarnation, status, ttl_ms, int(drop_unread)])
        if reply[0] != b"OK":
            raise refusal(Asked(self._namespace, thread, None, None if token is None else token.fence), reply)
        if reply[2]:
            await self.expire(thread, reply[1].decode(), int(reply[2]))

    async def expire(self, thread: str, incarnation: str, expires: int) -> None:
        """Put PEXPIREAT on every key of a closed thread, in slices, meta last; `expires` is server time in ms.

        The lock keeps the expiry of its lease, so that a driver who dies here holds nobody up for longer than that.
        """
        where = keys.ThreadKeys.of(self._namespace, thread)
        await self.due(thread, expires)
        async for names, _, _ in self._slices(where, drain=False):
            await self._store.call(_EXPIRE, [where.meta, *names], [incarnation, expires])
        last = [*self._fixed(where), where.history(), where.parts, where.meta]
        await self._store.call(_EXPIRE, [where.meta, *last], [incarnation, expires])

    async def delete(self, thread: str, *, drop_unread: bool = False) -> bool:
        """Delete a thread and all of it, whoever drives it; True if there was one.

        A tombstone refuses late writes for 7 days. Raises UnresolvedEffects while an effect is running or unknown, and
        UnreadSignals while the inbox holds letters, unless they are to be dropped. If it raises in the middle, the thread
        is gone for every reader and the rest goes with the next call or sweep. Of a thread that the store has lost in
        part all that is left goes; where its `meta` is lost, with effects that nobody could resolve any more.
        """
        where = keys.ThreadKeys.of(self._namespace, thread)
        await self._due_now(thread)
        removing = await self._tombstone(thread, where, "delete", "", drop_unread)
        if removing is None:
            return False
        await self._clear(thread, where, removing)
        return True

    async def remove(self, thread: str, incarnation: str) -> None:
        """Remove what is left of an incarnation that expired or was deleted."""
        await self._remove(thread, "expired", incarnation)

    async def remove_copy(self, thread: str, copy: str) -> None:
        """Remove what a copying that broke off has written; one that was opened, or another one, is left alone."""
        await self._remove(thread, "broken", copy)

    async def _remove(self, thread: str, mode: Literal["expired", "broken"], which: str) -> None:
        where = keys.ThreadKeys.of(self._namespace, thread)
        await self._due_now(thread)
        removing = await self._tombstone(thread, where, mode, which)
        if removing is not None:
            await self._clear(thread, where, removing)

    async def sweep(self, limit: int = 100) -> int:
        """Remove at most `limit` threads that are overdue and drop their rows; returns how many rows went."""
        whole(limit, what="limit", least=0)
        now = self._store.server_time() // 1000
        gone: int = 0
        for number in range(keys.SHARDS):
            shard = keys.threads(self._namespace, number)
            stay: int = 0
            while gone < limit:
                most: int = limit - gone
                rows: Sequence[bytes] = await self._store.command(
                    "ZRANGEBYSCORE", shard, "(0", now, "LIMIT", stay, most
                )
                if not rows:
                    break
                went: int = 0
                for start in range(0, len(rows), AT_ONCE):
                    some = [self._overdue(shard, row.decode()) for row in rows[start : start + AT_ONCE]]
                    went += sum(await asyncio.gather(*some))
                gone, stay = gone + went, stay + len(rows) - went
        return gone

    async def due(self, thread: str, at_ms: int, *, known: bool = False) -> None:
        """List the thread, or with `known` only move its row, so that a sweep looks at it from then on."""
        only = ("XX",) if known else ()
        await self._store.command("ZADD", keys.threads(self._namespace, keys.shard(thread)), *only, at_ms, thread)

    async def _due_now(self, thread: str) -> None:
        """Have a sweep end a removal that breaks off; on a full server it is begun all the same, for it frees memory."""
        try:
            await self.due(thread, self._store.server_time() // 1000, known=True)
        except ServerRefused as refused:
            if refused.ids["code"] != "OOM":
                raise

    async def _overdue(self, shard: str, thread: str) -> int:
        where = keys.ThreadKeys.of(self._namespace, thread)
        asked = ("status", "incarnation", "removing", "copying")
        status, incarnation, removing, copying = await self._store.command("HMGET", where.meta, *asked)
        if status == b"parked":
            return 0  # it is due to be driven, not to be removed
        if copying:
            await self.remove_copy(thread, copying.decode())
        elif incarnation or removing:
            await self.remove(thread, (incarnation or removing).decode())
        if await self._listed_again(thread, where):
            return 0
        await self._store.command("ZREM", shard, thread)
        return int(not await self._listed_again(thread, where))

    async def _listed_again(self, thread: str, where: keys.ThreadKeys) -> bool:
        """Move the row of a thread that is alive to where its meta says; False if it is not.

        Whoever parked meanwhile is listed as due at once: its signal or its time may have been noted before the move. A
        look too many costs a look, a wake that is lost is lost for ever.
        """
        incarnation, expires = await self._store.command("HMGET", where.meta, "incarnation", "expires")
        if incarnation is None:
            return False
        await self.due(thread, int(expires or registry.next_look(self._store)))
        if await self._store.command("HGET", where.meta, "status") == b"parked":
            await self.due(thread, self._store.server_time() // 1000)
        return True

    async def _tombstone(
        self, thread: str, where: keys.ThreadKeys, mode: str, incarnation: str, drop: bool = False
    ) -> str | None:
        names = [where.meta, where.lock, where.latest(), where.effects_open, where.inbox]
        reply = await self._store.call(_DELETE, names, [mode, incarnation, int(drop)])
        if reply[0] == b"NONE":
            return None
        if reply[0] != b"OK":
            raise refusal(Asked(self._namespace, thread), reply)
        removing: str = reply[1].decode()
        return removing

    async def _clear(self, thread: str, where: keys.ThreadKeys, removing: str) -> None:
        fixed = [where.meta, where.history(), where.parts]
        async for names, ids, parts in self._slices(where, drain=True):
            reply = await self._store.call(
                _REMOVE, [fixed[0], names[0], fixed[2], *names[1:]], [removing, 0, len(ids), *ids, *parts]
            )
            if reply[0] != b"OK":
                return
        await self._store.call(_REMOVE, [*fixed, *self._fixed(where)], [removing, RESERVE_MS, 0])
        await self._store.command("ZREM", keys.threads(self._namespace, keys.shard(thread)), thread)

    @staticmethod
    def _fixed(where: keys.ThreadKeys) -> list[str]:
        effects = (where.effects, where.effects_open)
        own = (where.values, where.artifacts, where.ops, where.inbox, where.answers)
        return [where.latest(), *own, *effects, where.pins()]

    async def _slices(
        self, where: keys.ThreadKeys, *, drain: bool
    ) -> AsyncIterator[tuple[list[str], list[str], list[str]]]:
        """Walk the thread's keys: (history key and victims, checkpoint ids, parts) per slice.

        When draining, the caller removes each slice, so the walk always reads from the front.
        """
        lineages = [""]
        async for parts in self._parts(where):
            lineages += [keys.decode(part[1:]) for part in parts if part.startswith("@")]
            victims = [f"{where.prefix}:{part}" for part in parts if not part.startswith("@")]
            kept = [part for part in parts if not part.startswith("@")] if drain else []
            yield [where.history(), *victims], [], kept
        for lineage in lineages:
            async for ids in self._ids(where, lineage, drain=drain):
                pairs = [(where.checkpoints(lineage) + i, where.writes("-", lineage)[:-1] + i) for i in ids]
                yield [where.history(lineage), *(key for pair in pairs for key in pair)], ids, []
            if lineage:
                ends = (where.latest(lineage), where.history(lineage), where.pins(lineage))
                yield [where.history(lineage), *ends], [], []

    async def _parts(self, where: keys.ThreadKeys) -> AsyncIterator[list[str]]:
        cursor = 0
        while True:
            reply = await self._store.command("SSCAN", where.parts, cursor, "COUNT", SLICE)
            cursor = int(reply[0])
            yield [part.decode() for part in reply[1]]
            if cursor == 0:
                return

    async def _ids(self, where: keys.ThreadKeys, lineage: str, *, drain: bool) -> AsyncIterator[list[str]]:
        last = b"-"  # by id and not by rank, which shifts when somebody prunes meanwhile
        while True:
            page = ("ZRANGEBYLEX", where.history(lineage), last, "+", "LIMIT", 0, SLICE)
            ids: Sequence[bytes] = await self._store.command(*page)
            if not ids:
                return
            yield [name.decode() for name in ids]
            if not drain:
                last = b"(" + ids[-1]
