"""One server: its connections, few and shared, opened when needed and opened again when lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, TypeAlias, TypeVar

from blackboard.store.address import Endpoint
from blackboard.store.connection import Connection, Lost
from blackboard.store.dial import Dialer, Greeting
from blackboard.store.identity import Acquaintance, Identity

__all__ = ["Lane", "Locate", "Node", "shared"]

_log = logging.getLogger("blackboard.store")

Lane: TypeAlias = Literal["data", "lease"]

FULL = 16 * 1024
"""Bytes in flight at which the next connection is used: what a server reads from one client at a time (its query
buffer's chunk), so that commands that wait for one fsync are spread over the connections."""

T = TypeVar("T")

Locate: TypeAlias = Callable[[], Awaitable[Endpoint]]


async def shared(task: asyncio.Task[T]) -> T:
    """Wait for a task that others wait for too: a cancelled caller leaves it alone. Lost if it is cancelled itself."""
    await asyncio.wait([task])
    if task.cancelled():
        raise Lost("the store is closed", written=False)
    return task.result()


class _Pool:
    __slots__ = ("limit", "open", "opening")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open: list[Connection] = []
        self.opening: asyncio.Task[Connection] | None = None


class Node:
    """A primary. `locate` tells where it is, asked again at every connect (a sentinel group moves)."""

    def __init__(
        self,
        locate: Locate,
        dialer: Dialer,
        acquaintance: Acquaintance,
        limits: Mapping[Lane, int],
        greeted: Callable[[Node, Greeting], None],
    ) -> None:
        self._locate = locate
        self._dialer = dialer
        self._acquaintance = acquaintance
        self._greeted = greeted
        self._pools = {lane: _Pool(limit) for lane, limit in limits.items()}
        self._identities: dict[Connection, Identity | None] = {}
        self._closed = False
        self.endpoint: Endpoint | None = None
        self.trouble = ""
        """Why connecting failed the last time."""

    def __str__(self) -> str:
        return str(self.endpoint) if self.endpoint else "the server"

    @property
    def busy(self) -> bool:
        """Whether somebody waits for a reply."""
        return any(connection.load for pool in self._pools.values() for connection in pool.open)

    def pick(self, lane: Lane) -> Connection | None:
        """The connection to use now; None: wait for `connection`."""
        pool = self._pools[lane]
        best = None
        for connection in pool.open:
            if connection.load < FULL:
                return connection if connection.accepted else None
            if best is None or connection.load < best.load:
                best = connection
        if best is not None and len(pool.open) < pool.limit and pool.opening is None:
            self._open(pool)
        return best if best is None or best.accepted else None

    async def connection(self, lane: Lane) -> Connection:
        """A connection, opened if there is none, to a server that is known or was accepted. Lost if that fails."""
        pool = self._pools[lane]
        while True:
            if pool.open:
                connection = min(pool.open, key=lambda one: one.load)
            else:
                if self._closed:
                    raise Lost("the store is closed", written=False)
                connection = await shared(pool.opening or self._open(pool))
            identity = self._identities.get(connection)
            if connection.accepted or self._acquaintance.accepts(identity) or identity is None:
                connection.accepted = True
                return connection
            if not await self._acquaintance.meet(str(self), identity):
                return connection

    def drop(self, reason: str) -> None:
        """Close every connection; the next call opens new ones."""
        for pool in self._pools.values():
            for connection in tuple(pool.open):
                connection.close(reason)

    async def close(self) -> None:
        """Close for good."""
        self._closed = True
        opening = [pool.opening for pool in self._pools.values() if pool.opening is not None]
        for task in opening:
            task.cancel()
        self.drop("the store is closed")
        if opening:
            await asyncio.wait(opening)

    def _open(self, pool: _Pool) -> asyncio.Task[Connection]:
        task = asyncio.get_running_loop().create_task(self._connect(pool))
        pool.opening = task

        def opened(done: asyncio.Task[Connection]) -> None:
            pool.opening = None
            if not done.cancelled() and (failed := done.exception()) is not None:
                self.trouble = str(failed)
                _log.info("connecting failed: %s", failed)

        task.add_done_callback(opened)
        return task

    async def _connect(self, pool: _Pool) -> Connection:
        endpoint = await self._locate()
        if self.endpoint not in (None, endpoint):
            self.drop(f"the primary is now {endpoint}")
        connection, greeting = await self._dialer.dial(endpoint)
        self.endpoint = endpoint
        self.trouble = ""
        self._greeted(self, greeting)
        self._identities[connection] = greeting.identity
        connection.accepted = self._acquaintance.accepts(greeting.identity)

        def lost(one: Connection) -> None:
            self._identities.pop(one, None)
            if one in pool.open:
                pool.open.remove(one)

        connection.on_lost = lost
        pool.open.append(connection)
        if not connection.is_open:
            lost(connection)
            raise Lost("the connection was closed at once", written=False)
        return connection
