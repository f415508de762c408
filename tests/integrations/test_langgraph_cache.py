"""The cache of nodes' results: as LangGraph's own in memory, exact, never a wrong value, no key without an end."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from typing import Annotated, Any, cast

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from blackboard import Blackboard, Settings, keys
from blackboard.errors import ConfigError, EncodeError, ServerUnavailable
from blackboard.store.client import Store
from blackboard.testing.contracts.thread import all_keys
from blackboard.testing.servers import Server
from tests.codec.same import same
from tests.pages import REFERENCE, table

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.cache.base import BaseCache
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import CachePolicy

from blackboard.integrations.langgraph import BlackboardCache, BlackboardSaver, BlackboardSerializer

KEY = "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    pair: tuple[int, int]


class Order(BaseModel):
    price: int


@pytest.fixture
async def board(backend: str) -> AsyncIterator[Blackboard]:
    async with Blackboard.open(backend, settings=Settings(), proof=False) as opened:
        yield opened


@pytest.fixture
async def cache(board: Blackboard, thread: str) -> BlackboardCache[Any]:
    """A cache of a namespace that no other test uses."""
    return BlackboardCache(board, namespace=thread)


async def scenario(cache: BaseCache[Any]) -> list[Any]:
    """Run a graph whose node is cached: again, with other input, after its time, after a clear."""
    runs: list[str] = []

    def answer(state: State) -> Any:
        runs.append(state["messages"][-1].text)
        return {"messages": [AIMessage("an answer", id="a")], "pair": (1, 2)}

    built = StateGraph(State).add_node("answer", answer, cache_policy=CachePolicy(key_func=asked, ttl=3600))
    built.add_node("short", lambda _: runs.append("short"), cache_policy=CachePolicy(key_func=asked, ttl=1))
    graph: Any = built.add_edge(START, "answer").add_edge("answer", "short").add_edge("short", END).compile(cache=cache)

    async def ask(text: str) -> Any:
        ended = await graph.ainvoke({"messages": [HumanMessage(text, id="h")]})
        return [message.content for message in ended["messages"]], ended["pair"], list(runs)

    found = [await ask("one"), await ask("one"), await ask("two"), await ask("one")]
    for _ in range(1000):
        found[-1] = await ask("one")
        if runs.count("short") == 3:
            break
        await asyncio.sleep(0.01)
    await graph.aclear_cache(["short"])
    found.append(await ask("one"))
    await graph.aclear_cache()
    found.append(await ask("one"))
    await cache.aclear()
    found.append(await ask("two"))
    return found


def asked(state: Any) -> str:
    return str(state["messages"][-1].text)


@pytest.mark.filterwarnings("ignore")
async def test_a_graph_behaves_as_with_the_cache_in_memory(cache: BlackboardCache[Any]) -> None:
    ours = await scenario(cache)
    assert ours == await scenario(InMemoryCache(serde=BlackboardSerializer()))
    assert ours[-1][2].count("one") == 2
    assert ours[-1][2].count("two") == 2


async def put(cache: BaseCache[Any], *namespace: str, key: str = "k", value: Any = 1, ttl: int | None = None) -> None:
    await cache.aset({(namespace, key): (value, ttl)})


NAMESPACES: list[tuple[str, ...]] = [
    (),
    ("a",),
    ("a", "b"),
    ("a/b",),
    ("ab",),
    ("a", "b", "c"),
    ("*",),
    ("a:{b}%",),
    ("ä\x00",),
]


@pytest.mark.parametrize("cleared", NAMESPACES)
async def test_a_clear_is_exact(cache: BlackboardCache[Any], cleared: tuple[str, ...]) -> None:
    """As with the cache in memory: no namespace stands for those below it, or for any that looks like it."""
    wanted = [(namespace, "*") for namespace in NAMESPACES]
    caches: list[BaseCache[Any]] = [cache, InMemoryCache()]
    for one in caches:
        await one.aset({full: (list(full[0]), None) for full in wanted})
        await one.aclear([cleared, ("none",)])
        assert await one.aget(wanted) == {full: list(full[0]) for full in wanted if full[0] != cleared}
    await cache.aclear()
    assert await cache.aget(wanted) == {}
    await cache.aset({})
    assert await cache.aget([]) == {}


async def test_a_clear_of_many(cache: BlackboardCache[Any]) -> None:
    await cache.aset({(("a",), f"{number}"): (number, None) for number in range(1200)})
    await put(cache, "b")
    assert len(await cache.aget([(("a",), f"{number}") for number in range(1200)])) == 1200
    await cache.aclear([("a",)])
    assert await cache.aget([(("a",), f"{number}") for number in range(1200)]) == {}
    assert await cache.aget([(("b",), "k")]) == {(("b",), "k"): 1}


async def life(cache: BlackboardCache[Any], *namespace: str, key: str = "k") -> int:
    where = keys.CacheKeys.of(cache.namespace, keys.CacheKeys.spell(namespace))
    return int(await cache.board.store.command("PTTL", where.entry(keys.encode(key))))


async def test_every_value_has_its_own_end(cache: BlackboardCache[Any]) -> None:
    await cache.aset({(("a",), "long"): (1, 3600), (("a",), "short"): (2, 60), (("a",), "none"): (3, None)})
    assert 3_500_000 < await life(cache, "a", key="long") <= 3_600_000
    assert 50_000 < await life(cache, "a", key="short") <= 60_000
    assert await life(cache, "a", key="none") > 6 * 86_400_000
    await put(cache, "a", key="long", value="again", ttl=60)
    assert await life(cache, "a", key="long") <= 60_000
    await put(cache, "a", key="short", ttl=0)
    assert await cache.aget([(("a",), "long"), (("a",), "short")]) == {(("a",), "long"): "again"}


async def test_every_key_is_on_the_page_and_ends(cache: BlackboardCache[Any]) -> None:
    """But for the list of namespaces, from which rows go when their time is over."""
    await put(cache, "a", "b", ttl=60)
    await put(cache, "c", ttl=None)
    store = cache.board.store
    rows = {spelled: rest for spelled, *rest in table(REFERENCE / "keys.md", "cache")}
    known = {re.sub(r"<[a-z]+>", "[^:]+", re.escape(spelled.strip("`"))): rest for spelled, rest in rows.items()}
    met = set()
    for key in await all_keys(store, f"bb:{cache.namespace}:"):
        (row,) = [row for row in known if re.fullmatch(row, key)]
        assert (await store.command("TYPE", key)).decode() == known[row][0], key
        assert (await store.command("PTTL", key) == -1) == (known[row][1] == "never"), key
        met.add(row)
    assert met == set(known)
    where = keys.caches(cache.namespace)
    await store.command("ZADD", where, 1, "/gone/")
    await put(cache, "d")
    assert [row.decode() for row in await store.command("ZRANGE", where, 0, -1)] == ["/a/b/", "/c/", "/d/"]


async def test_the_list_outlives_what_it_lists_and_forgets_it(cache: BlackboardCache[Any]) -> None:
    await put(cache, "a", key="long", ttl=3600)
    await put(cache, "a", key="short", ttl=1)
    store, where = cache.board.store, keys.CacheKeys.of(cache.namespace, "/a/")
    assert await store.command("PTTL", where.entries) > await life(cache, "a", key="long")
    for _ in range(1000):
        if not await cache.aget([(("a",), "short")]):
            break
        await asyncio.sleep(0.01)
    await put(cache, "a", key="new", ttl=60)
    assert set(await store.command("ZRANGE", where.entries, 0, -1)) == {b"long", b"new"}


VALUES = [(1, 2), {"a": (1,)}, AIMessage("x"), b"\x00", None, [("messages", [HumanMessage("x")]), ("pair", (1, 2))]]


async def test_a_value_comes_back_as_it_was(cache: BlackboardCache[Any]) -> None:
    for number, value in enumerate(VALUES):
        await put(cache, "a", key=f"{number}", value=value)
    found = await cache.aget([(("a",), f"{number}") for number in range(len(VALUES))])
    assert all(same(found[("a",), f"{number}"], value) for number, value in enumerate(VALUES))


@pytest.mark.parametrize(
    "data",
    [b"", b"bb:", b"bb:[1", b"msgpack:\x01", b"pickle:x", b"\xff", b"\xbbbb\x01", b'bb:{"!model":["x:Y","0",{}]}'],
)
async def test_what_it_did_not_write_is_a_miss_and_told(
    cache: BlackboardCache[Any], data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await put(cache, "a")
    await cache.board.store.command("SET", keys.CacheKeys.of(cache.namespace, "/a/").entry("k"), data)
    with caplog.at_level(logging.WARNING, "blackboard.langgraph.cache"):
        assert await cache.aget([(("a",), "k")]) == {}
    assert len(caplog.records) == 1
    await put(cache, "a", value=2)
    assert await cache.aget([(("a",), "k")]) == {(("a",), "k"): 2}


async def test_a_value_of_a_class_that_is_unknown_here_is_a_miss(cache: BlackboardCache[Any]) -> None:
    knows = BlackboardCache[Any](cache.board, namespace=cache.namespace, serde=BlackboardSerializer([Order]))
    await put(knows, "a", value=Order(price=1))
    assert await knows.aget([(("a",), "k")]) == {(("a",), "k"): Order(price=1)}
    assert await cache.aget([(("a",), "k")]) == {}
    with pytest.raises(EncodeError, match=r"classes=\[Order\]"):
        await put(cache, "a", value=Order(price=1))
    theirs = BlackboardCache[Any](cache.board, namespace=cache.namespace, serde=JsonPlusSerializer())
    await put(theirs, "a", value=[1])
    assert await theirs.aget([(("a",), "k")]) == {(("a",), "k"): [1]}


@pytest.mark.filterwarnings("ignore")
async def test_a_graph_hears_of_a_result_that_cannot_be_cached(cache: BlackboardCache[Any]) -> None:
    built = StateGraph(State).add_node(
        "n", lambda _: {"pair": Order(price=1)}, cache_policy=CachePolicy(key_func=asked)
    )
    graph: Any = built.add_edge(START, "n").add_edge("n", END).compile(cache=cache)
    with pytest.raises(EncodeError, match=r"classes=\[Order\]"):
        await graph.ainvoke({"messages": [HumanMessage("one")]})


async def test_bad_input_is_refused_before_anything_is_sent(cache: BlackboardCache[Any]) -> None:
    for namespace, key in ((("a", ""), "k"), (("a",), ""), (("a",), "k" * 2000)):
        with pytest.raises(ConfigError, match="1 to 1024 bytes"):
            await cache.aset({(namespace, key): (1, None)})
    for ttl in (0, -1, float("nan"), float("inf"), 1e17, None, True):
        with pytest.raises(ConfigError, match="ttl"):
            BlackboardCache(cache.board, ttl=cast("Any", ttl))
    small = Settings(namespaces={"langgraph": {"kind": "checkpoint", "value_limit": "1KiB"}})
    limited = BlackboardCache[Any](Blackboard(cache.board.store, small, None, None))
    with pytest.raises(EncodeError, match="value_limit"):
        await put(limited, "a", value="x" * 2000)


@pytest.mark.parametrize("ttl", [float("nan"), float("inf"), 1e17, "soon", True])
async def test_a_time_that_is_none_spoils_nothing(cache: BlackboardCache[Any], ttl: Any) -> None:
    """One that is too long once stayed in the list of its namespace, in which nothing could be cached from then on."""
    pairs: Any = {(("a",), "k"): (1, 60), (("a",), "bad"): (2, ttl)}
    with pytest.raises(ConfigError, match="ttl"):
        await cache.aset(pairs)
    assert await cache.aget(list(pairs)) == {}
    await put(cache, "a", value=3)
    assert list((await cache.aget([(("a",), "k")])).values()) == [3]


@pytest.mark.parametrize("namespace", ["ab", None, 5])
async def test_a_text_is_no_namespace(cache: BlackboardCache[Any], namespace: Any) -> None:
    """Its characters would be the parts of another one."""
    await cache.aset({(("a", "b"), "k"): (1, 60), (("a",), "k"): (2, 60)})
    for act in (
        cache.aset({(namespace, "k"): (3, 60)}),
        cache.aget([(namespace, "k")]),
        cache.aclear([namespace]),
        cache.aclear(cast("Any", "ab")),
    ):
        with pytest.raises(ConfigError):
            await act
    assert len(await cache.aget([(("a", "b"), "k"), (("a",), "k")])) == 2


async def test_an_outage_is_no_miss(backend: str) -> None:
    async with Blackboard.open(backend, settings=Settings(), proof=False) as board:
        cache = BlackboardCache[Any](board)
    for act in (cache.aget([(("a",), "k")]), put(cache, "a"), cache.aclear()):
        with pytest.raises((ServerUnavailable, ConfigError)):
            await act


async def test_round_trips(cache: BlackboardCache[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    trips: list[str] = []
    for name in ("call", "command", "batch"):
        original = getattr(Store, name)

        def counted(self: Store, *args: Any, name: str = name, original: Any = original, **more: Any) -> Any:
            trips.append(name)
            return original(self, *args, **more)

        monkeypatch.setattr(Store, name, counted)
    await put(cache, "a", ttl=60)
    assert trips == ["batch", "call"]
    await cache.aset({(("a",), f"{number}"): (number, 60) for number in range(10)})
    assert trips == ["batch", "call", "call"]
    await cache.aget([(("a",), f"{number}") for number in range(10)])
    assert trips == ["batch", "call", "call", "batch"]
    await cache.aclear([("a",)])
    assert trips == ["batch", "call", "call", "batch", "command", "call"]


async def test_sync_calls_serve_every_other_thread(cache: BlackboardCache[Any], backend: str, thread: str) -> None:
    def use(one: BaseCache[Any]) -> Any:
        one.set({(("s",), "k"): ((1,), 60)})
        found = one.get([(("s",), "k")])
        one.clear([("s",)])
        return found, one.get([(("s",), "k")])

    assert await asyncio.to_thread(use, cache) == ({(("s",), "k"): (1,)}, {})
    with pytest.raises(ConfigError, match="await its async twin"):
        cache.get([(("s",), "k")])

    def alone() -> Any:
        with pytest.raises(ConfigError, match=r"loop=saver\.loop"):
            BlackboardCache(cache.board)
        with BlackboardSaver.open(backend, settings=Settings()) as saver:
            return use(BlackboardCache(saver.board, namespace=thread, loop=saver.loop))

    assert await asyncio.to_thread(alone) == ({(("s",), "k"): (1,)}, {})


async def test_an_encrypted_namespace_shows_no_plaintext(solo: Server, thread: str) -> None:
    pytest.importorskip("cryptography", reason="install agent-blackboard[crypto]")
    async with Blackboard.open(solo.url, settings=Settings(), proof=False) as board:
        plain = BlackboardCache[Any](board, namespace=thread)
        settings = Settings(
            namespaces={thread: {"kind": "checkpoint", "encryption": {"keys": {"k": KEY}, "current": "k"}}}
        )
        cache = BlackboardCache[Any](Blackboard(board.store, settings, None, None), namespace=thread)
        await put(cache, "a", value="SECRET " * 20)
        await put(cache, "a", key="other", value="other")
        await put(plain, "a", key="plain", value="slipped in")
        where = keys.CacheKeys.of(thread, "/a/")
        assert b"SECRET" not in await board.store.command("GET", where.entry("k"))
        assert await cache.aget([(("a",), "k"), (("a",), "plain")]) == {(("a",), "k"): "SECRET " * 20}
        assert await plain.aget([(("a",), "k")]) == {}
        await board.store.command("SET", where.entry("other"), await board.store.command("GET", where.entry("k")))
        assert await cache.aget([(("a",), "other")]) == {}
