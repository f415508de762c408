"""Every single command of every operation is lost, its reply is lost, or the connection is cut in the middle of a frame."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from blackboard import keys
from blackboard.checkpoints.channels import Channel, Items, Value
from blackboard.checkpoints.commit import Commit, Committed
from blackboard.checkpoints.engine import Engine, Write
from blackboard.claims.effect import Effects, SettledEffect, Start
from blackboard.claims.lease import Lease, Leases
from blackboard.errors import OutcomeUnknown, ServerUnavailable
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.contracts.thread import all_keys
from blackboard.testing.proxy import Fault, FaultProxy, cut_reply, cut_request, drop_reply, drop_request
from blackboard.testing.servers import Server
from tests.chaos.stage import NAMESPACE, say

WHOLE = 1 << 30
FAULTS = {
    "request lost": drop_request(),
    "request cut at its first byte": cut_request(1),
    "request cut in the middle": cut_request(60),
    "request cut before its last byte": cut_request(WHOLE),
    "reply lost": drop_reply(),
    "reply cut at its first byte": cut_reply(1),
    "reply cut in the middle": cut_reply(9),
    "reply cut before its last byte": cut_reply(WHOLE),
}
OP_ID = re.compile(r"\d{16}-[0-9a-f]{10}")
OWNER = "driver"


@dataclass
class Bench:
    """A thread that was made undisturbed, and what an operation needs that goes over a wire that breaks."""

    engine: Engine
    effects: Effects
    leases: Leases
    lease: Lease
    thread: str
    done: Committed
    start: Start


async def commit(on: Bench) -> Any:
    items = [b'"a"', b'"b"']
    log = Items("log", on.done.refs["log"].segments, items[1:], lambda: items)
    settlement = on.effects.settlement(on.start, b'"settled"')
    channels: dict[str, Channel] = {"log": log, "big": Value(b"c" * 500)}
    next_ = Commit(1, channels, base=on.done.refs, parent=on.done.checkpoint, settlements=[settlement])
    made = await on.engine.commit(on.thread, next_, token=on.lease.token, sequence=on.done.sequence)
    return made.checkpoint, made.step, made.fence == on.lease.fence


async def latest(on: Bench) -> Any:
    found = await on.engine.latest(on.thread)
    return found and (found.manifest.checkpoint, found.contents)


async def put_writes(on: Bench) -> Any:
    writes = [Write("t", 0, b"x"), Write("t", 1, b"y", overwrite=True)]
    await on.engine.put_writes(on.thread, on.done.checkpoint, writes, token=on.lease.token)


async def acquire(on: Bench) -> Any:
    other = await on.leases.acquire(f"{on.thread}-other", OWNER, ttl=30)
    held = await on.leases.holder(f"{on.thread}-other")
    return held is not None and (held.owner, held.fence == other.fence)


async def renew(on: Bench) -> Any:
    before = on.lease.deadline
    await on.lease.renew()
    return on.lease.deadline > before


async def release(on: Bench) -> Any:
    await on.lease.release()


async def begin(on: Bench) -> Any:
    answer = await on.effects.begin(on.lease.token, "new", semantics="at-most-once", fingerprint="f")
    return isinstance(answer, Start) and (answer.attempt, answer.key)


async def complete(on: Bench) -> Any:
    await on.effects.complete(on.start, b'"completed"')


async def delete(on: Bench) -> Any:
    await on.effects.complete(on.start, b'"completed"')
    return await on.engine.retention.delete(on.thread)


async def finish(on: Bench) -> Any:
    settlement = on.effects.settlement(on.start, b'"settled"')
    last = Commit(
        1, {"n": Value(b"2")}, parent=on.done.checkpoint, status="finished", ttl=3600.0, settlements=[settlement]
    )
    made = await on.engine.commit(on.thread, last, token=on.lease.token, sequence=on.done.sequence)
    return made.checkpoint, made.expires is not None


OPERATIONS: dict[str, Callable[[Bench], Awaitable[Any]]] = {
    operation.__name__: operation
    for operation in (commit, latest, put_writes, acquire, renew, release, begin, complete, delete, finish)
}


@dataclass
class Wire:
    """One server seen directly and through the proxy."""

    proxy: FaultProxy
    direct: Store
    broken: Store

    async def bench(self, thread: str) -> Bench:
        engine, leases = Engine(self.direct, NAMESPACE, CheckpointNamespace()), Leases(self.direct, NAMESPACE)
        lease = await leases.acquire(thread, OWNER, ttl=30)
        channels: dict[str, Channel] = {"log": Items("log", (), [b'"a"'], lambda: [b'"a"']), "big": Value(b"b" * 500)}
        done = await engine.commit(thread, Commit(0, channels), token=lease.token)
        lease.opened(done.incarnation)
        start = await Effects(self.direct, NAMESPACE).begin(
            lease.token, "open", semantics="at-most-once", fingerprint="f"
        )
        assert isinstance(start, Start)
        far = Lease(self.broken, lease.token, ttl=30, sent=lease.deadline - 30, status="running", takeover=False)
        for lane in ("data", "lease"):
            await self.broken.command("PING", lane=lane)
        return Bench(
            Engine(self.broken, NAMESPACE, CheckpointNamespace()), Effects(self.broken, NAMESPACE),
            Leases(self.broken, NAMESPACE), far, thread, done, start,
        )  # fmt: skip

    async def picture(self, on: Bench) -> dict[str, Any]:
        """What stands, without what two equal runs may have different: times, fences and op ids."""
        engine = Engine(self.direct, NAMESPACE, CheckpointNamespace())
        prefix = keys.ThreadKeys.of(NAMESPACE, on.thread).prefix
        stood = [key for key in await all_keys(self.direct) if key.startswith((prefix, prefix[:-1] + "-other}"))]
        lives = {OP_ID.sub("OP", key.replace(on.thread, "")): await self._ends(key) for key in stood}
        reading = await engine.read(on.thread)
        meta, found = reading.meta, reading.snapshot
        effects = [
            (one.key, one.state, one.attempt, one.result if isinstance(one, SettledEffect) else b"")
            for one in await Effects(self.direct, NAMESPACE).all(on.thread)
        ]
        held = await Leases(self.direct, NAMESPACE).holder(on.thread)
        return {
            "keys": lives,
            "meta": (meta.status, meta.sequence, meta.takeovers, meta.failures, meta.holder, meta.removing),
            "fence": meta.fence == on.lease.fence,
            "history": [(one.checkpoint, one.step, one.parent) for one in await engine.history(on.thread)],
            "contents": found and (dict(found.contents), dict(found.writes)),
            "effects": effects,
            "lease": held and (held.owner, held.fence == on.lease.fence, held.remaining > 0),
        }

    async def _ends(self, key: str) -> bool:
        return bool(await self.direct.command("PTTL", key) != -1)


@pytest_asyncio.fixture
async def wire(own: Server) -> AsyncIterator[Wire]:
    async with await FaultProxy.start(own.url) as proxy:
        direct, broken = await Store.connect(own.url), await Store.connect(proxy.url, connections=1)
        yield Wire(proxy, direct, broken)
        await direct.close()
        await broken.close()


async def undisturbed(wire: Wire, name: str, thread: str) -> tuple[int, Any, dict[str, Any]]:
    """The number of commands, the answer and the picture; after a first run that loads the scripts."""
    await OPERATIONS[name](await wire.bench(f"{thread}-first"))
    on = await wire.bench(f"{thread}-calm")
    wire.proxy.reset()
    answer = await OPERATIONS[name](on)
    return len(wire.proxy.commands), answer, await wire.picture(on)


@pytest.mark.parametrize("name", OPERATIONS)
async def test_one_command_is_hit(name: str, wire: Wire, thread: str) -> None:
    """Whatever is lost, the answer is right and the store stands as after an undisturbed run."""
    commands, answer, picture = await undisturbed(wire, name, thread)
    assert commands >= 1
    hits = 0
    for index in range(commands):
        for kind, fault in FAULTS.items():
            on = await wire.bench(f"{thread}-{index}-{list(FAULTS).index(kind)}")
            wire.proxy.reset()
            wire.proxy.fault(fault, at=index)
            assert await OPERATIONS[name](on) == answer, (kind, index)
            hit = wire.proxy.commands[index]
            assert len(wire.proxy.commands) > commands, f"{hit.name} was not sent again after: {kind}"
            assert await wire.picture(on) == picture, (kind, index, hit.name)
            hits += 1
    say(f"{name}: {commands} commands, {hits} faults, each answered right")


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("kind", ["request lost", "reply lost"])
async def test_the_first_command_never_gets_through(name: str, kind: str, wire: Wire, thread: str) -> None:
    """An honest error, and the store stands as before or as after; whoever says "not executed" must be right."""
    _, _, after = await undisturbed(wire, name, thread)
    impatient = await Store.connect(wire.proxy.url, connections=1, retry_deadline=0.2)
    whole, wire.broken = wire.broken, impatient
    on = await wire.bench(f"{thread}-lost")
    before = await wire.picture(on)
    on.lease.deadline = time.monotonic() + 0.2
    wire.proxy.reset()
    fault: Fault = FAULTS[kind]
    wire.proxy.fault(fault, when=lambda command: command.name.startswith(("EVAL", "ZADD")), times=1 << 60)
    with pytest.raises((OutcomeUnknown, ServerUnavailable)) as raised:
        await OPERATIONS[name](on)
    wire.proxy.reset()
    stands = await wire.picture(on)
    assert (raised.type is ServerUnavailable) == (name == "latest")
    if kind == "request lost":
        assert stands["history"] == before["history"]
        assert stands["effects"] == before["effects"]
    if name not in ("acquire", "delete", "finish"):
        assert stands in (before, after)
    await impatient.close()
    wire.broken = whole
