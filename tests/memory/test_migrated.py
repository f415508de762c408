"""Views, snapshots, forgetting and all else in the middle of a migration and after it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pytest

from blackboard.memory import migration
from blackboard.memory.embedder import Space, pack
from blackboard.memory.new import New
from blackboard.memory.record import Record
from blackboard.store.client import Store
from tests.memory.dump import holding
from tests.memory.migrating import FACTS, A, B, C, Model, cut, filled, found, opened, vectors
from tests.memory.recalling import memory_of


async def test_views_follow(store: Store) -> None:
    """A view without an embedder has the vectors of the path, whichever those are, and a frame has those of one space."""
    memory, model = await filled(store), Model(*B)
    view = memory_of(store, path="/".join(memory.path)).view()
    spaces = [(await view.refresh()).space]
    await memory.migrate(model)
    spaces.append((await view.refresh()).space)
    await memory.rollback()
    await memory.update("3", expected=1, what="fact 3: changed")
    spaces.append((await view.refresh()).space)
    assert spaces == [Space(*A), Space(*B), Space(*A)]
    assert view.frame.vectors_alive == 20


async def test_a_change_between_a_tail_and_its_fetch(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same dimension, other model: no frame of the old space holds a vector of the new one."""
    memory, model = await filled(store), Model(*C)
    view = memory.view()
    await view.refresh()
    await memory.update("3", expected=1, what="fact 3: changed")
    fetch, first = view.records.fetch, True

    async def late(ids: Sequence[str], **more: Any) -> Any:
        nonlocal first
        if first:
            first = False
            await memory.migrate(model)
        return await fetch(ids, **more)

    monkeypatch.setattr(view.records, "fetch", late)
    frame = await view.refresh()
    assert not first
    assert frame.stored_space == Space(*A).text()
    row = frame.row_of("3")
    assert row is not None
    made = Model(*A).vector("fact 3: changed")
    assert np.allclose(frame.vectors(np.array([row]))[0], made / np.linalg.norm(made), atol=2e-3)
    assert (await view.refresh()).stored_space == Space(*C).text()


async def test_snapshots(store: Store) -> None:
    """One of the old space is passed over; a migration leaves a new one."""
    memory, model = await filled(store), Model(*B)
    await memory.snapshot()
    with cut("migrate:flipped"), pytest.raises(RuntimeError):
        await memory.migrate(model)
    reopened = opened(memory, model)
    await vectors(reopened, model)
    await memory.migrate(model)
    pointer = await reopened.snapshot()
    assert pointer is not None
    assert pointer.space == Space(*B).text()
    await found(opened(memory, model))
    await reopened.rollback()
    await found(opened(memory, Model(*A)))
    await vectors(memory, Model(*A))


async def test_forgotten_with_both_vectors(store: Store) -> None:
    memory, model = await filled(store), Model(*B)
    await memory.snapshot()
    with cut("migrate:compared"), pytest.raises(RuntimeError):
        await memory.migrate(model)
    made = model.vector(FACTS[4])
    needle = pack((made / np.linalg.norm(made)).astype(np.float32)[None], Space(*B))[0]
    assert await holding(memory.records, needle) == [memory.records.keys.record("4")]
    receipt = await memory.forget("4")
    assert await holding(memory.records, needle) == []
    assert await holding(memory.records, FACTS[4].encode()) == []
    assert (await memory.verify_forgotten(receipt)).gone
    await memory.migrate(model)
    assert await holding(memory.records, needle) == []
    assert await memory.get("4") is None


async def test_expired_while_it_is_staged(store: Store) -> None:
    memory, model = await filled(store), Model(*B)
    await memory.remember("fact 20: brief", id="20", ttl=0.2)
    with cut("migrate:compared"), pytest.raises(RuntimeError):
        await memory.migrate(model)
    async with asyncio.timeout(10):
        while await memory.get("20") is not None:
            await asyncio.sleep(0.01)
    await memory.migrate(model)
    reopened = opened(memory, model)
    assert (await reopened.tend()).expired == 1
    await found(reopened)
    assert await memory.settle() == 20


async def test_exported_in_the_middle(store: Store) -> None:
    """What is written down is of the space that the path has; it comes back with its vectors."""
    memory, model = await filled(store), Model(*B)
    await memory.migrate(model)
    reopened = opened(memory, model)
    file = BytesIO(b"".join([line async for line in reopened.export()]))
    copy = memory_of(store, model)
    assert (await copy.import_(file)).stored == 20
    assert (await copy.space()).pending == 0
    await vectors(copy, model)


async def test_consolidated_in_the_middle(store: Store) -> None:
    """What stands for others has the vector of the space that the path has; taken back, it waits for its other one."""
    memory, model = await filled(store), Model(*B)
    await memory.remember_all([New("a note on the red box"), New("a note on the red box.")])
    model.vector = lambda text: np.array([len(text), 1.0, 1.0])  # type: ignore[method-assign]
    await memory.migrate(model)
    reopened = opened(memory, model)
    (group,) = [one for one in (await reopened.consolidate()).groups if "note" in one.text]
    plan = await reopened.consolidate()
    (merged,) = [one for one in (await reopened.apply(plan)).merged if len(one.sources) == len(group.sources)]
    await vectors(reopened, model)
    assert (await reopened.rollback()).pending >= 1
    await memory.tend()
    await vectors(memory, Model(*A))
    assert await memory.undo(merged) == 2


async def test_remembered_anew_under_its_id(store: Store) -> None:
    """The same text keeps the vector beside, another one loses it."""
    memory, model = await filled(store), Model(*B)
    with cut("migrate:compared"), pytest.raises(RuntimeError):
        await memory.migrate(model)
    await memory.remember(FACTS[1], id="1", importance=0.9)
    await memory.remember("fact 2: anew", id="2")
    staged = await holding(memory.records, b"next_of")
    assert memory.records.keys.record("1") in staged
    assert memory.records.keys.record("2") not in staged
    assert (await memory.migrate(model)).staged == 1
    await vectors(opened(memory, model), model)


async def test_tending_settles_after_a_day(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, model = await filled(store), Model(*B)
    with cut("migrate:flipped"), pytest.raises(RuntimeError):
        await memory.migrate(model)
    reopened = opened(memory, model)
    done = await reopened.tend()
    assert (done.settled, (await memory.space()).swept) == (False, True)
    assert not (await memory.tend()).settled, "whichever embedder is at hand"
    monkeypatch.setattr(migration, "GRACE", 0.0)
    assert (await reopened.tend()).settled
    assert (await memory.space()).status == "settled"
    assert not (await reopened.tend()).settled
    await vectors(reopened, model)


async def test_a_record_read_in_the_other_space(store: Store) -> None:
    memory, model = await filled(store), Model(*B)
    with cut("migrate:staged"), pytest.raises(RuntimeError):
        await memory.migrate(model)
    by_space: list[Record] = []
    for space in (None, Space(*A), Space(*B), Space(*C)):
        (one,) = await memory.records.fetch(["0"], vectors=True, space=None if space is None else space.text())
        assert one is not None
        assert one.record.embedded == (one.vector is not None)
        by_space.append(one.record)
    assert [record.embedded for record in by_space] == [True, True, True, False]
