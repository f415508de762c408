"""A driver is stopped beyond its lease and wakes up: everything that it tries is refused, the winner's data is untouched."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from blackboard import keys
from blackboard.checkpoints.channels import Value
from blackboard.checkpoints.commit import Commit, Committed
from blackboard.checkpoints.engine import Write
from blackboard.claims.effect import Effects, SettledEffect
from blackboard.claims.lease import Lease
from blackboard.claims.outcome import Unknown
from blackboard.testing.crash import Child, Template
from blackboard.testing.servers import Server, binaries, start_server
from tests.chaos.stage import NAMESPACE, Stage, say, stage
from tests.chaos.zombies import TTL

STALE = (
    "commit", "commit with a settlement", "put_writes", "close", "attach", "complete", "interrupt",
    "begin", "renew by its own clock", "renew", "release",
)  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def template() -> AsyncIterator[Template]:
    async with await Template.start("tests.chaos.zombies") as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=sorted(binaries()))
async def own(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with await start_server(binaries()[request.param], tmp_path_factory.mktemp("zombie")) as started:
        yield started


@pytest_asyncio.fixture
async def on(own: Server, thread: str, tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(own.url, thread, tmp_path) as played:
        yield played


async def stopped(child: Child) -> None:
    """Wait until the process has stopped itself."""
    status = Path(f"/proc/{child.pid}/stat")
    if not status.exists():
        pytest.skip("tells a stopped process from a running one by /proc")
    async with asyncio.timeout(20):
        while status.read_text().rpartition(")")[2].split()[0] != "T":
            await asyncio.sleep(0.005)


async def take_over(on: Stage) -> tuple[Lease, Committed]:
    """What the next driver does: lease, the effect in doubt, a commit, a pending write."""
    lease = await on.leases.acquire(on.thread, "winner", ttl=60, wait=TTL + 1)
    assert lease.takeover
    found = await on.engine.latest(on.thread)
    assert found is not None
    parent = found.manifest
    effects = Effects(on.store, NAMESPACE)
    doubt = await effects.begin(lease.token, "effect", semantics="at-most-once", fingerprint="f")
    assert isinstance(doubt, Unknown)
    await effects.resolve(lease.token, doubt, "done", b'"won"')
    won = Commit(parent.step + 1, {"n": Value(b"won")}, parent=parent.checkpoint)
    done = await on.engine.commit(on.thread, won, token=lease.token, sequence=parent.step + 1)
    await on.engine.put_writes(on.thread, done.checkpoint, [Write("t", 0, b"won")], token=lease.token)
    return lease, done


async def everything(on: Stage) -> dict[str, object]:
    """All that stands of the thread, byte by byte, but for the life of keys."""
    prefix = keys.ThreadKeys.of(NAMESPACE, on.thread).prefix
    cursor, found = 0, {}
    while True:
        cursor, page = await on.store.command("SCAN", cursor, "MATCH", f"{prefix[:-1]}*", "COUNT", 1000)
        for key in page:
            found[key.decode()] = await on.store.command("DUMP", key)
        if int(cursor) == 0:
            return found


@pytest.mark.parametrize(
    ("first", "script"),
    [
        ("commit", "commit"), ("put_writes", "writes"), ("close", "close"), ("attach", "attach"),
        ("complete", "settle"), ("begin", "begin"), ("renew", "renew"), ("release", "release"),
    ],
)  # fmt: skip
async def test_stopped_beyond_the_lease_and_back(
    first: str, script: str, own: Server, template: Template, on: Stage
) -> None:
    """Stopped with one call made up and not sent; it is sent when another has the thread."""
    child = await template.fork("sleepwalk", own.url, on.thread, str(on.directory), first, f"{script}.lua:before")
    await stopped(child)
    lease, done = await take_over(on)
    before = await everything(on)
    child.signal(signal.SIGCONT)
    assert await child.wait() == 0, template.errors()
    answers = {fact["name"]: fact["answer"] for fact in on.acknowledged("answer")}
    assert set(answers) == set(STALE)
    assert set(answers.values()) == {"LeaseLost"}
    assert await everything(on) == before
    await lease.renew()
    found = await on.engine.latest(on.thread)
    assert found is not None
    assert (found.manifest.checkpoint, found.contents["n"]) == (done.checkpoint, b"won")
    (effect,) = await Effects(on.store, NAMESPACE).all(on.thread)
    assert isinstance(effect, SettledEffect)
    assert (effect.state, effect.result) == ("done", b'"won"')
    say(f"stopped in {first}: {len(answers)} stale calls refused, {len(before)} keys unchanged")
