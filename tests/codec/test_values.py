"""Each supported value comes back as it was."""

# ruff: noqa: DTZ001, DTZ901 - naive moments are values too
from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import math
import pathlib
import re
import struct
import uuid
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from pydantic import AnyUrl, BaseModel, HttpUrl

from blackboard.codec import Types, decode, encode, join
from tests.codec.same import same

NY = ZoneInfo("America/New_York")


class Phase(enum.Enum):
    QUERY = "q"
    PAIR = (1, 2)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    A = "a"


class Strange(enum.Enum):
    HUGE = 10**400
    LONE = "\ud800"


class Right(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Bits(enum.IntFlag):
    ONE = 1
    TWO = 2


class Point(NamedTuple):
    x: int
    y: Any = 0


Plain = collections.namedtuple("Plain", "a b")  # noqa: PYI024


class Stamped(BaseModel):
    at: dt.datetime
    url: HttpUrl


PARSED = Stamped.model_validate_json('{"at": "2026-01-01T00:00:00+05:30", "url": "http://a.b/c"}')
KNOWN = Types([Phase, Strange, Level, Word, Right, Bits, Point, Plain, Stamped])

VALUES = [
    *(None, True, False, 0, 1, -1, 2**53 + 1, -(2**64), 10**5000, -(10**5000), 1 << 1024, (1 << 1024) - 1),
    *(0.0, -0.0, 0.1, 1e-320, 1.7976931348623157e308, math.nan, math.inf, -math.inf, 5e-324, 1.0),
    struct.unpack(">d", bytes.fromhex("fff8000000000abc"))[0],
    *(1j, complex(-0.0, math.nan)),
    *("", "a\0b", "ключ", "\U0001f600", "\ud83d\ude00", "\ud800", "\udc00\ud800", "\u2028", "!", '"\\/', "\x7f\x1b"),
    *(b"", b"\0\xff", bytearray(b"ab")),
    dt.datetime(2026, 3, 7, 9, tzinfo=NY),
    dt.datetime(2025, 11, 2, 1, 30, fold=1, tzinfo=NY),
    dt.datetime(2025, 11, 2, 1, 30, fold=0, tzinfo=NY),
    dt.datetime(2026, 3, 7, 9, tzinfo=dt.UTC),
    dt.datetime(2026, 3, 7, 9, tzinfo=ZoneInfo("UTC")),
    dt.datetime(2026, 3, 7, 9, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=45))),
    dt.datetime(2026, 3, 7, 9, tzinfo=dt.timezone(dt.timedelta(microseconds=-1), "odd")),
    dt.datetime(2026, 3, 7, 9, tzinfo=dt.timezone(dt.timedelta(0), "zero")),
    dt.datetime(2026, 3, 7, 9, 0, 0, 123456),
    dt.datetime(2026, 3, 7, 9, fold=1),
    dt.datetime.min,
    dt.datetime.max,
    PARSED.at,
    *(dt.date(2026, 1, 31), dt.date.min, dt.time(1, 2, 3, 4), dt.time(1, fold=1, tzinfo=NY), dt.time(0, tzinfo=dt.UTC)),
    *(dt.timedelta(days=-1, microseconds=1), dt.timedelta.max, dt.timedelta.min),
    *(NY, dt.UTC, dt.timezone(dt.timedelta(hours=1), "x"), PARSED.at.tzinfo),
    *map(decimal.Decimal, ["0.10", "1E-30", "NaN", "sNaN", "-0", "Infinity", "-NaN123", "0E+3", "1e999999"]),
    uuid.UUID("12345678-1234-5678-1234-567812345678"),
    *(
        Strange.HUGE,
        Strange.LONE,
        Phase.QUERY,
        Phase.PAIR,
        Level.LOW,
        Word.A,
        Right.READ,
        Right.READ | Right.WRITE,
        Right(0),
        Bits.ONE,
        Bits(3),
        Bits(8),
    ),
    *((), (1, "a", (None,)), [(1,), [1]], Point(1, y=[Point(2)]), Plain(1, (2,))),
    *(set(), {"a", "b"}, frozenset({1, 2}), {frozenset({1}), frozenset()}, {None, 1.5, "1", b"1", (1, 2), Level.HIGH}),
    *(collections.deque([1, [2]]), collections.deque([1], maxlen=3), collections.deque(maxlen=0)),
    collections.OrderedDict([("b", 1), ("a", (2,))]),
    collections.OrderedDict([(1, 2)]),
    collections.Counter("abca"),
    collections.defaultdict(list, {"a": [1]}),
    collections.defaultdict(None, {1: 2}),
    {1: "a", "1": "b", 2.0: "c", None: "d", (1, 2): "e", b"1": "f", "": "g", False: "h"},
    {math.inf: 1, dt.date(2026, 1, 1): 2, decimal.Decimal("1.50"): 3, Level.HIGH: 4, Word.A: 5, Phase.PAIR: 6},
    {uuid.UUID(int=1): {frozenset({1}): {2: 3}}, Point(1): NY, pathlib.PurePosixPath("a"): 1, "\ud800": "\udc00"},
    {"b": 1, "a": {"d": {}, "c": []}},
    {"invoice": [{"amount": decimal.Decimal("19.99"), "tags": {"x"}}]},
    *(
        pathlib.PurePosixPath("/a/../b"),
        pathlib.PureWindowsPath("C:\\x"),
        pathlib.Path("a b"),
        pathlib.Path("\udcff/x"),
    ),
    *(
        range(1, 10, 3),
        range(0),
        range(10**400),
        slice(1, None, -1),
        fractions.Fraction(-1, 3),
        fractions.Fraction(10**5000),
    ),
    *(re.compile("a+", re.IGNORECASE | re.VERBOSE), re.compile(b"\xff"), re.compile("x\ud800")),
    *(ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("fe80::1%eth0"), ipaddress.ip_network("10.0.0.0/8")),
    *(ipaddress.ip_network("fe80::/10"), ipaddress.ip_interface("10.0.0.1/8"), ipaddress.ip_interface("::1/64")),
    *(HttpUrl("http://example.com/x?y=1"), AnyUrl("ftp://a"), PARSED),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}")
def test_exact(value: Any) -> None:
    data = encode(value)
    back = decode(data, types=KNOWN)
    assert same(value, back), (value, back)
    assert encode(back) == data
    assert same({"k": [value]}, decode(encode({"k": [value]}), types=KNOWN))
    assert join([data, data]) == encode([value, value])


def test_the_text_is_compact_json() -> None:
    assert encode({"a": [1, None, "é"], "b": 1.5}) == '{"a":[1,null,"é"],"b":1.5}'.encode()
    assert encode({1: decimal.Decimal("0.10")}) == b'{"!dict":[[1,{"!decimal":"0.10"}]]}'
    assert join([]) == encode([]) == b"[]"


def test_sets_are_sorted_and_dicts_keep_their_order() -> None:
    a = {f"{n}" for n in range(100)}
    b = {f"{n}" for n in reversed(range(100))}
    assert encode(a) == encode(b)
    assert encode({"a": 1, "b": 2}) != encode({"b": 2, "a": 1})
    assert list(decode(encode({"b": 2, "a": 1}))) == ["b", "a"]


def test_bool_int_float_and_enums_stay_apart() -> None:
    back = decode(encode([True, 1, 1.0, Level.LOW, Bits.ONE, Word.A, "a"]), types=KNOWN)
    assert [type(item) for item in back] == [bool, int, float, Level, Bits, Word, str]
    assert len({encode(item) for item in (True, 1, 1.0, Level.LOW, Bits.ONE)}) == 5


def test_wall_clock_arithmetic_over_a_change_of_clocks() -> None:
    before = dt.datetime(2026, 3, 7, 9, tzinfo=NY)
    after = decode(encode(before))
    assert {(at + dt.timedelta(days=1)).astimezone(dt.UTC).hour for at in (before, after)} == {13}


def test_a_renamed_member_is_found_by_its_value_and_a_lost_one_is_not_guessed() -> None:
    data = encode(Word.A).replace(b'"A"', b'"OLD"')
    assert decode(data, types=KNOWN) is Word.A
    with pytest.raises(ValueError, match="no member 'GONE'"):
        decode(encode(Phase.PAIR).replace(b'"PAIR"', b'"GONE"'), types=KNOWN)
