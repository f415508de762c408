"""Serializers of other people: whatever they call their bytes and however they frame them, values come back."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from blackboard import Blackboard, Settings
from blackboard.errors import ConfigError, CorruptValue
from blackboard.testing.servers import Server

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from blackboard.integrations.langgraph import BlackboardCache, BlackboardSaver, BlackboardSerializer
from blackboard.integrations.langgraph.tagged import tagged, untagged


class Colons:
    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return "my:json%3A", json.dumps(obj).encode()

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        assert data[0] == "my:json%3A"
        return json.loads(data[1])


class Framed:
    """Calls its bytes msgpack, and has a head before them that looks like a list's."""

    def __init__(self, head: bytes, tail: bytes = b"") -> None:
        self.head, self.tail, self.inner = head, tail, JsonPlusSerializer()

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        kind, data = self.inner.dumps_typed(obj)
        return kind, self.head + data + self.tail

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, framed = data
        assert framed.startswith(self.head) and framed.endswith(self.tail)
        return self.inner.loads_typed((kind, framed[len(self.head) : len(framed) - len(self.tail)]))


class Marked:
    """Calls its bytes as the strict serializer does, and writes other ones."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return "bb", b"{\xc1" + json.dumps(obj).encode()

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return json.loads(data[1].removeprefix(b"{\xc1"))


class Arrays(JsonPlusSerializer):
    def dumps_typed(self, obj: Any) -> Any:
        kind, data = super().dumps_typed(obj)
        return kind, bytearray(data)


SERIALIZERS: list[Any] = [
    Colons(), Framed(b"\x91HEAD"), Framed(b"\x91"), Framed(b"\xdc\x00\x02\xc0"), Framed(b"\x82"), Framed(b"", b"SUM"),
    Marked(), Arrays(), JsonPlusSerializer(pickle_fallback=True),
]  # fmt: skip


@pytest.fixture
async def board(solo: Server) -> AsyncIterator[Blackboard]:
    async with Blackboard.open(solo.url, settings=Settings(), proof=False) as opened:
        yield opened


def config(thread: str, checkpoint: str | None = None) -> Any:
    named = {} if checkpoint is None else {"checkpoint_id": checkpoint}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **named}}


@pytest.mark.parametrize("serde", SERIALIZERS)
async def test_what_any_serializer_wrote_it_reads(board: Blackboard, thread: str, serde: Any) -> None:
    """Of lists and dicts that grow, shrink and change, by the saver that wrote them and by another one."""
    saver, other = BlackboardSaver(board, serde=serde), BlackboardSaver(board, serde=serde)
    said, notes = list[str](), dict[str, str]()
    where = config(thread)
    for number in range(8):
        said, notes = [*said, f"{number} " + "x" * 60], {**notes, f"note-{number}": "y" * 60}
        if number == 5:
            said, notes = said[2:], {**notes, "note-1": "changed"}
            del notes["note-2"]
        values: dict[str, Any] = {"said": said, "notes": notes, "n": number}
        versions: Any = dict.fromkeys(values, number)
        made: Any = {**empty_checkpoint(), "id": f"{number}", "channel_values": values, "channel_versions": versions}
        where = await saver.aput(where, made, {"step": number}, versions)
        await saver.aput_writes(where, [("said", [number])], "task")
        for reader in (saver, other):
            found = await reader.aget_tuple(config(thread))
            assert found is not None
            assert found.checkpoint["channel_values"] == values
            assert found.pending_writes == [("task", "said", [number])]
    assert len([found async for found in other.alist(config(thread))]) == 8


async def test_a_cached_value_of_a_kind_with_a_colon(board: Blackboard, thread: str) -> None:
    cache = BlackboardCache[Any](board, namespace=thread, serde=Colons())
    await cache.aset({(("a",), "k"): ({"n": 1}, 60)})
    assert await cache.aget([(("a",), "k")]) == {(("a",), "k"): {"n": 1}}


@pytest.mark.parametrize("kind", ["msgpack", "msgpack+aes", "a:b", "%3A", "%", ":", "", "é"])
def test_a_kind_comes_back(kind: str) -> None:
    assert untagged(tagged(kind, b"x:y")) == (kind, b"x:y")


async def test_what_another_serializer_wrote_is_named(board: Blackboard, thread: str) -> None:
    """LangGraph's own raises NotImplementedError, which says nothing of the thread."""
    strict, plain = BlackboardSaver(board, serde=BlackboardSerializer()), BlackboardSaver(board)
    made: Any = {**empty_checkpoint(), "id": "a", "channel_values": {"n": 1}, "channel_versions": {"n": 1}}
    await strict.aput(config(thread), made, {}, {"n": 1})
    with pytest.raises(CorruptValue, match="'bb'"):
        await plain.aget_tuple(config(thread))
    with pytest.raises(CorruptValue, match="'bb'"):
        assert [found async for found in plain.alist(config(thread))] == []


async def test_breakpoints_are_a_list(board: Blackboard) -> None:
    """Of one text every part would be a node's name."""
    with pytest.raises(ConfigError, match="approve"):
        BlackboardSaver(board, breakpoints="approve")
