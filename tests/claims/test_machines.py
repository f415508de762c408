"""Leases and effects against a small model, in any order of events that Hypothesis thinks of."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from blackboard import keys
from blackboard.claims.effect import Busy, Done, Effects, Failed, Semantics, Start, Unknown
from blackboard.claims.lease import Lease, Leases, Token
from blackboard.errors import LeaseHeld, LeaseLost
from blackboard.store.client import Store
from blackboard.testing.contracts.leases import NAMESPACE, open_thread
from blackboard.testing.servers import Server
from tests.machines import play

LONG = 600.0
OWNERS = st.sampled_from(["a", "b", "c"])
EFFECTS: dict[str, Semantics] = {"ledger": "at-least-once", "mail": "at-most-once"}
EFFECT_KEYS = st.sampled_from(sorted(EFFECTS))
T = TypeVar("T")


class Machine(RuleBasedStateMachine):
    """A thread of its own on a real server, driven step by step."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = self.run(Store.connect(url))
        self.leases = Leases(self.store, NAMESPACE)
        self.thread = f"machine-{uuid.uuid4().hex}"
        self.where = keys.ThreadKeys.of(NAMESPACE, self.thread)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.run(self.store.close())
        self.run(self.loop.shutdown_asyncgens())
        self.loop.close()


class LeaseMachine(Machine):
    """Model: the newest grant (owner, fence), whether it lives, and whether it was released."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.held: dict[str, Lease] = {}
        self.holder: str | None = None
        self.fence = 0
        self.live = False
        self.takeovers = 0

    @rule(owner=OWNERS)
    def acquire(self, owner: str) -> None:
        if self.live and self.holder != owner:
            with pytest.raises(LeaseHeld) as refused:
                self.run(self.leases.acquire(self.thread, owner, ttl=LONG))
            assert refused.value.holder == self.holder
            return
        lease = self.run(self.leases.acquire(self.thread, owner, ttl=LONG))
        if self.live:
            assert lease.fence == self.fence
        else:
            assert lease.fence > self.fence
            assert lease.takeover == (self.holder is not None)
            self.takeovers += self.holder is not None
        self.held[owner], self.holder, self.fence, self.live = lease, owner, lease.fence, True

    @rule(owner=OWNERS)
    def renew(self, owner: str) -> None:
        lease = self.held.get(owner)
        if lease is None:
            return
        if self.live and lease.fence == self.fence and not lease.given_back:
            self.run(lease.renew())
        else:
            with pytest.raises(LeaseLost):
                self.run(lease.renew())

    @rule(owner=OWNERS)
    def release(self, owner: str) -> None:
        lease = self.held.get(owner)
        if lease is None or lease.given_back:
            return
        if lease.fence == self.fence:
            self.run(lease.release())
            self.holder, self.live = None, False
        else:
            with pytest.raises(LeaseLost):
                self.run(lease.release())

    @precondition(lambda self: self.live)
    @rule()
    def lapse(self) -> None:
        self.run(self.store.command("PEXPIRE", self.where.lock, 1))
        for _ in range(1000):
            if not self.run(self.store.command("EXISTS", self.where.lock)):
                break
        self.live = False

    @rule()
    def break_lock(self) -> None:
        broken = self.run(self.leases.break_lock(self.thread))
        assert (broken.owner if broken else None) == self.holder
        if broken:
            assert broken.fence == self.fence
            self.fence = int(self.meta("fence") or 0)
            assert self.fence > broken.fence
        self.holder, self.live = None, False

    @invariant()
    def the_store_agrees(self) -> None:
        found = self.run(self.leases.holder(self.thread))
        assert (found.owner if found else None) == self.holder
        assert (found is not None and found.remaining > 0) == self.live
        assert self.run(self.store.command("EXISTS", self.where.lock)) == self.live
        assert self.run(self.store.command("PTTL", self.where.lock)) != -1
        assert int(self.meta("fence") or 0) == self.fence
        assert int(self.meta("takeovers") or 0) == self.takeovers

    def meta(self, field: str) -> bytes | None:
        value: bytes | None = self.run(self.store.command("HGET", self.where.meta, field))
        return value


@dataclass
class Expected:
    """Model of one effect."""

    state: str = "absent"
    attempt: int = 0
    fence: int = 0
    result: bytes = b""


class EffectMachine(Machine):
    """Model: per effect its state, attempt, and the fence that it began under; Starts are kept, zombies too."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.effects = Effects(self.store, NAMESPACE)
        self.expected = {key: Expected() for key in EFFECTS}
        self.starts: list[Start] = []
        self.token: Token
        self.take_over()

    @rule()
    def take_over(self) -> None:
        self.run(self.store.command("DEL", self.where.lock))
        lease = self.run(self.leases.acquire(self.thread, ttl=LONG))
        if lease.incarnation is None:
            lease.opened(self.run(open_thread(self.store, self.thread)))
        self.token = lease.token

    @rule(key=EFFECT_KEYS)
    def begin(self, key: str) -> None:
        model, semantics = self.expected[key], EFFECTS[key]
        answer = self.run(self.effects.begin(self.token, key, semantics=semantics, fingerprint="f"))
        if model.state in ("done", "failed", "abandoned"):
            expected = Done(model.result, model.attempt) if model.state == "done" else None
            assert answer == expected or isinstance(answer, Failed)
            assert not (isinstance(answer, Failed) and answer.state != model.state)
        elif model.state == "running" and model.fence == self.token.fence:
            assert isinstance(answer, Busy)
        elif model.state in ("running", "unknown") and semantics == "at-most-once":
            assert isinstance(answer, Unknown)
            assert (answer.attempt, answer.fence) == (model.attempt, model.fence)
        else:
            assert isinstance(answer, Start)
            assert answer.attempt == model.attempt + 1
            self.starts.append(answer)
            self.expected[key] = Expected("running", answer.attempt, self.token.fence)

    @precondition(lambda self: self.starts)
    @rule(data=st.data(), how=st.sampled_from(["complete", "fail", "give up", "interrupt"]))
    def end(self, data: st.DataObject, how: str) -> None:
        start = data.draw(st.sampled_from(self.starts[-4:]))
        result = f"{how} {start.attempt}".encode()
        model = self.expected[start.key]
        current = (model.attempt, model.fence) == (start.attempt, self.token.fence) and start.token == self.token
        if not current or model.state not in ("running", "unknown"):
            with pytest.raises(LeaseLost):
                self.run(self.ended(start, how, result))
            return
        self.run(self.ended(start, how, result))
        retry = "retry" if start.semantics == "at-least-once" else "unknown"
        model.state = {"complete": "done", "fail": retry, "give up": "failed", "interrupt": "unknown"}[how]
        model.result = result

    def ended(self, start: Start, how: str, result: bytes) -> Coroutine[Any, Any, None]:
        if how == "interrupt":
            return self.effects.interrupt(start)
        if how == "complete":
            return self.effects.complete(start, result)
        return self.effects.fail(start, result, final=how == "give up")

    @rule(data=st.data(), state=st.sampled_from(["done", "failed", "retry", "abandoned"]))
    def resolve(self, data: st.DataObject, state: Any) -> None:
        opened = self.run(self.effects.open(self.thread))
        if opened:
            effect = data.draw(st.sampled_from(opened))
            self.run(self.effects.resolve(self.token, effect, state, b"resolved"))
            model = self.expected[effect.key]
            model.state, model.result = state, b"resolved"

    @invariant()
    def the_store_agrees(self) -> None:
        found = {effect.key: effect for effect in self.run(self.effects.all(self.thread))}
        expected = {key: model for key, model in self.expected.items() if model.state != "absent"}
        assert {key: (effect.state, effect.attempt) for key, effect in found.items()} == {
            key: (model.state, model.attempt) for key, model in expected.items()
        }


@pytest.mark.parametrize("machine", [LeaseMachine, EffectMachine])
def test_any_order_of_events_agrees_with_the_model(own: Server, machine: type[LeaseMachine | EffectMachine]) -> None:
    play(lambda: machine(own.url), 60, 40)
