"""A cluster: which primary owns which slot, learned from the nodes and corrected by their redirections."""

from __future__ import annotations

import asyncio
import itertools
from binascii import crc_hqx
from collections.abc import Callable, Sequence
from typing import Any

from blackboard.errors import ServerRefused
from blackboard.store.address import Endpoint
from blackboard.store.connection import Lost
from blackboard.store.dial import Dialer
from blackboard.store.node import Locate, Node, shared
from blackboard.store.protocol import ErrorReply, Part
from blackboard.store.request import command
from blackboard.store.translate import Verdict, code, refused, verdict

__all__ = ["SLOTS", "Cluster", "slot"]

SLOTS = 16384


def slot(key: Part) -> int:
    """The slot of a key: CRC-16 of its hash tag, or of all of it (Redis cluster specification)."""
    data = key if isinstance(key, bytes) else str(key).encode()
    start = data.find(b"{")
    if start >= 0:
        end = data.find(b"}", start + 1)
        if end > start + 1:
            data = data[start + 1 : end]
    return crc_hqx(data, 0) % SLOTS


class Cluster:
    """The primaries of a cluster. `node` makes one; `seeds` are asked when no known primary answers."""

    def __init__(self, seeds: Sequence[Endpoint], dialer: Dialer, node: Callable[[Locate], Node]) -> None:
        self._seeds = tuple(seeds)
        self._dialer = dialer
        self._make = node
        self._nodes: dict[Endpoint, Node] = {}
        self._retired: list[Node] = []
        self._owners: list[Endpoint | None] = [None] * SLOTS
        self._refreshing: asyncio.Task[None] | None = None
        self._turn = itertools.count()

    def node(self, key: Part | None) -> Node:
        """The owner of the key's slot; without a key the primaries take turns."""
        if key is None:
            nodes = tuple(self._nodes.values())
            if not nodes:
                raise Lost("no primary of the cluster is known", written=False)
            return nodes[next(self._turn) % len(nodes)]
        number = slot(key)
        owner = self._owners[number]
        if owner is None:
            raise Lost(f"no node is known to own slot {number}", written=False)
        return self._nodes[owner]

    def moved(self, reply: ErrorReply, *, asking: bool) -> Node:
        """The node that the reply names; after MOVED the slot is its own, and all slots are learned anew."""
        _, number, place = str(reply).split(" ")[:3]
        host, _, port = place.rpartition(":")
        owner = self._owners[int(number)]
        endpoint = Endpoint(host or (owner.host if owner else self._seeds[0].host), int(port))
        node = self._known(endpoint)
        if not asking:
            self._owners[int(number)] = endpoint
            self._refresh()
        return node

    async def discover(self) -> None:
        """Learn the slots, if they are not known."""
        if not self._nodes or None in self._owners:
            await self.refresh(demoted=False)

    async def refresh(self, *, demoted: bool) -> None:
        """Learn the slots anew; callers share one attempt."""
        await shared(self._refresh())

    def nodes(self) -> Sequence[Node]:
        """Every primary that owns slots."""
        return tuple(self._nodes[endpoint] for endpoint in dict.fromkeys(self._owners) if endpoint is not None)

    def key(self, node: Node, prefix: str) -> str:
        """The prefix with the first number that leads to one of the node's slots."""
        candidates = (f"{prefix}:{number}" for number in range(100 * SLOTS))
        return next(key for key in candidates if self.node(key) is node)

    async def close(self) -> None:
        """Close every connection."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        for node in (*self._nodes.values(), *self._retired):
            await node.close()

    def _known(self, endpoint: Endpoint) -> Node:
        node = self._nodes.get(endpoint)
        if node is None:

            async def locate() -> Endpoint:
                return endpoint

            node = self._nodes[endpoint] = self._make(locate)
        return node

    def _refresh(self) -> asyncio.Task[None]:
        if self._refreshing is None:
            self._refreshing = asyncio.get_running_loop().create_task(self._learn())
            self._refreshing.add_done_callback(self._refreshed)
        return self._refreshing

    def _refreshed(self, done: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not done.cancelled():
            done.exception()

    async def _learn(self) -> None:
        owners = await self._ask()
        for endpoint in dict.fromkeys(owners):
            if endpoint is not None:
                self._known(endpoint)
        self._owners = owners
        for endpoint in self._nodes.keys() - set(owners):
            self._retired.append(self._nodes.pop(endpoint))
        busy = [node for node in self._retired if node.busy]
        for node in self._retired:
            if not node.busy:
                await node.close()
        self._retired = busy

    async def _ask(self) -> list[Endpoint | None]:
        reasons: list[str] = []
        for endpoint in dict.fromkeys((*self._nodes, *self._seeds)):
            try:
                reply = await self._dialer.ask(endpoint, command(("CLUSTER", "SLOTS")).packed)
                return _owners(_told(reply, endpoint), endpoint)
            except Lost as lost:
                reasons.append(str(lost))
        raise Lost(f"no node tells the cluster's slots ({'; '.join(reasons)})", written=False)


def _told(reply: Any, endpoint: Endpoint) -> list[Any]:
    if not isinstance(reply, ErrorReply):
        if not reply:
            raise Lost(f"{endpoint} knows no slots", written=False)
        return list(reply)
    if verdict(reply) is not Verdict.REFUSED:
        raise Lost(f"{endpoint}: {reply}", written=False)
    if "cluster support disabled" in str(reply):
        text = f"{endpoint} is not part of a cluster: use a redis:// URL"
        raise ServerRefused(text, code=code(reply), reply=str(reply), server=str(endpoint))
    raise refused(reply, command(("CLUSTER", "SLOTS")), str(endpoint))


def _owners(ranges: list[Any], asked: Endpoint) -> list[Endpoint | None]:
    """Read CLUSTER SLOTS: ranges of (first, last, primary, replicas ...); a node that hides its host is the one asked."""
    owners: list[Endpoint | None] = [None] * SLOTS
    for first, last, (name, port, *_), *_ in ranges:
        host: str = name.decode() if name else ""
        endpoint = Endpoint(asked.host if host in ("", "?") else host, port)
        owners[first : last + 1] = [endpoint] * (last + 1 - first)
    return owners
