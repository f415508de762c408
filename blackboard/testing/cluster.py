"""A real cluster of primaries for tests."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

from blackboard.store.identity import info
from blackboard.store.protocol import ErrorReply
from blackboard.testing.servers import Server, Setting, durable, free_port, launch, spelled, until

__all__ = ["Cluster", "start_cluster"]

SLOTS = 16_384
_FORM = 30.0


class Cluster:
    """Primaries that share the slots evenly; `async with` ends them."""

    def __init__(self, nodes: tuple[Server, ...]) -> None:
        self.nodes = nodes

    @property
    def url(self) -> str:
        """The address of all nodes: `redis+cluster://host:port,host:port,host:port`."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def node_of(self, slot: int) -> Server:
        """Tell which primary was given a slot."""
        return next(node for node, slots in zip(self.nodes, _shares(len(self.nodes)), strict=True) if slot in slots)

    async def form(self) -> None:
        """Share the slots, introduce the nodes, and wait until each serves and knows all; raises TimeoutError."""
        for epoch, (node, slots) in enumerate(zip(self.nodes, _shares(len(self.nodes)), strict=True), 1):
            await node.ask("CLUSTER", "SET-CONFIG-EPOCH", epoch)
            await _give(node, slots)
        for node in self.nodes[1:]:
            await self.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port or 0)
        for node in self.nodes:
            await until(partial(self._whole, node), _FORM)
        for node in self.nodes:
            await node.configure(cluster_node_timeout=15_000)

    async def close(self) -> None:
        """End all nodes; idempotent."""
        await asyncio.gather(*(node.close() for node in self.nodes))

    async def _whole(self, node: Server) -> bool:
        known = info(await node.ask("CLUSTER", "INFO"))
        lines = (await node.ask("CLUSTER", "NODES")).decode().splitlines()
        served = sum("-" in line.split()[-1] for line in lines if "handshake" not in line)
        return known["cluster_state"] == "ok" and known["cluster_slots_ok"] == str(SLOTS) and served == len(self.nodes)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def start_cluster(binary: Path, directory: Path, primaries: int = 3, **config: Setting) -> Cluster:
    """Start a cluster on free loopback ports and wait until it is whole (a few seconds)."""
    settings = (
        durable()
        | {"cluster-enabled": True, "cluster-config-file": "nodes.conf", "cluster-node-timeout": 500}
        | spelled(config)
    )
    async with AsyncExitStack() as started:
        nodes = [
            await started.enter_async_context(
                await launch(Server(binary, directory / f"node{number}", settings, port=free_port(bus=True)))
            )
            for number in range(primaries)
        ]
        cluster = Cluster(tuple(nodes))
        await cluster.form()
        started.pop_all()
    return cluster


async def _give(node: Server, slots: range) -> None:
    try:
        await node.ask("CLUSTER", "ADDSLOTSRANGE", slots.start, slots.stop - 1)
    except ErrorReply:
        await node.ask("CLUSTER", "ADDSLOTS", *slots)


def _shares(primaries: int) -> list[range]:
    bounds = [SLOTS * number // primaries for number in range(primaries + 1)]
    return [range(first, last) for first, last in pairwise(bounds)]
