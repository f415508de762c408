"""What a driver does from its first call to its last; every scene can be played again from wherever it was killed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from blackboard.checkpoints.channels import Channel, Items, Value
from blackboard.checkpoints.commit import Commit
from blackboard.checkpoints.engine import Write
from blackboard.checkpoints.log import Log
from blackboard.claims.effect import Effects, Start
from blackboard.claims.outcome import Busy, Done, Unknown
from blackboard.claims.shared import Claim, SharedEffects
from blackboard.errors import EffectFailed, ThreadGone
from blackboard.points import reach, watch
from blackboard.runs.call import Call
from blackboard.runs.drive import Entry, drive
from blackboard.runs.effect import RunEffect
from blackboard.runs.hold import hold
from blackboard.runs.run import Run
from blackboard.testing.crash import Spot, recorder, strike
from tests.chaos.stage import NAMESPACE, TTL, Stage, append, stage
from tests.chaos.upkeep import copying, pruning, referring, setting_aside

PATIENCE = TTL + 1
"""How long the next driver waits for the lease of a dead one: it must get it within the TTL (one more for the machine)."""


class Report(BaseModel):
    lines: Log[str] = Log()
    total: int = 0
    notes: dict[str, int] = {}


async def finishing(on: Stage) -> None:
    """A run to its end: both semantics, both ways to record, a pending call, an effect across threads, finish."""
    async with drive(on.engine, Entry(on.thread, Report, Report, None, TTL, PATIENCE)) as run:
        on.ack("granted", fence=run.lease.fence)
        while not run.done:
            await STEPS[str(run.next)](on, run)


async def _advance(on: Stage, run: Run[Report], line: str, following: str, *pending: Call) -> None:
    run.state.lines.append(line)
    run.state.total += 1
    run.state.notes[line] = run.state.total
    run.cursors["at"] = run.state.total
    await run.commit(next=following, pending=pending)
    on.ack("commit", step=run.step, checkpoint=run.checkpoint, lines=list(run.state.lines))


async def _search(on: Stage, run: Run[Report]) -> None:
    search: RunEffect[str] = run.effect("search", str, semantics="at-least-once", fingerprint="q")
    made = await search.call(partial(on.happen, "search", search.key))
    on.ack("effect", key=search.name, result=made)
    await _advance(on, run, made, "pay")


async def _once(on: Stage, run: Run[Report], name: str, record: Literal["now", "commit"]) -> str:
    """An at-most-once effect: if it is in doubt, the ledger is asked before anything is done."""
    async with run.effect(name, str, semantics="at-most-once", record=record) as effect:
        if effect.standing == "unknown":
            if on.happened()[name]:
                await effect.complete(f"did {name}")
            else:
                await effect.retry()
        if effect.standing == "run":
            reach(name, "before")
            made = on.happen(name, effect.key)
            reach(name, "after")
            await effect.attach("reference")
            await effect.complete(made)
    result: str = effect.result
    return result


async def _pay(on: Stage, run: Run[Report]) -> None:
    made = await _once(on, run, "pay", "now")
    on.ack("effect", key=f"{run.step}/pay", result=made)
    await _advance(on, run, made, "settle")


async def _settle(on: Stage, run: Run[Report]) -> None:
    step = run.step
    made = await _once(on, run, "ship", "commit")
    await _advance(on, run, made, "mail", Call("mail", "mail", ["all"]))
    on.ack("effect", key=f"{step}/ship", result=made)


async def _mail(on: Stage, run: Run[Report]) -> None:
    (pending,) = run.pending
    mail: RunEffect[str] = run.effect(pending.call, str)
    made = await mail.call(partial(on.happen, "mail", mail.key))
    on.ack("effect", key=mail.name, result=made)
    await _advance(on, run, made, "share")


async def _share(on: Stage, run: Run[Report]) -> None:
    """An effect that is claimed across threads; whoever died with it is waited for."""
    shared = SharedEffects(on.store, NAMESPACE)
    key = f"shared-{on.thread}"
    while True:
        answer = await shared.begin(key, semantics="at-least-once", fingerprint="f", ttl=TTL)
        match answer:
            case Claim():
                await answer.renew()
                made = on.happen("shared", answer.downstream_key)
                await shared.attach(answer, "reference")
                await shared.complete(answer, made.encode())
                on.ack("shared", key=key, result=made)
            case Busy():
                await asyncio.sleep(answer.retry_after + 0.001)
            case Done():
                break
            case _:
                raise AssertionError(answer)
    await _advance(on, run, answer.result.decode(), "close")


async def _close(on: Stage, run: Run[Report]) -> None:
    await run.finish("ok")
    on.ack("finished", step=run.step)


STEPS: dict[str, Callable[[Stage, Run[Report]], Awaitable[None]]] = {
    "start": _search, "pay": _pay, "settle": _settle, "mail": _mail, "share": _share, "close": _close,
}  # fmt: skip


async def failing(on: Stage) -> None:
    """A body that raises inside an effect and is driven again, then fails for good."""

    def break_down() -> str:
        on.happen("broken", "downstream")
        raise ArithmeticError("broken")

    for _ in range(3):
        with suppress(ArithmeticError):
            async with drive(on.engine, Entry(on.thread, Report, Report, None, TTL, PATIENCE)) as run:
                if run.done:
                    return
                for effect in await Effects(on.store, NAMESPACE).open(on.thread):
                    await Effects(on.store, NAMESPACE).resolve(run.lease.token, effect, "abandoned", b'"gone"')
                    on.ack("abandoned")
                broken: RunEffect[str] = run.effect("break", str, semantics="at-most-once", scope="thread")
                try:
                    await broken.call(break_down)
                except EffectFailed:
                    await run.fail("broken")
                    on.ack("failed", step=run.step)


async def putting(on: Stage) -> None:
    """Adapter mode: checkpoints under ids of the caller's, writes before and after them, two lineages, no lease."""
    engine = on.engine
    try:
        for lineage in ("", "inner"):
            for number in range(2):
                name = f"c{number}"
                await engine.put_writes(on.thread, name, [Write("task", 0, b"early")], lineage=lineage)
                on.ack("write", lineage=lineage, checkpoint=name, field="task:0", data="early")
                await engine.put(on.thread, name, _third(number), lineage=lineage)
                on.ack("put", lineage=lineage, checkpoint=name, items=number + 1)
                writes = [Write("task", 1, b"late"), Write("task", 2, b"over", overwrite=True)]
                await engine.put_writes(on.thread, name, writes, lineage=lineage)
                on.ack("write", lineage=lineage, checkpoint=name, field="task:2", data="over")
            await engine.latest(on.thread, lineage=lineage)
            await engine.history(on.thread, lineage=lineage)
    finally:
        await engine.meta(on.thread)
    on.ack("complete")


def _third(number: int) -> Commit:
    items = [b'"%d"' % i for i in range(number + 1)]
    channels: dict[str, Channel] = {"items": Items("log", (), items, lambda: items), "big": Value(b"b" * 500)}
    return Commit(number, channels, parent=f"c{number - 1}" if number else None)


async def leasing(on: Stage) -> None:
    """A lease is taken, extended, read and given back; a cancelled acquire is undone; a grant is broken."""
    leases = on.leases
    lease = await leases.acquire(on.thread, ttl=TTL, wait=PATIENCE)
    on.ack("granted", fence=lease.fence)
    await lease.renew()
    await leases.holder(on.thread)
    await lease.release()
    on.ack("released", fence=lease.fence)
    waiting = asyncio.create_task(leases.acquire(on.thread, ttl=TTL, wait=PATIENCE))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    broken = await leases.acquire(on.thread, ttl=TTL, wait=PATIENCE)
    on.ack("granted", fence=broken.fence)
    await leases.break_lock(on.thread)
    on.ack("released", fence=broken.fence)


async def ending(on: Stage) -> None:
    """A thread is written under a lease, closed and deleted with all its slices, and its id is used anew."""
    engine, retention = on.engine, on.engine.retention
    if not on.acknowledged("deleted"):
        if not on.acknowledged("closed"):
            await _write_and_close(on)
        await retention.delete(on.thread)
        on.ack("deleted")
    await engine.put(on.thread, "anew", Commit(0, {"n": Value(b"1")}))
    await retention.delete(on.thread)


async def _write_and_close(on: Stage) -> None:
    engine = on.engine
    try:
        async with hold(engine, on.thread, owner=None, ttl=TTL, wait=PATIENCE) as lease:
            reading = await engine.read(on.thread)
            if reading.snapshot is None:
                first = await engine.commit(on.thread, Commit(0, {"n": Value(b"0")}), token=lease.token)
                lease.opened(first.incarnation)
                on.ack("put", lineage="", checkpoint=first.checkpoint)
            if reading.meta.status != "finished":
                await engine.retention.close(on.thread, status="finished", ttl=60.0, token=lease.token)
        on.ack("closed")
    except ThreadGone:
        on.ack("closed")


async def interrupted(on: Stage) -> None:
    """Effects outside of runs that nobody completes: interrupted, found unknown, decided."""
    effects, shared = Effects(on.store, NAMESPACE), SharedEffects(on.store, NAMESPACE)
    async with hold(on.engine, on.thread, owner=None, ttl=TTL, wait=PATIENCE) as lease:
        if lease.incarnation is None:
            lease.opened((await on.engine.commit(on.thread, Commit(0, {}), token=lease.token)).incarnation)
        begun = await effects.begin(lease.token, "e", semantics="at-most-once", fingerprint="f")
        if isinstance(begun, Start):
            on.happen("interrupted", begun.downstream_key)
            await effects.interrupt(begun)
            begun = await effects.begin(lease.token, "e", semantics="at-most-once", fingerprint="f")
        if isinstance(begun, Unknown):
            await effects.resolve(lease.token, begun, "done", b'"found"')
        on.ack("effect", key="e", result="found")
    key = f"lone-{on.thread}"
    claim = await shared.begin(key, semantics="at-most-once", fingerprint="f", ttl=0.2)
    while isinstance(claim, Busy):
        await asyncio.sleep(claim.retry_after + 0.001)
        claim = await shared.begin(key, semantics="at-most-once", fingerprint="f", ttl=0.2)
    if isinstance(claim, Claim):
        on.happen("lone", claim.downstream_key)
        await shared.interrupt(claim)
        claim = await shared.begin(key, semantics="at-most-once", fingerprint="f", ttl=0.2)
    if isinstance(claim, Unknown):
        await shared.resolve(claim, "done", b"found")
    on.ack("shared", key=key, result="found")
    on.ack("complete")


SCENES: dict[str, Callable[[Stage], Awaitable[None]]] = {
    scene.__name__: scene
    for scene in (finishing, failing, putting, leasing, ending, interrupted, pruning, copying, referring, setting_aside)
}


async def record(url: str, scene: str, thread: str, directory: str, out: str) -> None:
    """Play a scene and write down every spot that it reaches."""

    def note(spot: Spot) -> None:
        append(Path(out), str(spot))

    async with stage(url, thread, directory) as on:
        with watch(recorder(note)):
            await SCENES[scene](on)


async def die(url: str, scene: str, thread: str, directory: str, spot: str) -> None:
    """Play a scene up to a spot, and be killed there."""
    async with stage(url, thread, directory) as on:
        with watch(strike(Spot.parse(spot))):
            await SCENES[scene](on)
