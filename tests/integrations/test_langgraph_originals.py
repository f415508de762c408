"""Messages that are read again: what was decoded before is copied, and what the store has decides."""

from typing import Any

import pytest

from blackboard import Blackboard
from blackboard.errors import StoreRegressed

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from blackboard.integrations.langgraph import BlackboardSaver, BlackboardSerializer
from blackboard.integrations.langgraph.kept import Kept
from blackboard.integrations.langgraph.originals import Lately
from blackboard.integrations.langgraph.place import Place
from blackboard.integrations.langgraph.spelling import Spelling
from tests.integrations.chats import Spent, Thread, exact, items, rich, segments, spoil


async def test_messages_read_again_are_copied(
    board: Blackboard, serde: SerializerProtocol, thread: str, spent: Spent
) -> None:
    """From the third reading on only what is new is decoded, and whoever changes what was read changes no other reading."""
    ours, theirs = Thread(BlackboardSaver(board, serde=serde), thread), Thread(InMemorySaver(serde=serde), thread)
    messages: list[Any] = [*rich(), *[AIMessage("x" * 1000, id=str(number)) for number in range(20)]]
    for one in (ours, theirs):
        await one.put(messages)
    for _ in range(2):
        spoil(await ours.get())
    spent.read = 0
    expected = exact(await theirs.get())
    whole, spent.read = spent.read, 0
    assert exact(await ours.get()) == expected
    assert spent.read < whole / 10
    spoil(await ours.get())
    messages.append(AIMessage("y" * 1000, id="more"))
    for one in (ours, theirs):
        await one.put(messages)
    spent.read = 0
    assert exact(await ours.get())[:-1] == expected
    assert 1000 < spent.read < whole / 5
    assert exact(await ours.get()) == exact(await theirs.get())


async def test_a_list_that_was_cut_or_changed_is_read_as_it_is(board: Blackboard, thread: str) -> None:
    on, memory = Thread(BlackboardSaver(board), thread), Thread(InMemorySaver(), thread)
    messages: list[Any] = [*rich(), "no message", ToolMessage("t" * 200, tool_call_id="1", artifact=(1, 2))]
    changed = [messages[0], AIMessage("other", id="o"), *messages[2:]]
    for given in (messages, messages[:2], messages, changed, [messages[0]], messages, ["text" * 50], messages):
        await on.put(given)
        await memory.put(given)
        for _ in range(2):
            assert exact(await on.get()) == exact(await memory.get())


async def test_what_the_store_has_decides(board: Blackboard, thread: str) -> None:
    """A list that was read and decoded before is neither shown where the store lost it nor where it holds another."""
    on, other = Thread(BlackboardSaver(board), thread), Thread(BlackboardSaver(board), f"{thread}-other")
    for one, text in ((on, "x"), (other, "y")):
        await one.put([AIMessage(text * 200, id=str(number)) for number in range(5)])
    for _ in range(3):
        assert [one.content[:1] for one in await on.get()] == ["x"] * 5
    (segment,), (another,) = [[one async for one in segments(board, each.thread)] for each in (on, other)]
    await board.store.command("LSET", segment, 2, (await items(board, another))[2])
    assert [one.content[:1] for one in await on.get()] == ["x", "x", "y", "x", "x"]
    await board.store.command("RPOP", segment)
    with pytest.raises(StoreRegressed):
        await on.get()


async def test_reading_the_same_again_keeps_one_list(board: Blackboard, thread: str) -> None:
    saver = BlackboardSaver(board)
    on = Thread(saver, thread)
    await on.put(rich())
    for _ in range(5):
        await on.get()
    assert saver._shelf.total == sum(map(len, Kept(await _stored(board, thread)).items))


async def _stored(board: Blackboard, thread: str) -> list[bytes]:
    (segment,) = [one async for one in segments(board, thread)]
    return await items(board, segment)


async def test_only_so_much_stays_decoded(board: Blackboard, thread: str, spent: Spent) -> None:
    saver = BlackboardSaver(board)
    saver._lately = Lately(most=5000)
    small, large = Thread(saver, f"{thread}-small"), Thread(saver, f"{thread}-large")
    await small.put([AIMessage("x" * 1000, id="a"), AIMessage("x" * 1000, id="b")])
    await large.put([AIMessage("x" * 1000, id=str(number)) for number in range(10)])
    for on, least in ((small, 0), (large, 10_000)):
        for _ in range(3):
            spent.read = 0
            await on.get()
        assert least <= spent.read < least + 5000
    for number in range(4):
        again = Thread(saver, f"{thread}-{number}")
        await again.put([AIMessage("x" * 1000, id="a"), AIMessage("x" * 1000, id="b")])
        await again.get()
        await again.get()
    spent.read = 0
    await small.get()
    assert spent.read > 2000


def test_a_lineage_is_known_by_its_serializer() -> None:
    lately, place = Lately(), Place("thread")
    first, second = Spelling(JsonPlusSerializer()), Spelling(BlackboardSerializer())
    assert [lately.of(one, place) for one in (first, second)] == [None, None]
    assert lately.of(first, place) is lately.of(first, place.at("checkpoint")) is not lately.of(second, place)
    assert lately.of(first, Place("thread", "lineage")) is None
