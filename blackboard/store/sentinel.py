"""A group that fails over: sentinels say who is master, and are asked again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from blackboard.errors import ServerRefused
from blackboard.store.address import Endpoint
from blackboard.store.connection import Lost
from blackboard.store.dial import Dialer
from blackboard.store.node import Locate, Node
from blackboard.store.protocol import ErrorReply
from blackboard.store.request import command
from blackboard.store.topology import Single

__all__ = ["Followed", "Sentinels"]

PERIOD = 1.0
"""Seconds between two looks at who is master. An old master that still answers loses what it is told after the
failover, so it must not be used for long; how long is bounded by this and by the sentinels' own delay."""


class Sentinels:
    """Ask sentinels, in order, for the master; the one that answered is asked first the next time."""

    def __init__(self, endpoints: Sequence[Endpoint], master: str, dialer: Dialer, node_dialer: Dialer) -> None:
        self._endpoints = list(endpoints)
        self._master = master
        self._dialer = dialer
        self._node_dialer = node_dialer

    async def locate(self, known: Endpoint | None = None) -> Endpoint:
        """The master's address; unless it is the known one, it must say itself that it is master. Lost if none is found."""
        reasons: list[str] = []
        for sentinel in tuple(self._endpoints):
            try:
                endpoint = await self._ask(sentinel)
                if endpoint != known:
                    await self._verify(endpoint)
            except Lost as lost:
                reasons.append(str(lost))
                continue
            self._endpoints.remove(sentinel)
            self._endpoints.insert(0, sentinel)
            return endpoint
        raise Lost(f"no sentinel names a live master {self._master!r} ({'; '.join(reasons)})", written=False)

    async def _ask(self, sentinel: Endpoint) -> Endpoint:
        ask = command(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._master)).packed
        reply = await self._dialer.ask(sentinel, ask)
        if reply is None or isinstance(reply, ErrorReply):
            raise Lost(f"{sentinel} does not know this master ({reply})", written=False)
        return Endpoint(reply[0].decode(), int(reply[1]))

    async def _verify(self, endpoint: Endpoint) -> None:
        role = await self._node_dialer.ask(endpoint, command(("ROLE",)).packed)
        if not isinstance(role, ErrorReply) and role[0] != b"master":
            raise Lost(f"{endpoint} is {role[0].decode()}, not master", written=False)


class Followed(Single):
    """The master of a group. Its connections are dropped as soon as the sentinels name another one."""

    def __init__(self, sentinels: Sentinels, node: Callable[[Locate], Node]) -> None:
        super().__init__(sentinels.locate, node)
        self._sentinels = sentinels
        self._watch: asyncio.Task[None] | None = None

    async def discover(self) -> None:
        """Begin to watch."""
        if self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        """End the watch and the connections."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        await super().close()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(PERIOD)
            try:
                endpoint = await self._sentinels.locate(self._node.endpoint)
            except (Lost, ServerRefused):
                continue
            if self._node.endpoint not in (None, endpoint):
                self._node.drop(f"the primary is now {endpoint}")
