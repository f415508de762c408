"""What would not come back the same is refused, and the path names it."""

from __future__ import annotations

import array
import asyncio
import collections
import dataclasses
import datetime as dt
import enum
import io
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, PrivateAttr, SecretStr

from blackboard.codec import Opaque, decode, encode
from blackboard.errors import CorruptValue, EncodeError


class Price(BaseModel):
    price: Any = None


class State(BaseModel):
    items: list[Any] = []
    extra: dict[str, Any] = {}
    _client: Any = PrivateAttr(None)


@dataclasses.dataclass
class Box:
    content: Any


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Rows(list[int]):
    pass


class Odd(dt.tzinfo):
    def utcoffset(self, at: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(hours=1)

    def dst(self, at: dt.datetime | None) -> None:
        return None

    def tzname(self, at: dt.datetime | None) -> str:
        return "odd"


@dataclasses.dataclass
class Output(dict[str, int]):
    a: int = 1


class Failure(Exception):
    pass


def generator() -> Iterator[int]:
    yield 1


def refused() -> Iterator[Any]:
    coroutine = asyncio.sleep(0)
    coroutine.close()
    yield from (
        lambda: 1,
        io.StringIO(),
        sys,
        coroutine,
        threading.Lock(),
        generator(),
        object(),
        int,
        Price,
        Failure("x"),
    )
    yield from (
        Text("a"),
        Number(1),
        Rows([1]),
        Output(),
        type("Sub", (float,), {})(1.0),
        memoryview(b"a"),
        ...,
        NotImplemented,
    )
    yield from (iter([]), array.array("i", [1]), collections.ChainMap({}), collections.UserDict(), SecretStr("s"))
    yield from ({}.keys(), zip(), enum.Enum, print, slice("a"), collections.defaultdict(lambda: 1))
    yield from (dt.datetime(2026, 1, 1, tzinfo=Odd()), type("Moment", (dt.datetime,), {})(2026, 1, 1))
    yield from (type("Bag", (dict,), {})(), type("Path", (set,), {})(), type("Model", (Price,), {"__slots__": ()}))
    yield from (Opaque("a:B", b"[1]"), Opaque("a:B", b"nonsense"), Opaque("a:B", b'{"!model":["a:C","",{}]}'))


@pytest.mark.parametrize("value", list(refused()), ids=lambda value: type(value).__name__)
def test_refused_with_its_path(value: Any) -> None:
    state = State(items=[0, {}, (), Price(price=value)])
    with pytest.raises(EncodeError) as caught:
        encode(state, path="state")
    assert caught.value.path == "state.items[3].price"
    assert "state.items[3].price" in str(caught.value)


def test_a_socket_is_refused() -> None:
    with socket.socket() as held, pytest.raises(EncodeError, match=r"value\.s") as caught:
        encode({"s": held})
    assert caught.value.path == "value.s"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), "state"),
        ([[1, object()]], "state[0][1]"),
        ({"a b": {1: object()}}, "state['a b'][1]"),
        (({"x": (1, object())},), "state[0].x[1]"),
        (Box(Box([object()])), "state.content.content[0]"),
        (collections.deque([1, object()]), "state[1]"),
        (collections.OrderedDict(a=object()), "state.a"),
        (collections.defaultdict(list, a=object()), "state.a"),
        ({(1, Text("k")): 1}, "state{key (1, 'k')}[1]"),
        ({Text("k"): 1}, "state{key 'k'}"),
        ({Number(1)}, "state{1}"),
    ],
)
def test_paths(value: Any, path: Any) -> None:
    with pytest.raises(EncodeError) as caught:
        encode(value, path="state")
    assert caught.value.path == path


def test_a_private_attribute_that_cannot_be_stored_is_named() -> None:
    state = State()
    state._client = threading.Lock()
    with pytest.raises(EncodeError) as caught:
        encode(state, path="state")
    assert caught.value.path == "state._client"


def test_cycles_are_named_where_they_come_back() -> None:
    loop: list[Any] = [1]
    loop.append({"self": loop})
    box = Box(None)
    box.content = [box]
    state = State()
    state.extra["me"] = state
    cases = [
        (loop, "state[1].self"),
        (box, "state.content[0]"),
        (state, "state.extra.me"),
        ([[loop]], "state[0][0][1].self"),
    ]
    for value, path in cases:
        with pytest.raises(EncodeError, match="refers back") as caught:
            encode(value, path="state")
        assert caught.value.path == path


def nested(depth: int, wrap: Any) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


WRAPS = [
    lambda v: [v],
    lambda v: {"k": v},
    lambda v: {1: v},
    lambda v: (v,),
    lambda v: Price(price=v),
    Box,
    lambda v: frozenset([v]),
]


@pytest.mark.parametrize("wrap", WRAPS)
def test_depth_is_bounded_never_the_interpreters(wrap: Any) -> None:
    from blackboard.codec import Types
    from tests.codec.same import same

    known = Types([Price, Box])
    fits = nested(99, wrap)
    assert same(decode(encode(fits), types=known), fits)
    with pytest.raises(EncodeError, match="nested"):
        encode(nested(101, wrap))


def test_a_short_stack_is_an_error_of_ours() -> None:
    def deep(left: int) -> Any:
        return deep(left - 1) if left else encode(nested(99, WRAPS[4]))

    with pytest.raises(EncodeError, match="nested"):
        deep(sys.getrecursionlimit() - 200)


BROKEN = [
    b"",
    b"nul",
    b"{",
    b"[1,",
    b"\xff\xfe",
    b"NaN",
    b"[Infinity]",
    b'"\xff"',
    b"1 2",
    b"[" * 100_000,
    b"9" * 5000,
    *(
        f'{{"{tag}":{payload}}}'.encode()
        for tag in (
            "!model",
            "!dataclass",
            "!enum",
            "!flag",
            "!namedtuple",
            "!dict",
            "!set",
            "!tuple",
            "!deque",
            "!decimal",
            "!datetime",
            "!ndarray",
            "!npscalar",
            "!bytes",
            "!int",
            "!float",
            "!str",
            "!uuid",
            "!zoneinfo",
            "!nonsense",
            "!",
            "!posixpath",
            "!httpurl",
            "!range",
            "!complex",
            "!pattern",
        )
        for payload in ("17.5", "true", "[17,[]]", '["x",{"a":1},2,3,4]')
        if (tag, payload) not in {("!tuple", "[17,[]]"), ("!tuple", '["x",{"a":1},2,3,4]')}
    ),
    b'{"!ndarray":["|O",[1],"C",{"!bytes":"AAAAAAAAAAA="}]}',
    b'{"!ndarray":["O",[1],"C",{"!bytes":"AAAAAAAAAAA="}]}',
    b'{"!ndarray":["<i4",[1000000000],"C",{"!bytes":"AAAA"}]}',
    b'{"!ndarray":["<i4",[-1],"C",{"!bytes":""}]}',
    b'{"!bytes":"A"}',
    b'{"!datetime":["2026-01-01T00:00:00",0,"No/Where"]}',
]


@pytest.mark.parametrize("data", BROKEN, ids=lambda data: data[:40].decode("latin-1"))
def test_broken_bytes_are_corrupt(data: Any) -> None:
    with pytest.raises(CorruptValue):
        decode(data)


def test_every_truncation_is_corrupt() -> None:
    data = encode({"a": [1.5, {"b"}, (2,)], 1: b"x", "z": None})
    for length in range(len(data)):
        with pytest.raises(CorruptValue):
            decode(data[:length])
