"""Which node a command goes to: one server here, groups that move in `sentinel`, slots in `cluster`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from blackboard.errors import ServerRefused
from blackboard.store.node import Locate, Node
from blackboard.store.protocol import ErrorReply, Part

__all__ = ["Single", "Topology"]


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
