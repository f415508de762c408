"""What callers hand to the saver: ids, configs, filters and writes of any kind, as they should be and as they should not."""

from collections.abc import AsyncIterator
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from blackboard import Blackboard, Settings
from blackboard.errors import ConfigError, EncodeError
from blackboard.testing.servers import Server

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver

from blackboard.integrations.langgraph import BlackboardCache, BlackboardSaver, BlackboardStore, copy_threads
from blackboard.integrations.langgraph.place import Place

NO_THREADS: list[Any] = [None, "", True, b"x", ("t",), "x" * 1025, "a\udc80"]
NO_CONFIGS: list[Any] = [None, "x", {}, {"configurable": {}}, {"configurable": None}, {"configurable": "x"}]


class Room(str, Enum):  # noqa: UP042 - its str() is not its text
    HALL = "hall"


@pytest.fixture
async def saver(solo: Server, thread: str) -> AsyncIterator[BlackboardSaver]:
    """A saver with a namespace of its own."""
    async with Blackboard.open(solo.url, settings=Settings(), proof=False) as board:
        yield BlackboardSaver(board, namespace=thread)


@pytest.mark.parametrize("kind", [BlackboardSaver, BlackboardCache, BlackboardStore])
@pytest.mark.parametrize("board", ["redis://localhost", None])
async def test_what_is_made_on_no_board(kind: Any, board: Any) -> None:
    with pytest.raises(ConfigError, match=rf"{kind.__name__} is made on an open board, got {board!r}: async with"):
        kind(board)


async def test_threads_are_copied_from_a_saver_to_ours(saver: BlackboardSaver) -> None:
    pairs: list[Any] = [("threads.db", saver), (saver, InMemorySaver()), (InMemorySaver(), saver.board)]
    for source, target in pairs:
        with pytest.raises(ConfigError, match="from any saver of LangGraph's to a BlackboardSaver, got"):
            await copy_threads(source, target)


def config(thread: Any, checkpoint: Any = None, **more: Any) -> Any:
    named = {} if checkpoint is None else {"checkpoint_id": checkpoint}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **named, **more}}


def checkpoint(name: Any, **values: Any) -> Any:
    versions = dict.fromkeys(values, 1)
    return {**empty_checkpoint(), "v": 4, "id": name, "channel_values": values, "channel_versions": versions}


async def put(saver: Any, where: Any, made: Any, **metadata: Any) -> None:
    await saver.aput(where, made, metadata, made["channel_versions"])


async def ids(saver: BlackboardSaver, where: Any, **asked: Any) -> list[str]:
    return [found.checkpoint["id"] async for found in saver.alist(where, **asked)]


async def threads(saver: BlackboardSaver) -> list[str]:
    return [Place.of(found.config).thread async for found in saver.alist(None)]


@pytest.mark.parametrize(
    ("given", "text"), [(7, "7"), (1.5, "1.5"), (UUID(int=7), str(UUID(int=7))), (Room.HALL, "hall")]
)
async def test_a_thread_is_named_by_a_text_a_number_or_a_uuid(saver: BlackboardSaver, given: Any, text: str) -> None:
    await put(saver, config(given), checkpoint("a", n=1))
    for name in (given, text):
        assert await ids(saver, config(name)) == ["a"]
    await saver.acopy_thread(given, "copied")
    await saver.aprune([given, "copied"])
    await saver.adelete_thread(given)
    assert await ids(saver, config(text)) == []
    assert await ids(saver, config("copied")) == ["a"]


@pytest.mark.parametrize("given", NO_THREADS)
async def test_what_names_no_thread_is_refused_by_every_method(saver: BlackboardSaver, given: Any) -> None:
    """None has a text too: all who forgot the id would share the thread of that name."""
    await put(saver, config("a"), checkpoint("a", n=1))
    for called in (
        put(saver, config(given), checkpoint("a", n=1)),
        saver.aput_writes(config(given, "a"), [("n", 1)], "task"),
        saver.aget_tuple(config(given)),
        ids(saver, config(given)),
        saver.adelete_thread(given),
        saver.aprune([given]),
        saver.aprune([given], strategy="delete"),
        saver.acopy_thread(given, "b"),
        saver.acopy_thread("a", given),
        saver.afinish(given),
        saver.aget_delta_channel_history(config=config(given), channels=["n"]),
    ):
        with pytest.raises(ConfigError):
            await called
    assert await threads(saver) == ["a"]


@pytest.mark.parametrize("given", NO_CONFIGS)
async def test_what_is_no_config_is_refused(saver: BlackboardSaver, given: Any) -> None:
    with pytest.raises(ConfigError):
        await saver.aget_tuple(given)
    with pytest.raises(ConfigError):
        await put(saver, given, checkpoint("a", n=1))
    with pytest.raises(ConfigError):
        await saver.aput_writes(given, [("n", 1)], "task")
    if given is not None:  # which means every thread
        with pytest.raises(ConfigError):
            await ids(saver, given)


@pytest.mark.parametrize("given", [5, b"x", ["x"], "x" * 1025, "a\udc80"])
async def test_what_is_no_namespace_is_refused(saver: BlackboardSaver, given: Any) -> None:
    with pytest.raises(ConfigError):
        await put(saver, config("t", checkpoint_ns=given), checkpoint("a", n=1))
    with pytest.raises(ConfigError):
        await ids(saver, config("t", checkpoint_ns=given))


@pytest.mark.parametrize("given", [5, UUID(int=3), b"a", "x" * 1025, "a\udc80"])
async def test_what_is_no_checkpoint_id_is_refused_wherever_it_stands(saver: BlackboardSaver, given: Any) -> None:
    await put(saver, config("t"), checkpoint("a", n=1))
    for called in (
        saver.aget_tuple(config("t", given)),
        ids(saver, config("t", given)),
        ids(saver, config("t"), before=config("t", given)),
        saver.aput_writes(config("t", given), [("n", 1)], "task"),
        put(saver, config("t"), checkpoint(given, n=1)),
        put(saver, config("t", given), checkpoint("b", n=1)),
    ):
        with pytest.raises(ConfigError):
            await called
    assert await ids(saver, config("t")) == ["a"]


async def test_a_namespace_of_none_is_one_that_is_not_named(saver: BlackboardSaver) -> None:
    """In a list every namespace, elsewhere the root."""
    for ns in (None, "a|b"):
        await put(saver, config("t", checkpoint_ns=ns), checkpoint(f"of {ns}", n=1))
    assert await ids(saver, config("t", checkpoint_ns=None)) == ["of a|b", "of None"]
    assert await ids(saver, {"configurable": {"thread_id": "t"}}) == ["of a|b", "of None"]
    assert await ids(saver, config("t")) == ["of None"]
    found = await saver.aget_tuple(config("t", checkpoint_ns=None))
    assert found is not None
    assert found.config == config("t", "of None")


@pytest.mark.parametrize("before", [None, {}, {"configurable": {}}, config("t"), config("t", "")])
async def test_a_before_that_names_no_checkpoint_cuts_nothing(saver: BlackboardSaver, before: Any) -> None:
    await put(saver, config("t"), checkpoint("a", n=1))
    assert await ids(saver, config("t"), before=before) == ["a"]


@pytest.mark.parametrize("name", ["b", "b" * 1024])
async def test_a_list_of_one_checkpoint(saver: BlackboardSaver, name: str) -> None:
    """It is found under the longest id, and must pass the filter and `before` as any other."""
    for one in ("a", name, "c"):
        await put(saver, config("t"), checkpoint(one, n=1), kind=one[0])
    assert await ids(saver, config("t", name)) == [name]
    assert await ids(saver, config("t", name), filter={"kind": "b"}, before=config("t", "c")) == [name]
    assert await ids(saver, config("t", name), filter={"kind": "a"}) == []
    assert await ids(saver, config("t", name), before=config("t", name)) == []
    assert await ids(saver, config("t", name), limit=0) == []
    assert await ids(saver, config("t", "none")) == []


async def test_a_filter_tells_truth_from_numbers(saver: BlackboardSaver) -> None:
    await put(saver, config("t"), checkpoint("a", n=1), sure=True, deep={"sure": [1]})
    await put(saver, config("t"), checkpoint("b", n=1), sure=1, deep={"sure": [True]})
    assert await ids(saver, config("t"), filter={"sure": True}) == ["a"]
    assert await ids(saver, config("t"), filter={"sure": 1}) == ["b"]
    assert await ids(saver, config("t"), filter={"sure": 1.0}) == ["b"]
    assert await ids(saver, config("t"), filter={"deep": {"sure": [1]}}) == ["a"]
    assert await ids(saver, config("t"), filter={"none": None}) == ["b", "a"]


@pytest.mark.parametrize("asked", [{"limit": 1.5}, {"limit": "1"}, {"filter": [("step", 1)]}, {"filter": "step"}])
async def test_a_list_refuses_what_makes_no_sense(saver: BlackboardSaver, asked: Any) -> None:
    for where in (config("t"), None):
        await put(saver, config("t"), checkpoint("a", n=1))
        with pytest.raises(ConfigError):
            await ids(saver, where, **asked)


async def test_one_text_is_not_many_ids(saver: BlackboardSaver) -> None:
    """Its characters are ids, too: `prune("ab", strategy="delete")` would delete the threads a and b."""
    for thread in ("a", "b"):
        await put(saver, config(thread), checkpoint("x", n=1), run_id=thread)
    with pytest.raises(ConfigError, match="ab"):
        await saver.aprune("ab", strategy="delete")
    with pytest.raises(ConfigError, match="ab"):
        await saver.adelete_for_runs("ab")
    assert await ids(saver, None) == ["x", "x"]


async def test_a_run_is_named_by_its_uuid_or_its_text(saver: BlackboardSaver) -> None:
    runs: list[Any] = [UUID(int=1), UUID(int=2)]
    for run in runs:
        for spelled in (run, str(run)):
            await put(saver, config(f"{spelled!r}"), checkpoint("a", n=1), run_id=spelled)
    await put(saver, config("odd"), checkpoint("a", n=1), run_id={"no": "text"})
    await put(saver, config("odd", "a"), checkpoint("b", n=1))
    await saver.adelete_for_runs([runs[0], str(runs[1]), "None"])
    assert await ids(saver, config("odd")) == ["b", "a"]
    assert await threads(saver) == ["odd", "odd"]


@pytest.mark.parametrize("lacking", ["v", "ts", "versions_seen", "updated_channels"])
async def test_what_a_checkpoint_does_not_have_it_has_not_when_it_is_read(saver: BlackboardSaver, lacking: str) -> None:
    made, memory = checkpoint("b", n=1), InMemorySaver()
    del made[lacking]
    for one in (saver, memory):
        await put(one, config("t"), checkpoint("a", n=1))
        await put(one, config("t", "a"), made)
    found = await saver.aget_tuple(config("t"))
    assert found is not None
    assert found.checkpoint == made == memory.get(config("t"))
    assert await ids(saver, config("t")) == ["b", "a"]


@pytest.mark.parametrize("step", ["first", None, [1], float("nan"), 2**62, -1, 2.5])
async def test_a_step_of_any_kind_is_metadata(saver: BlackboardSaver, step: Any) -> None:
    """A config's own metadata may bring it."""
    where: Any = {**config("t"), "metadata": {"step": step}}
    await saver.aput(where, checkpoint("a", n=1), {"step": step}, {"n": 1})
    found = await saver.aget_tuple(config("t"))
    assert found is not None
    assert repr(found.metadata) == repr({"step": step})


@pytest.mark.parametrize(
    ("writes", "path"),
    [
        ([("n",)], ""), ([("n", 1, 2)], ""), ([1], ""), (None, ""), ([(1, 2)], ""), ([(None, 2)], ""), ([("a\udc80", 1)], ""),
        ([("n", 1)], 5), ([("n", 1)], None), ([("n", 1)], "a\udc80"),
    ],
)  # fmt: skip
async def test_writes_that_could_not_be_read_are_refused(saver: BlackboardSaver, writes: Any, path: Any) -> None:
    """One path that is no text cannot be ordered among the others: the checkpoint would not be readable again."""
    await put(saver, config("t"), checkpoint("a", n=1))
    await saver.aput_writes(config("t", "a"), [("n", 1)], "task", "~path")
    with pytest.raises(ConfigError):
        await saver.aput_writes(config("t", "a"), writes, "other", path)
    found = await saver.aget_tuple(config("t"))
    assert found is not None
    assert found.pending_writes == [("task", "n", 1)]


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), 1e15, "soon", True])
async def test_a_finish_with_a_time_that_is_none_leaves_the_thread_as_it_was(saver: BlackboardSaver, ttl: Any) -> None:
    await put(saver, config("t"), checkpoint("a", n=1))
    with pytest.raises(ConfigError, match="ttl"):
        await saver.afinish("t", ttl=ttl)
    await put(saver, config("t", "a"), checkpoint("b", n=1))
    assert await ids(saver, config("t")) == ["b", "a"]


async def test_a_delta_channel_that_is_asked_for_twice_is_one(saver: BlackboardSaver) -> None:
    memory = InMemorySaver()
    for one in (saver, memory):
        await put(one, config("t"), checkpoint("a"))
        await one.aput_writes(config("t", "a"), [("lines", "x"), ("lines", "y")], "task")
        await put(one, config("t", "a"), checkpoint("b"))
    found = await saver.aget_delta_channel_history(config=config("t"), channels=["lines", "lines"])
    assert found == {"lines": {"writes": [("task", "lines", "x"), ("task", "lines", "y")]}}
    assert found == memory.get_delta_channel_history(config=config("t"), channels=["lines", "lines"])
    assert await saver.aget_delta_channel_history(config=config("t"), channels=[]) == {}
    with pytest.raises(ConfigError, match="lines"):
        await saver.aget_delta_channel_history(config=config("t"), channels="lines")


@pytest.mark.parametrize(
    "made",
    [
        None,
        5,
        {},
        {"id": "b"},
        {**checkpoint("b"), "channel_values": None},
        {**checkpoint("b"), "channel_versions": None},
    ],
)
async def test_what_is_no_checkpoint_is_refused(saver: BlackboardSaver, made: Any) -> None:
    await put(saver, config("t"), checkpoint("a", n=1))
    with pytest.raises(ConfigError, match="checkpoint"):
        await saver.aput(config("t", "a"), made, {}, {})
    metadata: Any = [("step", 1)]
    with pytest.raises(ConfigError, match="metadata"):
        await saver.aput(config("t", "a"), checkpoint("b", n=1), metadata, {"n": 1})
    assert await ids(saver, config("t")) == ["a"]


async def test_what_langgraphs_serializer_does_not_know_is_named_by_its_place(saver: BlackboardSaver) -> None:
    """EncodeError is a TypeError, as LangGraph's own; nothing was written."""
    await put(saver, config("t"), checkpoint("a", n=1))
    with pytest.raises(EncodeError, match="channel 'odd'.*object"):
        await put(saver, config("t", "a"), checkpoint("b", odd=object()))
    with pytest.raises(EncodeError, match="metadata.*object"):
        await put(saver, config("t", "a"), checkpoint("b", n=1), odd=object())
    with pytest.raises(EncodeError, match="write to 'odd'.*object"):
        await saver.aput_writes(config("t", "a"), [("n", 1), ("odd", object())], "task")
    found = await saver.aget_tuple(config("t"))
    assert found is not None
    assert (found.checkpoint["id"], found.pending_writes) == ("a", [])
