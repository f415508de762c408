"""Log: what may stand in it, what changes it, and what an append costs."""

from __future__ import annotations

import copy
import enum
import pickle
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypeVar, Union

import pytest
from pydantic import AwareDatetime, BaseModel, Field, HttpUrl, PositiveInt, ValidationError

from blackboard.checkpoints.log import Log
from blackboard.codec import encode
from blackboard.errors import EncodeError

T = TypeVar("T")
UserId = NewType("UserId", str)


class Colour(enum.Enum):
    RED = 1


class Message(BaseModel, frozen=True):
    text: str
    tags: tuple[str, ...] = ()


class Loose(BaseModel):
    text: str


class Melted(Message, frozen=False):  # type: ignore[misc]
    """A subclass that gave up what its base promised."""


class Tree(BaseModel, frozen=True):
    name: str
    children: tuple[Tree, ...] = ()


class Holder(BaseModel, frozen=True):
    inner: Loose


class Extra(BaseModel, frozen=True, extra="allow"):
    text: str


class Pair(NamedTuple):
    left: int
    right: str


class BadPair(NamedTuple):
    left: list[int]


@dataclass(frozen=True)
class Point:
    x: int
    label: str | None = None


@dataclass
class Moving:
    x: int


@dataclass(frozen=True)
class Box(Generic[T]):
    item: T


class State(BaseModel):
    messages: Log[Message] = Log()


GOOD = [
    str, int, float, bool, None, bytes, Decimal, uuid.UUID, datetime, Path, Colour, UserId, Message, Tree, Pair, Point,
    Literal["a", 1], int | str, Optional["Message"], Union["Message", str], int | None, tuple[int, ...], tuple[()], tuple[int, tuple[str, bool]],
    frozenset[str], AwareDatetime, PositiveInt, HttpUrl, re.Pattern[str], Annotated[int, Field(gt=0)], Annotated[str, ["a hash it has not"]], Box[int], tuple[Message | Point, ...],
]  # fmt: skip

BAD = [
    (dict, "dict"), (list[int], "list"), (Any, "Any"), (object, "object"), (Loose, "Loose"), (Moving, "Moving"),
    (tuple[int, list[str]], "list"), (int | dict[str, int], "dict"), (Holder, "Loose (in Holder.inner)"), (Extra, "Extra"),
    (tuple, "tuple without"), (Annotated[set[int], "x"], "set"), (NewType("Ids", list), "list"), (BadPair, "BadPair.left"),
    (Box[list[int]], "list"), (Sequence[int], "Sequence"), (Log[int], "Log"), (bytearray, "bytearray"),
]  # fmt: skip


@pytest.mark.parametrize("kind", GOOD, ids=str)
def test_immutable_item_types_are_accepted(kind: Any) -> None:
    class Fine(BaseModel):
        items: Log[kind] = Log()

    assert list(Fine().items) == []


@pytest.mark.parametrize(("kind", "part"), BAD, ids=lambda case: str(case)[:30])
def test_mutable_item_types_are_refused_where_the_class_is_defined(kind: Any, part: str) -> None:
    with pytest.raises(TypeError) as refused:

        class Wrong(BaseModel):
            things: Log[kind] = Log()

    assert "state.things" in str(refused.value)
    assert part in str(refused.value)
    assert "list[" in str(refused.value)


def test_a_log_without_item_type_is_refused() -> None:
    with pytest.raises(TypeError, match=r"state\.things: a Log needs the type of its items"):

        class Wrong(BaseModel):
            things: Log = Log()  # type: ignore[type-arg]


class Early(BaseModel):
    items: Log[Later] = Log()


class EarlyWrong(BaseModel):
    items: Log[Wrapper] = Log()


class Wrapper(BaseModel, frozen=True):
    inner: LaterLoose


class Later(BaseModel, frozen=True):
    text: str


class LaterLoose(BaseModel):
    text: str


def test_forward_references_are_resolved_or_checked_at_first_use() -> None:
    early = Early()
    early.items.append(Later(text="a"))
    assert early.items == [Later(text="a")]
    with pytest.raises(TypeError, match="LaterLoose"):
        EarlyWrong().items.append(Wrapper(inner=LaterLoose(text="a")))


def test_log_is_final() -> None:
    with pytest.raises(TypeError, match="final"):

        class Mine(Log[int]):  # type: ignore[misc]
            pass


def test_reads_as_a_sequence_and_is_no_list() -> None:
    log = Log([1, 2, 3, 2])
    assert isinstance(log, Sequence)
    assert not issubclass(Log, list)
    assert (len(log), log[0], log[-1], log[1:3], list(reversed(log))) == (4, 1, 2, [2, 3], [2, 3, 2, 1])
    assert (3 in log, log.index(3), log.count(2)) == (True, 2, 2)
    assert log == [1, 2, 3, 2] == log
    assert log == (1, 2, 3, 2)
    assert log == Log([1, 2, 3, 2])
    assert log not in ([1], "1232", Log([1]), None)
    assert repr(log) == "<Log of 4 items>"
    with pytest.raises(IndexError):
        log[4]
    with pytest.raises(TypeError):
        hash(log)


def test_only_append_and_extend_change_it() -> None:
    state = State()
    for attempt in (
        "log[0] = 1",
        "del log[0]",
        "log.pop()",
        "log.insert(0, 1)",
        "log.clear()",
        "log += [1]",
        "log.extra = 1",
    ):
        with pytest.raises((TypeError, AttributeError)):
            exec(attempt, {"log": state.messages})
    part = state.messages[:]
    part.append(Message(text="a"))
    assert len(state.messages) == 0


def test_a_default_is_no_shared_instance() -> None:
    first, second = State(), State()
    first.messages.append(Message(text="a"))
    assert (len(first.messages), len(second.messages), len(State().messages)) == (1, 0, 0)


@pytest.mark.parametrize("state", [State(), State(messages=Log()), State.model_validate({"messages": []})], ids=repr)
def test_append_validates_strictly_and_adds_nothing_when_it_fails(state: State) -> None:
    with pytest.raises(EncodeError, match=r"state\.messages\[0\] holds a dict.* give a Message"):
        state.messages.append({"text": "a dict is no Message"})  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        state.messages.extend([Message(text="good"), "bad"])  # type: ignore[list-item]
    assert len(state.messages) == 0
    state.messages.extend(Message(text=text) for text in "ab")
    assert [message.text for message in state.messages] == ["a", "b"]


class Made(BaseModel):
    messages: Log[Message] = Field(default_factory=Log[Message])


def test_a_default_factory_knows_its_item_type() -> None:
    with pytest.raises(ValidationError):
        Made().messages.append("bad")  # type: ignore[arg-type]
    state = Made()
    state.messages.append(Message(text="a"))
    state = Made(messages=state.messages)
    with pytest.raises(EncodeError, match=r"state\.messages\[1\] holds a list"):
        state.messages.append([])  # type: ignore[arg-type]


def test_an_item_that_its_annotation_calls_frozen_and_that_is_not_is_refused() -> None:
    state = State()
    state.messages.append(Message(text="a"))
    with pytest.raises(EncodeError, match=r"state\.messages\[1\] holds a Melted") as refused:
        state.messages.append(Melted(text="b"))
    assert refused.value.path == "state.messages[1]"
    assert len(state.messages) == 1


class Generics(BaseModel, Generic[T]):
    items: Log[T] = Log()


def test_generic_state_checks_the_bound_type() -> None:
    state = Generics[Message]()
    state.items.append(Message(text="a"))
    assert len(state.items) == 1
    with pytest.raises(TypeError, match="dict"):
        Generics[dict[str, int]]
    with pytest.raises(EncodeError, match="holds a list"):
        Generics().items.append([1])  # type: ignore[arg-type]


def test_append_encodes_each_item_once(monkeypatch: pytest.MonkeyPatch) -> None:
    paths: list[str] = []

    def counted(value: Any, *, path: str) -> bytes:
        paths.append(path)
        return encode(value, path=path)

    monkeypatch.setattr("blackboard.checkpoints.log.encode", counted)
    state = State(messages=Log([Message(text="a")]))
    state.messages.append(Message(text="b"))
    state.messages.extend([Message(text="c"), Message(text="d")])
    assert paths == [f"state.messages[{index}]" for index in range(4)]


def test_pydantic_reads_and_writes_it_as_an_array() -> None:
    state = State.model_validate_json('{"messages": [{"text": "a", "tags": ["x"]}]}')
    assert state.messages == [Message(text="a", tags=("x",))]
    assert state.model_dump() == {"messages": [{"text": "a", "tags": ("x",)}]}
    assert State.model_validate_json(state.model_dump_json()) == state
    for mode in ("validation", "serialization"):
        schema = State.model_json_schema(mode=mode)["properties"]["messages"]
        assert (schema["type"], schema["items"], schema["default"]) == ("array", {"$ref": "#/$defs/Message"}, [])


def test_a_log_passes_through_validation_as_itself() -> None:
    log = Log([Message(text="a")])
    assert State(messages=log).messages is log
    assert State(messages=log).messages is log
    with pytest.raises(ValidationError):
        State(messages=Log([1]))  # type: ignore[list-item]


def test_copies_are_logs_of_their_own() -> None:
    state = State(messages=Log([Message(text="a")]))
    for twin in (copy.copy(state.messages), copy.deepcopy(state.messages), pickle.loads(pickle.dumps(state.messages))):
        twin.append(Message(text="b"))
        assert len(twin) == 2
    assert len(state.model_copy(deep=True).messages) == len(state.messages) == 1
