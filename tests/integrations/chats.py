"""Threads of messages, on our saver or another, and what was spent on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from blackboard import Blackboard, keys
from blackboard.integrations.langgraph import BlackboardSerializer

SERIALIZERS: dict[str, Callable[[], SerializerProtocol]] = {
    "langgraph": JsonPlusSerializer, "blackboard": BlackboardSerializer,
}  # fmt: skip


class Spent:
    """Counts the bytes that serializers write and read."""

    def __init__(self) -> None:
        self.written = self.read = 0


def counting(monkeypatch: pytest.MonkeyPatch) -> Spent:
    """Count from now on."""
    counted = Spent()
    for made in (JsonPlusSerializer, BlackboardSerializer):

        def dumps(self: Any, obj: Any, plain: Any = made.dumps_typed) -> Any:
            kind, data = plain(self, obj)
            counted.written += len(data)
            return kind, data

        def loads(self: Any, data: Any, plain: Any = made.loads_typed) -> Any:
            counted.read += len(data[1])
            return plain(self, data)

        monkeypatch.setattr(made, "dumps_typed", dumps)
        monkeypatch.setattr(made, "loads_typed", loads)
    return counted


def rich() -> list[AnyMessage]:
    call: Any = {"name": "search", "args": {"query": "moon", "pages": [1, 2]}, "id": "call-1", "type": "tool_call"}
    return [
        HumanMessage(
            [{"type": "text", "text": "x" * 200}], id="h", additional_kwargs={"seen": True, "deep": [{"n": 1}]}
        ),
        AIMessage("y" * 200, id="a", tool_calls=[call], response_metadata={"model": "m"}, score=0.5),
        ToolMessage("z" * 200, id="t", tool_call_id="call-1", artifact={"rows": [1]}),
    ]


class Thread:
    """Puts lists of messages one after the other, each the child of the one before."""

    def __init__(self, saver: Any, thread: str) -> None:
        self.saver, self.thread = saver, thread
        self.where: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        self.steps = 0

    async def put(self, messages: list[Any]) -> None:
        self.steps += 1
        named = {**empty_checkpoint(), "id": f"{self.steps:04}", "channel_values": {"messages": messages}}
        versions: Any = {"messages": self.steps}
        self.where = await self.saver.aput(
            self.where, {**named, "channel_versions": versions}, {"source": "loop", "step": self.steps}, versions
        )

    async def get(self) -> Any:
        found = await self.saver.aget_tuple(self.where)
        return found.checkpoint["channel_values"]["messages"]

    async def history(self) -> list[Any]:
        where: Any = {"configurable": {"thread_id": self.thread}}
        return [one.checkpoint["channel_values"]["messages"] async for one in self.saver.alist(where)]


def exact(value: Any) -> Any:
    """Tell all of a value, with types and order."""
    if hasattr(value, "model_dump"):
        return type(value), exact(value.__dict__), exact(value.__pydantic_extra__)
    if isinstance(value, dict):
        return [(exact(key), exact(one)) for key, one in value.items()]
    if isinstance(value, list):
        return [exact(one) for one in value]
    return type(value), value


def spoil(messages: list[Any]) -> None:
    """Change all that can be changed in messages."""
    for message in messages:
        message.content = "changed"
        message.additional_kwargs.clear()
        message.__pydantic_extra__["new"] = 1
        getattr(message, "tool_calls", []).clear()


async def segments(board: Blackboard, thread: str) -> AsyncIterator[str]:
    """Name the segments in which the logs of a thread stand."""
    where = keys.ThreadKeys.of("langgraph", thread)
    for part in await board.store.command("SMEMBERS", where.parts):
        if part.startswith(b"log:"):
            yield f"{where.prefix}:{part.decode()}"


async def items(board: Blackboard, segment: str) -> list[bytes]:
    """Read a segment."""
    found: list[bytes] = await board.store.command("LRANGE", segment, 0, -1)
    return found
