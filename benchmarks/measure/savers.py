"""LangGraph savers side by side: ours, LangGraph's own in memory, and whichever peers are installed."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from benchmarks.measure.bench import Bench
from benchmarks.measure.peer_servers import Missing, postgres_server, redis_stack
from blackboard.integrations.langgraph import BlackboardSaver
from blackboard.store.wire import ask
from blackboard.testing.proxy import FaultProxy
from blackboard.testing.servers import Server

__all__ = ["MEMORY", "OURS", "Contestant", "contestants"]

OURS, MEMORY = "blackboard", "memory"

Bytes = Callable[[], Awaitable[int]]


@dataclass(frozen=True)
class Contestant:
    """A saver, what it has stored in bytes, and where its round trips are counted (None where there are none to count)."""

    saver: BaseCheckpointSaver[Any]
    stored: Bytes | None = None
    proxy: FaultProxy | None = None


Opener = Callable[[Bench, AsyncExitStack, Path], Awaitable[Contestant]]


@asynccontextmanager
async def contestants(bench: Bench, *, peers: bool) -> AsyncGenerator[tuple[dict[str, Contestant], dict[str, str]]]:
    """Open every saver that is there on a store of its own; with them, the reasons why the others are not."""
    present: dict[str, Contestant] = {}
    skipped: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        for name, opener in OPENERS.items():
            if not peers and name not in (MEMORY, OURS):
                continue
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bb", ignore_cleanup_errors=True)))
            try:
                present[name] = await opener(bench, stack, path)
            except Missing as missing:
                skipped[name] = str(missing)
        yield present, skipped


async def _memory(_bench: Bench, _stack: AsyncExitStack, _path: Path) -> Contestant:
    return Contestant(InMemorySaver())


async def _ours(bench: Bench, stack: AsyncExitStack, _path: Path) -> Contestant:
    server = await stack.enter_async_context(bench.server("everysec"))
    # Round trips are counted by a second saver, so that no proxy stands in the way of what is timed.
    proxy = await stack.enter_async_context(await FaultProxy.start(server.url))
    saver = await stack.enter_async_context(BlackboardSaver.aopen(server.url))
    return Contestant(saver, lambda: _memory_usage(server), proxy)


async def _sqlite(_bench: Bench, stack: AsyncExitStack, path: Path) -> Contestant:
    module = _module("langgraph.checkpoint.sqlite.aio", "langgraph-checkpoint-sqlite")
    file = path / "checkpoints.sqlite"
    saver = await stack.enter_async_context(module.AsyncSqliteSaver.from_conn_string(str(file)))
    await saver.setup()

    async def stored() -> int:
        return sum(one.stat().st_size for one in path.iterdir())

    return Contestant(saver, stored)


async def _postgres(_bench: Bench, stack: AsyncExitStack, _path: Path) -> Contestant:
    module = _module("langgraph.checkpoint.postgres.aio", "langgraph-checkpoint-postgres")
    where = await stack.enter_async_context(postgres_server())
    saver = await stack.enter_async_context(module.AsyncPostgresSaver.from_conn_string(where))
    await saver.setup()

    async def stored() -> int:
        tables = "SELECT sum(pg_total_relation_size(relid)) AS size FROM pg_statio_user_tables"
        async with saver.conn.cursor() as cursor:
            await cursor.execute(tables)
            return int((await cursor.fetchone())["size"])

    return Contestant(saver, stored)


async def _valkey(bench: Bench, stack: AsyncExitStack, _path: Path) -> Contestant:
    module = _module("langgraph_checkpoint_aws", "langgraph-checkpoint-aws and valkey")
    if find_spec("valkey") is None:
        raise Missing("valkey is not installed")
    server = await stack.enter_async_context(bench.server("everysec"))
    saver = module.AsyncValkeySaver.from_conn_string(f"unix://{server.socket}", pool_size=64)
    return Contestant(await stack.enter_async_context(saver), lambda: _memory_usage(server))


async def _redis(_bench: Bench, stack: AsyncExitStack, _path: Path) -> Contestant:
    module = _module("langgraph.checkpoint.redis.aio", "langgraph-checkpoint-redis")
    server = await stack.enter_async_context(redis_stack())
    saver = await stack.enter_async_context(module.AsyncRedisSaver.from_conn_string(server.url))
    await saver.asetup()
    return Contestant(saver, lambda: _memory_usage(server))


OPENERS: Mapping[str, Opener] = {
    MEMORY: _memory, OURS: _ours, "sqlite": _sqlite, "postgres": _postgres, "valkey (aws)": _valkey, "redis": _redis,
}  # fmt: skip


def _module(name: str, distribution: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Missing(f"{distribution} is not installed") from None


async def _memory_usage(server: Server) -> int:
    """MEMORY USAGE of every key of a server, all elements counted."""
    total, cursor = 0, b"0"
    while True:
        cursor, names = await ask(server.socket, "SCAN", cursor, "COUNT", 1000, within=30.0)
        for name in names:
            total += int(await ask(server.socket, "MEMORY", "USAGE", name, "SAMPLES", 0, within=30.0))
        if cursor == b"0":
            return total
