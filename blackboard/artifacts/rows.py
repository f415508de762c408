"""The list of artifacts: a hint by which they are found again; each artifact's head is the truth."""

from __future__ import annotations

from collections.abc import AsyncIterator

from blackboard.store.client import Store

__all__ = ["rows"]

PAGE = 100
"""Artifacts per page of a listing."""


async def rows(store: Store, shard: str) -> AsyncIterator[list[str]]:
    """Yield the digests in one shard of the list, each once."""
    seen, cursor = set[str](), 0
    while True:
        reply = await store.command("ZSCAN", shard, cursor, "COUNT", PAGE)
        fresh = {row.decode() for row in reply[1][::2]} - seen
        seen |= fresh
        if fresh:
            yield sorted(fresh)
        cursor = int(reply[0])
        if cursor == 0:
            return
