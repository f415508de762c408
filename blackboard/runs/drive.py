"""Entering and leaving a run: take the lease, read where the thread stands, and leave nothing half said."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.reading import Reading
from blackboard.checkpoints.state import StateChannels
from blackboard.claims.effect import Effects, OpenEffect, SettledEffect
from blackboard.claims.keeper import Keeper, shielded
from blackboard.claims.lease import Lease
from blackboard.codec import Types, decode
from blackboard.errors import BlackboardError, CheckpointMissing, ConfigError, Parked, ThreadGone, ThreadQuarantined
from blackboard.runs.call import Call, PendingCall, read_calls
from blackboard.runs.hold import grant
from blackboard.runs.run import Run, thread_key
from blackboard.telemetry import logger, span

__all__ = ["Entry", "drive"]

S = TypeVar("S", bound=BaseModel)

log = logger("runs")

FIRST_NEXT = "start"
"""What a run that has nothing stored is to do next."""


@dataclass(frozen=True, slots=True)
class Entry(Generic[S]):
    """Who enters which thread, and what to begin with; times in seconds."""

    thread: str
    model: type[S]
    start: Callable[[], S | Awaitable[S]] | None
    owner: str | None
    lease_ttl: float
    wait: float | None
    classes: tuple[type, ...] = ()


@asynccontextmanager
async def drive(engine: Engine, entry: Entry[S]) -> AsyncGenerator[Run[S]]:
    """Drive a thread: see `Blackboard.run`."""
    if entry.start is not None and not callable(entry.start):  # pyright: ignore[reportUnnecessaryComparison]
        raise ConfigError(
            f"start must be a function that makes the first state, not {entry.start!r}: start=lambda: ...",
            value=entry.start,
        )
    types = Types.of(entry.model, *entry.classes)
    channels = StateChannels(entry.model, types=types, inline_limit=engine.policy.inline_limit)
    async with Keeper(lambda: _take(engine, entry), Lease.release) as lease:
        with span("run", thread=entry.thread, namespace=engine.namespace):
            run = await _enter(engine, Run(engine, lease, channels, types), entry, types)
            try:
                yield run
            except Parked:
                raise
            except Exception:
                await _failed(engine, run)
                raise
            run.leave()


async def _take(engine: Engine, entry: Entry[Any]) -> Lease:
    """Take the lease; without `start` only that of a thread which has a checkpoint, so that no other id is reserved."""
    begun = entry.start is None
    try:
        return await grant(
            engine, entry.thread, owner=entry.owner, ttl=entry.lease_ttl, wait=entry.wait, stored=begun
        )  # fmt: skip
    except ThreadGone as gone:
        if begun:
            raise _unbegun(entry.thread) from gone
        raise


async def _enter(engine: Engine, run: Run[S], entry: Entry[S], types: Types) -> Run[S]:
    reading = await engine.read(entry.thread)
    if reading.meta.status == "quarantined":
        raise ThreadQuarantined(
            f"thread {entry.thread!r} is quarantined: {reading.meta.reason}",
            thread=entry.thread,
            reason=reading.meta.reason,
        )
    if reading.snapshot is None:
        await _begin(run, entry)
    else:
        await _check_progress(engine, run, reading)
        run.resume(reading.snapshot, reading.meta)
        await _plan(run, engine.effects, reading, types)
    return run


async def _check_progress(engine: Engine, run: Run[Any], reading: Reading) -> None:
    """Quarantine a thread that one driver after the other loses without a commit: it may be what kills them."""
    cap, takeovers = engine.policy.takeover_cap, reading.meta.takeovers
    if not run.lease.takeover or takeovers <= cap or run.done:
        return
    reason = f"taken over {takeovers} times without a commit (takeover_cap {cap}), last from {reading.meta.holder}"
    await engine.quarantine(run.thread, run.lease.token, reason)
    raise ThreadQuarantined(f"thread {run.thread!r} is quarantined: {reason}", thread=run.thread, reason=reason)


async def _begin(run: Run[S], entry: Entry[S]) -> None:
    """Store the first checkpoint, so that what the run does from now on belongs to a thread that exists."""
    if entry.start is None:
        raise _unbegun(entry.thread)
    made = entry.start()
    run.begin(await made if inspect.isawaitable(made) else made)
    await run.commit(next=FIRST_NEXT)


def _unbegun(thread: str) -> CheckpointMissing:
    return CheckpointMissing(
        f"thread {thread!r} has no checkpoint and no start= was given: pass a function that makes the first state",
        thread=thread, checkpoint=None,
    )  # fmt: skip


async def _plan(run: Run[Any], effects: Effects, reading: Reading, types: Types) -> None:
    """Tell where every pending call stands and which effects nobody has resolved."""
    assert reading.snapshot is not None
    opened = {key: OpenEffect.parse(key.encode(), record) for key, record in reading.open_effects.items()}
    run.unresolved = tuple(effect for effect in opened.values() if effect.fence != run.lease.fence)
    calls = read_calls(reading.snapshot.manifest.pending, types)
    settled = await effects.settled(run.thread, [thread_key(call.key) for call in calls]) if calls else {}
    run.pending = tuple(
        _standing(call, opened.get(thread_key(call.key)), settled.get(thread_key(call.key)), types) for call in calls
    )


def _standing(call: Call, opened: OpenEffect | None, settled: SettledEffect | None, types: Types) -> PendingCall:
    if opened is not None:
        return PendingCall(call, "unknown", None, opened.attempt, opened.external_ref)
    if settled is None or settled.state == "retry":
        return PendingCall(call, "waiting", None, settled.attempt if settled else 0)
    return PendingCall(
        call, settled.state, decode(settled.result, types=types) if settled.result else None, settled.attempt
    )


async def _failed(engine: Engine, run: Run[Any]) -> None:
    """Count a failure of the body; the body's own exception is what the caller gets, whatever becomes of this."""
    try:
        await shielded(engine.count_failure(run.thread, run.lease.token))
    except (BlackboardError, TimeoutError) as unknown:
        log.warning("a failure of the run was not counted: %s", unknown, extra={"thread_id": run.thread})
