"""A run: one driver, one thread, from where it stands to where it is finished."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Generic, Literal, TypeVar, overload

from pydantic import BaseModel

from blackboard.checkpoints.commit import Commit, Committed, Status
from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.reading import Snapshot
from blackboard.checkpoints.state import StateChannels
from blackboard.claims.effect import Effects, OpenEffect, Settlement
from blackboard.claims.lease import Lease
from blackboard.codec import Types, decode, encode
from blackboard.errors import AlreadyFinished, ConfigError, OutcomeUnknown, UncommittedChanges
from blackboard.points import reach
from blackboard.runs.call import Call, PendingCall, Semantics, spell_calls
from blackboard.runs.effect import Asked, RunEffect
from blackboard.runs.view import cursors
from blackboard.telemetry import span

__all__ = ["Call", "PendingCall", "Run"]

S = TypeVar("S", bound=BaseModel)
T = TypeVar("T")

Scope = Literal["step", "thread"]
Record = Literal["now", "commit"]


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
        self._effects = Effects(engine.store, engine.namespace)
        self._checkpoint: str | None = None
        self._sequence = 0
        self._refs: Mapping[str, Any] = {}
        self._clean_cursors = b""
        self._used: set[str] = set()
        self._settlements: dict[str, Settlement] = {}
        self._busy = False
        self._unknown = False

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
        self._used.add(name)
        return RunEffect(self, self._effects, Asked(name, result, semantics or "at-least-once", fingerprint, record))

    async def commit(self, *, next: str | None = None, pending: Iterable[Call] = ()) -> None:
        """Store the state as the next checkpoint, with what to do next and the calls intended for it: one round trip.

        All or nothing, durable when it returns (as far as the namespace's durability was proven). Raises LeaseLost,
        ThreadGone, CheckpointConflict, StoreRegressed, EncodeError: nothing was written. After OutcomeUnknown or a
        cancellation it may have been: leave the run and enter it again.
        """
        await self._store("running", next, tuple(pending))

    async def finish(self, result: Any = None) -> None:
        """Store the state and the result, and close the thread: it expires after the namespace's ttl.

        Raises UnresolvedEffects while an effect is running or unknown; otherwise as `commit`. If it raises
        after the thread was closed, the thread is finished all the same.
        """
        await self._store("finished", None, (), encode(result, path="result"), self._engine.policy.ttl)
        self.result = result

    async def fail(self, reason: str) -> None:
        """Store the state and close the thread as failed; it is kept unless the namespace sets `failed_ttl`."""
        await self._store("failed", None, (), encode(reason, path="reason"), self._engine.policy.failed_ttl)
        self.result = reason

    def settle(self, settlement: Settlement) -> None:
        """Let the next commit settle an effect, exactly once with the state."""
        self._settlements[settlement.key] = settlement

    def check(self) -> None:
        """Raise LeaseLost if this driver may not go on, by its own clock; asks nobody."""
        self.lease.check()

    def begin(self, state: S) -> None:
        """Take the state of a thread that has nothing stored yet."""
        self.state = state

    def resume(self, snapshot: Snapshot, status: str, sequence: int) -> None:
        """Stand where a checkpoint says."""
        manifest = snapshot.manifest
        self.state = self._channels.load(manifest.refs, snapshot.contents)
        self.step, self.next, self.status = manifest.step, manifest.next, status
        self.cursors = cursors(manifest, self._types)
        self._clean_cursors = encode(self.cursors, path="cursors")
        self._checkpoint, self._sequence, self._refs = manifest.checkpoint, sequence, manifest.refs
        if self.done and manifest.result:
            self.result = decode(manifest.result, types=self._types)

    def leave(self) -> None:
        """Raise UncommittedChanges if a clean exit would drop something."""
        if self.done:
            return
        changed = [
            name
            for name, dirty in (("state", self._channels.changed(self.state)), ("cursors", self._cursors_changed()))
            if dirty
        ]
        if changed or self._settlements:
            what = " and ".join(changed or ["settled effects"])
            raise UncommittedChanges(
                f"run {self.thread!r} was left with {what} changed since step {self.step}; commit or finish before leaving",
                thread=self.thread, changed=tuple(changed),
            )  # fmt: skip

    async def _store(
        self,
        status: Status,
        following: str | None,
        pending: tuple[Call, ...],
        result: bytes = b"",
        ttl: float | None = None,
    ) -> None:
        self._may_commit()
        draft = self._channels.draft(self.state)
        positions = encode(self.cursors, path="cursors")
        settlements = dict(self._settlements)
        commit = Commit(
            self.step + 1, draft.channels, self._refs, self._checkpoint, following,
            positions if self.cursors else b"", spell_calls(pending), result,
            settlements=tuple(settlements.values()), status=status, ttl=ttl,
        )  # fmt: skip
        reach("commit", "before")
        committed = await self._send(commit)
        reach("commit", "after")
        self.lease.opened(committed.incarnation)
        self._channels.acknowledge(draft, committed.refs)
        self.step, self.next, self.status = commit.step, following, status
        self._checkpoint, self._sequence, self._refs = committed.checkpoint, committed.sequence, committed.refs
        self._clean_cursors = positions
        self.pending = tuple(PendingCall(call, "waiting") for call in pending)
        self._used.clear()
        for key in settlements:
            self._settlements.pop(key, None)

    def _may_commit(self) -> None:
        self.lease.check()
        if self.done:
            raise AlreadyFinished(f"thread {self.thread!r} is {self.status}", thread=self.thread, status=self.status)
        if self._busy:
            raise ConfigError(f"run {self.thread!r} is committing already; one task drives a run", thread=self.thread)
        if self._unknown:
            raise OutcomeUnknown(
                f"whether the last commit of run {self.thread!r} was stored is unknown; leave the run and enter it again",
                thread=self.thread,
            )

    async def _send(self, commit: Commit) -> Committed:
        self._busy = True
        try:
            with span("commit", thread=self.thread, step=commit.step):
                return await self._engine.commit(self.thread, commit, token=self.lease.token, sequence=self._sequence)
        except (OutcomeUnknown, asyncio.CancelledError):
            self._unknown = True
            raise
        finally:
            self._busy = False

    def _cursors_changed(self) -> bool:
        return encode(self.cursors, path="cursors") != (self._clean_cursors or encode({}, path="cursors"))

    def _scoped(self, key: str, scope: str, semantics: str | None) -> str:
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
