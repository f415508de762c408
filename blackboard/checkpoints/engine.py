"""The engine: a thread is stored as checkpoints over channels, and one script writes each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from blackboard import keys
from blackboard.artifacts.store import ArtifactStore
from blackboard.checkpoints.channels import Ref
from blackboard.checkpoints.commit import Arguments, Commit, Committed, Place, shown
from blackboard.checkpoints.manifest import Manifest, Meta, parse
from blackboard.checkpoints.outside import Outside
from blackboard.checkpoints.reading import Reader, Reading, Snapshot
from blackboard.checkpoints.refusal import Asked, refusal, still_standing
from blackboard.checkpoints.retention import RESERVE_MS, Retention
from blackboard.claims import registry
from blackboard.claims.effect import Effects
from blackboard.claims.lease import Token
from blackboard.codec.cipher import Seal, sealed
from blackboard.codec.limit import within
from blackboard.errors import BlackboardError, OutcomeUnknown, StoreRegressed, ThreadGone
from blackboard.quantities import whole
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.store.script import Script

__all__ = ["Engine", "Write"]

_COMMIT = Script("blackboard.checkpoints", "commit.lua", prelude=("thread.lua",))
_WRITES = Script("blackboard.checkpoints", "writes.lua", prelude=("thread.lua",))
_FAILURE = Script("blackboard.checkpoints", "failure.lua", prelude=("thread.lua",))
_QUARANTINE = Script("blackboard.checkpoints", "quarantine.lua", prelude=("thread.lua",))

_ROUNDS = 8
"""How often a commit answers MISSING, SEQUENCE or REMOVING before it gives up; each has a cause that goes away."""


MOST_ENTERED = 10_000
"""How many threads an engine remembers as listed; forgetting one costs a round trip."""


@dataclass(frozen=True, slots=True)
class Write:
    """One pending write: stored if (task, index) is free, or over what is there if `overwrite`."""

    task: str
    index: int
    data: bytes
    overwrite: bool = False

    @property
    def field(self) -> str:
        """Spell where it stands in its checkpoint's hash."""
        return f"{keys.encode(self.task, 'task')}:{self.index}"


class Engine:
    """The checkpoints of one namespace.

    A commit is one script and one round trip: it checks that the thread is alive and ours, that its newest
    checkpoint is the expected parent and that all it refers to is stored; only then it writes, and `latest` last. A
    repeated call (a lost reply) is recognised by its op id and answered as before. What it cannot do is write over
    several threads at once: each stands in its own slot.
    """

    def __init__(
        self, store: Store, namespace: str, policy: CheckpointNamespace, artifacts: ArtifactStore | None = None
    ) -> None:
        self.store, self.namespace, self.policy = store, namespace, policy
        self.seal = Seal.of(namespace, policy.encryption)
        self.outside = Outside(store, artifacts or ArtifactStore(store), namespace, policy=policy, seal=self.seal)
        self.effects = Effects(store, namespace, self.seal, self.judge)
        self.retention = Retention(store, namespace)
        self.reader = Reader(store, namespace, seal=self.seal, outside=self.outside)
        self._entered: dict[str, str] = {}
        self._keep_ms = max(1000, int(2000 * store.retry_deadline))
        self._idle_ms = "" if policy.idle_ttl is None else str(max(1, int(policy.idle_ttl * 1000)))

    async def commit(
        self,
        thread: str,
        commit: Commit,
        *,
        token: Token | None = None,
        sequence: int = 0,
        stored: Callable[[], None] | None = None,
    ) -> Committed:
        """Store the next checkpoint of a driven thread; its id is the thread's sequence after `sequence`.

        Raises LeaseLost, CheckpointConflict, ThreadGone, AlreadyFinished, UnresolvedEffects, StoreRegressed, or
        LeaseHeld without a token while somebody drives the thread: nothing was written then. OutcomeUnknown says that
        it may have been: read before going on. A status that ends the thread returns when every key has its expiry;
        `stored` is called before that, as soon as the checkpoint is acknowledged.
        """
        committed = await self._drive(thread, commit, token, sequence)
        assert committed is not None, "only a commit that parks gives way"
        if stored is not None:
            stored()
        return await self._ended(thread, commit, committed)

    async def park(self, thread: str, commit: Commit, *, token: Token, sequence: int) -> Committed | None:
        """Store a checkpoint that parks the thread and gives its lease back, all at once; raises as `commit` does.

        None, and nothing is written, if the signal that it awaits came meanwhile.
        """
        return await self._drive(thread, commit, token, sequence)

    async def _drive(self, thread: str, commit: Commit, token: Token | None, sequence: int) -> Committed | None:
        await self._enter(thread, token, first=commit.parent is None)
        op = self.store.op_id()
        for _ in range(2):
            name = keys.sequence_id(sequence + 1)
            place = Place(self.namespace, thread, name, op, token=token, sequence=sequence + 1)
            answer = await self._send(place, commit)
            if not isinstance(answer, int):
                return answer
            sequence = answer
        raise OutcomeUnknown(f"thread {thread!r} is written by others without a lease", thread=thread)

    async def put(
        self, thread: str, checkpoint: str, commit: Commit, *, lineage: str = "", token: Token | None = None
    ) -> Committed:
        """Store a checkpoint under an id of the caller's (adapter mode).

        The parent need not be the newest or stored at all; the same id again replaces; the newest is the largest id
        in byte order, as it is spelled in its key. While a lease is live a call without its token is refused with LeaseHeld; one that meets a
        lapsed lease raises the fence, so that the late holder is refused.
        """
        await self._enter(thread, token, first=commit.parent is None)
        place = Place(
            self.namespace, thread, keys.check_id(checkpoint, "checkpoint id"), self.store.op_id(), lineage, token
        )
        answer = await self._send(place, commit)
        if not isinstance(answer, Committed):
            raise StoreRegressed(f"thread {thread!r} answered out of turn", thread=thread)
        return await self._ended(thread, commit, answer)

    async def put_writes(
        self,
        thread: str,
        checkpoint: str,
        writes: Sequence[Write],
        *,
        lineage: str = "",
        token: Token | None = None,
        interrupts: bool = False,
    ) -> int:
        """Store pending writes against a checkpoint, also before it arrives; returns how many were new.

        Each (task, index) is kept once; a repetition changes nothing. After a delete they are refused: ThreadGone. One that
        `interrupts` says that somebody is waited for: until the root's next checkpoint the thread does not expire for being idle.
        Raises EncodeError for one over the namespace's `value_limit`, unless its checkpoint moves such values out.
        """
        for write in writes if self.policy.oversize == "refuse" else ():
            what = f"write {write.index} of task {write.task!r}"
            within(self.policy.value_limit, write.data, what, path=write.field)
        await self._enter(thread, token)
        where = keys.ThreadKeys.of(self.namespace, thread)
        own = where.writes(checkpoint, lineage)
        await self.outside.hold(thread, b"\n".join([write.data for write in writes]))
        names = [where.meta, where.lock, where.latest(lineage), where.checkpoint(checkpoint, lineage), own, where.parts]
        fence, incarnation = shown(token)
        interrupted = keys.encode(checkpoint, "checkpoint id") if interrupts else ""
        args: list[bytes | str | int] = [fence, incarnation, self._idle_ms, interrupted, RESERVE_MS]
        args.append(own[len(where.prefix) + 1 :])
        for write in writes:
            data = sealed(self.seal, write.data, "write", thread, lineage, checkpoint, write.field)
            args += [write.field, data, int(write.overwrite)]
        for _ in range(_ROUNDS):
            reply = await self.store.call(_WRITES, names, args)
            if reply[0] == b"OK":
                self._entered.setdefault(thread, "")
                return int(reply[1])
            if reply[0] != b"REMOVING":
                raise await self._refusal(self._asked(thread, token), reply)
            await self._make_room(thread, reply[1].decode())
        raise still_standing(thread)

    async def read(self, thread: str, checkpoint: str | None = None, *, lineage: str = "") -> Reading:
        """Read the thread's meta and a checkpoint (the newest, or the one named), as they stood at one moment.

        Raises CheckpointMissing for an id that is not stored, StoreRegressed where what was acknowledged is not there.
        """
        return await self.reader.read(thread, checkpoint, lineage)

    async def latest(self, thread: str, *, lineage: str = "") -> Snapshot | None:
        """Read the newest checkpoint with all that it refers to, in one round trip (two with long logs).

        None only if the server said that there is none.
        """
        return (await self.read(thread, lineage=lineage)).snapshot

    async def at(self, thread: str, checkpoint: str, *, lineage: str = "") -> Snapshot | None:
        """Read one checkpoint by id; None if the thread is not there, CheckpointMissing if only the checkpoint is not."""
        return (await self.read(thread, checkpoint, lineage=lineage)).snapshot

    async def history(
        self, thread: str, *, lineage: str = "", limit: int = 50, before: str | None = None
    ) -> list[Manifest]:
        """List at most `limit` manifests, newest first, older than the id `before` (which need not exist).

        Reads as many manifests and no contents: one round trip.
        """
        return await self.reader.history(thread, lineage, whole(limit, what="limit"), before)

    async def contents(self, thread: str, manifests: Sequence[Manifest], *, lineage: str = "") -> list[Snapshot]:
        """Read the contents of listed checkpoints and the writes pending on them, each stored item once: one round trip."""
        return await self.reader.contents(thread, lineage, manifests)

    async def lineages(self, thread: str) -> list[str]:
        """List the thread's lineages; the root, which every thread has, is the empty one."""
        parts = await self.store.command("SMEMBERS", keys.ThreadKeys.of(self.namespace, thread).parts)
        return ["", *sorted(keys.decode(part[1:].decode()) for part in parts if part.startswith(b"@"))]

    async def meta(self, thread: str) -> Meta:
        """Read what is true of the whole thread; status `none` if nothing is stored."""
        where = keys.ThreadKeys.of(self.namespace, thread)
        return Meta.of(await self.store.command("HGETALL", where.meta))

    async def count_failure(self, thread: str, token: Token) -> None:
        """Count that the driver's body failed; a hint for people, so a repetition after a lost reply may count twice."""
        where = keys.ThreadKeys.of(self.namespace, thread)
        await self.store.call(_FAILURE, [where.meta], [token.fence, token.incarnation or ""])

    async def quarantine(self, thread: str, token: Token, reason: str) -> None:
        """Let nobody drive the thread, nor write to it, until a person has looked; raises as `commit` does."""
        await self._set_aside(thread, token, reason)

    async def readmit(self, thread: str) -> None:
        """Let a quarantined thread be driven again; its takeovers are counted anew."""
        await self._set_aside(thread, None, "")

    async def _set_aside(self, thread: str, token: Token | None, reason: str) -> None:
        where = keys.ThreadKeys.of(self.namespace, thread)
        reply = await self.store.call(
            _QUARANTINE, [where.meta, where.lock, where.latest()], [*shown(token), reason]
        )  # fmt: skip
        if reply[0] != b"OK":
            raise await self._refusal(self._asked(thread, token), reply)

    async def _send(self, place: Place, commit: Commit) -> Committed | int | None:
        """Send a commit until it is answered; an int is the thread's sequence, which `place` was wrong about.

        None: the signal that it was to park for is there.
        """
        whole = False
        given = commit
        for _ in range(_ROUNDS):
            commit = await self.outside.prepared(place.thread, given, whole=whole)
            spelled = Arguments(place, whole=whole, seal=self.seal)
            spelled.add(commit, self.policy)
            args = spelled.args(commit, self._keep_ms, self._idle_ms)
            reply = await self.store.call(_COMMIT, spelled.keys(commit), args)
            match reply[0]:
                case b"OK":
                    committed = _committed(place, commit, spelled.chosen(reply[4]), reply)
                    self.outside.acknowledged(place.thread, commit)
                    await self._known(place.thread, committed, reused=reply[6] == 1)
                    return committed
                case b"DUP":
                    committed = _committed(place, commit, parse(place.checkpoint, reply[4]).refs, reply)
                    await self._known(place.thread, committed, reused=True)
                    return replace(committed, repeated=True)
                case b"MISSING" if not whole:
                    whole = True
                case b"SIGNALLED":
                    return None
                case b"SEQUENCE":
                    return int(reply[1])
                case b"REMOVING":
                    await self._make_room(place.thread, reply[1].decode())
                case _:
                    # A parent under an id of the caller's own need not have been stored: its absence tells nothing.
                    parent = None if place.sequence is None else commit.parent
                    raise await self._refusal(self._asked(place.thread, place.token, parent), reply)
        raise still_standing(place.thread)

    async def _enter(self, thread: str, token: Token | None, *, first: bool = False) -> None:
        """Enter a thread into the namespace's list before its first write from here; a lease has done it already."""
        if token is None and (first or thread not in self._entered):
            await registry.enter(self.store, self.namespace, thread)

    async def _make_room(self, thread: str, incarnation: str) -> None:
        """Remove what is left of the thread that had this id, and its row in the list; ours is entered again."""
        await self.retention.remove(thread, incarnation)
        await registry.enter(self.store, self.namespace, thread)

    async def _known(self, thread: str, committed: Committed, *, reused: bool) -> None:
        """Remember that a thread is listed; a reused id is entered anew, for whoever removes the old one drops its row."""
        known = self._entered.get(thread)
        if known == committed.incarnation and not reused:
            return
        if committed.expires is not None:
            await self.retention.due(thread, committed.expires)
        elif known is not None or reused:
            await registry.enter(self.store, self.namespace, thread)
        elif len(self._entered) >= MOST_ENTERED:
            self._entered.clear()
        self._entered[thread] = committed.incarnation

    async def _ended(self, thread: str, commit: Commit, committed: Committed) -> Committed:
        if commit.status in ("finished", "failed") and committed.expires is not None:
            await self.retention.expire(thread, committed.incarnation, committed.expires)
        return committed

    def _asked(self, thread: str, token: Token | None, parent: str | None = None) -> Asked:
        return Asked(self.namespace, thread, parent, None if token is None else token.fence)

    async def _refusal(self, asked: Asked, reply: Sequence[Any]) -> BlackboardError:
        error = refusal(asked, reply)
        if asked.fence is not None and isinstance(error, ThreadGone):
            return await self.judge(error)
        return error

    async def judge(self, gone: ThreadGone) -> BlackboardError:
        """Return the error, or StoreRegressed if the thread neither expired nor was deleted: the store has lost it."""
        return await self._missing(gone) if gone.ids.get("why") == "missing" else gone

    async def _remembers(self) -> bool:
        """Tell whether every primary still has its epoch, which nothing but the loss of its data takes away."""
        primaries = await self.store.primaries()
        return all([await primary.command("EXISTS", primary.key(keys.EPOCH)) for primary in primaries])

    async def _missing(self, gone: ThreadGone) -> BlackboardError:
        """Tell a thread that expired from one that the store lost: its row in the thread list and the epoch know."""
        thread = gone.ids["thread"]
        row = await self.store.command("ZSCORE", keys.threads(self.namespace, keys.shard(thread)), thread)
        if row is not None and 0 < float(row) <= self.store.server_time() // 1000:
            return gone
        if row is None and await self._remembers():
            return gone
        return StoreRegressed(
            f"the store has lost thread {thread!r}, which was written and never deleted",
            namespace=self.namespace, thread=thread, lost="meta",
        )  # fmt: skip


def _committed(place: Place, commit: Commit, refs: Mapping[str, Ref], reply: Sequence[Any]) -> Committed:
    return Committed(
        place.checkpoint, commit.step, int(reply[1]), reply[2].decode(), int(reply[3]), place.sequence or 0,
        int(reply[5]) if reply[5] else None, refs,
    )  # fmt: skip
