"""Looking at threads again and again, for the checkpoints that come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from blackboard.board import Blackboard
from blackboard.checkpoints.manifest import Manifest

__all__ = ["Follower"]

EVERY = 0.25
"""Seconds between two looks."""

PAGE = 100


class Follower:
    """Finds what is committed to one thread of a namespace, or to all of them, from the first look on.

    A look costs a round trip for one thread, and for all of them a listing; threads that did not move cost no more.
    """

    def __init__(self, board: Blackboard, namespace: str, thread: str | None) -> None:
        self._board, self._namespace, self._thread = board, namespace, thread
        self._since: dict[str, int] = {}

    async def checkpoints(self, limit: float | None) -> AsyncIterator[tuple[str, Manifest]]:
        """Yield (thread, checkpoint), the oldest first, for `limit` seconds or for ever."""
        until = None if limit is None else time.monotonic() + limit
        self._since = await self._updated()
        while True:
            left = EVERY if until is None else until - time.monotonic()
            await asyncio.sleep(max(0.0, min(EVERY, left)))
            for thread, updated in (await self._updated()).items():
                since = self._since.get(thread, 0)
                if updated > since:
                    self._since[thread] = updated
                    for made in await self._made(thread, since):
                        self._since[thread] = max(self._since[thread], made.time)
                        yield thread, made
            if left <= 0:
                return

    async def _updated(self) -> dict[str, int]:
        """Read when each thread was last written (server time in µs)."""
        if self._thread is not None:
            handle = self._board.thread(self._thread, namespace=self._namespace)
            return {self._thread: (await handle.meta()).updated}
        return {row.thread: row.meta.updated async for row in self._board.threads(namespace=self._namespace)}

    async def _made(self, thread: str, since: int) -> list[Manifest]:
        handle = self._board.thread(thread, namespace=self._namespace)
        found: list[Manifest] = []
        while page := await handle.history(limit=PAGE, before=found[-1].checkpoint if found else None):
            newer = [one for one in page if one.time > since]
            found += newer
            if len(newer) < len(page):
                break
        return found[::-1]
