"""The strict serializer: the same values come back, unknown classes are refused, nothing is imported."""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import re
import sys
import uuid
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from typing_extensions import TypedDict

from blackboard.codec import Opaque
from blackboard.errors import ConfigError, CorruptValue, EncodeError, StateInvalid
from tests.codec.same import same
from tests.codec.test_envelopes import FOREIGN, OURS
from tests.codec.test_property import SCALARS, TEXT, Colour, Node, Pair, wider

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

import ormsgpack
from langchain_core import messages as lc
from langchain_core.documents import Document
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph.message import add_messages
from langgraph.store.base import GetOp, Item, SearchItem
from langgraph.types import Command, Interrupt, Overwrite, PregelTask, Send, StateSnapshot, TimeoutPolicy

from blackboard.integrations.langgraph import BlackboardSerializer

NOW = dt.datetime(2026, 3, 7, 9, tzinfo=dt.UTC)


class Order(BaseModel):
    price: decimal.Decimal
    note: Any = None


@dataclasses.dataclass
class Point:
    x: int


class Phase(enum.Enum):
    QUERY = "q"


class State(TypedDict):
    messages: Annotated[list[lc.AnyMessage], add_messages]
    order: Order
    points: list[Point]
    phase: Phase


CALLS: Any = [{"name": "search", "args": {"q": "x"}, "id": "call-1", "type": "tool_call"}]
USAGE: Any = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}

MESSAGES = [
    lc.HumanMessage("hello", id="1", name="Ann", additional_kwargs={"k": (1, 2)}),
    lc.HumanMessage([{"type": "text", "text": "hi"}, "more"]),
    lc.AIMessage("x", tool_calls=CALLS, usage_metadata=USAGE, response_metadata={"at": NOW}),
    lc.AIMessage(
        "", invalid_tool_calls=[{"name": "f", "args": "{", "id": "2", "error": "e", "type": "invalid_tool_call"}]
    ),
    lc.SystemMessage("be brief"),
    lc.ToolMessage("ok", tool_call_id="call-1", artifact={"rows": {1, 2}}, status="error"),
    lc.FunctionMessage(content="ok", name="f"),
    lc.ChatMessage(content="ok", role="critic"),
    lc.RemoveMessage("1"),
    lc.AIMessageChunk(
        content="x", tool_call_chunks=[{"name": "f", "args": "{", "id": "1", "index": 0, "type": "tool_call_chunk"}]
    ),
    lc.HumanMessageChunk(content="x"),
    lc.SystemMessageChunk(content="x"),
    lc.ToolMessageChunk(content="x", tool_call_id="1"),
    lc.ChatMessageChunk(content="x", role="critic"),
    lc.FunctionMessageChunk(content="x", name="f"),
    Document("text", id="d", metadata={"page": 1}),
]

TASK = PregelTask("id", "name", ("__pregel_pull", "name"), None, (Interrupt("why", id="i"),))
CONFIG: Any = {"configurable": {"thread_id": "t"}}
TIMES: Any = {"created_at": NOW, "updated_at": NOW}

LANGGRAPH = [
    Send("node", {"messages": MESSAGES[:2]}),
    Send("node", 1, timeout=3),
    TimeoutPolicy(idle_timeout=2.0),
    Command(update={"a": (1, 2)}, goto=[Send("b", 1), "c"], resume={"i": "yes"}),
    Command(graph=Command.PARENT, update=[("a", 1)]),
    Interrupt({"question": "send?"}, id="i", response_schema={"type": "string"}),
    Overwrite([1, 2]),
    _DeltaSnapshot([MESSAGES[0]]),
    StateSnapshot({"a": 1}, ("b",), CONFIG, {"source": "loop", "step": 1}, "now", None, (TASK,), ()),
    Item(value={"a": 1}, key="k", namespace=("a", "b"), **TIMES),
    SearchItem(namespace=("a",), key="k", value={"a": 1}, score=0.5, **TIMES),
    GetOp(("a",), "k"),
]

PLAIN: list[Any] = [
    None, True, 0, 1 << 2000, float("inf"), "\ud800\x00", b"\x00\xc1", bytearray(b"x"), (1, [2]), {1: "a", (2,): "b"},
    {"a", "b"}, frozenset({1}), collections.deque([1], 3), NOW, dt.timedelta(-1, 2), decimal.Decimal("0.10"),
    uuid.UUID(int=7), pathlib.PurePosixPath("/a/b"), re.compile("a+", re.IGNORECASE), [], {}, [[]], {"!dict": [["a", 1]]},
    {"": {"\n": "\r\u2028"}}, np.arange(6, dtype=">i4").reshape(2, 3), np.float32(1.5),
]  # fmt: skip


def round_trip(serializer: BlackboardSerializer, value: Any) -> Any:
    return serializer.loads_typed(serializer.dumps_typed(value))


def alike(a: Any, b: Any) -> bool:
    """Send and the items of a store are no dataclasses: their parts are compared."""
    if isinstance(a, Send | Item):
        names = [name for kind in type(a).__mro__ for name in getattr(kind, "__slots__", ())]
        return type(a) is type(b) and all(alike(getattr(a, name), getattr(b, name)) for name in names)
    if isinstance(a, Command):
        parts = ("graph", "update", "resume", "goto")
        return type(a) is type(b) and all(alike(getattr(a, part), getattr(b, part)) for part in parts)
    if isinstance(a, list) and any(isinstance(item, Send) for item in a):
        return len(a) == len(b) and all(map(alike, a, b))
    return same(a, b)


@pytest.mark.parametrize("value", [*MESSAGES, *LANGGRAPH, *PLAIN], ids=lambda value: type(value).__name__)
def test_known_without_being_declared(value: Any) -> None:
    serializer = BlackboardSerializer()
    assert alike(round_trip(serializer, value), value)
    assert alike(round_trip(serializer, {"at": [value, (value,)]})["at"][1][0], value)


NESTED = st.recursive(SCALARS | st.sampled_from(MESSAGES), wider, max_leaves=12)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(NESTED, st.lists(NESTED, max_size=5), st.dictionaries(TEXT, NESTED, max_size=5)))
def test_any_nesting_comes_back(value: Any) -> None:
    serializer = BlackboardSerializer([Node, Pair, Colour])
    typed = serializer.dumps_typed(value)
    assert same(serializer.loads_typed(typed), value)
    assert serializer.dumps_typed(serializer.loads_typed(typed)) == typed


def test_what_langgraph_subclasses_is_stored_plain() -> None:
    """As LangGraph does: an exception is its repr, a message's text is a text."""
    serializer = BlackboardSerializer()
    stored = round_trip(serializer, {"error": ValueError("no"), "text": lc.AIMessage("hi").text})
    assert same(stored, {"error": "ValueError('no')", "text": "hi"})


@pytest.mark.parametrize(
    ("value", "place", "name"),
    [
        (Order(price=decimal.Decimal(1)), "value", "Order"),
        ([1, {"a b": Point(1)}], "value[1]['a b']", "Point"),
        ({"messages": [lc.HumanMessage("x", additional_kwargs={"k": Phase.QUERY})]}, "value.messages[0].additional_kwargs.k", "Phase"),
        (Send("n", {"x": (Point(1),)}), "value.arg.x[0]", "Point"),
    ],
)  # fmt: skip
def test_a_class_that_nobody_declared_is_refused(value: Any, place: str, name: str) -> None:
    with pytest.raises(EncodeError) as refused:
        BlackboardSerializer().dumps_typed(value)
    assert refused.value.path == place
    assert f"cannot store {place}: " in str(refused.value)
    assert f"declare it: BlackboardSerializer(classes=[{name}])" in str(refused.value)
    with pytest.raises(EncodeError, match="functions|cannot be stored"):
        BlackboardSerializer().dumps_typed([print])


def test_a_subclass_of_a_message_is_not_known() -> None:
    class Mine(lc.HumanMessage):
        mood: str = "good"

    with pytest.raises(EncodeError, match="Mine"):
        BlackboardSerializer().dumps_typed([Mine(content="x")])
    back = round_trip(BlackboardSerializer([Mine]), [Mine(content="x", mood="bad")])
    assert same(back, [Mine(content="x", mood="bad")])


def test_the_class_of_a_state_declares_what_it_leads_to() -> None:
    serializer = BlackboardSerializer([State])
    state = {
        "messages": MESSAGES[:3],
        "order": Order(price=decimal.Decimal("0.10")),
        "points": [Point(1)],
        "phase": Phase.QUERY,
    }
    assert same(round_trip(serializer, state), state)
    with pytest.raises(EncodeError, match="Pair"):
        serializer.dumps_typed(Pair(1))


def test_an_unknown_class_is_carried_or_refused() -> None:
    typed = BlackboardSerializer([Order]).dumps_typed({"order": Order(price=decimal.Decimal(1))})
    reader = BlackboardSerializer()
    carried = reader.loads_typed(typed)
    assert isinstance(carried["order"], Opaque)
    assert reader.dumps_typed(carried) == typed
    with pytest.raises(StateInvalid, match=re.escape("BlackboardSerializer(classes=[Order])")):
        reader.without_opaque().loads_typed(typed)


@pytest.mark.parametrize("value", FOREIGN + OURS, ids=str)
def test_data_that_looks_like_an_envelope_stays_data(value: Any) -> None:
    serializer = BlackboardSerializer()
    for place in (value, [value, [value]], {"a": value, "b": {"c": [value]}}, Send("n", value)):
        assert alike(round_trip(serializer, place), place)


def hostile() -> list[tuple[str, bytes]]:
    """Bytes of every kind that name something to import and call."""
    named = {"module": "antigravity", "name": "Trap"}
    forms = [f'{{"{tag}":["antigravity:Trap","0",{{}}]}}' for tag in ("!model", "!dataclass", "!namedtuple")]
    forms += [
        '{"!enum":["antigravity:Trap","A",null]}',
        '{"lc":1,"type":"constructor","id":["antigravity","Trap"],"kwargs":{}}',
    ]
    forms += [
        '{"lc":2,"type":"constructor","id":["antigravity","Trap"],"args":[],"kwargs":{}}',
        '{"py/object":"antigravity.Trap"}',
    ]
    forms += ['{"lc":1,"type":"secret","id":["PATH"]}', f'{{"__type__":"{named["module"]}"}}']
    extensions = [
        ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(("antigravity", "fly", given, "fly"))))
        for code, given in ((0, 1), (1, [1]), (2, {"a": 1}), (3, 1), (4, {"a": 1}), (5, {"a": 1}))
    ]
    calls = [
        ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb((module, name, given, method))))
        for code, module, name, given, method in (
            (0, "os", "system", "true", ""), (3, "builtins", "eval", "1", "__call__"), (3, "datetime", "datetime", 0, "now"),
            (0, "builtins", "exec", "1", ""), (1, "subprocess", "run", [["true"]], ""), (2, "importlib", "import_module", {"name": "antigravity"}, ""),
        )
    ]  # fmt: skip
    texts = [("bb", form.encode()) for form in forms] + [("json", form.encode()) for form in forms]
    return [*texts, *(("msgpack", data) for data in (*extensions, *calls)), ("pickle", b"cos\nsystem\n(S'true'\ntR.")]


@pytest.mark.parametrize("typed", hostile(), ids=str)
def test_nothing_is_imported_because_data_says_so(typed: tuple[str, bytes]) -> None:
    before = set(sys.modules)
    for serializer in (BlackboardSerializer(), BlackboardSerializer(read=["msgpack", "json"])):
        try:
            found = serializer.loads_typed(typed)
        except (CorruptValue, StateInvalid):
            continue
        assert isinstance(found, dict | Opaque)
    assert "antigravity" not in sys.modules
    assert set(sys.modules) - before <= {name for name in sys.modules if name.startswith("langchain_core.")}


@pytest.mark.parametrize(
    "data", [b"", b"(\xc11", b"[\xc11\xc1", b"{\xc11", b"\xc1\xc1", b"[1", b"\xff", b'{\xc1"a"\xc1"b":1']
)
def test_bytes_that_it_did_not_write(data: bytes) -> None:
    with pytest.raises(CorruptValue):
        BlackboardSerializer().loads_typed(("bb", data))


THEIRS = [
    *MESSAGES, *LANGGRAPH[:8], LANGGRAPH[9], Order(price=decimal.Decimal(1), note=[Point(1)]), Point(1), Phase.QUERY, NOW,
    dt.date(2026, 1, 2), dt.time(1, 2), dt.timedelta(1, 2), decimal.Decimal("1.10"), uuid.UUID(int=1), pathlib.Path("/a/b"),
    {1, 2}, collections.deque([1]), re.compile("a"), np.arange(4).reshape(2, 2).T, b"x", bytearray(b"x"), None, {1: [2]},
]  # fmt: skip


@pytest.mark.parametrize("value", THEIRS, ids=lambda value: type(value).__name__)
def test_reads_what_langgraph_wrote_when_told_so(value: Any) -> None:
    """The same as LangGraph's serializer reads."""
    theirs = JsonPlusSerializer(allowed_msgpack_modules=[Order, Point, Phase])
    typed = theirs.dumps_typed([value] if isinstance(value, list | dict) else value)
    ours = BlackboardSerializer([Order, Point, Phase], read=["msgpack"]).loads_typed(typed)
    expected = theirs.loads_typed(typed)
    if isinstance(expected, np.ndarray):
        assert ours.tolist() == expected.tolist() and ours.flags.writeable
    else:
        assert alike(ours, expected)
    if typed[0] == "msgpack":
        with pytest.raises(CorruptValue, match=re.escape('BlackboardSerializer(read=["msgpack"])')):
            BlackboardSerializer().loads_typed(typed)


def test_reading_what_langgraph_wrote_is_strict_too() -> None:
    typed = JsonPlusSerializer().dumps_typed({"deep": [Send("n", Point(1))]})
    with pytest.raises(StateInvalid, match=re.escape("classes=[Point]")):
        BlackboardSerializer(read=["msgpack"]).loads_typed(typed)
    old = b'{"m":{"lc":1,"type":"constructor","id":["langchain","schema","messages","HumanMessage"],"kwargs":{"content":"x"}}}'
    assert BlackboardSerializer(read=["json"]).loads_typed(("json", old)) == {"m": lc.HumanMessage("x")}
    with pytest.raises(ConfigError, match="msgpack and json"):
        BlackboardSerializer(read=["pickle"])  # type: ignore[list-item]
