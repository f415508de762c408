"""Reading large keys piece by piece, each in bounded memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

from blackboard import keys
from blackboard.checkpoints.seeding import SLICE_BYTES, SLICE_ITEMS
from blackboard.errors import ServerUnavailable, ThreadGone
from blackboard.store.client import Store

__all__ = ["checkpoints", "letters", "members", "pairs", "segment", "unmoved"]


async def pairs(store: Store, key: str, count: int = SLICE_ITEMS) -> AsyncIterator[list[bytes]]:
    """Yield fields and values of a hash in turn, page by page; one that changes meanwhile may come twice."""
    cursor = 0
    while True:
        reply = await store.command("HSCAN", key, cursor, "COUNT", count)
        cursor = int(reply[0])
        if reply[1]:
            yield reply[1]
        if cursor == 0:
            return


async def members(store: Store, key: str) -> AsyncIterator[bytes]:
    """Yield the members of a set."""
    cursor = 0
    while True:
        reply = await store.command("SSCAN", key, cursor, "COUNT", SLICE_ITEMS)
        cursor = int(reply[0])
        for member in reply[1]:
            yield member
        if cursor == 0:
            return


async def segment(store: Store, key: str) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Yield the items of a list and where they begin; the larger the items, the fewer come at once."""
    start, count = 0, 8  # until it is known how large they are
    while items := await store.command("LRANGE", key, start, start + count - 1):
        yield start, items
        start += len(items)
        mean = sum(map(len, items)) // len(items)
        count = max(1, min(SLICE_ITEMS, SLICE_BYTES // max(1, mean)))


async def letters(store: Store, key: str) -> AsyncIterator[tuple[bytes, list[bytes]]]:
    """Yield the letters of an inbox, oldest first: id, and fields and values in turn."""
    start = b"-"
    while rows := await store.command("XRANGE", key, start, "+", "COUNT", SLICE_ITEMS // 5):
        for row in rows:
            yield row[0], row[1]
        start = b"(" + rows[-1][0]


async def checkpoints(
    store: Store, where: keys.ThreadKeys, lineage: str, newest: bytes
) -> AsyncIterator[list[tuple[str, bytes]]]:
    """Yield (id, manifest) of a lineage, the oldest first, none that is newer than `newest` (an id as its key spells it)."""
    last = b"-"
    end = b"[" + newest
    while names := await store.command("ZRANGEBYLEX", where.history(lineage), last, end, "LIMIT", 0, SLICE_ITEMS // 5):
        last = b"(" + names[-1]
        found = await store.batch([("GET", where.checkpoints(lineage) + name.decode()) for name in names])
        yield [(keys.decode(n.decode()), data) for n, data in zip(names, found, strict=True) if data is not None]


async def unmoved(store: Store, where: keys.ThreadKeys, thread: str, before: list[bytes | None]) -> list[bytes | None]:
    """Read by what it is known whether checkpoints went away; raises if that differs from `before` (empty at first).

    ThreadGone: the thread ended, or its id was used anew. ServerUnavailable: it was pruned, trying again can help.
    """
    now: list[bytes | None] = await store.command("HMGET", where.meta, "incarnation", "pruned", "removing")
    if before and now[0] != before[0]:
        raise ThreadGone(f"thread {thread!r} ended while it was read", thread=thread, why="deleted")
    if before and now != before:
        raise ServerUnavailable(f"thread {thread!r} was pruned while it was read; do it again", thread=thread)
    return now
