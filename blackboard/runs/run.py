"""A run: one driver, one thread, from where it stands to where it is finished."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, overload

from pydantic import BaseModel

from blackboard import keys
from blackboard.checkpoints.commit import Commit, Committed, Status
from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.manifest import Meta
from blackboard.checkpoints.prune import Pruner
from blackboard.checkpoints.reading import Snapshot
from blackboard.checkpoints.state import Draft, StateChannels
from blackboard.claims.effect import OpenEffect, Settlement
from blackboard.claims.lease import Lease
from blackboard.codec import Types, decode, encode
from blackboard.errors import AlreadyFinished, BlackboardError, ConfigError, OutcomeUnknown, UncommittedChanges
from blackboard.points import reach
from blackboard.runs.call import Call, PendingCall, Semantics, check_calls, spell_calls
from blackboard.runs.declared import Declared
from blackboard.runs.effect import Asked, RunEffect
from blackboard.runs.inbox import Inbox
from blackboard.runs.view import cursors
from blackboard.runs.waiting import Waiting
from blackboard.telemetry import logger, span

__all__ = ["Call", "PendingCall", "Run"]

S = TypeVar("S", bound=BaseModel)
T = TypeVar("T")
C = TypeVar("C")

log = logger("runs")

PRUNE_EVERY = 16
"""Fewest commits between two prunes of a run whose namespace keeps only the last checkpoints."""

Scope = Literal["step", "thread"]
Record = Literal["now", "commit"]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ends: `ttl` in seconds, None keeps the thread."""

    status: Status
    result: bytes
    ttl: float | None
    drop_unread: bool


class Run(Generic[S]):
    """One drive of a thread under its lease, by one task; made by `Blackboard.run`.

    `state` is yours to change; nothing is stored before `commit` or `finish`. `next` says what the newest checkpoint
    wants done, `step` is its number, `cursors` are positions in the outside world that are stored with it, `pending` are
    its calls and where each stands, `unresolved` the effects whose outcome nobody knows. `done` says that the thread is
    closed (`status` says whether it finished or failed), then `result` is what it was finished with.
    """

    def __init__(self, engine: Engine, lease: Lease, channels: StateChannels[S], types: Types) -> None:
        self.thread, self.namespace = lease.token.thread, lease.token.namespace
        self.state: S
        self.step = -1
        self.next: str | None = None
        self.cursors: dict[str, Any] = {}
        self.pending: tuple[PendingCall, ...] = ()
        self.unresolved: tuple[OpenEffect, ...] = ()
        self.status = "new"
        self.result: Any = None
        self.lease = lease
        self._engine, self._channels, self._types = engine, channels, types
        self._effects = engine.effects
        self._checkpoint: str | None = None
        self._sequence = 0
        self._refs: Mapping[str, Any] = {}
        self._clean_cursors = b""
        self._used: set[str] = set()
        self._settlements: dict[str, Settlement] = {}
        self._inbox = Inbox(engine)
        self._waiting = Waiting(self._inbox, self.thread, self._park, engine.store.server_time)
        self._busy = False
        self._unknown = False
        self._parked = False

    def __repr__(self) -> str:
        return f"<Run {self.thread!r} step={self.step} next={self.next!r} status={self.status}>"

    @property
    def done(self) -> bool:
        """True once the thread is finished or has failed for good."""
        return self.status in ("finished", "failed")

    @property
    def checkpoint(self) -> str | None:
        """Id of the newest checkpoint, None before the first."""
        return self._checkpoint

    @overload
    def effect(
        self,
        key: str | Call,
        result: type[T],
        *,
        semantics: Semantics | None = ...,
        scope: Scope = ...,
        fingerprint: Any = ...,
        record: Record = ...,
    ) -> RunEffect[T]: ...

    @overload
    def effect(
        self,
        key: str | Call,
        result: Any = ...,
        *,
        semantics: Semantics | None = ...,
        scope: Scope = ...,
        fingerprint: Any = ...,
        record: Record = ...,
    ) -> RunEffect[Any]: ...

    def effect(
        self,
        key: str | Call,
        result: Any = None,
        *,
        semantics: Semantics | None = None,
        scope: Scope = "step",
        fingerprint: Any = None,
        record: Record = "now",
    ) -> RunEffect[Any]:
        """Name an effect of this run; nothing is sent before it is called or entered.

        `key` is unique in its scope: this step, or with `scope="thread"` the whole thread; a key used twice raises
        ConfigError. A pending Call is its own key, semantics and scope. `result` is the type of what it returns.
        `semantics` has no default: "at-least-once" runs again after a takeover, under the same downstream key;
        "at-most-once" never does, and answers EffectUnknown instead. `fingerprint` replaces the arguments as what must
        be equal when the effect is asked for again. `record="commit"` settles it inside the next commit.
        """
        if isinstance(key, Call):
            return self.effect(
                key.key, result, semantics=key.semantics, scope="thread", fingerprint=fingerprint, record=record
            )
        name = self._scoped(key, scope, semantics)
        if record not in ("now", "commit"):
            raise ConfigError(f"record must be 'now' or 'commit', got {record!r}", value=record)
        limit = self._engine.policy.value_limit
        asked = Asked(name, result, semantics or "at-least-once", fingerprint, record, limit)
        effect = RunEffect[Any](self, self._effects, asked)
        self._used.add(name)
        return effect

    async def commit(self, *, next: str | None = None, pending: Iterable[Call] = ()) -> None:
        """Store the state as the next checkpoint, with what to do next and the calls intended for it: one round trip.

        Without `next` the checkpoint names nothing to do: `run.next` is None from then on. All or nothing, durable when it
        returns (as far as the namespace's durability was proven). Raises LeaseLost, ThreadGone, CheckpointConflict,
        StoreRegressed, EncodeError: nothing was written. After OutcomeUnknown or a cancellation it may have been: leave the
        run and enter it again.
        """
        await self._store(next, pending)

    async def finish(self, result: Any = None, *, drop_unread: bool = False) -> None:
        """Store the state and the result, and close the thread: it expires after the namespace's ttl.

        Raises UnresolvedEffects while an effect is running or unknown, UnreadSignals while the inbox holds letters,
        unless they are to be dropped; otherwise as `commit`. If it raises after the thread was closed, the thread is
        finished all the same.
        """
        ending = Ending("finished", encode(result, path="result"), self._engine.policy.ttl, drop_unread)
        await self._store(None, (), ending)
        self.result = result

    async def fail(self, reason: str, *, drop_unread: bool = False) -> None:
        """Store the state and close the thread as failed; it is kept unless the namespace sets `failed_ttl`."""
        ending = Ending("failed", encode(reason, path="reason"), self._engine.policy.failed_ttl, drop_unread)
        await self._store(None, (), ending)
        self.result = reason

    @overload
    async def wait(self, name: str, value: type[T], *, within: Any = ...) -> T: ...

    @overload
    async def wait(self, name: str, value: Any = ..., *, within: Any = ...) -> Any: ...

    async def wait(self, name: str, value: Any = None, *, within: Any = None) -> Any:
        """Return the answer to `name` if it is there; otherwise commit, park the run and raise Parked.

        A parked run has no worker, no lease and no TTL. Entered again it comes to the same step and the same wait, which
        returns the answer that came first, with no second one accepted. Wait first in its step: what the step did to
        the state before is committed with the parking, and would be done again. After `within` (a duration, or a moment)
        entering again raises TimeoutError. `value` is the type of the answer; one of another type raises CorruptValue and
        stands: `wait` without a type returns it, the next commit takes it, and a further `wait` asks for another one.
        """
        self.check()
        declared = Declared(value, f"the answer to signal {name!r}")
        return await self._waiting.signal(name, declared, self.types_of(value), within)

    async def sleep(self, until: Any) -> None:
        """Return if the time has come; otherwise commit, park the run until then and raise Parked.

        `until` is a datetime with a zone, a timedelta, seconds or text like `5m`, counted from the first time.
        """
        self.check()
        await self._waiting.sleep(until)

    async def notes(self) -> list[Any]:
        """Return what others noted since the last commit that took notes, in order; the next commit takes these."""
        self.check()
        return await self._waiting.notes(self._types)

    def settle(self, settlement: Settlement) -> None:
        """Let the next commit settle an effect, exactly once with the state."""
        self._settlements[settlement.key] = settlement

    def check(self) -> None:
        """Raise LeaseLost if this driver may not go on, by its own clock; asks nobody."""
        self.lease.check()

    def begin(self, state: S) -> None:
        """Take the state of a thread that has nothing stored yet."""
        self.state = state

    def types_of(self, declared: Any) -> Types:
        """Return the classes that a value of this type may hold: those that it names, and those of the run."""
        return self._types if declared is None else Types.of(declared).joined(self._types)

    async def hold(self, data: bytes) -> None:
        """Keep the artifacts that bytes mention which the thread stores without a commit."""
        await self._engine.outside.hold(self.thread, data)

    def resume(self, snapshot: Snapshot, meta: Meta) -> None:
        """Stand where a checkpoint says."""
        manifest = snapshot.manifest
        self.state = self._channels.load(manifest.refs, snapshot.contents)
        self.step, self.next = manifest.step, manifest.next
        self.status = "running" if meta.status == "parked" else meta.status
        self._waiting.stand(meta.awaits, meta.wake)
        self.cursors = cursors(manifest, self._types)
        self._clean_cursors = manifest.cursors
        self._checkpoint, self._sequence, self._refs = manifest.checkpoint, meta.sequence, manifest.refs
        if self.done and manifest.result:
            self.result = decode(manifest.result, types=self._types)

    def leave(self) -> None:
        """Raise UncommittedChanges if a clean exit would drop something."""
        over = self.done or self._parked
        if over and not self.lease.given_back:
            return  # it was closed before it was entered: nothing could be stored
        changed = [
            name
            for name, dirty in (("state", self._channels.changed(self.state)), ("cursors", self._cursors_changed()))
            if dirty
        ]
        if changed or self._settlements:
            what = " and ".join(changed or ["settled effects"])
            mend = "nothing is stored any more: change it before" if over else "commit or finish before leaving"
            raise UncommittedChanges(
                f"run {self.thread!r} was left with {what} changed since step {self.step}; {mend}",
                thread=self.thread, changed=tuple(changed),
            )  # fmt: skip

    async def _store(self, following: str | None, intended: Iterable[Call], ending: Ending | None = None) -> None:
        self._may_commit()
        pending = check_calls(intended)
        draft = self._channels.draft(self.state)
        if following is not None and not isinstance(following, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"next must be text that names what to do, or None, not {following!r}", value=following)
        commit = self._commit(draft, self.step + 1, following, spell_calls(pending))
        commit.settlements = tuple(self._settlements.values())
        commit.letters = tuple(self._waiting.taken.values())
        if ending is not None:
            commit.status, commit.result, commit.ttl = ending.status, ending.result, ending.ttl
            commit.drop_unread = ending.drop_unread
        reach("commit", "before")
        committed = await self._send(commit)
        reach("commit", "after")
        self._note(draft, commit, committed)
        self.pending = tuple(PendingCall(call, "waiting") for call in pending)
        self._used.clear()
        for settlement in commit.settlements:
            self._settlements.pop(settlement.key, None)
        self._waiting.committed(commit.letters)
        await self._prune()

    async def _prune(self) -> None:
        """Keep the history as short as the namespace wants it, now and then; what is left goes the next time.

        The commit stands whatever becomes of this, so a failure is only noted.
        """
        keep_last = self._engine.policy.keep_last
        if keep_last is None or self._sequence % max(keep_last, PRUNE_EVERY):
            return
        try:
            await Pruner(self._engine.store, self.namespace).prune(self.thread, keep_last=keep_last)
        except BlackboardError as failed:
            log.warning("a run was not pruned: %s", failed, extra={"thread_id": self.thread})

    async def _park(self, awaits: str, wake: int | None) -> bool:
        """Commit the same step again, parked; False if what it awaits came meanwhile."""
        self._may_commit()
        draft = self._channels.draft(self.state)
        commit = self._commit(draft, self.step, self.next, spell_calls(tuple(one.call for one in self.pending)))
        commit.status, commit.awaits, commit.wake = "parked", awaits, wake
        committed = await self._guarded(
            commit, self._engine.park(self.thread, commit, token=self.lease.token, sequence=self._sequence)
        )
        if committed is None:
            return False
        self._note(draft, commit, committed)
        self.lease.given_back = self._parked = True
        await self._inbox.parked(self.thread, awaits, wake, committed.time)
        return True

    def _commit(self, draft: Draft, step: int, following: str | None, pending: bytes) -> Commit:
        return Commit(
            step, draft.channels, self._refs, self._checkpoint, next=following, cursors=self._positions(), pending=pending
        )  # fmt: skip

    def _note(self, draft: Draft, commit: Commit, committed: Committed) -> None:
        self.lease.opened(committed.incarnation)
        self._channels.acknowledge(draft, committed.refs)
        self.step, self.next, self.status = commit.step, commit.next, commit.status
        self._checkpoint, self._sequence, self._refs = committed.checkpoint, committed.sequence, committed.refs
        self._clean_cursors = commit.cursors

    def _may_commit(self) -> None:
        if self.done:
            raise AlreadyFinished(f"thread {self.thread!r} is {self.status}", thread=self.thread, status=self.status)
        self.lease.check()
        if self._busy:
            raise ConfigError(f"run {self.thread!r} is committing already; one task drives a run", thread=self.thread)
        if self._unknown:
            raise OutcomeUnknown(
                f"whether the last commit of run {self.thread!r} was stored is unknown; leave the run and enter it again",
                thread=self.thread,
            )

    async def _send(self, commit: Commit) -> Committed:
        def stored() -> None:
            self.lease.given_back = commit.status != "running"

        token, sequence = self.lease.token, self._sequence
        with span("commit", thread=self.thread, step=commit.step):
            return await self._guarded(
                commit, self._engine.commit(self.thread, commit, token=token, sequence=sequence, stored=stored)
            )

    async def _guarded(self, commit: Commit, work: Awaitable[C]) -> C:
        self._busy = True
        self.lease.parting = commit.status != "running"
        try:
            return await work
        except (OutcomeUnknown, asyncio.CancelledError):
            self._unknown = True
            raise
        finally:
            self._busy = self.lease.parting = False

    def _cursors_changed(self) -> bool:
        return self._positions() != self._clean_cursors

    def _positions(self) -> bytes:
        if not isinstance(self.cursors, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - anything can be assigned
            raise ConfigError(
                f"run.cursors must be a dict of positions by name, not {self.cursors!r}", value=self.cursors
            )
        return encode(self.cursors, path="cursors") if self.cursors else b""

    def _scoped(self, key: str, scope: str, semantics: str | None) -> str:
        keys.check_id(key, "effect key")
        if semantics not in ("at-least-once", "at-most-once"):
            raise ConfigError(
                f"effect {key!r} needs semantics='at-least-once' or 'at-most-once', got {semantics!r}", value=semantics
            )
        if scope not in ("step", "thread"):
            raise ConfigError(f"scope must be 'step' or 'thread', got {scope!r}", value=scope)
        name = thread_key(key) if scope == "thread" else f"{self.step}/{key}"
        if name in self._used:
            raise ConfigError(f"effect {key!r} was used in this {scope} already; a key names one effect", value=key)
        return name


def thread_key(key: str) -> str:
    """Spell the key of an effect in the scope of its thread."""
    return f"*/{key}"
