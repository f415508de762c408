"""The append-only file ends at any byte of the last commit: the old state or the new state, nothing else."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from blackboard.checkpoints.channels import Channel, Items, Value
from blackboard.checkpoints.commit import Commit, Committed
from blackboard.checkpoints.engine import Engine
from blackboard.claims.effect import Effects, Start
from blackboard.claims.lease import Lease, Leases
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.servers import Server, binaries, start_server
from tests.chaos.stage import NAMESPACE, say

FAMILIES = sorted(set(binaries()) & {"valkey", "redis"}, reverse=True) or sorted(binaries())
THREAD = "torn"
PATIENCE = 3600.0
"""Retry deadline: op ids are kept for twice as long, so that none expires while the test looks."""


@dataclass(frozen=True)
class Torn:
    """The files of a server that was killed, and where its last commit begins and ends in the newest of them."""

    directory: Path
    file: Path
    begins: int
    ends: int
    old: bytes
    new: bytes


def growing(directory: Path) -> Path:
    """The file that a server appends to."""
    return max(directory.rglob("*.aof"), key=lambda path: ("incr" in path.name, path.name))


async def start(binary: Path, directory: Path) -> Server:
    return await start_server(
        binary, directory, fsync="always", enable_debug_command="yes", aof_load_truncated=True,
        auto_aof_rewrite_percentage=0,
    )  # fmt: skip


async def last_commit(engine: Engine, effects: Effects, lease: Lease, done: Committed, start: Start) -> Committed:
    """A commit with everything: a log that grows, a new value, cursors, a settled effect."""
    items = [b'"first"', b'"second"']
    log = Items("log", done.refs["log"].segments, items[1:], lambda: items)
    channels: dict[str, Channel] = {"log": log, "big": Value(b"n" * 200)}
    settlement = effects.settlement(start, b'"done"')
    commit = Commit(1, channels, base=done.refs, parent=done.checkpoint, cursors=b'{"at":1}', settlements=[settlement])
    return await engine.commit(THREAD, commit, token=lease.token, sequence=done.sequence)


async def torn(binary: Path, directory: Path) -> Torn:
    async with await start(binary, directory) as server:
        store = await Store.connect(server.url, retry_deadline=PATIENCE)
        engine, effects = Engine(store, NAMESPACE, CheckpointNamespace()), Effects(store, NAMESPACE)
        lease = await Leases(store, NAMESPACE).acquire(THREAD, ttl=PATIENCE)
        channels: dict[str, Channel] = {
            "log": Items("log", (), [b'"first"'], lambda: [b'"first"']),
            "big": Value(b"o" * 200),
        }
        done = await engine.commit(THREAD, Commit(0, channels), token=lease.token)
        lease.opened(done.incarnation)
        begun = await effects.begin(lease.token, "effect", semantics="at-most-once", fingerprint="f")
        assert isinstance(begun, Start)
        file = growing(directory)
        begins, old = file.stat().st_size, await server.ask("DEBUG", "DIGEST")
        await last_commit(engine, effects, lease, done, begun)
        ends, new = file.stat().st_size, await server.ask("DEBUG", "DIGEST")
        await store.close()
        server.kill()
    assert old != new
    return Torn(directory, file, begins, ends, old, new)


async def after_cut(server: Server, found: Torn, size: int) -> str:
    """Start a killed server on the first bytes of the file and tell which state it has."""
    server.kill()
    file = server.directory / found.file.relative_to(found.directory)
    file.write_bytes(found.file.read_bytes()[:size])
    await server.start()
    digest = await server.ask("DEBUG", "DIGEST")
    return {found.old: "old", found.new: "new"}.get(digest, f"neither, cut at {size}")


async def look(server: Server, state: str) -> None:
    """Read the thread as the next driver would."""
    store = await Store.connect(server.url)
    snapshot = await Engine(store, NAMESPACE, CheckpointNamespace()).latest(THREAD)
    opened = await Effects(store, NAMESPACE).open(THREAD)
    await store.close()
    assert snapshot is not None
    step, items = snapshot.manifest.step, snapshot.contents["log"]
    assert (step, items, [one.key for one in opened]) == (
        (0, [b'"first"'], ["effect"]) if state == "old" else (1, [b'"first"', b'"second"'], [])
    )


@pytest.mark.parametrize(
    ("family", "apart"), [(FAMILIES[0], 4), *(pytest.param(name, 1, marks=pytest.mark.chaos) for name in FAMILIES)]
)
async def test_cut_in_the_last_commit(family: str, apart: int, tmp_path: Path) -> None:
    """At every fourth byte of it, at every one in the long run."""
    found = await torn(binaries()[family], tmp_path / "whole")
    places = [*range(found.begins, found.ends, apart), found.ends]
    sizes: Iterator[int] = iter(places)
    states: Counter[str] = Counter()

    async def worker(name: str) -> None:
        directory = tmp_path / name
        shutil.copytree(found.directory, directory)
        async with await start(binaries()[family], directory) as server:
            for size in sizes:
                state = await after_cut(server, found, size)
                states[state] += 1
                if states[state] == 1 or size % 50 < apart:
                    await look(server, state)
                assert (state == "new") == (size == found.ends), f"{state} at {size} of {found.ends}"

    await asyncio.gather(worker("one"), worker("other"))
    say(f"{family}: cut at {len(places)} places: {dict(states)}")
    assert states == {"old": len(places) - 1, "new": 1}
