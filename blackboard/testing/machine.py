"""Hypothesis drives a thread through any order of events, and the store must agree with the model after each.

```python
run_state_machine_as_test(lambda: ThreadMachine(url), settings=settings(max_examples=80, deadline=None))
```
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Coroutine, Sequence
from typing import Any, Literal, TypeVar, cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from blackboard import keys
from blackboard.checkpoints.commit import Commit, Committed
from blackboard.checkpoints.engine import Engine, Write
from blackboard.checkpoints.reading import Snapshot
from blackboard.checkpoints.retention import Retention
from blackboard.claims.lease import Lease, Leases, Token
from blackboard.errors import (
    BlackboardError,
    CheckpointConflict,
    LeaseHeld,
    LeaseLost,
    StoreRegressed,
    ThreadGone,
)
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.contracts.thread import all_keys
from blackboard.testing.interference import Interference
from blackboard.testing.model import CLOSED, Contents, Lineage, Model, Stored, changed, channel

__all__ = ["ThreadMachine"]

LONG = 3600.0
OWNERS = st.sampled_from(["a", "b", "c"])
WRITERS = st.sampled_from(["a", "b", "c", None])
IDS = st.sampled_from(["1", "2", "3", "ключ"])
CHANGES = st.lists(st.sampled_from(["small", "large", "push", "push", "insert", "cut", "put", "drop"]), max_size=4)
T = TypeVar("T")


class ThreadMachine(RuleBasedStateMachine):
    """One thread on a real server: leases, commits, own ids, pending writes, endings, and ids that are used anew.

    With the face `native` the root lineage is committed to by its number and own ids go to two lineages beside it; with
    `own` they go to the root and one beside it.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.store = self.run(Store.connect(url))
        self.wire = Interference(self.store)
        self.namespace = f"machine-{uuid.uuid4().hex[:8]}"
        self.engine = Engine(cast("Store", self.wire), self.namespace, CheckpointNamespace())
        self.leases = Leases(self.store, self.namespace)
        self.thread = "{t}*"
        self.where = keys.ThreadKeys.of(self.namespace, self.thread)
        self.model = Model()
        self.held: dict[str, Lease] = {}
        self.face = "native"
        self.contents: Contents = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end on the machine's own loop."""
        return self.runner.run(work)

    def teardown(self) -> None:
        """Leave nothing behind."""
        found = self.run(self._keys())
        if found:
            self.run(self.store.batch([("DEL", key) for key in found]))
        self.run(self.store.close())
        self.runner.close()

    @initialize(face=st.sampled_from(["native", "own"]))
    def choose(self, face: str) -> None:
        """Choose how the root lineage is written."""
        self.face = face

    @rule(owner=OWNERS)
    def acquire(self, owner: str) -> None:
        """Take the lease, extend it, or be refused."""
        if self.model.expired or self.model.standing:
            gone = self.refused(self.leases.acquire(self.thread, owner, ttl=LONG), ThreadGone)
            self.run(self.engine.retention.remove(self.thread, gone.ids["removing"]))
            self.model.forget()
        if self.model.live and self.model.holder != owner:
            held = self.refused(self.leases.acquire(self.thread, owner, ttl=LONG), LeaseHeld)
            assert held.ids["holder"] == self.model.holder
            return
        lease = self.run(self.leases.acquire(self.thread, owner, ttl=LONG))
        if self.model.live:
            assert lease.fence == self.model.fence
        else:
            assert lease.fence > self.model.fence
        assert lease.incarnation == self.model.incarnation
        self.model.fence, self.model.holder, self.model.live = lease.fence, owner, True
        self.model.raised = False
        self.model.status = "new" if self.model.status == "none" else self.model.status
        self.held[owner] = lease

    @precondition(lambda self: self.model.live)
    @rule()
    def lapse(self) -> None:
        """Let the lease end without a release."""
        self.run(self.store.command("DEL", self.where.lock))
        self.model.live = False

    @rule(owner=OWNERS)
    def release(self, owner: str) -> None:
        """Give a lease back, in time or too late."""
        lease = self.held.get(owner)
        if lease is None or lease.given_back:
            return
        if lease.fence == self.model.fence:
            self.run(lease.release())
            self.model.holder, self.model.live = None, False
        else:
            self.refused(lease.release(), LeaseLost)

    @precondition(lambda self: self.face == "native")
    @rule(
        writer=WRITERS, changes=CHANGES, data=st.data(), stale=st.booleans(), twice=st.booleans(),
        status=st.sampled_from(["running", "running", "running", "running", "parked", "finished", "failed"]),
        ttl=st.sampled_from([None, LONG]),
    )  # fmt: skip
    def commit(
        self,
        *,
        writer: str | None,
        changes: list[str],
        data: st.DataObject,
        stale: bool,
        twice: bool,
        status: Any,
        ttl: Any,
    ) -> None:
        """Commit on the newest checkpoint, or on another."""
        token, root = self.token(writer), self.model.lineage("")
        parent = data.draw(st.sampled_from(sorted(root.stored))) if stale and root.stored else root.latest
        commit = self.next(root, parent, changes, status=status, ttl=ttl if status in CLOSED else None)
        expected = self.model.refusal(token, first=parent is None)
        if expected is None and parent != self.model.lineage("").latest:
            expected = CheckpointConflict if parent in self.model.lineage("").stored else StoreRegressed
        work = self.engine.commit(self.thread, commit, token=token, sequence=self.model.sequence)
        done = self.sent(work, expected, twice)
        if done is not None:
            self.accept("", done, commit, writer)
            assert done.sequence == self.model.sequence + 1
            self.model.sequence, self.model.lineage("").latest = done.sequence, done.checkpoint

    @rule(
        writer=WRITERS, name=IDS, second=st.booleans(), changes=CHANGES, data=st.data(), twice=st.booleans()
    )  # fmt: skip
    def put(
        self, *, writer: str | None, name: str, second: bool, changes: list[str], data: st.DataObject, twice: bool
    ) -> None:
        """Store a checkpoint under an id of its own, on any parent, stored or not, in any order."""
        beside = "left" if self.face == "native" else ""
        lineage = "right:2" if second else beside
        token, of = self.token(writer), self.model.lineage(lineage)
        parent = data.draw(st.sampled_from([None, "never", *sorted(of.stored)]))
        commit = self.next(of, parent, changes)
        expected = self.model.refusal(token, first=parent is None and lineage == "")
        work = self.engine.put(self.thread, name, commit, lineage=lineage, token=token)
        done = self.sent(work, expected, twice)
        if done is not None:
            self.accept(lineage, done, commit, writer)
            of = self.model.lineage(lineage)
            of.latest = max(of.latest or name, name, key=keys.encode)

    @rule(
        writer=WRITERS, name=IDS, second=st.booleans(), task=st.sampled_from(["t", "t:0"]),
        over=st.booleans(), number=st.integers(0, 99), twice=st.booleans(),
    )  # fmt: skip
    def put_writes(
        self, *, writer: str | None, name: str, second: bool, task: str, over: bool, number: int, twice: bool
    ) -> None:
        """Store pending writes, early, again, and over what is there."""
        lineage = "right:2" if second else ("left" if self.face == "native" else "")
        token = self.token(writer)
        write = Write(task, 0, b"%d" % number, over)
        expected = self.model.refusal(token, first=False)
        work = self.engine.put_writes(self.thread, name, [write], lineage=lineage, token=token)
        stored = self.sent(work, expected, twice)
        if stored is None:
            return
        found = self.model.lineage(lineage).writes.setdefault(name, {})
        assert twice or stored == (over or write.field not in found)
        found[write.field] = write.data if over else found.get(write.field, write.data)
        self.model.status = "new" if self.model.status == "none" else self.model.status
        self.fence(self.run(self.engine.meta(self.thread)).fence, raises=self.model.wrote(token))

    @rule(writer=WRITERS, status=st.sampled_from(CLOSED), ttl=st.sampled_from([None, LONG]), twice=st.booleans())
    def close(self, writer: str | None, status: Literal["finished", "failed"], ttl: float | None, twice: bool) -> None:
        """Finish or fail without a checkpoint; the same again changes nothing."""
        token = self.token(writer)
        gone = not self.model.readable or (token and token.incarnation not in (None, self.model.incarnation))
        same = not gone and self.model.status == status
        expected = ThreadGone if gone else None if same else self.model.refusal(token, first=False)
        work = self.engine.retention.close(self.thread, status=status, ttl=ttl, token=token)
        self.sent(work, expected, twice)
        if expected is None and not same:
            self.model.status, self.model.keeps = status, ttl is None
            self.fence(self.run(self.engine.meta(self.thread)).fence, raises=self.model.wrote(token))

    @precondition(lambda self: self.model.readable)
    @rule()
    def expire(self) -> None:
        """Let the time come at which the thread is gone."""
        past = int(self.run(self.store.command("TIME"))[0]) * 1000 - 5000
        self.run(self.store.command("HSET", self.where.meta, "expires", past))
        self.run(self.engine.retention.due(self.thread, past))
        self.model.expired = True

    @rule(twice=st.booleans())
    def delete(self, twice: bool) -> None:
        """Delete, whatever is there; of a tombstone nothing is left to delete."""
        there = self.model.status not in ("none", "deleted") or self.model.standing
        self.wire.twice = twice
        assert self.run(self.engine.retention.delete(self.thread)) == there
        self.wire.twice = False
        if there:
            self.model.forget()

    @precondition(lambda self: self.model.readable)
    @rule(requests=st.integers(2, 12))
    def delete_partly(self, requests: int) -> None:
        """Die in the middle of a deletion: it is gone for readers, and its parts stand until somebody removes them."""
        self.wire.left = requests
        with contextlib.suppress(ConnectionError):
            self.run(self.engine.retention.delete(self.thread))
        self.wire.left = None
        self.model.forget(standing=self.run(self.store.command("HEXISTS", self.where.meta, "removing")) == 1)

    @precondition(lambda self: self.model.expired or self.model.standing)
    @rule()
    def sweep(self) -> None:
        """Let anybody remove what is overdue."""
        assert self.run(Retention(self.store, self.namespace).sweep()) == 1
        self.model.forget()

    @invariant()
    def everything_acknowledged_is_read(self) -> None:
        """Every checkpoint comes back as it was committed, and nothing else does."""
        for name in ("", "left", "right:2"):
            lineage = self.model.lineages.get(name, Lineage()) if self.model.readable else Lineage()
            latest, history, each = self.run(self._read(name, sorted(lineage.stored)))
            assert (latest.manifest.checkpoint if latest else None) == lineage.latest
            in_order = sorted(lineage.stored, key=keys.encode, reverse=True)
            assert history == in_order
            for snapshot in each:
                of = lineage.stored[snapshot.manifest.checkpoint]
                assert snapshot.contents == of.contents
                assert (snapshot.manifest.parent, snapshot.manifest.step) == (of.parent, of.step)
                assert snapshot.writes == lineage.writes.get(snapshot.manifest.checkpoint, {})

    @invariant()
    def the_fence_stands(self) -> None:
        """The fence never falls, and holder and lock are those of the newest grant."""
        meta = self.run(self.engine.meta(self.thread))
        if self.model.status == "none":
            assert meta.status == "none"
            return
        assert meta.status == self.model.status
        self.fence(meta.fence)
        assert meta.holder == self.model.holder
        assert (self.run(self.store.command("EXISTS", self.where.lock)) == 1) == self.model.live

    @invariant()
    def no_key_is_without_owner(self) -> None:
        """Every key belongs to the thread or expires; what never expires is of a thread that is listed."""
        names = {key.removeprefix(self.where.prefix + ":") for key in self.run(self._keys(self.where.prefix))}
        shard = keys.threads(self.namespace, keys.shard(self.thread))
        listed = self.run(self.store.command("ZSCORE", shard, self.thread)) is not None
        lives = self.run(self.store.batch([("PTTL", f"{self.where.prefix}:{name}") for name in names]))
        lasting = {name for name, life in zip(names, lives, strict=True) if life == -1}
        assert listed or not lasting
        if self.model.incarnation is None and not self.model.standing:
            assert not lasting
        if self.model.status == "deleted" and not self.model.standing:
            assert names <= {"meta", "lock"}
        elif not self.model.standing:
            assert names <= self.run(self._owned())
        if self.model.status in CLOSED and not self.model.keeps and not self.model.expired:
            assert not lasting

    def token(self, writer: str | None) -> Token | None:
        """The token that a writer shows: its last one, however stale."""
        lease = self.held.get(writer or "")
        return lease.token if lease else None

    def refused(self, work: Coroutine[Any, Any, Any], expected: type[BlackboardError]) -> BlackboardError:
        """Run what must be refused, with exactly this error."""
        with pytest.raises(expected) as caught:
            self.run(work)
        assert type(caught.value) is expected
        return caught.value

    def sent(self, work: Coroutine[Any, Any, T], expected: type[BlackboardError] | None, twice: bool) -> T | None:
        """Run a write as the model expects it to end; None if it was refused."""
        self.wire.twice = twice
        try:
            if expected is None:
                return self.run(work)
            self.refused(work, expected)
            return None
        finally:
            self.wire.twice = False

    def next(self, lineage: Lineage, parent: str | None, changes: Sequence[str], **more: Any) -> Commit:
        """Change the parent's contents and spell the commit as a driver does who knows where they stand."""
        of = lineage.stored.get(parent or "") or Stored({}, {}, None, -1)
        contents = changed(of.contents, changes, of.step)
        channels = {
            name: channel(content, of.contents.get(name), of.refs.get(name)) for name, content in contents.items()
        }
        self.contents = contents
        return Commit(of.step + 1, channels, of.refs, parent, **more)

    def accept(self, lineage: str, done: Committed, commit: Commit, writer: str | None) -> None:
        """Note an acknowledged checkpoint."""
        token = self.token(writer)
        if token is not None:
            self.held[writer or ""].opened(done.incarnation)
        keeps = commit.ttl is None
        raises = self.model.committed(token, done.incarnation, commit.status, keeps=keeps)
        self.fence(done.fence, raises=raises)
        self.model.lineage(lineage).stored[done.checkpoint] = Stored(
            self.contents, done.refs, commit.parent, commit.step
        )

    def fence(self, found: int, *, raises: bool = False) -> None:
        """Compare the fence after a write with the one before it."""
        assert found > self.model.fence if raises or self.model.raised else found == self.model.fence
        self.model.fence, self.model.raised = found, False

    async def _read(self, lineage: str, ids: list[str]) -> tuple[Snapshot | None, list[str], list[Snapshot]]:
        latest = await self.engine.latest(self.thread, lineage=lineage)
        history = await self.engine.history(self.thread, lineage=lineage)
        each = [await self.engine.at(self.thread, one, lineage=lineage) for one in ids]
        return latest, [one.checkpoint for one in history], [one for one in each if one is not None]

    async def _keys(self, prefix: str | None = None) -> list[str]:
        start = prefix or f"bb:{self.namespace}:"
        return await all_keys(self.store, start)

    async def _owned(self) -> set[str]:
        """What is reachable from the thread's fixed keys, its parts and its histories."""
        parts = {part.decode() for part in await self.store.command("SMEMBERS", self.where.parts)}
        names = {"meta", "lock", "ops", "parts", "values", *(part for part in parts if part[0] != "@")}
        for at in ("", *(part for part in parts if part[0] == "@")):
            names |= {f"latest{at}", f"history{at}"}
            for one in await self.store.command("ZRANGE", f"{self.where.prefix}:history{at}", 0, -1):
                names |= {f"checkpoint{at}:{one.decode()}", f"writes{at}:{one.decode()}"}
        return names
