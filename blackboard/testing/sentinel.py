"""A real primary with a replica and sentinels, for tests of a failover."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from blackboard.store.identity import info
from blackboard.store.protocol import ErrorReply
from blackboard.testing.servers import Server, Setting, durable, free_port, launch, spelled, until

__all__ = ["SentinelGroup", "start_sentinel"]

_NAME = "main"
_AGREE = 30.0


class SentinelGroup:
    """Two data servers, one of them the primary, and the sentinels that watch them; `async with` ends all."""

    name = _NAME

    def __init__(self, servers: tuple[Server, ...], sentinels: tuple[Server, ...]) -> None:
        self.servers = servers
        self.sentinels = sentinels

    @property
    def url(self) -> str:
        """The address: `redis+sentinel://host:port,host:port/main`, naming the sentinels and the service."""
        return (
            "redis+sentinel://"
            + ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
            + f"/{self.name}"
        )

    async def primary(self) -> Server:
        """Tell which server the first sentinel calls the primary."""
        address = await self.sentinels[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)
        return next(server for server in self.servers if server.port == int(address[1]))

    async def failover(self) -> Server:
        """Have the replica promoted, wait until every sentinel and the replica agree, and return the new primary.

        The old primary stays up and becomes a replica. For an unplanned failover kill the primary and call `settled`.
        """
        old = await self.primary()
        await until(self._begun, _AGREE)
        return await self.settled(old)

    async def settled(self, old: Server) -> Server:
        """Wait until another server than `old` is the primary for every sentinel; raises TimeoutError."""

        async def promoted() -> bool:
            named = [
                await sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name) for sentinel in self.sentinels
            ]
            ports = {int(address[1]) for address in named}
            return old.port not in ports and len(ports) == 1 and await _role(await self.primary()) == "master"

        await until(promoted, _AGREE)
        return await self.primary()

    async def ready(self) -> None:
        """Wait until the replica follows and every sentinel knows it and the other sentinels; raises TimeoutError."""
        await until(self._follows, _AGREE)
        for sentinel in self.sentinels:
            await until(partial(self._sees, sentinel), _AGREE)

    async def close(self) -> None:
        """End everything; idempotent."""
        await asyncio.gather(*(server.close() for server in (*self.sentinels, *self.servers)))

    async def _begun(self) -> bool:
        """Order the failover; a sentinel that has just begun to watch may not trust the replica yet."""
        try:
            await self.sentinels[0].ask("SENTINEL", "FAILOVER", self.name)
        except ErrorReply as refused:
            if str(refused).startswith("NOGOODSLAVE"):
                return False
            raise
        return True

    async def _follows(self) -> bool:
        return info(await self.servers[1].ask("INFO", "replication"))["master_link_status"] == "up"

    async def _sees(self, sentinel: Server) -> bool:
        known = info(await sentinel.ask("INFO", "sentinel"))["master0"]
        return f"slaves={len(self.servers) - 1},sentinels={len(self.sentinels)}" in known and "status=ok" in known

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def start_sentinel(binary: Path, directory: Path, *, sentinels: int = 1, **config: Setting) -> SentinelGroup:
    """Start a primary, a replica and one to three sentinels of the same binary, and wait until all know each other."""
    settings = durable() | {"repl-diskless-sync-delay": 0} | spelled(config)
    async with AsyncExitStack() as started:

        async def start(name: str, **more: Setting) -> Server:
            server = Server(binary, directory / name, settings | more, port=free_port())
            return await started.enter_async_context(await launch(server))

        first = await start("first")
        address = ("127.0.0.1", str(first.port))
        second = await start("second", replicaof=address)
        quorum = sentinels // 2 + 1
        watchers = [
            await started.enter_async_context(await _watch(binary, directory / f"sentinel{number}", address, quorum))
            for number in range(sentinels)
        ]
        group = SentinelGroup((first, second), tuple(watchers))
        await group.ready()
        started.pop_all()
    return group


async def _watch(binary: Path, directory: Path, primary: tuple[str, str], quorum: int) -> Server:
    settings: dict[str, Setting] = {"sentinel monitor": (_NAME, *primary, str(quorum))}
    sentinel = await launch(Server(binary, directory, settings, port=free_port(), mode=["--sentinel"]))
    for option, value in (("down-after-milliseconds", 1000), ("failover-timeout", 5000)):
        await sentinel.ask("SENTINEL", "SET", _NAME, option, value)
    return sentinel


async def _role(server: Server) -> str:
    try:
        return info(await server.ask("INFO", "replication"))["role"]
    except (OSError, EOFError, ErrorReply):
        return "gone"
