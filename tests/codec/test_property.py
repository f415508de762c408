"""Any nesting of the supported values comes back the same, the same bytes each time, and joins."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from blackboard.codec import Types, decode, encode, join
from tests.codec.same import same


class Node(BaseModel):
    model_config = ConfigDict(extra="allow")
    item: Any = None
    more: Any = 7


class Leaf(Node):
    word: Any = ""


@dataclasses.dataclass
class Pair:
    left: Any
    right: Any = None


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


KNOWN = Types([Node, Pair, Colour])
TEXT = st.text(st.characters(codec=None, exclude_categories=())) | st.sampled_from(
    ["!", "!dict", "!tuple", "\ud83d\ude00"]
)
ZONES = st.none() | st.timezones() | st.builds(lambda m: dt.timezone(dt.timedelta(minutes=m)), st.integers(-1439, 1439))
HASHABLE = st.one_of(
    *(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(1 << 1000, 1 << 1100),
        st.floats(),
        TEXT,
        st.binary(),
        st.dates(),
    ),
    *(
        st.times(timezones=ZONES),
        st.datetimes(timezones=ZONES),
        st.timedeltas(),
        st.uuids(),
        st.decimals(allow_nan=False),
        st.fractions(),
    ),
    *(st.complex_numbers(), st.sampled_from(Colour), st.ip_addresses()),
).filter(lambda value: value == value)  # noqa: PLR0124
SCALARS = HASHABLE | st.floats() | st.decimals() | st.binary().map(bytearray)


def wider(inner: Any) -> Any:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(TEXT, inner, max_size=4),
        st.dictionaries(HASHABLE | st.tuples(HASHABLE), inner, max_size=4),
        st.sets(HASHABLE, max_size=4),
        st.frozensets(HASHABLE, max_size=4),
        st.builds(collections.deque, st.lists(inner, max_size=3), st.none() | st.integers(0, 3)),
        st.dictionaries(TEXT, inner, max_size=3).map(collections.OrderedDict),
        st.builds(Node, item=inner),
        st.builds(Leaf, item=inner, word=inner, more_extra=inner),
        st.builds(Pair, inner, inner),
    )


VALUES = st.recursive(SCALARS, wider, max_leaves=12)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(VALUES)
def test_round_trip(value: Any) -> None:
    data = encode(value)
    back = decode(data, types=KNOWN)
    assert same(value, back)
    assert encode(back) == encode(value) == data


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(VALUES, max_size=4))
def test_join(items: Any) -> None:
    assert join([encode(item) for item in items]) == encode(items)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(VALUES)
def test_unknown_classes_carry_their_bytes(value: Any) -> None:
    data = encode(value)
    assert encode(decode(data)) == data
    assert same(decode(encode(decode(data)), types=KNOWN), value)
