"""Hypothesis leads threads through their whole lives: they branch, are forked, pruned, parked, woken, ended and begun anew.

```python
run_state_machine_as_test(lambda: LifecycleMachine(url), settings=settings(max_examples=50, deadline=None))
```

Where `machine` looks at who may write one thread, this looks at what becomes of several.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from blackboard import keys
from blackboard.checkpoints.commit import Commit, Committed
from blackboard.checkpoints.engine import Engine, Write
from blackboard.checkpoints.fork import Copier
from blackboard.checkpoints.prune import Pruner
from blackboard.checkpoints.rewind import rewind
from blackboard.claims.lease import Leases, Token
from blackboard.errors import (
    AlreadyFinished,
    BlackboardError,
    CheckpointMissing,
    ThreadExists,
    ThreadGone,
    UnreadSignals,
)
from blackboard.runs.inbox import Inbox
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.keyspace import Keyspace
from blackboard.testing.life import Life
from blackboard.testing.model import CLOSED, Stored, changed, channel

__all__ = ["LifecycleMachine"]

LONG = 3600.0
THREADS = st.sampled_from(["a", "a", "a", "{b}*"])
LINEAGES = st.sampled_from(["", "side"])
IDS = st.sampled_from(["1", "2", "ключ"])
NAMES = st.sampled_from(["x", "x", "x", "y:1"])
KEYS = st.sampled_from([None, None, None, "k"])
TTLS = st.sampled_from([None, LONG])
CHANGES = st.lists(st.sampled_from(["small", "large", "push", "push", "insert", "cut", "put", "drop"]), max_size=4)
T = TypeVar("T")


class LifecycleMachine(RuleBasedStateMachine):
    """Two threads on a real server: what was acknowledged is read as it was committed, and nothing else stands."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.store = self.run(Store.connect(url))
        self.namespace = f"lifecycle-{uuid.uuid4().hex[:8]}"
        self.engine = Engine(self.store, self.namespace, CheckpointNamespace())
        self.leases = Leases(self.store, self.namespace)
        self.inbox = Inbox(self.engine)
        self.pruner = Pruner(self.store, self.namespace)
        self.keyspace = Keyspace(self.store, self.namespace)
        self.lives: dict[str, Life] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end on the machine's own loop."""
        return self.runner.run(work)

    def teardown(self) -> None:
        """End every thread, and leave nothing behind but what ends by itself."""
        for thread in self.lives:
            self.run(self.engine.retention.delete(thread, drop_unread=True))
        self.run(self.keyspace.walk({}))
        self.run(self.keyspace.clear())
        self.run(self.store.close())
        self.runner.close()

    @initialize(changes=CHANGES)
    def begin(self, changes: list[str]) -> None:
        """Begin with one thread."""
        self.lives.clear()
        self.commit("a", changes, leased=False, take=False)

    @rule(thread=THREADS, changes=CHANGES, leased=st.booleans(), take=st.booleans())
    def commit(self, thread: str, changes: list[str], leased: bool, take: bool) -> None:
        """Commit on the newest checkpoint, with or without a lease, and take what is in the inbox."""
        life = self.life(thread)
        letters = [(letter, name) for letter, name in life.letters.items()] if take and life.stands else []
        commit = self.following(life, "", life.root.latest, changes, letters=letters)
        done = self.told(self.driven(thread, commit, life, leased=leased), AlreadyFinished if life.closed else None)
        if done is not None:
            life.wrote(done, commit, self.contents)
            life.took(letters)

    @rule(thread=THREADS, name=IDS, changes=CHANGES, data=st.data())
    def branch(self, thread: str, name: str, changes: list[str], data: st.DataObject) -> None:
        """Put a checkpoint under an id of its own into another lineage, on any parent there, stored or not."""
        life = self.life(thread)
        if life.status == "none":
            return
        parent = data.draw(st.sampled_from([None, "never", *sorted(life.lineage("side").stored)]))
        commit = self.following(life, "side", parent, changes)
        work = self.engine.put(thread, name, commit, lineage="side")
        done = self.told(work, None if life.writable else AlreadyFinished if life.closed else ThreadGone)
        if done is not None:
            life.put("side", done, commit, self.contents)

    @rule(thread=THREADS, name=IDS, number=st.integers(0, 9))
    def write(self, thread: str, name: str, number: int) -> None:
        """Store a pending write against a checkpoint of the branch, which may not be there yet."""
        life = self.life(thread)
        if life.status == "none":
            return
        work = self.engine.put_writes(thread, name, [Write("t", 0, b"%d" % number)], lineage="side")
        expected = None if life.writable else AlreadyFinished if life.closed else ThreadGone
        if self.told(work, expected) is not None:
            life.lineage("side").writes.setdefault(name, {}).setdefault("t:0", b"%d" % number)

    @rule(thread=THREADS, to=THREADS, whole=st.booleans(), data=st.data())
    def fork(self, thread: str, to: str, whole: bool, data: st.DataObject) -> None:
        """Make a thread of another's checkpoint, or of all of it."""
        life, other = self.life(thread), self.life(to)
        at = data.draw(st.sampled_from([None, "never", *sorted(life.root.stored)]))
        copier = Copier(self.store, self.namespace)
        if thread == to:
            return
        work = copier.copy(thread, to) if whole else copier.fork(thread, to, checkpoint=at)
        expected: type[BlackboardError] | None = ThreadExists if other.stands else None
        if not life.stands:
            expected = ThreadGone
        elif not whole and at is not None and at not in life.root.stored:
            expected = CheckpointMissing
        incarnation = self.told(work, expected)
        if incarnation is not None:
            self.lives[to] = life.copied(incarnation) if whole else life.forked(incarnation, at)

    @rule(thread=THREADS, lineage=LINEAGES, keep_last=st.integers(1, 3))
    def prune(self, thread: str, lineage: str, keep_last: int) -> None:
        """Drop old checkpoints, and what only they referred to."""
        life = self.life(thread)
        pruned = self.run(self.pruner.prune(thread, keep_last=keep_last, lineage=lineage))
        assert pruned.checkpoints == life.pruned(lineage, keep_last)
        if life.stands:
            self.run(self.keyspace.no_garbage(thread, life))

    @rule(thread=THREADS, lineage=LINEAGES, data=st.data())
    def pin(self, thread: str, lineage: str, data: st.DataObject) -> None:
        """Keep a checkpoint whatever is pruned."""
        of = self.life(thread).lineage(lineage)
        name = data.draw(st.sampled_from(sorted(of.stored) or ["never"]))
        work = self.pruner.pin(thread, name, lineage=lineage)
        self.told(work, None if name in of.stored else CheckpointMissing)
        if name in of.stored:
            self.life(thread).pins.add((lineage, name))

    @rule(thread=THREADS, lineage=LINEAGES, data=st.data())
    def unpin(self, thread: str, lineage: str, data: st.DataObject) -> None:
        """Let a checkpoint be pruned again."""
        life = self.life(thread)
        name = data.draw(st.sampled_from(["never", *sorted(life.lineage(lineage).stored)]))
        assert self.run(self.pruner.unpin(thread, name, lineage=lineage)) == ((lineage, name) in life.pins)
        life.pins.discard((lineage, name))

    @rule(thread=THREADS, data=st.data())
    def rewind(self, thread: str, data: st.DataObject) -> None:
        """Go on from an earlier checkpoint."""
        life = self.life(thread)
        if not life.writable:
            return
        to = data.draw(st.sampled_from(sorted(life.root.stored)))
        done = self.run(self.held(thread, lambda token: rewind(self.engine, thread, token, to, "why not")))
        old = life.root.stored[to]
        life.rewound(done, Stored(old.contents, old.refs, to, done.step))

    @rule(thread=THREADS, name=NAMES, key=KEYS)
    def signal(self, thread: str, name: str, key: str | None) -> None:
        """Answer what a thread waits for, or will wait for; the first answer wins."""
        expected = self.life(thread).answer(name, key)
        assert self.run(self.inbox.signal(thread, name, 1, key=key)) == expected
        self.arrived(thread, name, key, expected)

    @rule(thread=THREADS, key=KEYS)
    def note(self, thread: str, key: str | None) -> None:
        """Tell a thread something."""
        expected = self.life(thread).answer("", key)
        assert self.run(self.inbox.note(thread, 1, key=key)) == expected
        self.arrived(thread, "", key, expected)

    @rule(thread=THREADS, name=NAMES)
    def park(self, thread: str, name: str) -> None:
        """Wait for an answer, unless it is there."""
        life = self.life(thread)
        if not life.writable:
            return
        newest = life.root.stored[life.root.latest or ""]
        commit = self.following(life, "", life.root.latest, [], status="parked", awaits=f"signal:{name}")
        commit.step = newest.step
        sequence = life.sequence
        done = self.run(
            self.held(thread, lambda token: self.engine.park(thread, commit, token=token, sequence=sequence))
        )
        assert (done is None) == life.answered(name)
        if done is not None:
            life.parked(done, commit, self.contents, name)

    @rule(thread=THREADS, name=NAMES)
    def converse(self, thread: str, name: str) -> None:
        """Ask, be answered, and take the answer: the whole way of a signal."""
        if self.life(thread).writable:
            self.park(thread, name)
            self.signal(thread, name, None)
            self.commit(thread, ["push"], leased=True, take=True)

    @rule(thread=THREADS, status=st.sampled_from(CLOSED), ttl=TTLS, drop=st.booleans(), with_checkpoint=st.booleans())
    def close(self, thread: str, status: Any, ttl: float | None, drop: bool, with_checkpoint: bool) -> None:
        """Finish or fail, with a last checkpoint or without."""
        life = self.life(thread)
        if not life.writable:
            return
        expected = UnreadSignals if life.letters and not drop else None
        if with_checkpoint:
            commit = self.following(life, "", life.root.latest, ["push"], status=status, ttl=ttl, drop_unread=drop)
            done = self.told(self.driven(thread, commit, life, leased=True), expected)
            if done is not None:
                life.wrote(done, commit, self.contents)
        else:
            self.told(self.engine.retention.close(thread, status=status, ttl=ttl, drop_unread=drop), expected)
        if expected is None:
            life.status, life.keeps = status, ttl is None

    @rule(thread=THREADS, drop=st.booleans())
    def delete(self, thread: str, drop: bool) -> None:
        """Delete, whatever is there."""
        life = self.life(thread)
        work = self.engine.retention.delete(thread, drop_unread=drop)
        if life.letters and not drop and life.status not in CLOSED:
            self.told(work, UnreadSignals)
        else:
            assert self.run(work) == life.stands
            life.end()

    @rule(thread=THREADS)
    def expire(self, thread: str) -> None:
        """Let a closed thread's time come; it is gone for readers at once, and for good with the next sweep."""
        life = self.life(thread)
        if not life.closed:
            return
        past = int(self.run(self.store.command("TIME"))[0]) * 1000 - 5000
        self.run(self.store.command("HSET", keys.ThreadKeys.of(self.namespace, thread).meta, "expires", past))
        self.run(self.engine.retention.due(thread, past))
        assert self.run(self.engine.latest(thread)) is None
        assert self.run(self.engine.retention.sweep()) == 1
        life.end()

    @rule()
    def sweep(self) -> None:
        """Sweep where nothing is overdue: of what stands it takes nothing away, and no wake is lost.

        A write that is refused because its thread is gone may have listed the id again: exactly those rows go.
        """
        now = self.store.server_time() // 1000
        shards = [keys.threads(self.namespace, number) for number in range(keys.SHARDS)]
        listed = self.run(self.store.batch([("ZRANGEBYSCORE", shard, "(0", now) for shard in shards]))
        left = [row for rows in listed for row in rows if not self.life(row.decode()).stands]
        assert self.run(self.engine.retention.sweep()) == len(left)
        assert self.run(self.engine.retention.sweep()) == 0

    @invariant()
    def everything_is_as_it_was_committed(self) -> None:
        """Every checkpoint of every thread comes back, and nothing else does."""
        for thread, life in self.lives.items():
            self.run(self.keyspace.agrees(self.engine, thread, life))

    @invariant()
    def every_key_has_an_owner_and_an_end(self) -> None:
        """Nothing stands that no thread owns, and nothing of a closed one for ever."""
        self.run(self.keyspace.walk(self.lives))

    def life(self, thread: str) -> Life:
        """The model of a thread."""
        return self.lives.setdefault(thread, Life())

    def following(self, life: Life, lineage: str, parent: str | None, changes: Sequence[str], **more: Any) -> Commit:
        """Change the parent's contents and spell the commit as a driver does who knows where they stand."""
        of = life.lineage(lineage).stored.get(parent or "") or Stored({}, {}, None, -1)
        self.contents = changed(of.contents, changes, life.commits)
        life.commits += 1
        channels = {
            name: channel(content, of.contents.get(name), of.refs.get(name)) for name, content in self.contents.items()
        }
        return Commit(of.step + 1, channels, of.refs, parent, **more)

    async def held(self, thread: str, work: Callable[[Token], Awaitable[T]]) -> T:
        """Do something under a lease."""
        lease = await self.leases.acquire(thread, "driver", ttl=LONG)
        try:
            return await work(lease.token)
        finally:
            if await self.leases.holder(thread) is not None:
                await lease.release()

    async def driven(self, thread: str, commit: Commit, life: Life, *, leased: bool) -> Committed:
        """Commit as a driver does, or as somebody without a lease."""
        if not leased:
            return await self.engine.commit(thread, commit, sequence=life.sequence)
        return await self.held(
            thread, lambda token: self.engine.commit(thread, commit, token=token, sequence=life.sequence)
        )

    def arrived(self, thread: str, name: str, key: str | None, answer: str) -> None:
        """Note an accepted letter, under the id that the inbox gave it."""
        if answer == "ACCEPTED":
            newest = self.run(self.inbox.unread(thread))[-1]
            self.life(thread).arrived(newest.id, name, key)

    def told(self, work: Coroutine[Any, Any, T], expected: type[BlackboardError] | None) -> T | None:
        """Run what ends as the model expects; None if it was refused."""
        if expected is None:
            return self.run(work)
        with pytest.raises(expected) as caught:
            self.run(work)
        assert type(caught.value) is expected
        return None
