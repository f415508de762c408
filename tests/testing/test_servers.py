"""The servers that tests stand on: durable, restartable, and never left over."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
import sys
import textwrap
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from blackboard.store.protocol import ErrorReply
from blackboard.store.wire import Wire
from blackboard.testing.cluster import Cluster, start_cluster
from blackboard.testing.sentinel import start_sentinel
from blackboard.testing.servers import Server, StartError, binaries, start_server, until
from blackboard.testing.tls import start_tls, tls_missing

BINARIES = binaries()
each = pytest.mark.parametrize("name", sorted(BINARIES))


def alive(pid: int) -> bool:
    """Whether a process with this id is there and not a zombie."""
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(shown.strip()) and not shown.startswith("Z")


def test_at_least_one_binary_is_found_and_runs() -> None:
    assert BINARIES
    assert all(os.access(path, os.X_OK) for path in BINARIES.values())


@each
async def test_what_was_acknowledged_survives_a_kill(name: str, tmp_path: Path) -> None:
    async with await start_server(BINARIES[name], tmp_path, fsync="always") as server:
        first = server.pid
        await server.ask("SET", "a", 1)
        await server.restart(kill=True)
        assert await server.ask("GET", "a") == b"1"
        assert server.pid != first
        assert await server.ask("CONFIG", "GET", "appendfsync") == [b"appendfsync", b"always"]
        pid = server.pid
    assert not alive(pid)


async def test_the_socket_path_is_short_and_private(server: Server) -> None:
    assert len(str(server.socket)) < 104
    assert server.socket.stat().st_mode & 0o077 == 0
    assert server.socket.parent.stat().st_mode & 0o077 == 0


async def test_without_tcp_nothing_listens_on_a_port(tmp_path: Path) -> None:
    async with await start_server(next(iter(BINARIES.values())), tmp_path) as server:
        assert server.port is None
        assert await server.ask("CONFIG", "GET", "port") == [b"port", b"0"]


async def test_a_paused_server_answers_nothing_until_resumed(tmp_path: Path) -> None:
    async with await start_server(next(iter(BINARIES.values())), tmp_path) as server:
        server.pause()
        with pytest.raises(TimeoutError):
            await server.ask("PING", timeout=0.1)
        server.resume()
        assert await server.ask("PING") == b"PONG"


async def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no-such-setting"):
        await start_server(next(iter(BINARIES.values())), tmp_path, no_such_setting=1)


def test_servers_die_with_a_killed_test_process(tmp_path: Path) -> None:
    """SIGKILL gives the process no chance to clean up; the guard does it."""
    program = """
        import asyncio, sys
        from pathlib import Path
        from blackboard.testing.servers import binaries, start_server
        server = asyncio.run(start_server(next(iter(binaries().values())), Path(sys.argv[1])))
        print(server.pid, flush=True)
        sys.stdin.read()
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    pid = int(child.stdout.readline())
    assert alive(pid)
    child.send_signal(signal.SIGKILL)
    child.communicate()

    async def gone() -> bool:
        return not alive(pid)

    asyncio.run(until(gone, 10))


@each
async def test_a_cluster_serves_every_slot(name: str, tmp_path: Path) -> None:
    async with await start_cluster(BINARIES[name], tmp_path) as cluster:
        assert len(cluster.nodes) == 3
        for key, slot in (("foo", 12182), ("bar", 5061), ("hello", 866)):
            assert await cluster.node_of(slot).ask("SET", key, slot) == b"OK"
        with pytest.raises(ErrorReply, match=f"MOVED 12182 127.0.0.1:{cluster.node_of(12182).port}"):
            await cluster.node_of(866).ask("GET", "foo")


async def test_the_shared_cluster_names_all_nodes(cluster: Cluster) -> None:
    assert cluster.url == "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)


@each
async def test_a_failover_moves_the_primary(name: str, tmp_path: Path) -> None:
    async with await start_sentinel(BINARIES[name], tmp_path) as group:
        old = await group.primary()
        await old.ask("SET", "a", 1)
        assert await old.ask("WAIT", 1, 30_000, timeout=40) == 1
        new = await group.failover()
        assert new is not old
        assert await new.ask("GET", "a") == b"1"
        assert await new.ask("SET", "a", 2) == b"OK"


async def test_three_sentinels_replace_a_killed_primary(tmp_path: Path) -> None:
    async with await start_sentinel(next(iter(BINARIES.values())), tmp_path, sentinels=3) as group:
        old = await group.primary()
        old.kill()
        assert await (await group.settled(old)).ask("SET", "a", 1) == b"OK"


@each
async def test_tls_trusts_only_its_own_authority(name: str, tmp_path: Path) -> None:
    if reason := tls_missing(BINARIES[name]):
        with pytest.raises(StartError, match=reason):
            await start_tls(BINARIES[name], tmp_path)
        pytest.skip(reason)
    async with await start_tls(BINARIES[name], tmp_path) as server:
        url = urlsplit(server.url)
        assert url.scheme == "rediss"
        trusting = ssl.create_default_context(cafile=parse_qs(url.query)["ssl_ca_certs"][0])
        async with Wire(*await asyncio.open_connection(url.hostname, url.port, ssl=trusting)) as wire:
            assert await wire.ask("PING") == b"PONG"
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection(url.hostname, url.port, ssl=ssl.create_default_context())
