"""A strict serializer for LangGraph: our codec, LangGraph's own types, and the classes that were declared; nothing else."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from typing import Any, Literal

from langchain_core import messages
from langchain_core.documents import Document
from langchain_core.messages.base import TextAccessor
from langchain_core.runnables.utils import AddableDict
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore[reportPrivateUsage] - checkpoints hold it
from langgraph.store.base import GetOp, Item, SearchItem
from langgraph.types import Command, Interrupt, Overwrite, PregelTask, Send, StateSnapshot, TimeoutPolicy

from blackboard.codec import Types, decode
from blackboard.codec.classes import class_of, describe, is_class, name_of, storable
from blackboard.errors import ConfigError, CorruptValue, StateInvalid
from blackboard.integrations.langgraph import marked
from blackboard.integrations.langgraph.foreign import Foreign

__all__ = ["BlackboardSerializer"]

_PLAIN = {Send: ("node", "arg", "timeout"), Item: Item.__slots__, SearchItem: (*Item.__slots__, *SearchItem.__slots__)}
"""LangGraph's classes that are no dataclasses, with all that they hold."""

_MESSAGES = (
    messages.BaseMessage, messages.BaseMessageChunk, messages.HumanMessage, messages.HumanMessageChunk,
    messages.AIMessage, messages.AIMessageChunk, messages.SystemMessage, messages.SystemMessageChunk,
    messages.ChatMessage, messages.ChatMessageChunk, messages.ToolMessage, messages.ToolMessageChunk,
    messages.FunctionMessage, messages.FunctionMessageChunk, messages.RemoveMessage,
)  # fmt: skip

_OWN: dict[str, type] = {
    name_of(cls): cls
    for cls in (
        *_MESSAGES, Document, *_PLAIN, Command, GetOp, Interrupt, Overwrite, PregelTask, StateSnapshot, TimeoutPolicy,
        _DeltaSnapshot,
    )
}  # fmt: skip
"""What is known without being declared, each class exactly: none of its subclasses."""

for _cls, _fields in _PLAIN.items():
    describe(_cls, tuple(_fields))


class _Known(Types):
    """LangGraph's own classes, and those that were declared together with what they lead to."""

    __slots__ = ("opaque",)

    def __init__(self, classes: Iterable[Any], *, opaque: bool) -> None:
        super().__init__(classes)
        self.opaque = opaque

    def find(self, name: str) -> type | None:
        """Return the class of a stored name; of an unknown one None, or StateInvalid if it may not stay opaque."""
        known = _OWN.get(name) or super().find(name)
        if known is None and not self.opaque:
            raise StateInvalid(f"class {name} is not declared; {_how(name.rpartition(':')[2])}", model=name, field=None)
        return known


class BlackboardSerializer(SerializerProtocol):
    """Serializes what LangGraph stores by the library's codec: the same values of the same types come back, or none.

    Known are builtins and the standard library's values, NumPy arrays, LangGraph's own types, the messages and documents of
    langchain_core, and `classes`: models, dataclasses, enums, or a state's class, which stands for all that its annotations
    lead to. A value of any other class is refused when it is written, with EncodeError, and nothing is ever imported
    because data names it. Stored values of an unknown class are read as `Opaque`, which keeps the bytes and is written
    back as it is; with `opaque=False` they raise StateInvalid. As in LangGraph, exceptions are stored as their repr.

    `read` names what LangGraph's own serializer wrote (`msgpack`, `json`) and may still be read, to change over a thread
    that has such checkpoints: known classes only, StateInvalid for others. Everything else raises CorruptValue.
    """

    def __init__(
        self, classes: Iterable[Any] = (), *, read: Collection[Literal["msgpack", "json"]] = (), opaque: bool = True
    ) -> None:
        self.classes, self.read, self.opaque = tuple(classes), frozenset(read), opaque
        if unknown := self.read - {"msgpack", "json"}:
            raise ConfigError(f"read may name msgpack and json, got {', '.join(map(repr, sorted(unknown)))}")
        self._known = _Known(self.classes, opaque=opaque)
        self._admitted: set[type] = set(_OWN.values())
        self._foreign = Foreign(self._found)

    def __repr__(self) -> str:
        return f"<BlackboardSerializer classes={len(self.classes)} read={sorted(self.read)}>"

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Serialize a value as (kind, bytes); raises EncodeError, naming the place, for what would not come back the same."""
        if obj is None:
            return "null", b""
        if type(obj) is bytes:
            return "bytes", obj
        return marked.KIND, marked.spell(obj, self._admit)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read (kind, bytes); raises CorruptValue, or StateInvalid for a value that its class no longer takes."""
        kind, body = data
        if kind == marked.KIND:
            return decode(marked.unmarked(body), types=self._known)
        if kind == "null":
            return None
        if kind == "bytes":
            return bytes(body)
        if kind == "bytearray" and self.read:
            return bytearray(body)
        if kind == "msgpack" and kind in self.read:
            return self._foreign.msgpack(body)
        if kind == "json" and kind in self.read:
            return self._foreign.json(body)
        raise CorruptValue(f"a value was written by another serializer, as {kind!r}: {_reading(kind)}", key=kind)

    def with_classes(self, classes: Iterable[Any]) -> BlackboardSerializer:
        """Return a serializer that knows these as well."""
        more = [cls for cls in classes if cls not in self.classes]
        return BlackboardSerializer((*self.classes, *more), read=self.read, opaque=self.opaque) if more else self

    def with_allowlist(self, names: Collection[tuple[str, ...]]) -> BlackboardSerializer:
        """Return a serializer that knows the classes of these (module, name) as well, as far as they are loaded.

        LangGraph collects the names from the state's class when it compiles a graph in strict mode. Nothing is imported.
        """
        found = (getattr(sys.modules.get(module), name, None) for module, name in (one[:2] for one in names))
        return self.with_classes([cls for cls in found if is_class(cls) and storable(cls) and not self._knows(cls)])

    def without_opaque(self) -> BlackboardSerializer:
        """Return a serializer that raises StateInvalid for stored values of unknown classes."""
        return BlackboardSerializer(self.classes, read=self.read, opaque=False) if self.opaque else self

    def _found(self, name: str) -> type | None:
        return _OWN.get(name) or Types.find(self._known, name)

    def _knows(self, cls: type) -> bool:
        return self._found(name_of(cls)) is cls

    def _admit(self, value: Any) -> Any:
        """Say what is stored of a value: itself if its class is known, the plain value of what LangGraph subclasses."""
        cls = class_of(value)
        if cls in self._admitted:
            return value
        if isinstance(value, BaseException):
            return repr(value)
        if cls is TextAccessor:
            return str(value)
        if cls is AddableDict:
            return dict(value)
        if storable(cls):
            if not self._knows(cls):
                raise ValueError(f"class {cls.__module__}.{cls.__qualname__} is not declared; {_how(cls.__qualname__)}")
            self._admitted.add(cls)
        return value


def _how(name: str) -> str:
    return f"declare it: BlackboardSerializer(classes=[{name}])"


def _reading(kind: str) -> str:
    if kind in ("msgpack", "json"):
        return f'to read what LangGraph\'s serializer wrote, give BlackboardSerializer(read=["{kind}"])'
    return "give the saver the serializer that wrote it"
