"""Recall finds what is relevant and there, and nothing else."""

from __future__ import annotations

import math
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from blackboard.errors import ConfigError, EmbedderFailed, EmbedderMismatch, EmbeddingInvalid, StoreRegressed
from blackboard.memory import recall as recalling
from blackboard.memory.new import New
from blackboard.memory.ranking import Parts
from blackboard.memory.record import Token
from blackboard.store.client import Store
from blackboard.testing.servers import Server
from tests.memory.recalling import Plane, Topics, memory_of, texts


@pytest_asyncio.fixture
async def one(solo: Server) -> AsyncIterator[Store]:
    """A store on one server, for what need not be shown on every backend."""
    connected = await Store.connect(solo.url)
    yield connected
    await connected.close()


async def test_what_was_remembered_is_recalled(store: Store) -> None:
    memory = memory_of(store, Topics())
    await memory.remember_all(["The kitten sleeps", "We lack cash", "A storm is near"])
    found = await memory.recall("cat?", k=2)
    assert texts(found)[0] == "The kitten sleeps"
    assert found[0].record == await memory.get(found[0].record.id)
    assert (len(found), found.complete, found.near) == (2, True, ())
    assert found.token == memory.records.known
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)


async def test_a_path_that_nobody_wrote_to(store: Store) -> None:
    embedder = Topics()
    found = await memory_of(store, embedder).recall("anything")
    assert (found.hits, found.near, found.token, found.complete) == ((), (), None, True)
    assert embedder.asked == []


async def test_more_asked_for_than_there_is(one: Store) -> None:
    memory = memory_of(one, Topics())
    await memory.remember_all(["a cat", "a dog", "some money"])
    assert sorted(texts(await memory.recall("cat", k=1000))) == ["a cat", "a dog", "some money"]


async def test_words_alone(one: Store) -> None:
    """Without an embedder what shares no word with the query is not found."""
    memory = memory_of(one)
    await memory.remember_all(["red apples", "green pears", "apples and pears"])
    assert set(texts(await memory.recall("apple"))) == {"red apples", "apples and pears"}
    assert texts(await memory.recall("zeppelin")) == []
    assert texts(await memory.recall("?!")) == []


async def test_unknown_words_leave_the_vectors(one: Store) -> None:
    memory = memory_of(one, Topics())
    await memory.remember_all(["a cat", "a dog"])
    assert texts(await memory.recall("kitten", k=1)) == ["a cat"]


async def test_records_without_a_vector_are_found_by_their_words(one: Store) -> None:
    embedder = Topics()
    memory = memory_of(one, embedder)
    embedder.failing = OSError("no model")
    await memory.remember("pending zeppelin")
    embedder.failing = None
    await memory.remember("a cat")
    assert texts(await memory.recall("zeppelin", k=1)) == ["pending zeppelin"]
    assert texts(await memory.recall("zeppelin", lexical=0)) == ["a cat"]


async def test_a_failing_embedder_leaves_the_words(one: Store) -> None:
    embedder = Topics()
    memory = memory_of(one, embedder)
    await memory.remember_all(["a cat", "a dog"])
    embedder.failing = OSError("no model")
    found = await memory.recall("dog")
    assert (texts(found), found.complete) == (["a dog"], False)
    assert (await memory.recall("dog", lexical=1)).complete
    with pytest.raises(EmbedderFailed, match="no model"):
        await memory.recall("dog", lexical=0)


async def test_the_embedder_is_told_that_it_is_a_question(one: Store) -> None:
    embedder = Topics()
    memory = memory_of(one, embedder)
    await memory.remember("a cat")
    await memory.recall("cat?")
    assert embedder.asked == [(("a cat",), False), (("cat?",), True)]


async def test_another_space_is_refused(one: Store) -> None:
    first = memory_of(one, Topics())
    await first.remember("a cat")
    other = memory_of(one, Plane(), path=first.records.path)
    with pytest.raises(EmbedderMismatch, match="ask with lexical=1") as caught:
        await other.recall("cat")
    assert '"model":"topics"' in caught.value.stored
    assert texts(await other.recall("cat", lexical=1)) == ["a cat"]


async def test_an_embedding_instead_of_the_query(one: Store) -> None:
    memory = memory_of(one, Topics())
    await memory.remember_all(["a cat", "a dog"])
    assert texts(await memory.recall("", k=1, embedding=[0, 1, 0, 0, 0])) == ["a dog"]
    without = memory_of(one, path=memory.records.path)
    assert texts(await without.recall("", k=1, embedding=[1, 0, 0, 0, 0])) == ["a cat"]
    for wrong in ([0, 1], [0, 0, 0, 0, 0], [math.nan, 0, 0, 0, 0]):
        with pytest.raises(EmbeddingInvalid):
            await memory.recall("", embedding=wrong)
    assert texts(await memory_of(one).recall("", embedding=[1, 0])) == []


class TestFilters:
    async def test_before_the_best_are_chosen(self, one: Store) -> None:
        """C98: the nearest four are of the other category."""
        memory = memory_of(one, Plane())
        await memory.remember_all(
            New(f"row {n}", f"id{n}", metadata={"category": "B" if n < 4 else "A"}, embedding=[n, 0]) for n in range(10)
        )
        found = await memory.recall("", embedding=[0, 0], k=5, where={"category": "A"})
        assert [hit.record.id for hit in found] == ["id4", "id5", "id6", "id7", "id8"]

    async def test_a_few_at_the_far_end_of_many(self, one: Store) -> None:
        """C98: 20 of 10,020, ranked last."""
        memory = memory_of(one, Plane())
        near = [New(f"near {n}", metadata={"c": "B"}, embedding=[math.sin(n), math.cos(n)]) for n in range(10_000)]
        far = [New(f"far {n}", f"far{n}", metadata={"c": "A"}, embedding=[100 + n, 0]) for n in range(20)]
        for start in range(0, len(near), 1_000):
            await memory.remember_all(near[start : start + 1_000])
        await memory.remember_all(far)
        found = await memory.recall("", embedding=[0, 0], k=20, where={"c": "A"})
        assert [hit.record.id for hit in found] == [f"far{n}" for n in range(20)]
        assert len(await memory.recall("row near", embedding=[0, 0], k=20, where={"c": "A"})) == 20

    @pytest.mark.parametrize(
        "where",
        [{"user": '") or true or ("'}, {"user": "*"}, {"user": "alice|bob"}, {"v' OR 1=1 --": 1}, {"__class__": 1}],
        ids=str,
    )
    async def test_hostile_ones_find_nobody(self, one: Store, where: Any) -> None:
        memory = memory_of(one, Topics())
        await memory.remember_all(New(f"a cat {n}", metadata={"user": u}) for u in ("alice", "bob") for n in range(3))
        assert texts(await memory.recall("cat", where=where)) == []

    @pytest.mark.parametrize("where", [{"user": {"$ne": ""}}, {"user": ["alice", "bob"]}, {"": "x"}, {}], ids=str)
    async def test_what_is_not_understood_is_refused(self, one: Store, where: Any) -> None:
        with pytest.raises(ConfigError):
            await memory_of(one).recall("cat", where=where)

    async def test_neighbours_are_held_to_them_too(self, one: Store) -> None:
        memory = memory_of(one, Topics(), context=1)
        await memory.remember_all([New("a secret", metadata={"user": "bob"}), New("a cat", metadata={"user": "alice"})])
        (hit,) = await memory.recall("cat", where={"user": "alice"})
        assert (hit.record.text, hit.before) == ("a cat", ())
        (hit,) = await memory.recall("cat", k=1)
        assert texts([hit]) == ["a cat"]
        assert [record.text for record in hit.before] == ["a secret"]


class TestTimes:
    async def test_only_what_is_valid(self, one: Store) -> None:
        memory = memory_of(one)
        await memory.remember("lives in Oslo", subject="home", valid_from=1_000_000)
        await memory.remember("lives in Bergen", subject="home", valid_from=2_000_000)
        assert texts(await memory.recall("lives")) == ["lives in Bergen"]
        assert texts(await memory.recall("lives", as_of=1_500_000)) == ["lives in Oslo"]
        assert texts(await memory.recall("lives", as_of=2_000_000)) == ["lives in Bergen"]
        assert texts(await memory.recall("lives", as_of=500_000)) == []

    async def test_about_a_subject(self, one: Store) -> None:
        memory = memory_of(one)
        await memory.remember_all([New("likes tea", subject="a"), New("likes tea", subject="b"), "likes tea"])
        (hit,) = await memory.recall("tea", subject="b")
        assert hit.record.subject == "b"

    async def test_recency_counts_by_half_lives(self, one: Store) -> None:
        memory = memory_of(one, recency_half_life="1d")
        now = one.server_time()
        day = 86_400_000_000
        await memory.remember_all(New("a cat", f"{n}", valid_from=now - n * day) for n in range(3))
        found = await memory.recall("cat", recency=0.5, explain=True, as_of=now)
        assert [hit.record.id for hit in found] == ["0", "1", "2"]
        assert [round(hit.parts.recency, 3) for hit in found if hit.parts] == [0.5, 0.25, 0.125]

    async def test_importance_counts(self, one: Store) -> None:
        memory = memory_of(one)
        await memory.remember_all(New("a cat", f"{n}", importance=n / 4) for n in (1, 4, 2))
        found = await memory.recall("cat", importance=0.2, explain=True)
        assert [hit.record.id for hit in found] == ["4", "2", "1"]
        assert [round(hit.parts.importance, 3) for hit in found if hit.parts] == [0.2, 0.1, 0.05]


class TestScores:
    async def test_parts_sum_up(self, one: Store) -> None:
        memory = memory_of(one, Topics(), context=1)
        await memory.remember_all(["Did the storm pass", "yes it did", "a cat", "money for a dog"])
        found = await memory.recall("storm cat", explain=True, recency=0.1, importance=0.2, k=4)
        assert len(found) == 4
        for hit in found:
            assert hit.parts is not None
            assert hit.score == hit.parts.score == pytest.approx(sum(getattr(hit.parts, n) for n in Parts.__slots__))
        assert (await memory.recall("storm"))[0].parts is None

    async def test_a_full_match_is_about_one(self, one: Store) -> None:
        """Scores are on one scale for every query, so that a least one means something."""
        memory = memory_of(one, Topics())
        await memory.remember_all(["a cat", "a dog"])
        best = (await memory.recall("a cat", k=1))[0]
        assert best.score == pytest.approx(1, abs=0.01)
        assert (await memory.recall("no cash at all", k=1))[0].score < 0.2

    async def test_what_comes_near_is_told_if_nothing_passes(self, one: Store) -> None:
        memory = memory_of(one, Topics())
        await memory.remember_all(["a cat", "a dog"])
        found = await memory.recall("a cat", min_score=0.9)
        assert (texts(found), found.near) == (["a cat"], ())
        found = await memory.recall("cash", min_score=0.9)
        assert (texts(found), set(texts(found.near))) == ([], {"a cat", "a dog"})

    async def test_diversity(self, one: Store) -> None:
        memory = memory_of(one, Topics())
        await memory.remember_all(["cat cat", "cat kitten", "cat cat kitten", "cat dog dog"])
        close = await memory.recall("cat", k=2)
        apart = await memory.recall("cat", k=2, diversity=0.6)
        assert "cat dog dog" not in texts(close)
        assert texts(apart)[1] == "cat dog dog"
        assert apart[0].score > apart[1].score


class TestContext:
    async def test_an_answer_is_found_by_its_question(self, one: Store) -> None:
        memory = memory_of(one, context=1)
        turns = ["Ann: hello", "Bob: what will you name the kitten", "Ann: Pebbles", "Bob: I paid the rent"]
        await memory.remember_all(turns)
        found = await memory.recall("kitten name", k=2)
        assert texts(found) == [turns[1], turns[2]] or texts(found) == [turns[2], turns[1]]
        assert {hit.record.text: [one.text for one in hit.before] for hit in found} == {
            turns[1]: [turns[0]],
            turns[2]: [turns[1]],
        }
        assert texts(await memory.recall("kitten name", context=0)) == [turns[1]]

    async def test_sessions_do_not_run_into_each_other(self, one: Store) -> None:
        memory = memory_of(one, context=1, context_by="session")
        await memory.remember_all(
            [
                New("the kitten is gone", metadata={"session": 1}),
                New("noted", metadata={"session": 2}),
                New("fine", metadata={"session": 1}),
            ]
        )
        assert set(texts(await memory.recall("kitten"))) == {"the kitten is gone", "fine"}

    async def test_vectors_of_what_was_before_count_half(self, one: Store) -> None:
        memory = memory_of(one, Plane(), context=1)
        await memory.remember_all([New("a", embedding=[0, 1]), New("b", embedding=[0, 0]), New("c", embedding=[9, 9])])
        found = await memory.recall("", embedding=[0, 0], explain=True)
        parts = {hit.record.text: hit.parts and (hit.parts.dense, hit.parts.context) for hit in found}
        assert parts["b"] == pytest.approx((2 / 3, 1 / 3 * 1 / 2))
        assert parts["a"] == pytest.approx((1 / 2, 0)), "what is not there does not count"


class TestFreshness:
    async def test_a_write_elsewhere_is_seen(self, one: Store) -> None:
        """Strong reads see every acknowledged write; eventual ones what this process has seen."""
        reader = memory_of(one)
        writer = memory_of(one, path=reader.records.path)
        await writer.remember("a cat")
        assert texts(await reader.recall("cat")) == ["a cat"]
        second = await writer.remember("another cat")
        assert texts(await reader.recall("cat", consistency="eventual")) == ["a cat"]
        assert len(await reader.recall("cat", consistency="eventual", at_least=second.token)) == 2

    async def test_what_is_forgotten_elsewhere_is_no_hit(self, one: Store) -> None:
        """Not even for a reader that has not read on; another record takes its place."""
        reader = memory_of(one, Topics())
        writer = memory_of(one, Topics(), path=reader.records.path)
        await writer.remember_all([New("a cat", "1"), New("one cat", "2"), New("a dog", "3")])
        assert len(await reader.recall("cat", k=2)) == 2
        await writer.records.forget(["1", "2"])
        assert texts(await reader.recall("cat", k=2, consistency="eventual")) == ["a dog"]

    async def test_what_changed_elsewhere_is_ranked_anew(self, one: Store) -> None:
        reader = memory_of(one)
        writer = memory_of(one, path=reader.records.path)
        await writer.remember_all([New("a cat", "1", metadata={"n": 1}), New("cats of a friend", "2")])
        await reader.recall("cat")
        await writer.remember("a dog", id="1", metadata={"n": 2})
        found = await reader.recall("dog cat", consistency="eventual")
        assert sorted(texts(found)) == ["a dog", "cats of a friend"]
        assert texts(await reader.recall("dog", where={"n": 1}, consistency="eventual")) == []

    async def test_ghosts_that_no_reading_on_removes(self, one: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """A reader that never hears of it still hands out nothing that is gone, and fills up with what is there."""
        reader = memory_of(one, Topics())
        writer = memory_of(one, Topics(), path=reader.records.path)
        await writer.remember_all(New("a cat", f"{n}", metadata={"n": n}) for n in range(40))
        await reader.recall("cat")
        view = reader.view()
        stuck = view.frame

        async def refresh(at_least: Token | None = None) -> Any:
            return stuck

        monkeypatch.setattr(view, "refresh", refresh)
        await writer.records.forget([f"{n}" for n in range(40) if n % 4])
        found = await reader.recall("cat", k=8)
        assert [hit.record.id for hit in found] == [f"{n}" for n in range(0, 32, 4)]
        assert len(await reader.recall("cat", k=40)) == 10

    async def test_a_token_that_the_path_has_not_reached(self, one: Store) -> None:
        memory = memory_of(one)
        record = await memory.remember("a cat")
        ahead = Token(record.token.incarnation, record.token.seq + 1)
        with pytest.raises(StoreRegressed):
            await memory.recall("cat", at_least=ahead)

    async def test_an_expired_record_is_no_hit(self, one: Store) -> None:
        memory = memory_of(one)
        await memory.remember("a cat", ttl=0.05)
        await memory.remember("cats")
        for _ in range(200):
            if texts(await memory.recall("cat")) == ["cats"]:
                return
        pytest.fail("the expired record is still found")


class TestBelow:
    async def test_a_subtree_is_searched_by_one_scale(self, one: Store) -> None:
        root = f"acme/{uuid.uuid4().hex}"
        for path, said in (
            ("", "a cat"),
            ("/users/1", "cats everywhere here"),
            ("/users/10", "a dog"),
            ("x", "a cat!"),
        ):
            await memory_of(one, Topics(), path=root + path).remember(said)
        memory = memory_of(one, Topics(), path=root)
        found = await memory.recall("a cat", below=True, k=2)
        assert texts(found) == ["a cat", "cats everywhere here"]
        assert found[1].record.path == (*root.split("/"), "users", "1")
        assert found.token is None
        assert texts(await memory.recall("cat")) == ["a cat"]
        users = memory_of(one, Topics(), path=f"{root}/users/1")
        assert texts(await users.recall("cat dog", below=True)) == ["cats everywhere here"]

    async def test_the_number_of_paths_is_bounded(self, one: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(recalling, "MOST_PATHS", 3)
        root = f"many/{uuid.uuid4().hex}"
        for n in range(3):
            await memory_of(one, path=f"{root}/{n}").remember("a cat")
        with pytest.raises(ConfigError, match="3 paths at most"):
            await memory_of(one, path=root).recall("cat", below=True)
        assert len(await memory_of(one, path=f"{root}/0").recall("cat", below=True)) == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"query": ""}, "a question is a text"),
        ({"query": " \n"}, "a question is a text"),
        ({"query": None}, "a question is a text"),
        ({"k": 0}, "k is 1 to 1000"),
        ({"k": 1001}, "k is 1 to 1000"),
        ({"k": True}, "k is 1 to 1000"),
        ({"lexical": 1.5}, "lexical is a share"),
        ({"lexical": 0}, "no embedder makes one"),
        ({"recency": -1}, "recency is a share"),
        ({"recency": 0.6, "importance": 0.6}, "leave nothing for relevance"),
        ({"context": 9}, "context is 0 to 8"),
        ({"diversity": 2}, "diversity is 0 to 1"),
        ({"query": "a \ud800"}, "a question .* lone surrogate"),
        ({"min_score": "high"}, "min_score is a number"),
        ({"min_score": math.nan}, "min_score is a number, got nan"),
        ({"min_score": True}, "min_score is a number"),
        ({"subject": ""}, "subject must have 1 to 1024 bytes"),
        ({"subject": "x" * 1025}, "subject must have 1 to 1024 bytes"),
        ({"subject": "\ud800"}, "subject .* lone surrogate"),
        ({"subject": 5}, "subject must be a str"),
        ({"consistency": "weak"}, "strong or eventual"),
        ({"as_of": "yesterday"}, "a time is a datetime"),
    ],
)
async def test_what_is_asked_wrongly_is_refused(one: Store, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        await memory_of(one).recall(**{"query": "cat", **wrong})
