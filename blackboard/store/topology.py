"""Which node a command goes to: one server, or the master that sentinels name. Clusters are in `cluster`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from blackboard.errors import ServerRefused
from blackboard.store.address import Endpoint
from blackboard.store.connection import Lost
from blackboard.store.dial import Dialer
from blackboard.store.node import Locate, Node
from blackboard.store.protocol import ErrorReply, Part
from blackboard.store.request import command

__all__ = ["Sentinels", "Single", "Topology"]


class Topology(Protocol):
    """Where things are."""

    def node(self, key: Part | None) -> Node:
        """The primary of a key (None: any). Lost if nobody is known to own it."""
        ...

    def moved(self, reply: ErrorReply, *, asking: bool) -> Node:
        """The node that a MOVED (or ASK) reply names."""
        ...

    async def discover(self) -> None:
        """Find the primaries for the first time. Lost if nobody can tell."""
        ...

    async def refresh(self, *, demoted: bool) -> None:
        """Look again where the primaries are: one was lost, or says itself that it is none. Lost if nobody can tell."""
        ...

    def nodes(self) -> Sequence[Node]:
        """Every primary."""
        ...

    def key(self, node: Node, prefix: str) -> str:
        """A key that begins with the prefix and lives on the node."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class Single:
    """One primary."""

    def __init__(self, locate: Locate, node: Callable[[Locate], Node]) -> None:
        self._node = node(locate)

    def node(self, key: Part | None) -> Node:
        """Always the same."""
        return self._node

    def moved(self, reply: ErrorReply, *, asking: bool) -> Node:
        """A server that redirects is part of a cluster, and the URL does not say so: ServerRefused."""
        raise ServerRefused(
            f"{self._node} redirects to another node ({reply}): it is part of a cluster, use a redis+cluster:// URL",
            code="MOVED",
            reply=str(reply),
            server=str(self._node),
        )

    async def discover(self) -> None:
        """Nothing to find."""

    async def refresh(self, *, demoted: bool) -> None:
        """Connect anew if it was demoted: its address may lead elsewhere by now, sentinels may name another."""
        if demoted:
            self._node.drop("the server is not primary any more")

    def nodes(self) -> Sequence[Node]:
        """The one."""
        return (self._node,)

    def key(self, node: Node, prefix: str) -> str:
        """The prefix itself."""
        return prefix

    async def close(self) -> None:
        """Close the connections."""
        await self._node.close()


class Sentinels:
    """Ask sentinels, in order, for the master; the one that answered is asked first the next time."""

    def __init__(self, endpoints: Sequence[Endpoint], master: str, dialer: Dialer, node_dialer: Dialer) -> None:
        self._endpoints = list(endpoints)
        self._master = master
        self._dialer = dialer
        self._node_dialer = node_dialer

    async def locate(self) -> Endpoint:
        """The master's address, checked: it must say itself that it is master. Lost if none can be found."""
        reasons: list[str] = []
        for sentinel in tuple(self._endpoints):
            try:
                endpoint = await self._ask(sentinel)
                await self._verify(endpoint)
            except Lost as lost:
                reasons.append(f"{sentinel}: {lost}")
                continue
            self._endpoints.remove(sentinel)
            self._endpoints.insert(0, sentinel)
            return endpoint
        raise Lost(f"no sentinel names a live master {self._master!r} ({'; '.join(reasons)})", written=False)

    async def _ask(self, sentinel: Endpoint) -> Endpoint:
        ask = command(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._master)).packed
        reply = await self._dialer.ask(sentinel, ask)
        if reply is None or isinstance(reply, ErrorReply):
            raise Lost(f"it does not know master {self._master!r} ({reply!r})", written=False)
        return Endpoint(reply[0].decode(), int(reply[1]))

    async def _verify(self, endpoint: Endpoint) -> None:
        role = await self._node_dialer.ask(endpoint, command(("ROLE",)).packed)
        if not isinstance(role, ErrorReply) and role[0] != b"master":
            raise Lost(f"{endpoint} is {role[0].decode()}, not master", written=False)
