"""The store against LangGraph's own in memory: the same operations, compared one by one."""

import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from blackboard import Blackboard, Settings
from blackboard.testing.servers import Server

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langgraph.store.base import (
    BaseStore,
    GetOp,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from blackboard.integrations.langgraph import BlackboardStore
from tests.integrations.peer_store import INDEX, Peer, told

LABELS = ["a", "A", "ab", "a/b", "user1", "user10", "the", "running", "*", "%2A", "ä", "run"]
KEYS = ["k", "K", "k:1", "*", "clé"]
WORDS = ["tea", "coffee", "oslo", "bergen", "violin"]
BIG = 2**53


@pytest.fixture
async def store(backend: str, thread: str) -> AsyncIterator[BlackboardStore]:
    async with Blackboard.open(backend, settings=Settings(), proof=False) as board:
        yield BlackboardStore(board, namespace=thread, index=INDEX)


async def scenario(store: BaseStore) -> list[Any]:
    """Put, replace, delete and add again in many namespaces, and ask everything that can be asked."""
    for number in range(12):
        title = f"{WORDS[number % 5]} {WORDS[number % 3]}"
        value = {"title": title, "body": WORDS[number % 4], "n": number, "big": BIG + number, "deep": {"x": number % 2}}
        await store.aput(("users", f"user{number % 3 + 1}"), f"k{number}", value)
        await store.aput(("users", f"user{number % 3 + 1}", "notes"), f"k{number}", {**value, "tags": WORDS[:number]})
    await store.aput(("users", "user10"), "k", {"title": "tea", "n": 2.0, "none": None})
    await store.aput(("users", "user1"), "k0", {"title": "replaced", "n": 10, "list": [1, {"a": 2}]})
    await store.adelete(("users", "user2"), "k1")
    await store.adelete(("users", "user2"), "never")
    await store.aput(("users", "user2"), "k1", {"title": "back", "n": -1})
    await store.aput(("users", "user3"), "hidden", {"title": "tea tea tea", "n": 0}, index=False)
    await store.aput(
        ("users", "user3"), "own", {"title": "x", "other": {"deep": ["violin oslo", "tea"]}}, ["other.deep[*]"]
    )
    found: list[Any] = [await store.aget(("users", "user1"), key) for key in ("k0", "k3", "k1", "K0")]
    found.append(await store.aget(("nobody",), "k"))
    for query in (None, "", "tea oslo", "violin", "nothing of this"):
        found += [
            await store.asearch(prefix, query=query, limit=100)
            for prefix in ((), ("users",), ("users", "user1"), ("user",))
        ]
    found += [await store.asearch(("users",), filter=each, limit=100) for each in FILTERS]
    found += [await store.asearch(("users",), filter={"n": 1}, query="coffee", limit=limit) for limit in (0, 1, 5)]
    found += [await store.asearch(("users",), limit=4, offset=offset) for offset in (0, 4, 8, 100)]
    found += [await store.alist_namespaces(**each) for each in LISTINGS]
    return [told(each) for each in found]


FILTERS: list[dict[str, Any]] = [
    {"title": "replaced"}, {"n": 2}, {"n": 2.0}, {"n": {"$eq": 3}}, {"n": {"$ne": 3}}, {"missing": None}, {"none": None},
    {"missing": {"$ne": 1}}, {"deep": {"x": 1}}, {"deep": {"x": {"$eq": 0}}}, {"deep": {}}, {"list": [1, {"a": 2}]},
    {"list": [1]}, {"list": [1, {}]}, {"n": 1, "title": "coffee coffee"}, {"n": "2"}, {"tags": ["tea"]},
    {"n": {"$ne": 1, "$eq": 2}}, {"big": BIG + 1}, {},
]  # fmt: skip

LISTINGS: list[dict[str, Any]] = [
    {}, {"prefix": ("users",)}, {"prefix": ("user",)}, {"suffix": ("notes",)}, {"prefix": ("users", "*", "notes")},
    {"prefix": ("*", "user1")}, {"suffix": ("*", "notes")}, {"suffix": ("user1", "*")}, {"max_depth": 1}, {"max_depth": 2},
    {"prefix": ("users",), "suffix": ("notes",), "max_depth": 2}, {"limit": 2}, {"limit": 2, "offset": 3}, {"offset": 100},
    {"limit": 0}, {"max_depth": 2, "limit": 1, "offset": 1},
]  # fmt: skip


async def test_a_scenario_ends_as_with_the_store_in_memory(store: BlackboardStore) -> None:
    ours, peers = await scenario(store), await scenario(Peer(index=INDEX))
    assert len(ours) == len(peers)
    assert [at for at, (one, other) in enumerate(zip(ours, peers, strict=True)) if one != other] == []
    assert sum(map(bool, ours)) > 40


ordered = st.sampled_from(["$gt", "$gte", "$lt", "$lte", "$eq", "$ne"])
labels = st.lists(st.sampled_from(LABELS), min_size=1, max_size=3).map(tuple)
numbers = st.sampled_from([-1, 0, 1, 2, 10, 2.5, 10.0])
values = st.fixed_dictionaries(
    {"n": numbers, "title": st.sampled_from(WORDS), "body": st.lists(st.sampled_from(WORDS), max_size=2).map(" ".join)}
)
indexes: st.SearchStrategy[Any] = st.sampled_from([None, None, False, ["body"]])
puts = st.tuples(labels, st.sampled_from(KEYS), values, indexes).map(lambda told: PutOp(*told))
deletes = st.tuples(labels, st.sampled_from(KEYS)).map(lambda told: PutOp(*told, None))
gets = st.tuples(labels, st.sampled_from(KEYS)).map(lambda told: GetOp(*told))
filters = st.none() | st.fixed_dictionaries({"n": st.dictionaries(ordered, numbers, min_size=1, max_size=2)})
plain = st.tuples(labels, filters, st.integers(0, 5), st.integers(0, 3)).map(lambda told: SearchOp(*told))
asked = st.tuples(labels, filters, st.sampled_from(WORDS)).map(lambda told: SearchOp(*told[:2], 100, 0, told[2]))
paths = st.lists(st.sampled_from([*LABELS, "*"]), min_size=1, max_size=2).map(tuple)
kinds: st.SearchStrategy[Any] = st.sampled_from(["prefix", "suffix"])
matches = st.tuples(kinds, paths).map(lambda told: (MatchCondition(*told),))
depths, windows = st.none() | st.integers(2, 4), st.tuples(st.integers(0, 5), st.integers(0, 2))
lists = st.tuples(st.just(()) | matches, depths, windows).map(lambda told: ListNamespacesOp(*told[:2], *told[2]))
batches = st.lists(puts | puts | puts | deletes | gets | plain | asked | lists, min_size=1, max_size=4)


def rooted(op: Op, root: str) -> Any:
    """Put an op below a root of its own, so that one server serves every example."""
    if isinstance(op, SearchOp):
        return op._replace(namespace_prefix=(root, *op.namespace_prefix[1:]))
    if isinstance(op, ListNamespacesOp):
        return op._replace(match_conditions=(MatchCondition("prefix", (root,)), *(op.match_conditions or ())))
    return op._replace(namespace=(root, *op.namespace))


def settled(result: Result) -> Any:
    """Say what a result holds; what was found by meaning in the order of score and place, for of equal scores rounding decides."""
    if isinstance(result, list) and any(isinstance(each, SearchItem) and each.score is not None for each in result):
        return sorted(told(result), key=lambda each: (each[3] is None, -(each[3] or 0), each[0], each[1]))
    return told(result)


@pytest.fixture(scope="module")
def opened(solo: Server) -> Iterator[BlackboardStore]:
    with BlackboardStore.open(solo.url, index=INDEX, namespace=uuid.uuid4().hex) as store:
        yield store


@settings(
    max_examples=40, phases=[Phase.generate], deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
@given(st.lists(batches, min_size=1, max_size=8))
def test_any_operations_give_what_the_store_in_memory_gives(opened: BlackboardStore, played: list[list[Any]]) -> None:
    peer, root = Peer(index=INDEX), uuid.uuid4().hex
    for batch in played:
        ops = [rooted(op, root) for op in batch]
        ours, peers = opened.batch(ops), peer.batch(ops)
        assert [settled(one) for one in ours] == [settled(one) for one in peers]
