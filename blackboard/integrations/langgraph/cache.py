"""The cache of nodes' results: exact namespaces, ends that the server keeps, nothing that blocks the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from langgraph.cache.base import BaseCache, FullKey, Namespace, ValueT
from langgraph.checkpoint.serde.base import SerializerProtocol

from blackboard import keys
from blackboard.board import Blackboard
from blackboard.codec.cipher import opened, sealed
from blackboard.codec.limit import within
from blackboard.errors import ConfigError
from blackboard.integrations.langgraph.loop import on_board, wait_for
from blackboard.integrations.langgraph.serializer import BlackboardSerializer
from blackboard.integrations.langgraph.tagged import tagged, untagged
from blackboard.quantities import seconds
from blackboard.settings import CheckpointNamespace
from blackboard.store.script import Script
from blackboard.telemetry import logger

__all__ = ["BlackboardCache"]

log = logger("langgraph.cache")

_KEEP = Script("blackboard.integrations.langgraph", "keep.lua")
_CLEAR = Script("blackboard.integrations.langgraph", "clear.lua")

WEEK = 7 * 24 * 60 * 60
"""Seconds for which a value is kept whose policy names no time."""

SLICE = 500
"""Values that one call of a clear removes."""

LISTED_MS = 60 * 60 * 1000
"""A cache namespace stays in the list for at least so long after its values have ended, so that it is seldom listed again."""


@dataclass(frozen=True, slots=True)
class _Name:
    """Where a value stands: its namespace and its key, as they are spelled in keys."""

    cache: str
    key: str

    @classmethod
    def of(cls, namespace: Sequence[str], key: str) -> Self:
        return cls(_spelled(namespace), keys.encode(key, "cache key"))

    def stored(self, namespace: str) -> str:
        return keys.CacheKeys.of(namespace, self.cache).entry(self.key)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A value that is to be kept."""

    key: str
    life_ms: int
    data: bytes


class BlackboardCache(BaseCache[ValueT]):
    """A LangGraph cache on a board: `graph.compile(cache=BlackboardCache(board))`.

    A read is one round trip and so is a write (the first one to a namespace takes two); no call scans the keys. A value is
    returned under exactly the namespace and key that it was set under, until the server's clock says that its time is
    over: that of its policy, or `ttl` seconds if the policy names none. A value that cannot be read (changed, of an
    unknown class, encrypted with a key that is gone, in plain text where the namespace is encrypted) is a miss, with a
    warning in the log; an outage is an error and never a miss. Values go through `serde`, by default a
    BlackboardSerializer. Made on the board's event loop, or elsewhere with `loop=saver.loop`; its sync methods serve every
    thread but that of the loop.
    """

    def __init__(
        self,
        board: Blackboard,
        *,
        namespace: str = "langgraph",
        ttl: float = WEEK,
        serde: SerializerProtocol | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        serde = BlackboardSerializer() if serde is None else serde
        super().__init__(serde=serde.without_opaque() if isinstance(serde, BlackboardSerializer) else serde)
        ttl = seconds(ttl, what="ttl")
        self.board = on_board(board, "a BlackboardCache")
        try:
            self.loop = asyncio.get_running_loop() if loop is None else loop
        except RuntimeError:
            raise ConfigError("make the cache on the board's event loop, or give it: loop=saver.loop") from None
        engine = board.engine(namespace, default=CheckpointNamespace())
        self.namespace, self.ttl = namespace, ttl
        self._seal, self._limit = engine.seal, engine.policy.value_limit
        self._listed: dict[str, int] = {}

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        """Read the values that are there, under the keys that they were asked for with."""
        names = [_Name.of(namespace, key) for namespace, key in keys]
        reads = [("GET", name.stored(self.namespace)) for name in names]
        stored = await self.board.store.batch(reads) if reads else []
        found: dict[FullKey, ValueT] = {}
        for (namespace, key), name, data in zip(keys, names, stored, strict=True):
            for value in self._read(name, data):
                found[tuple(namespace), key] = value
        return found

    async def aset(self, pairs: Mapping[FullKey, tuple[ValueT, float | None]]) -> None:
        """Keep values for as many seconds as each says; a time of 0 or less removes the value.

        Raises EncodeError, before anything is sent, for a value that would not come back the same, and ConfigError for a time
        that is none.
        """
        caches: dict[str, list[_Entry]] = {}
        for (namespace, key), (value, ttl) in pairs.items():
            name, life_ms = _Name.of(namespace, key), _life_ms(self.ttl if ttl is None else ttl)
            caches.setdefault(name.cache, []).append(_Entry(name.key, life_ms, self._spell(name, value)))
        await self._list({cache: max(entry.life_ms for entry in entries) for cache, entries in caches.items()})
        await asyncio.gather(*(self._keep(cache, entries) for cache, entries in caches.items()))

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Remove every value of exactly these namespaces, or of all; one that is set meanwhile may stay or go."""
        if namespaces is None:
            rows = await self.board.store.command("ZRANGE", keys.caches(self.namespace), 0, -1)
            caches = [row.decode() for row in rows]
        else:
            caches = [_spelled(namespace) for namespace in _several(namespaces)]
        for cache in caches:
            await self._clear(keys.CacheKeys.of(self.namespace, cache))

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        """Read values; see `aget`."""
        return wait_for(self.loop, self.aget(keys))

    def set(self, pairs: Mapping[FullKey, tuple[ValueT, float | None]]) -> None:
        """Keep values; see `aset`."""
        wait_for(self.loop, self.aset(pairs))

    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Remove values; see `aclear`."""
        wait_for(self.loop, self.aclear(namespaces))

    def _spell(self, name: _Name, value: ValueT) -> bytes:
        kind, body = self.serde.dumps_typed(value)
        within(self._limit, body, f"the value to cache as {name.key!r}", path=name.key)
        return sealed(self._seal, tagged(kind, body), "cached value", name.cache, name.key)

    def _read(self, name: _Name, data: bytes | None) -> Sequence[ValueT]:
        """Read a value; none if it is not there, or is not what this cache would have written."""
        if data is None:
            return ()
        try:
            return (self.serde.loads_typed(untagged(opened(self._seal, data, "cached value", name.cache, name.key))),)
        except Exception as error:  # noqa: BLE001 - what a serializer raises about bytes of somebody else's is its own affair
            log.warning("a cached value is passed over: %s", error, extra={"cache": name.cache, "key": name.key})
            return ()

    async def _list(self, lives: Mapping[str, int]) -> None:
        """Enter cache namespaces in the list by which all are cleared, before their values stand."""
        now = self.board.store.server_time() // 1000
        new = {cache: life for cache, life in lives.items() if self._listed.get(cache, 0) < now + life}
        if not new:
            return
        where, until = (
            keys.caches(self.namespace),
            {cache: now + life + max(life, LISTED_MS) for cache, life in new.items()},
        )
        rows = [part for cache, end in until.items() for part in (end, cache)]
        await self.board.store.batch([("ZREMRANGEBYSCORE", where, "-inf", now), ("ZADD", where, "GT", *rows)])
        self._listed.update(until)

    async def _keep(self, cache: str, entries: Sequence[_Entry]) -> None:
        where = keys.CacheKeys.of(self.namespace, cache)
        names = (where.entries, *(where.entry(entry.key) for entry in entries))
        args = [part for entry in entries for part in (entry.key, entry.life_ms, entry.data)]
        await self.board.store.call(_KEEP, names, args)

    async def _clear(self, where: keys.CacheKeys) -> None:
        rows = [row.decode() for row in await self.board.store.command("ZRANGE", where.entries, 0, -1)]
        for start in range(0, len(rows), SLICE):
            some = rows[start : start + SLICE]
            await self.board.store.call(_CLEAR, (where.entries, *(where.entry(row) for row in some)), some)


def _life_ms(ttl: float) -> int:
    """Return for how many ms a value is kept; 0 for one that is to be removed."""
    if type(ttl) in (int, float) and ttl <= 0:
        return 0
    return round(1000 * seconds(ttl, what="a cached value's ttl"))


def _spelled(namespace: Sequence[str]) -> str:
    """Spell a namespace; ConfigError for a text, whose characters would be taken for its parts."""
    if not isinstance(namespace, (tuple, list)):
        raise ConfigError(f"a cache namespace is a tuple of texts, got {namespace!r}", value=namespace)
    return keys.CacheKeys.spell(namespace)


def _several(namespaces: Sequence[Namespace]) -> Sequence[Namespace]:
    if not isinstance(namespaces, (list, tuple)):
        raise ConfigError(f"clear takes a list of namespaces, got {namespaces!r}", value=namespaces)
    return namespaces
