"""Any order of what becomes of threads in their lives, against a model; the keyspace is walked after each end."""

from __future__ import annotations

import uuid

import pytest

from blackboard.checkpoints.commit import Commit
from blackboard.checkpoints.engine import Engine
from blackboard.errors import ThreadGone
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.lifecycle import LifecycleMachine
from blackboard.testing.servers import Server
from tests.machines import play


@pytest.mark.timeout(900)  # a failure is shrunk before it is shown
def test_any_life_agrees_with_the_model(own: Server) -> None:
    play(lambda: LifecycleMachine(own.url), 50, 40)


@pytest.mark.chaos
def test_many_lives_agree_with_the_model(own: Server) -> None:
    play(lambda: LifecycleMachine(own.url), 2000, 60)


async def test_a_refused_write_lists_an_id_and_a_sweep_drops_the_row(solo: Server) -> None:
    """Found by the machine: a write to a deleted thread enters the list before it is refused, and nothing but that row goes."""
    store = await Store.connect(solo.url)
    engine = Engine(store, f"lifecycle-{uuid.uuid4().hex[:8]}", CheckpointNamespace())
    for thread in ("a", "b"):
        await engine.commit(thread, Commit(0, {}, next="go on"))
    assert await engine.retention.delete("a")
    with pytest.raises(ThreadGone):
        await engine.put("a", "1", Commit(0, {}), lineage="side")
    assert not await engine.retention.delete("a")
    assert [await engine.retention.sweep() for _ in range(2)] == [1, 0]
    assert await engine.latest("a") is None
    assert await engine.latest("b") is not None
    await store.close()
