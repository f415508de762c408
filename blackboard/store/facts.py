"""What a primary says about itself, and what it does when it is tried; without judgement, which is `durability`'s."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from blackboard import keys
from blackboard.errors import ServerRefused
from blackboard.store.client import Primary, Store
from blackboard.store.identity import info
from blackboard.store.script import Script

__all__ = ["LIFE_MS", "PATIENCE_MS", "Epoch", "Facts", "Flush", "Scripted", "advance_epoch", "gather"]

LIFE_MS = 60_000
"""Life of a probe key."""

PATIENCE_MS = 2_500
"""How long a probe write may take to reach the disk: twice the period of `everysec`, and a slow disk."""

FLUSHES = 3
"""How many writes are flushed one after the other where the policy is not told."""

T = TypeVar("T")

_PROBE = Script("blackboard.store", "probe.lua")


@dataclass(frozen=True, slots=True)
class Flush:
    """Whether a probe write was reported to be on the server's disk, and after how many milliseconds."""

    outcome: Literal["DONE", "LATE", "OFF", "UNKNOWN"]
    """LATE: not within the patience. OFF: there is no append-only file. UNKNOWN: the server cannot tell."""
    milliseconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Scripted:
    """What the probe script answered between two readings of the server's clock, in microseconds."""

    reply: list[Any]
    token: bytes
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Epoch:
    """The sentinel: which life of the store this is, and how often it was looked at."""

    life: str
    counter: int


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that was found out about one primary; None: it would not say, or was not asked."""

    server: str
    info: dict[str, str] | None = None
    fsync: str | None = None
    flush: Flush | None = None
    scripted: Scripted | None = None
    read_back: bool | None = None
    epoch_key: str = ""
    epoch: Epoch | None = None
    refusals: dict[str, ServerRefused] = field(default_factory=dict[str, ServerRefused])
    """What the server refused, by the name of what was tried."""


async def gather(store: Store, primary: Primary, flush: Flush | None = None) -> Facts:
    """Ask a primary, and try it unless it is a replica; `flush` is what an earlier wait for its disk has shown.

    Raises ServerUnavailable and OutcomeUnknown; what the server refuses is a fact.
    """
    asking = _Asking(store, primary)
    known = await asking.whether("INFO", asking.information())
    facts = Facts(
        server=primary.name,
        info=known,
        fsync=await asking.whether("CONFIG", asking.fsync()),
        epoch_key=primary.key(keys.EPOCH),
        refusals=asking.refusals,
    )
    if (known or {}).get("role") == "slave":
        return facts
    facts = replace(facts, read_back=await asking.whether("WRITE", asking.read_back()))
    if "WRITE" in facts.refusals:
        return facts
    return replace(
        facts,
        flush=None if facts.fsync == "no" else flush or await asking.flush(several=facts.fsync is None),
        scripted=await asking.whether("SCRIPT", asking.scripted()),
        epoch=await asking.whether("EPOCH", read_epoch(primary, facts.epoch_key)),
    )


async def read_epoch(primary: Primary, key: str) -> Epoch | None:
    """Read the sentinel; None if there is none."""
    life, counter = await primary.command("HMGET", key, "life", "counter")
    return None if life is None else Epoch(life.decode(), int(counter or 0))


async def advance_epoch(primary: Primary, key: str) -> Epoch:
    """Count one more look at the sentinel, made if there is none; it never ends."""
    fresh = ("HSETNX", key, "life", secrets.token_hex(16))
    _, counter, life = await primary.batch([fresh, ("HINCRBY", key, "counter", 1), ("HGET", key, "life")])
    return Epoch(life.decode(), int(counter))


class _Asking:
    """One conversation with a primary, on keys that nobody else uses and that end by themselves."""

    def __init__(self, store: Store, primary: Primary) -> None:
        self._store = store
        self._primary = primary
        self._token = secrets.token_hex(8).encode()
        self._place = f"bb:probe:{{{primary.key('bb:probe')}}}:{self._token.decode()}"
        self.refusals: dict[str, ServerRefused] = {}

    async def whether(self, name: str, asked: Awaitable[T]) -> T | None:
        """Await an answer; a refusal is noted under the name."""
        try:
            return await asked
        except ServerRefused as refused:
            self.refusals[name] = refused
            return None

    async def information(self) -> dict[str, str]:
        return info(await self._primary.command("INFO"))

    async def fsync(self) -> str | None:
        reply = await self._primary.command("CONFIG", "GET", "appendfsync")
        return reply[1].decode() if reply else None

    async def read_back(self) -> bool:
        """Write, overwrite and read, one command after the other."""
        key = f"{self._place}:written"
        for value in (b"first", self._token):
            await self._primary.command("SET", key, value, "PX", LIFE_MS)
        return bool(await self._primary.command("GET", key) == self._token)

    async def flush(self, *, several: bool) -> Flush:
        """Write and wait for the disk, on one connection: WAITAOF speaks of the writes of its own connection alone.

        One wait with `everysec` may happen to be short, several in a row are not: their sum tells the policies apart.
        """
        write, spent = ("SET", f"{self._place}:flushed", self._token, "PX", LIFE_MS), 0.0
        for _ in range(FLUSHES if several else 1):
            begun = time.monotonic()
            try:
                _, (local, _) = await self._primary.batch([write, ("WAITAOF", 1, 0, PATIENCE_MS)])
            except ServerRefused as refused:
                return Flush("OFF" if "appendonly is disabled" in str(refused) else "UNKNOWN")
            spent += (time.monotonic() - begun) * 1_000
            if not local:
                return Flush("LATE", spent)
        return Flush("DONE", spent)

    async def scripted(self) -> Scripted:
        before = await self._clock()
        reply = await self._store.call(_PROBE, [f"{self._place}:lock", f"{self._place}:hash"], [self._token, LIFE_MS])
        return Scripted(reply, self._token, before, await self._clock())

    async def _clock(self) -> int:
        seconds, microseconds = await self._primary.command("TIME")
        return int(seconds) * 1_000_000 + int(microseconds)
