"""Lists of messages: what is unchanged is neither sent nor encoded again, and every change is seen."""

from collections.abc import Callable
from typing import Any

import pytest

from blackboard import Blackboard

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from blackboard.integrations.langgraph import BlackboardSaver
from blackboard.integrations.langgraph.imprint import Imprint, Imprints, Original
from blackboard.integrations.langgraph.kept import Kept, Shelf
from tests.integrations.chats import Spent, Thread, exact, items, rich, segments, spoil


def _swap(message: Any) -> None:
    message.additional_kwargs = dict(reversed(message.additional_kwargs.items()))


def _rename(message: Any) -> None:
    message.additional_kwargs["new"] = message.additional_kwargs.pop("deep")


def _stuff(message: Any) -> None:
    message.additional_kwargs.clear()


CHANGES: dict[str, Callable[[list[Any]], object]] = {
    "content": lambda m: setattr(m[1], "content", "other"),
    "a block of the content": lambda m: m[0].content[0].update(text="other"),
    "a block more": lambda m: m[0].content.append("more"),
    "deep in a dict": lambda m: m[0].additional_kwargs["deep"][0].update(n=2),
    "a flag to a number": lambda m: m[0].additional_kwargs.update(seen=1),
    "a number to another type": lambda m: m[1].tool_calls[0]["args"]["pages"].__setitem__(0, 1.0),
    "the order of keys": lambda m: _swap(m[0]),
    "the name of a key": lambda m: _rename(m[0]),
    "a dict emptied": lambda m: _stuff(m[0]),
    "an empty list filled": lambda m: m[1].invalid_tool_calls.append(
        {"name": "x", "args": "", "id": "1", "error": None}
    ),
    "an argument of a call": lambda m: m[1].tool_calls[0]["args"].update(query="sun"),
    "an extra": lambda m: setattr(m[1], "score", 0.75),
    "a new extra": lambda m: setattr(m[0], "rating", 3),
    "an artifact": lambda m: m[2].artifact["rows"].append(2),
    "an id": lambda m: setattr(m[2], "id", "other"),
    "all fields at once": lambda m: m[1].__dict__.update(content="other", name="n"),
    "the dict of fields": lambda m: object.__setattr__(m[1], "__dict__", {**m[1].__dict__, "content": "other"}),
    "the class": lambda m: object.__setattr__(m[1], "__class__", HumanMessage),
    "another in its place": lambda m: m.__setitem__(1, AIMessage("other", id="a")),
    "an equal one in its place": lambda m: m.__setitem__(1, m[1].model_copy(deep=True)),
    "one fewer": lambda m: m.pop(),
    "the first gone": lambda m: m.pop(0),
    "turned round": lambda m: m.reverse(),
    "one more": lambda m: m.append(HumanMessage("more", id="m")),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("after", ["a put", "a read"])
async def test_every_change_is_seen(
    board: Blackboard, serde: SerializerProtocol, thread: str, change: str, after: str
) -> None:
    """Whatever changes in a message that was stored, the next checkpoint holds what InMemorySaver's would."""
    ours, theirs = Thread(BlackboardSaver(board, serde=serde), thread), Thread(InMemorySaver(serde=serde), thread)
    given = rich()
    for one in (ours, theirs):
        await one.put(given)
        await one.put(given)
    messages = given if after == "a put" else await ours.get()
    await ours.put(messages)
    await theirs.put(messages)
    CHANGES[change](messages)
    await ours.put(messages)
    await theirs.put(messages)
    assert exact(await ours.get()) == exact(await theirs.get())
    assert exact(await ours.history()) == exact(await theirs.history())


async def test_unchanged_messages_are_not_encoded_again(
    board: Blackboard, serde: SerializerProtocol, thread: str, spent: Spent, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = Thread(BlackboardSaver(board, serde=serde), thread)
    messages: list[AnyMessage] = [AIMessage("x" * 1000, id=str(number)) for number in range(50)]
    for _ in range(2):
        await on.put(messages)
    spent.written = 0
    monkeypatch.delattr(Imprint, "stands")  # none is looked at by itself
    for number in range(50, 60):
        messages.append(AIMessage("x" * 1000, id=str(number)))
        await on.put(messages)
    assert 10_000 < spent.written < 30_000


async def test_a_change_while_it_is_spelled_is_seen_the_next_time(
    board: Blackboard, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on, plain = Thread(BlackboardSaver(board), thread), JsonPlusSerializer.dumps_typed
    messages: list[Any] = [AIMessage("x" * 200, id="a")]
    await on.put(messages)

    def racing(self: Any, obj: Any) -> Any:
        spelled = plain(self, obj)
        if obj == [messages[-1]]:
            messages[-1].content = "changed meanwhile"
        return spelled

    messages.append(AIMessage("y" * 200, id="b"))
    with monkeypatch.context() as patch:
        patch.setattr(JsonPlusSerializer, "dumps_typed", racing)
        await on.put(messages)
    assert [one.content[:1] for one in await on.get()] == ["x", "y"]
    await on.put(messages)
    assert [one.content[:1] for one in await on.get()] == ["x", "c"]


async def test_only_what_follows_a_change_is_stored_again(board: Blackboard, thread: str) -> None:
    on = Thread(BlackboardSaver(board), thread)
    messages: list[Any] = [AIMessage("x" * 200, id=str(number)) for number in range(20)]
    await on.put(messages)
    messages[18] = AIMessage("other", id="18")
    await on.put(messages)
    stored = [len(await items(board, segment)) async for segment in segments(board, thread)]
    assert sorted(stored) == [2, 20]
    assert [one.id for one in await on.get()] == [str(number) for number in range(20)]
    assert [[one.content for one in shown][17:] for shown in await on.history()] == [
        ["x" * 200, "other", "x" * 200],
        ["x" * 200] * 3,
    ]


async def test_checkpoints_that_are_listed_share_no_message(board: Blackboard, thread: str, spent: Spent) -> None:
    """Each is decoded once, and changing one that was listed changes no other, nor what is listed later."""
    on, memory = Thread(BlackboardSaver(board), thread), Thread(InMemorySaver(), thread)
    messages: list[Any] = []
    for number in range(20):
        messages += [*rich()[:2], AIMessage(str(number) * 500, id=str(number))]
        await on.put(messages)
        await memory.put(messages)
    whole = len(JsonPlusSerializer().dumps_typed(messages)[1])
    listed, expected = await on.history(), await memory.history()
    assert exact(listed) == exact(expected)
    spent.read = 0
    listed = await on.history()
    assert spent.read < 2 * whole
    spoil(listed.pop(3))
    assert exact(listed) == exact(expected[:3] + expected[4:])
    assert exact(await on.history()) == exact(expected)


async def test_beyond_the_shelf_only_digests_are_kept(board: Blackboard, thread: str) -> None:
    saver = BlackboardSaver(board)
    saver._shelf = Shelf(most=10_000)
    threads = [Thread(saver, f"{thread}-{number}") for number in range(4)]
    messages: list[list[Any]] = [[AIMessage("x" * 200, id=str(number)) for number in range(10)] for _ in threads]
    for number in range(10, 20):
        for on, list_ in zip(threads, messages, strict=True):
            list_.append(AIMessage("x" * 200, id=str(number)))
            await on.put(list_)
    messages[0][0].content = "changed"
    for on, list_ in zip(threads, messages, strict=True):
        await on.put(list_)
        assert await on.get() == list_
        stored = [len(await items(board, segment)) async for segment in segments(board, on.thread)]
        assert sorted(stored) == ([20, 20] if on is threads[0] else [20])


def test_a_kept_list_branches_where_it_is_left() -> None:
    kept = Kept([b"a", b"b"])
    assert kept.grown(2, [b"c"]) is kept
    other = kept.grown(2, [b"d"])
    assert (kept.items, other.items) == ([b"a", b"b", b"c"], [b"a", b"b", b"d"])
    kept.press()
    assert [kept.matches(2, one) for one in (b"c", b"d")] == [True, False]
    third = kept.grown(1, [b"e"])
    assert [third.matches(at, one) for at, one in enumerate((b"a", b"e"))] == [True, True]
    assert len(third.items) == 2


def test_all_imprints_are_looked_at_at_once() -> None:
    given = rich()
    imprints = Imprints(map(Imprint.of, given))
    assert imprints.stand(given)
    assert not imprints.stand(given[:2])
    assert not imprints.stand([given[0], given[1], given[2].model_copy()])
    assert imprints.first(2).stand(given[:2])
    given[1].content = "other"
    assert [imprints.stand(given), imprints.first(1).stand(given[:1])] == [False, True]
    imprints[1] = Imprint.of(given[1])
    assert imprints.stand(given)
    imprints[4] = Imprint.of(given[0])
    assert not imprints.stand([*given, given[0], given[0]]), "the fourth has none"


@pytest.mark.parametrize("item", ["text", {"a": 1}, ToolMessage("x", tool_call_id="1", artifact=object()), AIMessage])
def test_what_is_no_plain_message_leaves_no_imprint(item: object) -> None:
    assert Imprint.of(item) is None
    assert Original.of(item) is None


class Own(AIMessage):
    """A subclass may write what does not stand in it."""


def test_a_subclass_leaves_no_imprint() -> None:
    assert Imprint.of(Own(content="x")) is None
    assert Original.of(Own(content="x")) is None
