"""The store in use: many writers and readers, items that end, sync callers, graphs, round trips, outages, growth."""

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from typing_extensions import TypedDict

from blackboard import Blackboard, Settings, keys
from blackboard.errors import ConfigError, RecordConflict, ServerUnavailable
from blackboard.memory.records import Records
from blackboard.testing.proxy import FaultProxy
from blackboard.testing.servers import Server

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore, GetOp, PutOp, TTLConfig

from blackboard.integrations.langgraph import BlackboardStore
from tests.integrations.peer_store import INDEX, Peer

SECOND = 1 / 60
"""In minutes, as LangGraph counts."""


@pytest.fixture
async def board(backend: str) -> AsyncIterator[Blackboard]:
    async with Blackboard.open(backend, settings=Settings(), proof=False) as opened:
        yield opened


@pytest.fixture
async def store(board: Blackboard, thread: str) -> BlackboardStore:
    return BlackboardStore(board, namespace=thread, index=INDEX)


def records(store: BlackboardStore, *labels: str) -> Records:
    return Records(store.board.store, store.namespace, keys.path_text(labels), store.policy)


async def until_gone(store: BlackboardStore, *labels: str, key: str = "k") -> None:
    for _ in range(1000):
        if await store.aget(labels, key, refresh_ttl=False) is None:
            return
        await asyncio.sleep(0.01)
    pytest.fail("the item did not end")


async def test_a_reader_never_sees_an_item_missing_or_half_while_it_is_replaced(backend: str, thread: str) -> None:
    async with (
        Blackboard.open(backend, settings=Settings(), proof=False) as one,
        Blackboard.open(backend, settings=Settings(), proof=False) as other,
    ):
        writer, reader = (BlackboardStore(each, namespace=thread, index=INDEX) for each in (one, other))
        await writer.aput(("docs",), "k", {"title": "tea 0", "n": 0, "again": 0})
        seen: list[int] = []
        done = asyncio.Event()

        async def write() -> None:
            for number in range(1, 200):
                await writer.aput(("docs",), "k", {"title": f"tea {number}", "n": number, "again": number})
            done.set()

        async def read() -> None:
            while not done.is_set():
                item = await reader.aget(("docs",), "k")
                (plain,), (hit,) = await reader.asearch(("docs",)), await reader.asearch((), query="tea")
                assert item is not None
                for each in (item, plain, hit):
                    assert each.value["n"] == each.value["again"]
                seen.append(item.value["n"])

        await asyncio.gather(write(), *(read() for _ in range(3)))
        assert len(seen) > 20
        assert await reader.alist_namespaces() == [("docs",)]


async def test_racing_writers_leave_one_item_whose_version_counts_them(backend: str, thread: str) -> None:
    async with (
        Blackboard.open(backend, settings=Settings(), proof=False) as one,
        Blackboard.open(backend, settings=Settings(), proof=False) as other,
    ):
        stores = [BlackboardStore(each, namespace=thread) for each in (one, other)]
        await asyncio.gather(*(stores[n % 2].aput(("docs",), "k", {"n": n}) for n in range(60)))
        (item,) = await stores[0].asearch(())
        got = await stores[1].aget(("docs",), "k")
        assert got is not None
        assert (item.value, item.updated_at) == (got.value, got.updated_at)
        assert await stores[1].aversion(("docs",), "k") == 60
        assert await records(stores[0], "docs").count() == 1


async def test_counting_with_versions_loses_nothing(store: BlackboardStore) -> None:
    async def count() -> None:
        for _ in range(1000):
            version = await store.aversion(("docs",), "n") or 0
            item = await store.aget(("docs",), "n")
            try:
                await store.aput(("docs",), "n", {"n": 1 + (item.value["n"] if item else 0)}, expected=version)
            except RecordConflict:
                continue
            return
        pytest.fail("the count never went through")

    await asyncio.gather(*(count() for _ in range(12)))
    item = await store.aget(("docs",), "n")
    assert item is not None
    assert item.value == {"n": 12}


async def test_what_another_process_wrote_is_found_at_once(backend: str, thread: str) -> None:
    script = (
        "import asyncio, sys\n"
        "from blackboard import Blackboard, Settings\n"
        "from blackboard.integrations.langgraph import BlackboardStore\n"
        "from tests.integrations.peer_store import INDEX\n"
        "async def main():\n"
        "    async with Blackboard.open(sys.argv[1], settings=Settings(), proof=False) as board:\n"
        "        store = BlackboardStore(board, namespace=sys.argv[2], index=INDEX)\n"
        "        await store.aput(('docs', 'new'), 'other', {'title': 'violin', 'n': 2})\n"
        "        await store.adelete(('docs',), 'mine')\n"
        "asyncio.run(main())\n"
    )
    async with Blackboard.open(backend, settings=Settings(), proof=False) as board:
        store = BlackboardStore(board, namespace=thread, index=INDEX)
        await store.aput(("docs",), "mine", {"title": "violin", "n": 1})
        assert [each.key for each in await store.asearch((), query="violin")] == ["mine"]
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, backend, thread)
        assert await process.wait() == 0
        assert [each.key for each in await store.asearch((), query="violin")] == ["other"]
        assert [each.key for each in await store.asearch(("docs",), filter={"n": {"$gt": 1}})] == ["other"]


async def test_an_item_ends_by_its_ttl_everywhere(store: BlackboardStore) -> None:
    await store.aput(("docs", "short"), "k", {"title": "tea"}, ttl=0.2 * SECOND)
    await store.aput(("docs", "long"), "k", {"title": "tea"}, ttl=60)
    await store.aput(("docs", "ever"), "k", {"title": "tea"})
    await until_gone(store, "docs", "short")
    for query in (None, "tea"):
        names = [each.namespace[1] for each in await store.asearch(("docs",), query=query)]
        assert names == ["ever", "long"]
    assert await store.alist_namespaces(max_depth=2) == [("docs", "ever"), ("docs", "long")]
    assert await records(store, "docs", "short").rows(0, 10) != []
    assert await store.atend() == 1
    assert await records(store, "docs", "short").rows(0, 10) == []
    await store.aput(("docs", "short"), "k", {"title": "back"})
    assert [each.value["title"] for each in await store.asearch(("docs", "short"), query="back")] == ["back"]


@pytest.mark.parametrize("config", [None, TTLConfig(default_ttl=2 * SECOND)])
async def test_reading_keeps_an_item_alive(backend: str, thread: str, config: TTLConfig | None) -> None:
    """An item that is read lives on after its first end; one that is read without refreshing does not."""
    settings = Settings(namespaces={thread: {"kind": "memory"}})
    async with Blackboard.open(backend, settings=settings, proof=False) as board:
        store = BlackboardStore(board, namespace=thread, ttl=config)
        for key in ("got", "searched", "left"):
            await store.aput((key,), key, {"n": 1}, ttl=2 * SECOND)
        ends = [await expiry(store, key) for key in ("got", "searched", "left")]
        for _ in range(1000):
            if board.store.server_time() // 1000 > max(ends) + 50:
                break
            assert await store.aget(("got",), "got") is not None
            assert len(await store.asearch(("searched",), limit=1)) == 1
            await store.aget(("left",), "left", refresh_ttl=False)
            await asyncio.sleep(0.02)
        assert await store.aget(("left",), "left") is None
        assert await expiry(store, "got") > ends[0]
        assert [each.key for each in await store.asearch((), refresh_ttl=False)] == ["got", "searched"]
        assert (await board.memory(("got",), namespace=thread).verify()).findings == ()


async def expiry(store: BlackboardStore, key: str) -> int:
    record = await records(store, key).get(key)
    assert record is not None
    assert record.expires is not None
    return record.expires


async def test_ttl_configuration(board: Blackboard, thread: str) -> None:
    store = BlackboardStore(board, namespace=thread, ttl={"default_ttl": 60, "refresh_on_read": False})
    await store.aput(("docs",), "default", {})
    await store.aput(("docs",), "ever", {}, ttl=None)
    await store.aput(("docs",), "guarded", {}, expected=0)
    found = {one.record.id: one for one in await records(store, "docs").fetch(["default", "ever", "guarded"]) if one}
    assert {key: one.ttl for key, one in found.items()} == {"default": 3_600_000, "ever": None, "guarded": 3_600_000}
    end = found["default"].record.expires
    assert await store.aget(("docs",), "default") is not None
    again = await records(store, "docs").get("default")
    assert again is not None
    assert again.expires == end
    await store.aput(("docs",), "default", {}, ttl=None)
    again = await records(store, "docs").get("default")
    assert again is not None
    assert again.expires is None


async def test_sync_calls_serve_other_threads(store: BlackboardStore) -> None:
    found: list[Any] = []

    def use() -> None:
        store.put(("docs",), "k", {"title": "tea"}, expected=0)
        found.append(store.get(("docs",), "k"))
        found.append(store.search(("docs",), query="tea"))
        found.append(store.list_namespaces())
        found.append((store.version(("docs",), "k"), store.tend()))
        store.delete(("docs",), "k")

    thread = threading.Thread(target=use)
    thread.start()
    await asyncio.to_thread(thread.join)
    item, (hit,), names, told = found
    assert (item.key, hit.score, names, told) == ("k", pytest.approx(1, abs=1e-6), [("docs",)], (1, 0))
    assert await store.aget(("docs",), "k") is None
    with pytest.raises(ConfigError):
        store.get(("docs",), "k")


def test_a_store_needs_a_loop(solo: Server, thread: str) -> None:
    with BlackboardStore.open(solo.url, namespace=thread, index=INDEX) as store:
        store.put(("docs",), "k", {"title": "tea"})
        with pytest.raises(ConfigError):
            BlackboardStore(store.board)
        other = BlackboardStore(store.board, namespace=thread, loop=store.loop)
        assert [each.key for each in other.search(("docs",))] == ["k"]


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


async def remembered(store: BaseStore) -> list[Any]:
    """Run a graph that remembers what is said to it for one user, and recalls it by meaning in another thread."""

    async def write(state: State, runtime: Runtime[None], config: RunnableConfig) -> None:
        assert runtime.store is not None
        user = config["configurable"]["user"]
        text = state["messages"][0].text
        await runtime.store.aput((user, "memories"), str(len(text)), {"title": text})

    async def answer(state: State, runtime: Runtime[None], config: RunnableConfig) -> Any:
        assert runtime.store is not None
        user = config["configurable"]["user"]
        hits = await runtime.store.asearch((user, "memories"), query=state["messages"][-1].text, limit=2)
        return {"messages": [AIMessage(json.dumps([hit.value["title"] for hit in hits]))]}

    built: Any = StateGraph(State)
    built.add_node("write", write).add_node("answer", answer)
    graph = built.add_edge(START, "answer").add_edge("answer", "write").add_edge("write", END).compile(store=store)
    found: list[Any] = []
    for user in ("ada", "ad"):
        for text in ("tea in oslo", "a violin concert in bergen", "coffee", "oslo tea"):
            said = {"messages": [HumanMessage(text)]}
            ended = await graph.ainvoke(said, {"configurable": {"user": user}})
            found.append(json.loads(ended["messages"][1].content))
    return found


async def test_a_graph_recalls_as_with_the_store_in_memory(store: BlackboardStore) -> None:
    ours = await remembered(store)
    assert ours == await remembered(Peer(index=INDEX))
    assert ours[3][0] == "tea in oslo"
    assert ours[4] == []


async def test_round_trips(server: Server, thread: str) -> None:
    """What the page says of round trips, counted on the wire."""
    async with (
        await FaultProxy.start(server.url) as proxy,
        Blackboard.open(proxy.url, settings=Settings(), proof=False) as board,
    ):
        counted: dict[str, int] = {}

        async def trips(name: str, work: Any) -> None:
            proxy.reset()
            await work
            counted[name] = proxy.round_trips

        async def all_of(root: str, store: BlackboardStore) -> None:
            await store.aput((root,), "warm", {"title": "tea"})
            await trips("put", store.aput((root,), "k", {"title": "tea"}))
            await trips("put over another", store.aput((root,), "k", {"title": "tea 2"}))
            await trips("put expected", store.aput((root,), "k", {"title": "tea 3"}, expected=2))
            await trips("25 puts", store.abatch([PutOp((root,), str(n), {"title": "tea"}) for n in range(25)]))
            await trips("get", store.aget((root,), "k"))
            await trips("25 gets", store.abatch([GetOp((root,), str(n)) for n in range(25)]))
            await store.asearch((root,))
            await trips("search", store.asearch((root,), filter={"title": "tea"}))
            await trips("query", store.asearch((root,), query="tea"))
            await trips("version", store.aversion((root,), "k"))
            await trips("list", store.alist_namespaces(prefix=(root,)))
            await trips("delete", store.adelete((root,), "k"))

        await all_of("warm", BlackboardStore(board, namespace=thread, index=INDEX, ttl={"default_ttl": 60}))
        ended = BlackboardStore(board, namespace=thread, index=INDEX, ttl={"default_ttl": 60})
        await all_of("ended", ended)
        with_ttl = dict(counted)
        await all_of("ever", BlackboardStore(board, namespace=thread, index=INDEX))
    expected = dict.fromkeys(("put", "put over another", "put expected", "25 puts", "get", "25 gets", "version"), 1)
    assert counted == expected | {"search": 2, "query": 2, "list": 2, "delete": 4}
    assert with_ttl == counted


async def test_an_outage_is_never_no_item(server: Server, thread: str) -> None:
    settings = Settings(backend={"retry_deadline": 0.3})
    async with (
        await FaultProxy.start(server.url) as proxy,
        Blackboard.open(proxy.url, settings=settings, proof=False) as board,
    ):
        store = BlackboardStore(board, namespace=thread)
        await store.aput(("docs",), "k", {"n": 1})
        await store.asearch(())
        await proxy.close()
        for work in (
            store.aget(("docs",), "k"),
            store.asearch(()),
            store.alist_namespaces(),
            store.adelete(("docs",), "k"),
        ):
            with pytest.raises(ServerUnavailable):
                await work


async def test_the_log_of_a_namespace_does_not_grow_for_ever(backend: str, thread: str) -> None:
    settings = Settings(namespaces={thread: {"kind": "memory", "snapshot_every": 100}})
    async with Blackboard.open(backend, settings=settings, proof=False) as board:
        reader, store = (BlackboardStore(board, namespace=thread, index=INDEX) for _ in range(2))
        await store.aput(("docs",), "first", {"title": "tea", "n": -1})
        assert [each.key for each in await reader.asearch(("docs",), query="tea")] == ["first"]
        for number in range(1000):
            await store.aput(("docs",), f"k{number % 7}", {"title": "oslo", "tags": ["bergen", "coffee"], "n": number})
        await store.adelete(("docs",), "k0")
        assert await board.store.command("XLEN", records(store, "docs").keys.log) < 400
        for each in (reader, BlackboardStore(board, namespace=thread, index=INDEX)):
            hits = await each.asearch(("docs",), query="coffee", limit=100)
            assert sorted(hit.key for hit in hits) == ["first", *(f"k{n}" for n in range(1, 7))]
        assert (await board.memory(("docs",), namespace=thread).verify()).ok


async def test_an_artifact_that_an_item_mentions_is_kept(solo: Server, thread: str) -> None:
    async with await Blackboard.open(solo.url) as board:
        store = BlackboardStore(board)
        ref = await board.artifacts.put(f"a file of {thread}".encode())
        await store.aput(("files", thread), "one", {"file": str(ref)})
        for _ in range(2):
            await board.artifacts.gc(grace=0.001)
        assert await board.artifacts.stat(ref) is not None
        await store.adelete(("files", thread), "one")
        for _ in range(2):
            await board.artifacts.gc(grace=0.001)
        assert await board.artifacts.stat(ref) is None
