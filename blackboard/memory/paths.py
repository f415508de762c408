"""The list of paths in use: a hint by which subtrees are found; what stands below a path's own keys is the truth."""

from __future__ import annotations

from blackboard import keys
from blackboard.store.client import Store

__all__ = ["Paths"]

MOST_ENTERED = 10_000
"""How many paths a process remembers as listed; forgetting one costs a round trip."""


class Paths:
    """The paths of one namespace, spelled as `keys.path_text` does. A path that was written once stays listed."""

    def __init__(self, store: Store, namespace: str) -> None:
        self.store, self.namespace = store, namespace
        self._entered: set[str] = set()

    async def enter(self, path: str) -> None:
        """Enter a path into the list; to be awaited before its first write from here.

        The list is in other slots than the path, so these are commands of their own.
        """
        if path in self._entered:
            return
        top = path.partition(keys.PATH_SEPARATOR)[0]
        await self.store.batch(
            [
                ("ZADD", keys.tops(self.namespace), "NX", 0, top),
                ("ZADD", keys.children(self.namespace, top), "NX", 0, path),
            ]
        )
        if len(self._entered) >= MOST_ENTERED:
            self._entered.clear()
        self._entered.add(path)

    async def tops(self, limit: int = 1000, after: str = "") -> list[str]:
        """List at most `limit` first segments in use that come after one, in byte order."""
        return await self._page(keys.tops(self.namespace), f"({after}" if after else "-", "+", limit)

    async def below(self, path: str, limit: int = 1000, after: str = "") -> list[str]:
        """List at most `limit` paths in use that lie below a path, segment by segment, in byte order, after one; not itself."""
        start = f"({after}" if after else f"[{path}{keys.PATH_SEPARATOR}"
        end = f"({path}{chr(ord(keys.PATH_SEPARATOR) + 1)}"
        top = path.partition(keys.PATH_SEPARATOR)[0]
        return await self._page(keys.children(self.namespace, top), start, end, limit)

    async def count(self, top: str) -> int:
        """Count the paths in use below a first segment, itself included."""
        found: int = await self.store.command("ZCARD", keys.children(self.namespace, top))
        return found

    async def _page(self, key: str, start: str, end: str, limit: int) -> list[str]:
        return [row.decode() for row in await self.store.command("ZRANGEBYLEX", key, start, end, "LIMIT", 0, limit)]
