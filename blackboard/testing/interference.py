"""What may go wrong between a room and its store, at an exact request."""

from __future__ import annotations

from typing import Any

from blackboard.store.client import Store

__all__ = ["Interference"]


class Interference:
    """Stands for a store: sends every script twice (`twice`), or dies when as many requests are `left`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.twice = False
        self.left: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def call(self, *args: Any, **kwargs: Any) -> Any:
        """Send a script; as after a lost reply, the second answer counts."""
        self._spend()
        reply = await self._store.call(*args, **kwargs)
        return await self._store.call(*args, **kwargs) if self.twice else reply

    async def command(self, *args: Any, **kwargs: Any) -> Any:
        """Send a command."""
        self._spend()
        return await self._store.command(*args, **kwargs)

    def _spend(self) -> None:
        if self.left is not None:
            if self.left == 0:
                raise ConnectionError("died between two requests")
            self.left -= 1
