"""What the contracts of the engine share."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence

import pytest

from blackboard import keys
from blackboard.checkpoints.channels import Channel, Items, Ref, Value
from blackboard.checkpoints.commit import Commit, Committed
from blackboard.checkpoints.engine import Engine
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store

__all__ = ["NAMESPACE", "ThreadContract", "all_keys", "log", "step"]

NAMESPACE = "checkpoint"
GLOB = re.compile(r"[\\*?\[\]^-]")
"""What means something else in a pattern of SCAN."""


def log(items: Sequence[bytes], stored: Ref | None = None) -> Items:
    """Give the whole list of a log, of which `stored` stands already."""
    base = stored.segments if stored else ()
    return Items("log", base, items[sum(count for _, count in base) :], lambda: items)


def step(channels: Mapping[str, Channel], after: Committed | None = None, **more: object) -> Commit:
    """Make the commit that follows `after`."""
    if after is None:
        return Commit(0, channels, **more)  # type: ignore[arg-type]
    return Commit(after.step + 1, channels, base=after.refs, parent=after.checkpoint, **more)  # type: ignore[arg-type]


class ThreadContract:
    """What the contracts of threads need: an engine, and a look at every key that stands."""

    @pytest.fixture
    def engine(self, store: Store) -> Engine:
        return Engine(store, NAMESPACE, CheckpointNamespace())

    async def grow(self, engine: Engine, thread: str, steps: int) -> list[Committed]:
        """Commit a log that grows by one item a step."""
        done: list[Committed] = []
        for number in range(steps):
            items = [b'"%d"' % i for i in range(number + 1)]
            last = done[-1] if done else None
            commit = step({"items": log(items, last.refs["items"] if last else None), "n": Value(b"%d" % number)}, last)
            done.append(await engine.commit(thread, commit, sequence=number))
        return done

    async def standing(self, engine: Engine, thread: str) -> set[str]:
        """List what stands of a thread, without the thread's own prefix."""
        prefix = keys.ThreadKeys.of(NAMESPACE, thread).prefix + ":"
        return {key.removeprefix(prefix) for key in await all_keys(engine.store, prefix)}

    async def without_expiry(self, engine: Engine, thread: str) -> set[str]:
        """List what stands of a thread and never expires."""
        prefix = keys.ThreadKeys.of(NAMESPACE, thread).prefix + ":"
        return {n for n in await self.standing(engine, thread) if await engine.store.command("PTTL", prefix + n) == -1}

    async def listed(self, engine: Engine, thread: str) -> float | None:
        """Read the thread's due time in the namespace's list (ms, 0 for none); None if it is not listed."""
        row = await engine.store.command("ZSCORE", keys.threads(NAMESPACE, keys.shard(thread)), thread)
        return None if row is None else float(row)

    async def swept(self, engine: Engine, thread: str) -> None:
        """Sweep until the thread is listed no more, at most five seconds: our clock may be behind the server's."""
        for _ in range(500):
            await engine.retention.sweep(10_000)
            if await self.listed(engine, thread) is None:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{thread} is still listed")

    async def until_gone(self, engine: Engine, thread: str) -> None:
        """Wait until the thread has expired, at most five seconds."""
        for _ in range(500):
            if await engine.latest(thread) is None:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{thread} did not expire")


async def all_keys(store: Store, start: str = "") -> list[str]:
    """List every key of the backend that starts so, on all of its primaries."""
    found: list[str] = []
    pattern = GLOB.sub(r"\\\g<0>", start) + "*"
    for primary in await store.primaries():
        cursor = 0
        while True:
            reply = await primary.command("SCAN", cursor, "MATCH", pattern, "COUNT", 10_000)
            cursor = int(reply[0])
            found += [key.decode() for key in reply[1]]
            if cursor == 0:
                break
    return list(dict.fromkeys(found))
