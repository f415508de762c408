"""What keeps a vector set equal to the records: every write, tending, verifying, and a change of the settings."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import pytest

from blackboard import points
from blackboard.errors import ConfigError, EmbedderMismatch
from blackboard.memory import sets as kept
from blackboard.memory.memory import Memory
from blackboard.memory.new import New
from blackboard.store.client import Store
from tests.memory.recalling import Plane, memory_of, texts
from tests.memory.serving import Drawn, agrees, drawn, served


class Left(Exception):
    """Whoever tends the path goes in the middle of it."""


class Model:
    """What a path holds, by id: a text that has a vector, or one that waits for it."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.waiting = set[str]()

    def put(self, id: str, text: str, *, waits: bool) -> None:
        self.texts[id] = text
        (self.waiting.add if waits else self.waiting.discard)(id)

    def drop(self, id: str) -> None:
        self.texts.pop(id, None)
        self.waiting.discard(id)

    def nearest(self, question: str) -> list[str]:
        found = {name: text for name, text in self.texts.items() if name not in self.waiting}
        return sorted(found, key=lambda name: -float(drawn(found[name]) @ drawn(question)))


async def _step(dice: random.Random, memory: Memory, embedder: Drawn, model: Model) -> None:
    name, text = f"r{dice.randrange(12)}", f"text {dice.randrange(10_000)}"
    embedder.failing = waits = dice.random() < 0.2
    match dice.choice(["put", "put", "update", "label", "forget", "batch", "expire", "tend"]):
        case "put":
            await memory.remember(text, id=name)
            model.put(name, text, waits=waits)
        case "update" if name in model.texts:
            there = await memory.get(name)
            assert there is not None
            await memory.update(name, expected=there.version, what=text)
            model.put(name, text, waits=waits)
        case "label" if name in model.texts:
            there = await memory.get(name)
            assert there is not None
            await memory.update(name, expected=there.version, importance=dice.random())
        case "forget":
            await memory.forget(name)
            model.drop(name)
        case "batch":
            await memory.remember_all([New(f"{text} {n}", id=f"r{n}") for n in range(3)])
            for n in range(3):
                model.put(f"r{n}", f"{text} {n}", waits=waits)
        case "expire":
            embedder.failing = False
            await memory.remember(text, id=name, ttl=0.001)
            model.drop(name)
            await asyncio.sleep(0.005)
        case _:
            embedder.failing = False
            await memory.tend()
            model.waiting.clear()
    embedder.failing = False


@pytest.mark.parametrize("seed", range(4))
async def test_any_order_of_writes_agrees_with_an_exact_model(sets: Store, seed: int) -> None:
    dice, embedder, model = random.Random(seed), Drawn(), Model()
    memory = served(sets, embedder)
    writers = memory, served(sets, embedder, path=memory.records.path)
    for number in range(60):
        await _step(dice, dice.choice(writers), embedder, model)
        found = await memory.recall(f"question {number}", k=12)
        assert [hit.record.id for hit in found] == model.nearest(f"question {number}")
        assert found.complete or model.waiting
    await memory.tend()
    model.waiting.clear()
    assert await agrees(memory) == set(model.texts)
    assert (await memory.verify()).findings == ()


async def test_two_writers_and_a_reader(sets: Store) -> None:
    memory = served(sets)
    writers = [served(sets, path=memory.records.path) for _ in range(2)]

    async def write(number: int) -> None:
        for n in range(40):
            await writers[number].remember(f"{number} says {n}", id=f"r{n}")
            if n % 3 == 0:
                await writers[number].forget(f"r{n - number}")

    async def read() -> None:
        for n in range(25):
            for hit in await memory.recall(f"question {n}", k=50):
                assert hit.score == pytest.approx(float(drawn(hit.record.text) @ drawn(f"question {n}")), abs=1e-3)

    await asyncio.gather(write(0), write(1), read())
    ids = await agrees(memory)
    assert len(ids) > 10
    assert {hit.record.id for hit in await memory.recall("all", k=100)} == ids


async def test_what_was_there_before_is_filled_in_and_can_be_left_in_the_middle(sets: Store) -> None:
    before = memory_of(sets, Drawn(), lexical_weight=0)
    await before.remember_all(New(f"text {n}", id=str(n)) for n in range(60))
    assert (await before.snapshot()) is not None
    memory = served(sets, path=before.records.path)
    found = await memory.recall("question")
    assert (found.hits, found.complete) == ((), False)
    await memory.remember("text 60", id="60")
    fills: list[str] = []

    def leave(point: str) -> None:
        fills.append(point)
        if fills.count("sets:filled") == 2 and point == "sets:filled":
            raise Left

    with points.watch(leave), pytest.raises(Left):
        await memory.tend()
    found = await memory.recall("question", k=100)
    assert (len(found), found.complete) == (2 * kept.FILLED, False)
    await before.update("3", expected=1, what="new 3")
    await before.remember("text 61", id="61")
    await before.forget("5")
    assert (await memory.tend()).indexed == 62 - 2 * kept.FILLED
    found = await memory.recall("question", k=100)
    assert (len(found), found.complete) == (61, True)
    assert await agrees(memory) == {str(n) for n in range(62)} - {"5"}
    assert (await memory.tend()).indexed == 0
    assert await sets.command("EXISTS", memory.records.keys.index) == 0


async def test_under_another_index_a_set_is_kept_until_the_path_is_tended(sets: Store) -> None:
    memory = served(sets)
    await memory.remember("a", id="x")
    other = memory_of(sets, Drawn(), path=memory.records.path)
    await other.remember("b", id="y")
    assert await agrees(memory) == {"x", "y"}
    await other.tend()
    assert await sets.command("EXISTS", memory.records.keys.vectors) == 0
    await other.remember("c", id="z")
    assert not (await memory.recall("c")).complete
    await memory.tend()
    assert await agrees(memory) == {"x", "y", "z"}


async def test_a_set_of_another_space_is_not_searched(sets: Store) -> None:
    memory = served(sets)
    await memory.remember("a")
    await sets.command("HSET", memory.records.keys.head, "vectors", "of another one")
    found = await memory.recall("a")
    assert (found.hits, found.complete) == ((), False)
    await memory.tend()
    assert texts(await memory.recall("a")) == ["a"]


async def test_what_expired_leaves_the_set_when_the_path_is_tended(sets: Store) -> None:
    memory = served(sets)
    await memory.remember_all(New(f"text {n}", ttl=0.001) for n in range(5))
    await memory.remember("stays")
    await asyncio.sleep(0.005)
    assert texts(await memory.recall("text 1")) == ["stays"]
    assert (await memory.tend()).expired == 5
    assert await sets.command("VCARD", memory.records.keys.vectors) == 1
    await agrees(memory)


async def test_forgetting_leaves_nothing_in_the_set_and_a_survivor_is_found(sets: Store) -> None:
    memory = served(sets)
    record = await memory.remember("a secret", id="x")
    await memory.remember("kept")
    receipt = await memory.forget("x")
    assert await sets.command("VEMB", memory.records.keys.vectors, "x") is None
    assert (await memory.verify_forgotten(receipt)).gone
    vector = drawn(record.text).astype("<f4").tobytes()
    await sets.command("VADD", memory.records.keys.vectors, "FP32", vector, "x")
    assert (await memory.verify_forgotten(receipt)).found == (memory.records.keys.vectors,)
    assert texts(await memory.recall("a secret")) == ["kept"]


async def test_verifying_finds_and_repairs_what_the_set_lacks_holds_or_holds_wrongly(sets: Store) -> None:
    memory = served(sets)
    await memory.remember_all(New(f"text {n}", id=str(n)) for n in range(20))
    report = await memory.verify()
    assert (report.ok, report.compared["vectors"], "index" in report.compared) == (True, 20, False)
    key, wrong = memory.records.keys.vectors, drawn("anything else").astype("<f4").tobytes()
    await sets.command("VREM", key, "3")
    await sets.command("VADD", key, "FP32", wrong, "ghost")
    await sets.command("VADD", key, "FP32", wrong, "7")
    report = await memory.verify(repair=True)
    found = {(one.where, one.what, one.name, one.repaired) for one in report.findings}
    flaws = {("missing", "3"), ("orphaned", "ghost"), ("mismatched", "7")}
    assert found == {("vectors", what, name, True) for what, name in flaws}
    assert await agrees(memory) == {str(n) for n in range(20)}
    await sets.command("HDEL", memory.records.keys.head, "vectors")
    report = await memory.verify(repair=True)
    assert [(one.where, one.what, one.repaired) for one in report.findings] == [("vectors", "missing", True)]
    assert (await memory.verify()).findings == ()


async def test_there_is_no_snapshot_and_the_log_does_not_grow_for_ever(sets: Store) -> None:
    memory = served(sets, snapshot_every=10)
    await memory.remember_all(f"text {n}" for n in range(25))
    assert await memory.snapshot() is None
    assert not (await memory.tend()).snapshot
    assert await sets.command("XLEN", memory.records.keys.log) == 10
    token = memory.records.known
    assert token is not None
    assert (await memory.changes()).gap
    await memory.remember("one more")
    assert len((await memory.changes(token)).changes) == 1
    assert (await memory.verify()).findings == ()
    assert len(await memory.recall("text", k=100)) == 26


async def test_what_is_put_together_is_found_in_the_place_of_its_sources(sets: Store) -> None:
    memory = served(sets)
    given: list[Any] = [1.0] + [0.0] * 15
    for text in ("Ann likes green tea a lot", "Ann likes green tea"):
        await memory.remember(text, embedding=given)
    (merged,) = (await memory.apply(await memory.consolidate(words=0.5))).merged
    found = await memory.recall("", embedding=given)
    assert [hit.record.id for hit in found] == [merged.id]
    await agrees(memory)
    assert await memory.undo(merged) == 2
    assert len(await memory.recall("", embedding=given)) == 2
    await agrees(memory)


async def test_what_is_imported_is_found(sets: Store) -> None:
    source = memory_of(sets, Drawn())
    await source.remember_all(f"text {n}" for n in range(30))
    file = BytesIO(b"".join([line async for line in source.export()]))
    memory = served(sets)
    await memory.import_(file)
    assert texts(await memory.recall("text 7", k=1)) == ["text 7"]
    assert len(await agrees(memory)) == 30


async def test_a_change_of_the_space_fills_the_set_anew_there_and_back(sets: Store) -> None:
    class Other(Drawn):
        name = "drawn otherwise"

        async def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
            return await super().embed([f"other {text}" for text in texts], query=query)

    memory = served(sets)
    await memory.remember_all(New(f"text {n}", id=str(n)) for n in range(20))
    migrated = await memory.migrate(Other())
    assert (migrated.flipped, migrated.left) == (True, 0)
    other = served(sets, Other(), path=memory.records.path)
    await other.remember("text 20", id="20")
    found = await other.recall("text 7", k=1)
    assert (texts(found), found.complete) == (["text 7"], True)
    with pytest.raises(EmbedderMismatch):
        await memory.recall("text 7")
    await agrees(other)
    await memory.rollback()
    assert texts(await memory.recall("text 20", k=1)) == ["text 20"]
    assert await agrees(memory) == {str(n) for n in range(21)}
    with pytest.raises(ConfigError, match="compared by l2"):
        await memory.migrate(Plane())
