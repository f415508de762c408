"""Reading all members of a sorted set that others change meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator

from blackboard.store.client import Store

__all__ = ["members"]


async def members(store: Store, key: str, page: int) -> AsyncIterator[list[str]]:
    """Yield the members of a sorted set by pages of about `page`, each member once, those of a page in order.

    Not by rank, which shifts when a row is moved or removed: one that is there from the first page to the last comes,
    one that comes or goes meanwhile may come or not.
    """
    seen, cursor = set[str](), 0
    while True:
        reply = await store.command("ZSCAN", key, cursor, "COUNT", page)
        fresh = {row.decode() for row in reply[1][::2]} - seen
        seen |= fresh
        if fresh:
            yield sorted(fresh)
        cursor = int(reply[0])
        if cursor == 0:
            return
