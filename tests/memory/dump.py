"""Everything that stands of a path, byte by byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from blackboard.memory.records import Records

READS: dict[str, tuple[str | int, ...]] = {
    "string": ("GET",),
    "hash": ("HGETALL",),
    "set": ("SMEMBERS",),
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "stream": ("XRANGE", "-", "+"),
}


async def everything(records: Records) -> dict[str, list[bytes]]:
    """Read every key of a path; nothing is left out and nothing is compressed."""
    found: dict[str, list[bytes]] = {}
    for primary in await records.store.primaries():
        for key in await primary.command("KEYS", f"{records.keys.prefix}:*"):
            kind = (await records.store.command("TYPE", key)).decode()
            if kind != "none":
                name, *more = READS[kind]
                found[key.decode()] = list(_bytes(await records.store.command(name, key, *more)))
    return found


async def holding(records: Records, needle: bytes) -> list[str]:
    """Name the keys of a path that hold these bytes anywhere, in their name or in what they say."""
    dumped = await everything(records)
    return [key for key, parts in dumped.items() if needle in key.encode() or any(needle in part for part in parts)]


def _bytes(reply: Any) -> Iterator[bytes]:
    if isinstance(reply, bytes):
        yield reply
    elif isinstance(reply, list):
        for part in reply:
            yield from _bytes(part)
