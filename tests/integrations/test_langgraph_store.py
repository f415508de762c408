"""The store: what is wrong in others is right here, on every backend."""

import asyncio
import math
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import pytest
from pydantic import BaseModel

from blackboard import Blackboard, Settings
from blackboard.errors import ConfigError, EmbedderFailed, EmbedderMismatch, EncodeError, RecordConflict, RecordMissing
from tests.codec.same import same

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langchain_core.messages import AIMessage
from langgraph.store.base import (
    GetOp,
    IndexConfig,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)

from blackboard.integrations.langgraph import BlackboardStore
from tests.integrations.peer_store import DIMENSION, INDEX, embed

BIG = 2**53


@pytest.fixture
async def board(backend: str) -> AsyncIterator[Blackboard]:
    async with Blackboard.open(backend, settings=Settings(), proof=False) as opened:
        yield opened


@pytest.fixture
async def store(board: Blackboard, thread: str) -> BlackboardStore:
    """A store of a namespace that no other test uses."""
    return BlackboardStore(board, namespace=thread)


@pytest.fixture
async def indexed(board: Blackboard, thread: str) -> BlackboardStore:
    return BlackboardStore(board, namespace=thread, index=INDEX)


async def found(store: BlackboardStore, *prefix: str, **asked: Any) -> list[str]:
    return [each.key for each in await store.asearch(prefix, **asked)]


PAIRS = [
    (("user1",), ("user10",)), (("alice",), ("Alice",)), (("run",), ("running",)), (("the",), ("a",)), (("a", "b"), ("a/b",)),
    (("a",), ("a", "b")), (("*",), ("user1",)), (("user[12]",), ("user1",)), (("%2A",), ("*",)), (("é",), ("e\u0301",)),
    (("a ",), ("a",)), (("a:b",), ("a", "b")),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), PAIRS)
async def test_namespaces_are_told_apart_byte_by_byte(
    indexed: BlackboardStore, one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    await indexed.aput(one, "k", {"title": "tea", "of": "one"})
    await indexed.aput(other, "k", {"title": "tea", "of": "other"})
    for namespace, of in ((one, "one"), (other, "other")):
        for query in (None, "tea"):
            inside = [each for each in await indexed.asearch(namespace, query=query) if each.namespace == namespace]
            assert [each.value["of"] for each in inside] == [of]
        item = await indexed.aget(namespace, "k")
        assert item is not None
        assert item.value["of"] == of
    await indexed.adelete(one, "k")
    assert await indexed.aget(one, "k") is None
    assert await indexed.aget(other, "k") is not None
    assert await indexed.alist_namespaces() == [other]


async def test_a_search_sees_nothing_beside_its_prefix(indexed: BlackboardStore) -> None:
    for label in ("user1", "user10", "User1", "user", "user[12]", "user*", "%2A"):
        await indexed.aput(("users", label), f"of {label}", {"title": "tea"})
    for query in (None, "tea"):
        assert await found(indexed, "users", "user1", query=query) == ["of user1"]
        assert await found(indexed, "users", "user*", query=query) == ["of user*"]
        assert await found(indexed, "user", query=query) == []


async def test_labels_that_only_the_methods_refuse_are_kept_exactly(store: BlackboardStore) -> None:
    """LangGraph's methods refuse a label with a dot; an operation may have it."""
    with pytest.raises(InvalidNamespaceError):
        await store.aput(("ada@example.com",), "k", {})
    await store.abatch([PutOp(("ada@example.com",), "k", {"n": 1}), PutOp(("ada@example", "com"), "k", {"n": 2})])
    one, other = await store.abatch([GetOp(("ada@example.com",), "k"), GetOp(("ada@example", "com"), "k")])
    assert [getattr(each, "value", None) for each in (one, other)] == [{"n": 1}, {"n": 2}]


async def test_a_batch_of_25_gets_returns_25(store: BlackboardStore) -> None:
    await store.abatch([PutOp(("docs",), str(number), {"n": number}) for number in range(25)])
    items = await store.abatch([GetOp(("docs",), str(number)) for number in range(25)])
    assert [getattr(item, "value", None) for item in items] == [{"n": number} for number in range(25)]


async def test_every_namespace_is_listed(store: BlackboardStore) -> None:
    names = [("users", f"{number:03}", "notes") for number in range(140)]
    await store.abatch([PutOp(name, "k", {}) for name in names])
    assert await store.alist_namespaces(limit=1000) == names
    assert await store.alist_namespaces() == names[:100]
    assert await store.alist_namespaces(limit=7, offset=100) == names[100:107]
    assert await store.alist_namespaces(max_depth=1) == [("users",)]
    assert len(await store.asearch((), limit=1000)) == 140


async def test_a_namespace_vanishes_with_its_last_item(store: BlackboardStore) -> None:
    await store.aput(("a", "b"), "k", {"n": 1})
    await store.aput(("a",), "k", {"n": 1})
    await store.adelete(("a", "b"), "k")
    await store.adelete(("a", "b"), "k")
    assert await store.alist_namespaces() == [("a",)]
    assert await found(store) == ["k"]
    await store.aput(("a", "b"), "k", {"n": 2})
    assert await store.alist_namespaces() == [("a",), ("a", "b")]
    assert [each.value for each in await store.asearch(("a", "b"))] == [{"n": 2}]


async def test_a_filter_holds_before_the_limit(indexed: BlackboardStore) -> None:
    await indexed.abatch([PutOp(("docs",), str(n), {"title": "tea", "rare": n == 29}) for n in range(30)])
    assert await found(indexed, "docs", filter={"rare": True}, limit=10) == ["29"]
    assert await found(indexed, "docs", filter={"rare": True}, query="tea", limit=1) == ["29"]


async def test_a_rare_match_is_found_however_far_it_is(indexed: BlackboardStore) -> None:
    near = [PutOp(("docs",), f"near{n}", {"title": "tea", "kind": "b"}) for n in range(600)]
    far = [PutOp(("docs",), f"far{n}", {"title": "oslo", "kind": "a"}) for n in range(20)]
    await indexed.abatch([*near, *far])
    assert await found(indexed, "docs", filter={"kind": "a"}, query="tea", limit=20) == [f"far{n}" for n in range(20)]
    assert len(await found(indexed, "docs", query="tea", limit=620)) == 620


COMPARED: list[tuple[Any, dict[str, Any], list[str]]] = [
    ([2, 10, 100], {"$gt": 5}, ["1", "2"]),
    ([2, 10, 100], {"$lt": 10}, ["0"]),
    ([BIG, BIG + 1, BIG + 2], {"$gt": BIG}, ["1", "2"]),
    ([BIG, BIG + 1, float(BIG)], {"$eq": BIG}, ["0", "2"]),
    ([BIG, BIG + 1, float(BIG)], {"$lte": float(BIG)}, ["0", "2"]),
    ([1, True, 1.0, "1"], {"$eq": 1}, ["0", "2"]),
    ([1, True, 1.0, "1"], {"$eq": True}, ["1"]),
    ([1, True, 2, "3"], {"$gte": 1}, ["0", "2"]),
    (["b", "a", 3, None], {"$gt": "a"}, ["0"]),
    ([-1.5, math.nan, math.inf], {"$gt": -2}, ["0", "2"]),
    ([Decimal("2.5"), 2, 3], {"$gt": 2}, ["0", "2"]),
    ([{"a": 1}, {"a": 1, "b": 2}, None], {"$eq": {"a": 1}}, ["0"]),
    ([{"a": 1}, {"a": 1, "b": 2}, None], {"a": 1}, ["0", "1"]),
    ([{"a": 1}, {"a": 5}, 5], {"a": {"$gt": 2}}, ["1"]),
    ([1, None, "x"], {"$ne": 1}, ["1", "2"]),
    ([5, 15, 25], {"$gt": 5, "$lt": 25}, ["1"]),
]


@pytest.mark.parametrize(("values", "operand", "right"), COMPARED)
async def test_filters_compare_values_exactly(
    store: BlackboardStore, values: list[Any], operand: dict[str, Any], right: list[str]
) -> None:
    await store.abatch([PutOp(("docs",), str(at), {"v": value}) for at, value in enumerate(values)])
    await store.aput(("docs",), "without", {})
    missing = ["without"] if "$ne" in operand else []
    assert await found(store, "docs", filter={"v": operand}) == [*right, *missing]


REFUSED: list[dict[str, Any]] = [
    {"a": {"$regex": ".*"}}, {"a": {"$gt": None}}, {"a": {"$gt": True}}, {"a": {"$gt": [1]}}, {"$or": [{"a": 1}]},
    {"a": {"$eq": 1, "b": 2}}, {"a": {"b": {"$in": [1]}}}, {"a": [{"$exists": True}]},
]  # fmt: skip


@pytest.mark.parametrize("filter", REFUSED)
async def test_an_operator_that_is_not_known_is_refused(store: BlackboardStore, filter: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="filter"):
        await store.asearch(("docs",), filter=filter)


async def test_a_filter_is_no_way_out_of_a_namespace(store: BlackboardStore) -> None:
    for user in ("alice", "bob"):
        await store.aput(("memories", user), "m", {"user_id": user})
    literal: list[dict[str, Any]] = [
        {"user_id": '") or true or ("'}, {"v' OR 1=1 --": 1}, {"user_id": "*"}, {"user_id": ["alice", "bob"]}, {"": 1},
    ]  # fmt: skip
    for each in literal:
        assert await found(store, "memories", filter=each) == []
    (only,) = await store.asearch(("memories", "alice"), filter={"user_id": {"$ne": ""}})
    assert only.value == {"user_id": "alice"}


async def test_each_text_of_an_item_is_found_at_its_full_score(indexed: BlackboardStore) -> None:
    value = {"title": "tea ceremony", "body": "violin concert in bergen", "tags": ["oslo", "coffee"]}
    await indexed.aput(("docs",), "k", value)
    for text in ("tea ceremony", "violin concert in bergen", "oslo", "coffee"):
        (hit,) = await indexed.asearch(("docs",), query=text)
        assert hit.score == pytest.approx(1, abs=1e-6)
        assert hit.value == value
    await indexed.aput(("docs",), "k", {"title": "tea ceremony"})
    (hit,) = await indexed.asearch(("docs",), query="oslo")
    assert hit.score == pytest.approx(0, abs=1e-6)


async def test_without_an_index_a_query_counts_for_nothing(store: BlackboardStore) -> None:
    await store.aput(("docs",), "a", {"title": "x"}, ["title"])
    await store.aput(("docs",), "b", {"title": "tea"})
    hits = await store.asearch(("docs",), query="tea")
    assert [(hit.key, hit.score) for hit in hits] == [("a", None), ("b", None)]


async def test_pages_of_a_search_share_nothing_and_lack_nothing(indexed: BlackboardStore) -> None:
    for number in range(9):
        index: Any = False if number % 3 == 0 else None
        await indexed.aput(("docs",), str(number), {"title": "tea " * (number + 1) + "oslo"}, index)
    pages = [await found(indexed, "docs", query="tea", limit=2, offset=at) for at in range(0, 10, 2)]
    whole = [key for page in pages for key in page]
    assert whole == await found(indexed, "docs", query="tea", limit=9)
    assert sorted(whole[:6]) == ["1", "2", "4", "5", "7", "8"]
    assert whole[6:] == ["0", "3", "6"]


async def test_created_at_stays_and_updated_at_moves(store: BlackboardStore) -> None:
    await store.aput(("docs",), "k", {"n": 1})
    first = await store.aget(("docs",), "k")
    await store.aput(("docs",), "k", {"n": 2})
    second = await store.aget(("docs",), "k")
    assert first is not None
    assert second is not None
    assert first.created_at == first.updated_at == second.created_at < second.updated_at
    assert abs(second.updated_at - datetime.now(UTC)) < timedelta(minutes=1)
    await store.adelete(("docs",), "k")
    await store.aput(("docs",), "k", {"n": 3})
    third = await store.aget(("docs",), "k")
    assert third is not None
    assert third.created_at > second.updated_at


async def test_values_come_back_the_same(store: BlackboardStore) -> None:
    value: dict[str, Any] = {
        "none": None, "yes": True, "big": 2**70, "nan": math.nan, "minus": -0.0, "pair": (1, 2), "when": datetime.now(UTC),
        "bytes": b"\x00\xff", "deep": {"a": [{"b": {}}], "": []}, "surrogate": "\ud800", "price": Decimal("19.90"),
    }  # fmt: skip
    await store.aput(("docs",), "k", value)
    for held in (await store.aget(("docs",), "k"), *await store.asearch(("docs",))):
        assert held is not None
        assert same(held.value, value)
        held.value["deep"]["a"].append("changed by the caller")
    again = await store.aget(("docs",), "k")
    assert again is not None
    assert same(again.value, value)


async def test_what_a_message_says_is_stored_as_text(store: BlackboardStore) -> None:
    await store.aput(("docs",), "k", {"said": AIMessage("tea").text})
    item = await store.aget(("docs",), "k")
    assert item is not None
    assert type(item.value["said"]) is str
    assert await found(store, "docs", filter={"said": "tea"}) == ["k"]


async def test_what_was_remembered_there_in_another_way_is_a_text(backend: str, thread: str) -> None:
    settings = Settings(namespaces={thread: {"kind": "memory"}})
    async with Blackboard.open(backend, settings=settings, proof=False) as board:
        await board.memory(("docs",), namespace=thread).remember("she drinks tea", id="k")
        store = BlackboardStore(board, namespace=thread)
        assert [each.value for each in await store.asearch((), filter={"text": "she drinks tea"})] == [
            {"text": "she drinks tea"}
        ]
        await store.aput(("docs",), "k", {"n": 1})
        item = await store.aget(("docs",), "k")
        assert item is not None
        assert (item.value, await store.aversion(("docs",), "k")) == ({"n": 1}, 2)
        record = await board.memory(("docs",), namespace=thread).get("k")
        assert record is not None
        assert record.value == {"n": 1}
        assert (await board.memory(("docs",), namespace=thread).verify()).findings == ()


class Order(BaseModel):
    price: int


async def test_what_would_not_come_back_the_same_is_refused_as_a_whole(store: BlackboardStore) -> None:
    ops = [PutOp(("docs",), "good", {"n": 1}), PutOp(("docs",), "bad", {"order": Order(price=1)})]
    with pytest.raises(EncodeError, match="model_dump"):
        await store.abatch(ops)
    assert await found(store) == []


NONSENSE: list[Any] = [
    PutOp((), "k", {}), PutOp(("a", ""), "k", {}), PutOp(("a",), "", {}), PutOp(("a",), "k", {}, ttl=0),
    PutOp(("a",), "k", {}, ttl=-1), SearchOp((), limit=-1), SearchOp((), offset=-1), "get",
    *(PutOp(("a",), "k", {}, ttl=cast("Any", ttl)) for ttl in ("5", math.nan, math.inf, 1e15, True)),
    *(PutOp(("a",), "k", cast("Any", value)) for value in ("text", 5, [("n", 1)], {1, 2})),
    *(SearchOp((), filter=cast("Any", asked)) for asked in ("n", [("n", 1)], 5)),
    *(op for name in ("users", None, 5) for op in (
        PutOp(cast("Any", name), "k", {}), PutOp(cast("Any", name), "k", None), GetOp(cast("Any", name), "k"),
        SearchOp(cast("Any", name)), ListNamespacesOp((MatchCondition("prefix", cast("Any", name)),)),
    )),
]  # fmt: skip
"""A text is a sequence too: as a namespace its characters would be the labels."""


@pytest.mark.parametrize("op", NONSENSE)
async def test_nonsense_is_refused_before_anything_is_sent(store: BlackboardStore, op: Any) -> None:
    with pytest.raises(ValueError):
        await store.abatch([op, PutOp(("docs",), "k", {})])
    assert await found(store) == []


async def test_versions_guard_an_item(store: BlackboardStore) -> None:
    assert await store.aversion(("docs",), "k") is None
    with pytest.raises(RecordMissing):
        await store.aput(("docs",), "k", {"n": 0}, expected=1)
    await store.aput(("docs",), "k", {"n": 1}, expected=0)
    with pytest.raises(RecordConflict) as refused:
        await store.aput(("docs",), "k", {"n": 0}, expected=0)
    assert refused.value.version == 1
    await store.aput(("docs",), "k", {"n": 2})
    with pytest.raises(RecordConflict) as refused:
        await store.aput(("docs",), "k", {"n": 0}, expected=1)
    assert refused.value.version == 2
    await store.aput(("docs",), "k", {"n": 3}, expected=2)
    item = await store.aget(("docs",), "k")
    assert item is not None
    assert (item.value, await store.aversion(("docs",), "k")) == ({"n": 3}, 3)


async def test_vectors_of_other_embeddings_are_never_compared(
    board: Blackboard, indexed: BlackboardStore, thread: str
) -> None:
    await indexed.aput(("docs",), "k", {"title": "tea"})
    shorter = IndexConfig(dims=8, embed=lambda texts: [row[:8] for row in embed([*texts])])
    other = BlackboardStore(board, namespace=thread, index=shorter)
    with pytest.raises(EmbedderMismatch):
        await other.asearch(("docs",), query="tea")
    with pytest.raises(EmbedderMismatch):
        await other.aput(("docs",), "k2", {"title": "tea"})
    assert await found(other, "docs") == ["k"]


async def test_an_embedder_that_fails_stores_nothing(board: Blackboard, thread: str) -> None:
    def fail(_: Any) -> list[list[float]]:
        raise TimeoutError("no answer")

    store = BlackboardStore(board, namespace=thread, index=IndexConfig(dims=DIMENSION, embed=fail))
    with pytest.raises(EmbedderFailed):
        await store.aput(("docs",), "k", {"title": "tea"})
    await store.aput(("docs",), "plain", {"title": "tea"}, index=False)
    assert await found(store) == ["plain"]


async def test_what_no_index_can_be_made_of_is_refused(board: Blackboard) -> None:
    configs: list[Any] = [{}, {"dims": 3}, {"embed": embed}, {"dims": 0, "embed": embed}, {"dims": "3", "embed": embed}]
    for config in configs:
        with pytest.raises(ConfigError):
            BlackboardStore(board, index=config)


@pytest.mark.parametrize("fields", ["text", 5, True, ["text", 5]])
async def test_fields_are_a_list_of_paths(board: Blackboard, thread: str, fields: Any) -> None:
    """Of one text the characters would be the paths, and nothing would ever be found."""
    with pytest.raises(ConfigError):
        BlackboardStore(board, index=IndexConfig(dims=DIMENSION, embed=embed, fields=fields))
    store = BlackboardStore(board, namespace=thread, index=IndexConfig(dims=DIMENSION, embed=embed))
    with pytest.raises(ConfigError):
        await store.aput(("docs",), "k", {"text": "tea"}, index=fields)
    assert await found(store) == []


@pytest.mark.parametrize("ttl", [0, -1, "5", math.nan, 1e15])
async def test_a_ttl_that_makes_no_sense_is_refused_when_it_is_configured(board: Blackboard, ttl: Any) -> None:
    with pytest.raises(ConfigError, match="ttl"):
        BlackboardStore(board, ttl={"default_ttl": ttl})


async def test_a_version_is_that_of_a_tuple_of_labels(store: BlackboardStore) -> None:
    for namespace in ("docs", None):
        with pytest.raises(ConfigError):
            await store.aversion(cast("Any", namespace), "k")
        with pytest.raises(ConfigError):
            await store.atend(cast("Any", namespace))
        with pytest.raises(ConfigError):
            await store.aput(cast("Any", namespace), "k", {}, expected=0)


async def test_gets_at_once_share_a_round_trip_with_their_namespace(store: BlackboardStore) -> None:
    await asyncio.gather(*(store.aput(("docs",), str(n), {"n": n}) for n in range(50)))
    items = await asyncio.gather(*(store.aget(("docs",), str(n)) for n in range(50)))
    assert [item.value["n"] for item in items if item is not None] == list(range(50))
