"""A lease in the moment of its deadline: it is lost, whichever of two looks at the clock comes after it."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest

from blackboard.claims import lease as leases
from blackboard.claims import shared
from blackboard.claims.lease import Leases
from blackboard.claims.shared import Claim, SharedEffects
from blackboard.errors import LeaseLost
from blackboard.memory import lease as tending
from blackboard.memory.lease import Place, claim
from blackboard.store.client import Store
from blackboard.testing.contracts.leases import NAMESPACE

LONG = 60.0


def at_the_deadline(patch: pytest.MonkeyPatch, module: ModuleType, deadline: float) -> None:
    """Let the clock stand just before a deadline when it is first read, and behind it from then on."""

    def clock() -> Iterator[float]:
        yield deadline - 1e-9
        while True:
            yield deadline + 1e-9

    patch.setattr(module, "time", SimpleNamespace(monotonic=clock().__next__))


async def test_a_lease(direct: Store, thread: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = await Leases(direct, NAMESPACE).acquire(thread, ttl=LONG)
    at_the_deadline(monkeypatch, leases, lease.deadline)
    with pytest.raises(LeaseLost, match="passed its deadline"):
        await lease.renew()
    monkeypatch.undo()
    await lease.release()


async def test_a_claim_across_threads(direct: Store, thread: str, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = await SharedEffects(direct, NAMESPACE).begin(thread, semantics="at-least-once", fingerprint="f", ttl=LONG)
    assert isinstance(claimed, Claim)
    at_the_deadline(monkeypatch, shared, claimed.deadline)
    with pytest.raises(LeaseLost, match="passed its deadline"):
        await claimed.renew()


async def test_a_path_that_is_tended(direct: Store, thread: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = await claim(Place(direct, "memory", thread), ttl=LONG)
    at_the_deadline(monkeypatch, tending, lease.deadline)
    with pytest.raises(LeaseLost, match="passed its deadline"):
        await lease.renew()
    monkeypatch.undo()
    await lease.release()
