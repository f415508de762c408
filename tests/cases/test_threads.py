"""Public bug reports about threads, their order, their end and their size, as inputs with the right answer."""

from __future__ import annotations

import asyncio
import math
import resource
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from blackboard import Settings, keys
from blackboard.board import Blackboard
from blackboard.checkpoints.channels import Value
from blackboard.checkpoints.commit import Commit
from blackboard.checkpoints.engine import Engine, Write
from blackboard.claims.lease import Leases, Token
from blackboard.errors import (
    BlackboardError,
    ConfigError,
    LeaseHeld,
    LeaseLost,
    ServerUnavailable,
    ThreadGone,
)
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.contracts.thread import NAMESPACE, all_keys, step
from blackboard.testing.servers import binaries, start_server

ROOT = Path(__file__).parents[2]


@pytest.fixture
def engine(store: Store) -> Engine:
    return Engine(store, NAMESPACE, CheckpointNamespace())


async def standing(engine: Engine, thread: str) -> set[str]:
    prefix = keys.ThreadKeys.of(NAMESPACE, thread).prefix
    return set(await all_keys(engine.store, prefix))


async def test_c31_ids_are_never_patterns(engine: Engine, thread: str) -> None:
    names = [f"{thread}{tail}" for tail in ("1", "2", "[12]", "*", "?", "[^1]", "my-doc.md#0", "a b", "a:b", "a|b", "a\\b", "{a}b",
             "u@example.com", "%2A", "ключ", "日本", "-dash", "(x)", "$x", "a'b", 'a"b')]  # fmt: skip
    for name in names:
        await engine.commit(name, step({"n": Value(name.encode())}))
    for gone in (f"{thread}[12]", f"{thread}*"):
        assert await engine.retention.delete(gone)
        assert await engine.latest(gone) is None
        names.remove(gone)
    board = Blackboard(engine.store, Settings.load(), None, None)
    listed = {row.thread async for row in board.threads() if row.thread.startswith(thread)}
    assert listed == set(names)
    for name in names:
        found = await engine.latest(name)
        assert found is not None
        assert found.contents["n"] == name.encode()


@pytest.mark.parametrize("name", ["", "x" * 1025, "\ud800"])
async def test_c31_ids_that_are_none(engine: Engine, name: str) -> None:
    with pytest.raises(ValueError, match="id"):
        await engine.commit(name, step({}))


async def test_c38_parallel_writes_of_two_processes(server: Any, thread: str) -> None:
    program = textwrap.dedent(f"""
        import asyncio
        from blackboard.store.client import Store
        from blackboard.checkpoints.engine import Engine, Write
        from blackboard.settings import CheckpointNamespace
        async def main():
            engine = Engine(await Store.connect({server.url!r}), "checkpoint", CheckpointNamespace())
            calls = [engine.put_writes({thread!r}, "c1", [Write(f"task{{i}}", 0, b"%d" % i)]) for i in range(64)] * 1
            print(sum(await asyncio.gather(*calls)))
        asyncio.run(main())
    """)
    store = await Store.connect(server.url)
    engine = Engine(store, NAMESPACE, CheckpointNamespace())
    await engine.put(thread, "c1", step({"n": Value(b"1")}))
    command = [sys.executable, "-c", program]
    writers = [
        subprocess.Popen(command, env={"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    stored = [int(writer.communicate(timeout=60)[0]) for writer in writers]
    found = await engine.latest(thread)
    assert found is not None
    assert (sum(stored), found.writes) == (64, {f"task{i}:0": b"%d" % i for i in range(64)})
    await store.close()


async def test_c39_the_other_server_resumes_a_live_thread(engine: Engine, thread: str) -> None:
    leases = Leases(engine.store, NAMESPACE)
    lease = await leases.acquire(thread, "a", ttl=30)
    first = await engine.commit(thread, step({"n": Value(b"1")}), token=lease.token)
    lease.opened(first.incarnation)
    with pytest.raises(LeaseHeld):
        await leases.acquire(thread, "b", ttl=30)
    stale = Token(NAMESPACE, thread, "b", lease.fence - 1, first.incarnation)
    for token, refused in ((None, LeaseHeld), (stale, LeaseLost)):
        with pytest.raises(refused):
            await engine.commit(thread, step({"n": Value(b"B")}, first), token=token, sequence=1)
    second = await engine.commit(thread, step({"n": Value(b"2")}, first), token=lease.token, sequence=1)
    assert [(m.checkpoint, m.parent) for m in await engine.history(thread)] == [
        (second.checkpoint, first.checkpoint),
        (first.checkpoint, None),
    ]


async def test_c43_late_writes_do_not_bring_a_thread_back(engine: Engine, thread: str) -> None:
    done = await engine.put(thread, "a", step({"n": Value(b"1")}))
    assert await engine.retention.delete(thread)
    for late in (
        engine.put_writes(thread, "a", [Write("t", 0, b"w")]),
        engine.put(thread, "b", step({"n": Value(b"2")}, done)),
    ):
        with pytest.raises(ThreadGone):
            await late
    assert await engine.latest(thread) is None
    assert await standing(engine, thread) == {keys.ThreadKeys.of(NAMESPACE, thread).meta}
    assert not await engine.retention.delete(thread)


async def test_c66_every_key_has_its_expiry_when_finish_returns(engine: Engine, thread: str) -> None:
    last = None
    for number in range(3):
        last = await engine.commit(thread, step({"v": Value(b"v" * 500 + b"%d" % number)}, last), sequence=number)
        await engine.put_writes(thread, last.checkpoint, [Write("t", 0, b"w")])
    await engine.retention.close(thread, status="finished", ttl=1)
    names = await standing(engine, thread)
    assert len(names) >= 9
    assert all([0 < await engine.store.command("PTTL", name) <= 1000 for name in names])
    for _ in range(300):
        if not await standing(engine, thread):
            break
        await asyncio.sleep(0.01)
    assert await standing(engine, thread) == set()
    await engine.retention.sweep(10_000)
    assert await engine.store.command("ZSCORE", keys.threads(NAMESPACE, keys.shard(thread)), thread) is None


@pytest.mark.parametrize("ttl", [0, -5, math.nan, math.inf, 1e15, "0s", "-1m", True])
def test_c69_durations_that_are_none_are_refused_at_configuration(ttl: Any) -> None:
    for field in ("ttl", "idle_ttl", "failed_ttl", "lease_ttl"):
        with pytest.raises(ConfigError, match=field):
            Settings.load(namespaces={"checkpoint": {field: ttl}})


@pytest.mark.parametrize(("ttl", "expected"), [(0.5, 500), (None, None)])
async def test_c69_half_a_second_is_honoured_and_none_is_for_ever(
    store: Store, thread: str, ttl: float | None, expected: int | None
) -> None:
    settings = Settings.load(namespaces={"checkpoint": {"ttl": ttl}})
    engine = Engine(store, NAMESPACE, settings.checkpoint_namespace())
    done = await engine.commit(thread, step({"n": Value(b"1")}))
    assert await engine.latest(thread) is not None
    await engine.commit(thread, step({"n": Value(b"2")}, done, status="finished", ttl=engine.policy.ttl), sequence=1)
    life = await store.command("PTTL", keys.ThreadKeys.of(NAMESPACE, thread).meta)
    assert life == -1 if expected is None else 0 < life <= expected


async def test_c74_time_travel_then_continue(engine: Engine, thread: str) -> None:
    first = await engine.put(thread, "c1", step({"n": Value(b"1")}))
    await engine.put_writes(thread, "c1", [Write("resume", -4, b"old answer", overwrite=True)])
    await engine.put(thread, "c2", step({"n": Value(b"2")}, first))
    branch = await engine.put(thread, "c3", step({"n": Value(b"1'")}, first))
    newest = await engine.latest(thread)
    assert newest is not None
    assert (newest.manifest.checkpoint, newest.manifest.parent, newest.writes) == (branch.checkpoint, "c1", {})
    assert [m.checkpoint for m in await engine.history(thread)] == ["c3", "c2", "c1"]
    old = await engine.at(thread, "c2")
    assert old is not None
    assert old.contents["n"] == b"2"


async def test_c81_a_page_reads_a_page(store: Store, thread: str) -> None:
    """A long history: as many manifests are read as are asked for, and no contents."""
    engine = Engine(store, NAMESPACE, CheckpointNamespace())
    await engine.put(thread, "000000", step({"v": Value(b"v" * 20_000)}))
    for start in range(1, 3000, 500):
        calls = [
            engine.put(thread, f"{n:06}", Commit(n, {"v": Value(b"%d" % n * 300)})) for n in range(start, start + 500)
        ]
        await asyncio.gather(*calls)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert len(await engine.history(thread, limit=20)) == 20
    (one,) = await engine.history(thread, limit=1, before="001500")
    assert one.checkpoint == "001499"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


async def test_c86_an_outage_is_an_error_and_never_nothing(tmp_path: Path) -> None:
    async with await start_server(next(iter(binaries().values())), tmp_path) as server:
        store = await Store.connect(server.url, retry_deadline=0.3)
        engine = Engine(store, NAMESPACE, CheckpointNamespace())
        done = await engine.commit("t", step({"v": Value(b"v" * 500)}))
        where = keys.ThreadKeys.of(NAMESPACE, "t")
        whole = await store.command("GET", where.checkpoint(done.checkpoint))
        for damaged in (b"", whole[:-3], b"bb1", b"\x00" * 50):
            await store.command("SET", where.checkpoint(done.checkpoint), damaged)
            with pytest.raises(BlackboardError):
                await engine.latest("t")
            with pytest.raises(BlackboardError):
                await engine.history("t")
        server.kill()
        for read in (engine.latest("t"), engine.history("t"), engine.meta("t"), engine.latest("never")):
            with pytest.raises(ServerUnavailable):
                await read
        await store.close()
