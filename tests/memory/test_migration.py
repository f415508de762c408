"""Another embedder: refused until the path is migrated; then all records change over at once, and back."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from blackboard.errors import ConfigError, EmbedderFailed, EmbedderMismatch, EmbeddingInvalid, LeaseHeld
from blackboard.memory import migration
from blackboard.memory.embedder import Space
from blackboard.memory.lease import Place, tend
from blackboard.memory.migration import Migrated
from blackboard.memory.new import New
from blackboard.store.client import Store
from tests.memory.dump import everything, holding
from tests.memory.migrating import FACTS, A, B, C, Model, cut, filled, found, meanwhile, opened, vectors
from tests.memory.recalling import memory_of, texts


@pytest.mark.parametrize("other", [B, C], ids=["another dimension", "another name"])
async def test_another_embedder_is_refused_until_the_path_is_migrated(store: Store, other: tuple[str, int]) -> None:
    """Typed, naming both, at the first use; nothing is deleted, and after migrating all are found."""
    memory, model = await filled(store), Model(*other)
    reopened = opened(memory, model)
    before = await everything(memory.records)
    for use in (reopened.recall("box"), reopened.remember("new"), reopened.update("0", expected=1, what="new")):
        with pytest.raises(EmbedderMismatch) as mismatch:
            await use
        message = str(mismatch.value)
        assert all(part in message for part in ("model-a", other[0], '"dimension":4', f'"dimension":{other[1]}'))
    assert len(await reopened.recall("box", lexical=1.0)) == 10, "words alone, where they were asked for"
    assert await everything(memory.records) == before
    await found(memory)
    done = await reopened.migrate()
    assert (done.staged, done.left, done.flipped) == (20, 0, True)
    assert done.overlap is not None
    assert 0 < done.overlap < 1
    await found(reopened)
    await vectors(reopened, model)
    for use in (memory.recall("box"), memory.remember("new")):
        with pytest.raises(EmbedderMismatch, match="model-a"):
            await use


async def test_where_it_stands(store: Store) -> None:
    memory, model = await filled(store), Model(*B)
    assert (await memory_of(store).space()).space is None
    assert (await memory.space()).status == "settled"
    with cut("migrate:staged"), pytest.raises(RuntimeError):
        await memory.migrate(model)
    stands = await memory.space()
    assert (stands.space, stands.status, stands.other) == (Space(*A), "staging", Space(*B))
    await memory.migrate(model)
    stands = await memory.space()
    assert (stands.space, stands.status, stands.other) == (Space(*B), "flipped", Space(*A))
    await memory.rollback()
    stands = await memory.space()
    assert (stands.space, stands.status, stands.other) == (Space(*A), "returned", Space(*B))
    await memory.settle()
    assert await memory.space() == migration.Standing(Space(*A), "settled", None, None, 0)


@pytest.mark.parametrize("moment", ["noted", "staged", "compared", "flipped", "swept"])
async def test_cut_short(store: Store, moment: str) -> None:
    """The old index is usable as long as it is the path's, then the new one; the same call brings it to its end."""
    memory, model = await filled(store), Model(*B)
    reopened = opened(memory, model)
    with cut(f"migrate:{moment}"), pytest.raises(RuntimeError, match=moment):
        await memory.migrate(model)
    whole, refused = (reopened, memory) if moment in ("flipped", "swept") else (memory, reopened)
    await found(whole)
    await whole.remember("fact 20: something else", id="20")
    with pytest.raises(EmbedderMismatch):
        await refused.recall("box")
    done = await reopened.migrate()
    assert (done.left, done.flipped) == (0, True)
    await found(reopened, 21, lambda at: [*FACTS, "fact 20: something else"][at])
    await vectors(reopened, model)


async def test_an_embedder_that_fails_in_the_middle(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was staged stays and is not made again."""
    monkeypatch.setattr(migration, "EMBEDDED", 8)
    memory, model = await filled(store), Model(*B)
    model.breaks_after = 16
    with pytest.raises(EmbedderFailed):
        await memory.migrate(model)
    staged = {memory.records.keys.record(str(at)) for at in range(16)}
    assert {*await holding(memory.records, b"next_of")} == staged
    await found(memory)
    model.breaks_after = None
    done = await memory.migrate(model)
    assert (done.staged, done.flipped) == (4, True)
    assert len(model.asked) == 20
    await found(opened(memory, model))


async def test_vectors_that_the_space_cannot_hold(store: Store) -> None:
    memory, model = await filled(store), Model(*B)
    model.vector = lambda _: np.zeros(3)  # type: ignore[method-assign, assignment]
    with pytest.raises(EmbeddingInvalid):
        await memory.migrate(model)
    await found(memory)


async def test_taken_back(store: Store) -> None:
    """Every vector is there again at once; what was written since is embedded anew."""
    memory, model = await filled(store), Model(*B)
    before = {one.record.id: one.vector async for page in memory.records.walk() for one in page}
    await memory.migrate(model)
    reopened = opened(memory, model)
    await reopened.remember("fact 20: something else", id="20")
    await reopened.update("3", expected=1, what="fact 3: changed")
    await reopened.update("4", expected=1, importance=0.9)
    stands = await reopened.rollback()
    assert (stands.space, stands.status, stands.pending) == (Space(*A), "returned", 2)
    after = {one.record.id: one.vector async for page in memory.records.walk() for one in page}
    assert after == before | {"20": None, "3": None}
    assert "fact 3: changed" in texts(await memory.recall("changed", k=5)), "by its words until it is embedded"
    assert (await memory.tend()).embedded == 2
    await vectors(memory, Model(*A))
    with pytest.raises(EmbedderMismatch):
        await reopened.recall("box")
    again = await memory.migrate(model)
    assert (again.staged, again.flipped) == (0, True), "both vectors of every record stand"
    await vectors(reopened, model)


async def test_nothing_to_go_back_to(store: Store) -> None:
    memory, model = await filled(store), Model(*B)
    with pytest.raises(ConfigError, match="nothing to go back to"):
        await memory.rollback()
    await memory.migrate(model)
    await memory.settle()
    with pytest.raises(ConfigError, match="nothing to go back to"):
        await memory.rollback()
    await found(opened(memory, model))


async def test_settled(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the old space is left, no reader notices, and cut short it goes on."""
    monkeypatch.setattr(migration, "SLICE", 6)
    memory, model = await filled(store), Model(*B)
    await memory.migrate(model)
    reopened = opened(memory, model)
    await found(reopened)
    known = reopened.view().frame.token
    before = {one.record.id: (one.vid, one.vector) async for page in memory.records.walk() for one in page}
    with cut("settle:moved", 2), pytest.raises(RuntimeError):
        await memory.settle()
    assert (await memory.space()).status == "flipped"
    await vectors(reopened, model)
    assert await memory.settle() == 8
    assert await memory.settle() == 0
    assert (await memory.space()).status == "settled"
    after = {one.record.id: (one.vid, one.vector) async for page in memory.records.walk() for one in page}
    assert after == before
    assert (await reopened.changes(known)).changes == ()
    assert await holding(memory.records, b"next") == []
    assert await holding(memory.records, b"model-a") == []
    await found(reopened)
    await vectors(reopened, model)


async def test_given_up(store: Store) -> None:
    memory, model = await filled(store), Model(*B)
    with cut("migrate:compared"), pytest.raises(RuntimeError):
        await memory.migrate(model)
    assert await memory.settle() == 20
    assert await holding(memory.records, b"next") == []
    await vectors(memory, Model(*A))
    other = Model(*C)
    assert (await memory.migrate(other)).staged == 20
    await vectors(opened(memory, other), other)


async def test_one_at_a_time(store: Store) -> None:
    memory = await filled(store)
    with cut("migrate:staged"), pytest.raises(RuntimeError):
        await memory.migrate(Model(*B))
    with pytest.raises(ConfigError, match=r"model-b.*not to .*model-c"):
        await memory.migrate(Model(*C))
    await memory.migrate(Model(*B))
    with pytest.raises(ConfigError, match=r"model-b.*not to .*model-a"):
        await memory.migrate(Model(*A))
    async with tend(Place(store, "memory", memory.records.path), "somebody"):
        for act in (memory.migrate(Model(*B)), memory.rollback(), memory.settle()):
            with pytest.raises(LeaseHeld):
                await act


async def test_what_others_write_while_it_is_staged(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that change, records that come, go and run out, between staging and the change: nothing of the old text is found."""
    memory, model = await filled(store), Model(*B)

    async def act() -> None:
        await memory.update("1", expected=1, what="fact 1: changed")
        await memory.update("2", expected=1, importance=0.9)
        await memory.remember("fact 20: something else", id="20")
        await memory.forget("5")
        await memory.remember("fact 6: anew", id="6")
        await memory.remember("fact 21: brief", id="21", ttl=0.001)
        while await memory.get("21") is not None:
            await asyncio.sleep(0.005)

    done = meanwhile("respace.lua", act, monkeypatch)
    result = await memory.migrate(model)
    assert done
    assert (result.flipped, result.left) == (True, 0)
    reopened = opened(memory, model)
    assert {record.id for record in await reopened.list()} == {*map(str, range(21))} - {"5"}
    await vectors(reopened, model)
    assert texts(await reopened.recall("fact 1: changed", k=1, lexical=0.0)) == ["fact 1: changed"]


async def test_what_others_write_before_their_vector_comes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vector made of a text that has changed meanwhile is not put beside the new text's."""
    memory, model = await filled(store), Model(*B)
    done = meanwhile("beside.lua", lambda: memory.update("7", expected=1, what="fact 7: changed"), monkeypatch)
    assert (await memory.migrate(model)).staged == 20
    assert done
    await vectors(opened(memory, model), model)


async def test_what_cannot_be_embedded_at_the_change(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for its vector, and is found by its words."""
    memory, model = await filled(store), Model(*B)

    async def act() -> None:
        model.breaks_after = 0
        await memory.remember("fact 20: something else", id="20")

    meanwhile("respace.lua", act, monkeypatch)
    done = await memory.migrate(model)
    assert (done.left, done.flipped) == (1, True)
    reopened = opened(memory, model)
    assert await store.command("SMEMBERS", memory.records.keys.pending) == [b"20"]
    assert (await reopened.verify()).findings == ()
    model.breaks_after = None
    assert (await reopened.tend()).embedded == 1
    await vectors(reopened, model)
    assert (await reopened.rollback()).pending == 0, "its old vector stood beside"
    await vectors(memory, Model(*A))


async def test_pending_in_both_spaces(store: Store) -> None:
    """What had no vector before the change has one after it, and again none when it is taken back."""
    broken = Model(*A)
    memory, model = await filled(store), Model(*B)
    broken.breaks_after = 0
    await opened(memory, broken).remember("fact 20: something else", id="20")
    assert (await memory.space()).pending == 1
    await memory.migrate(model)
    assert (await memory.space()).pending == 0
    await vectors(opened(memory, model), model)
    assert (await opened(memory, broken).rollback()).pending == 1


async def test_a_path_without_vectors_gets_them(store: Store) -> None:
    memory = memory_of(store)
    await memory.remember_all([New(text, id=str(number)) for number, text in enumerate(FACTS)])
    model = Model(*B)
    model.breaks_after = 0
    with pytest.raises(EmbedderFailed):
        await memory.migrate(model)
    model.breaks_after = None
    assert await memory.migrate(model) == Migrated(20, 0, None, flipped=True)
    assert await memory.migrate(model) == Migrated(0, 0, None, flipped=True)
    await found(opened(memory, model))
    assert await memory_of(store, model).migrate() == Migrated(0, 0, None, flipped=True), "nothing was remembered here"


async def test_compared_before(store: Store) -> None:
    """Below the least overlap nothing changes, and what was made is kept for the next call."""
    memory, model = await filled(store), Model(*B)
    done = await memory.migrate(model, queries=["where is the red box?", "shelf 3"], least_overlap=1.0)
    assert (done.staged, done.flipped) == (20, False)
    assert done.overlap is not None
    assert 0 < done.overlap < 1
    await found(memory)
    same = Model("model-a", 4)
    same.name = "model-a renamed"
    same.vector = Model(*A).vector  # type: ignore[method-assign]
    await memory.settle()
    assert await memory.migrate(same, least_overlap=1.0) == Migrated(20, 0, 1.0, flipped=True)
    await memory.settle()
    with pytest.raises(ConfigError, match="asked in both spaces"):
        await opened(memory, model).migrate(queries=["red"])
    with pytest.raises(ConfigError, match="from 0 to 1, got 2"):
        await memory.migrate(model, least_overlap=2)
    with pytest.raises(ConfigError, match="a list of texts"):
        await memory.migrate(model, queries="red")
    with pytest.raises(ConfigError, match="give an embedder"):
        await memory_of(store, path="/".join(memory.path)).migrate()


async def test_progress(store: Store) -> None:
    memory, told = await filled(store), list[tuple[int, int]]()
    await memory.migrate(Model(*B), progress=lambda done, total: told.append((done, total)))
    assert told == [(20, 20)]
