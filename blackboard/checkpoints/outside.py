"""What a thread refers to outside of it: artifacts that its long values are moved to, or that its contents mention."""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from blackboard import keys
from blackboard.artifacts.owner import Owner
from blackboard.artifacts.ref import SPELLED, ArtifactRef, mentions
from blackboard.artifacts.store import ArtifactStore
from blackboard.checkpoints.channels import Items, Moved, Ref, Value, digest
from blackboard.checkpoints.commit import Commit
from blackboard.checkpoints.sealing import value_place
from blackboard.codec.cipher import Seal, sealed
from blackboard.errors import ArtifactMissing, OutcomeUnknown, StoreRegressed
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.store.script import Script
from blackboard.telemetry import logger

__all__ = ["KIND", "Outside", "ThreadReferrer"]

_HOLD = Script("blackboard.checkpoints", "hold.lua", prelude=("thread.lua",))

KIND = "thread"
"""Kind of the owners that are threads."""

MOST_KNOWN = 10_000
"""Mentions that are remembered as entered; forgetting one costs a round trip."""

_ROUNDS = 5
"""How often an artifact is put that is collected before the thread has referred to it."""

log = logger("checkpoints")


class ThreadReferrer:
    """Answers for threads of every namespace: each keeps the digests that its checkpoints refer to in a key of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def refers(self, owner: Owner, digest: str) -> bool:
        """Tell whether the thread stands and a checkpoint of it refers to the artifact, as of one moment."""
        where = keys.ThreadKeys.of(owner.namespace, owner.id)
        asked = (("HMGET", where.meta, "incarnation", "expires"), ("HEXISTS", where.artifacts, digest))
        (incarnation, expires), known = await self._store.batch(asked)
        gone = incarnation is None or (expires is not None and int(expires) * 1000 <= self._store.server_time())
        return bool(known) and not gone


class Outside:
    """The artifacts that the threads of one namespace refer to.

    The artifact knows of the thread before the thread's commit refers to it, so that no collection between the two
    takes it; the commit itself is one script as ever. A commit that refers to nothing new costs no trip.
    """

    def __init__(
        self, store: Store, artifacts: ArtifactStore, namespace: str, *, policy: CheckpointNamespace, seal: Seal | None
    ) -> None:
        self._store = store
        self.artifacts, self._namespace, self._seal = artifacts, namespace, seal
        self._limit = min(policy.artifact_limit, policy.value_limit) if policy.oversize == "artifact" else sys.maxsize
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def prepared(self, thread: str, commit: Commit, *, whole: bool) -> Commit:
        """Return the commit with its long values moved out, and with the artifacts that it refers to.

        With `whole` nothing counts as stored. Raises as `ArtifactStore.put`; nothing of the commit was sent then.
        """
        mentioned = set[str]().union(*map(mentions, _bodies(commit, whole=whole)))
        long = {n: c.data for n, c in commit.channels.items() if isinstance(c, Value) and len(c.data) > self._limit}
        if not mentioned and not long:
            return commit
        moved = {n: await self._move(thread, n, data, commit.base.get(n), whole=whole) for n, data in long.items()}
        known = {one for one in mentioned if (thread, one) in self._known and not whole}
        fresh = await self.refer(thread, mentioned - known)
        held = [(one.ref.artifact or "", "moved" if one.pointer else "") for one in moved.values()]
        held += [*((one, "") for one in known), *((one, "mentioned") for one in fresh)]
        return replace(commit, channels={**commit.channels, **moved}, artifacts=held)

    def acknowledged(self, thread: str, commit: Commit) -> None:
        """Note that the thread holds what a stored commit mentions, for as long as it stands."""
        for one, kind in commit.artifacts:
            if kind == "mentioned":
                self._known[thread, one] = None
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    async def hold(self, thread: str, data: bytes) -> None:
        """Keep what the bytes mention for as long as the thread stands; for what is stored in it without a commit."""
        found = await self.refer(thread, mentions(data))
        if found:
            where = keys.ThreadKeys.of(self._namespace, thread)
            await self._store.call(_HOLD, [where.meta, where.artifacts], found)

    async def refer(self, thread: str, digests: Iterable[str]) -> list[str]:
        """Enter the thread with each artifact; returns those that are stored. A text may well name one that is not."""

        async def one(digest: str) -> bool:
            try:
                await self.artifacts.refer(_uri(digest), Owner(KIND, self._namespace, thread))
            except ArtifactMissing:
                log.warning("a thread mentions artifact %s, which is not stored", digest, extra={"thread_id": thread})
                return False
            return True

        asked = sorted(digests)
        there = await asyncio.gather(*map(one, asked))
        return [digest for digest, stored in zip(asked, there, strict=True) if stored]

    async def put(self, thread: str, data: bytes) -> ArtifactRef:
        """Store bytes for a thread, which refers to them from then on."""
        for _ in range(_ROUNDS):
            ref = await self.artifacts.put(data)
            if await self.refer(thread, [ref.digest]):
                return ref
        raise OutcomeUnknown(f"an artifact of thread {thread!r} is collected as often as it is put", thread=thread)

    async def fetch(self, thread: str, refs: Iterable[Ref]) -> Mapping[str, bytes]:
        """Read the bytes of values that were moved out, by the digest of their artifact, each once; sealed as they are.

        Raises StoreRegressed for one that is not stored.
        """
        found: dict[str, bytes] = {}
        for one in {ref.artifact for ref in refs} - {None}:
            assert one is not None
            try:
                found[one] = await self.artifacts.read(_uri(one), limit=sys.maxsize)
            except ArtifactMissing as missing:
                raise StoreRegressed(
                    f"the store has lost artifact {one}, which holds a value of thread {thread!r}",
                    thread=thread,
                    lost=one,
                ) from missing
        return found

    async def _move(self, thread: str, channel: str, data: bytes, base: Ref | None, *, whole: bool) -> Moved:
        named = await asyncio.to_thread(self._name, thread, channel, data)
        if base is not None and base.artifact and base.named == named and not whole:
            return Moved(base, b"")
        place = value_place(thread, channel, named)
        ref = await self.put(thread, await asyncio.to_thread(sealed, self._seal, data, *place))
        return Moved.to(named, ref)

    def _name(self, thread: str, channel: str, data: bytes) -> str:
        return digest(data) if self._seal is None else self._seal.digest(data, thread, channel)


def _bodies(commit: Commit, *, whole: bool) -> Iterator[bytes]:
    """Give all that a commit stores and that may mention an artifact; with `whole` what is stored already, too."""
    yield from (commit.cursors, commit.pending, commit.result, commit.extra)
    for channel in commit.channels.values():
        if isinstance(channel, Value):
            yield channel.data
        elif isinstance(channel, Items):
            yield from channel.whole() if whole else channel.new


def _uri(digest: str) -> str:
    return f"{SPELLED}{digest}"
