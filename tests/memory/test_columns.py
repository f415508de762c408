"""Filters answered by column say what they say of each record's metadata."""

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blackboard.memory import filters
from blackboard.memory.columns import Columns
from blackboard.memory.filters import Eq, Exists, In, Not, Range, parse

NAMES = ["a", "b", "a.b", "$x", "ä"]
NUMBERS = [0, 1, -1, 1.0, 1.5, 2**53, 2**53 + 1, 2**53 - 1, float(2**53), -(2**53) - 1, 10**400, -(10**400)]
NUMBERS += [0.1, -0.0, math.inf, -math.inf, 2**1024, 5e-324]
SCALARS = st.one_of(
    st.sampled_from([*NUMBERS, True, False, None, "", "1", "True", "Oslo", "oslo", "2026-05-07", math.nan]),
    st.integers(-3, 3),
    st.floats(allow_nan=False),
    st.integers(-(2**70), 2**70),
)
METADATA = st.dictionaries(
    st.sampled_from(NAMES), st.one_of(SCALARS, st.lists(SCALARS, max_size=3).map(tuple)), max_size=4
)
OPERANDS = SCALARS.filter(lambda value: not (isinstance(value, float) and math.isnan(value)))
BOUNDS = st.one_of(
    st.dictionaries(st.sampled_from(["gt", "gte", "lt", "lte"]), st.sampled_from(NUMBERS), min_size=1),
    st.dictionaries(st.sampled_from(["gt", "gte", "lt", "lte"]), st.floats(allow_nan=False), min_size=1),
    st.dictionaries(st.sampled_from(["gt", "gte", "lt", "lte"]), st.sampled_from(["", "1", "Oslo", "p"]), min_size=1),
)
LEAVES = st.one_of(
    st.builds(Eq, st.sampled_from(NAMES), OPERANDS),
    st.builds(In, st.sampled_from(NAMES), st.lists(OPERANDS, max_size=4)),
    st.builds(lambda name, bounds: Range(name, **bounds), st.sampled_from(NAMES), BOUNDS),
    st.builds(Exists, st.sampled_from(NAMES), st.booleans()),
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(filters.All, st.lists(inner, min_size=1, max_size=3)),
        st.builds(filters.Any, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)


def columns(*rows: dict[str, Any]) -> Columns:
    made = Columns()
    made.add(0, rows)
    return made


@settings(max_examples=400, deadline=None)
@given(rows=st.lists(METADATA, max_size=12), where=FILTERS, cut=st.integers(0, 12))
def test_mask_is_what_matches_says(rows: list[Any], where: filters.Filter, cut: int) -> None:
    made = Columns()
    made.add(0, rows[:cut])
    made.add(len(rows[:cut]), rows[cut:])
    expected = [where.matches(row) for row in rows]
    assert made.mask(where, len(rows)).tolist() == expected
    assert made.mask(where, len(rows[:cut])).tolist() == expected[:cut], "a reader that knows fewer rows"


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(METADATA, min_size=1, max_size=12), where=FILTERS, data=st.data())
def test_kept_rows_answer_as_before(rows: list[Any], where: filters.Filter, data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.sampled_from(range(len(rows))), unique=True))
    moved = np.full(len(rows), -1, np.int64)
    moved[kept] = np.arange(len(kept))
    copy = columns(*rows).kept(moved)
    copy.add(len(kept), rows)
    expected = [where.matches(rows[row]) for row in kept] + [where.matches(row) for row in rows]
    assert copy.mask(where, len(expected)).tolist() == expected


@pytest.mark.parametrize("value", [1, True, "1", 1.0, None])
def test_types_are_told_apart(value: Any) -> None:
    made = columns({"x": 1}, {"x": True}, {"x": "1"}, {"x": None}, {})
    assert made.mask(Eq("x", value), 5).tolist() == [
        type(value) in (int, float), value is True, value == "1", value is None, False,
    ]  # fmt: skip


def test_integers_beyond_what_a_float_holds() -> None:
    made = columns({"n": 2**53}, {"n": 2**53 + 1}, {"n": 2**53 + 2}, {"n": float(2**53)})
    assert made.mask(Eq("n", 2**53 + 1), 4).tolist() == [False, True, False, False]
    assert made.mask(Range("n", gt=2**53), 4).tolist() == [False, True, True, False]
    assert made.mask(Range("n", gte=2**53 + 1, lt=2**53 + 2), 4).tolist() == [False, True, False, False]
    assert made.mask(Range("n", lte=2**53 + 1), 4).tolist() == [True, True, False, True]


def test_a_dotted_name_is_a_name() -> None:
    made = columns({"a.b": 1}, {"a": 1})
    where = parse({"a.b": 1})
    assert where is not None
    assert made.mask(where, 2).tolist() == [True, False]


def test_several_values() -> None:
    made = columns({"tag": ("x", "y")}, {"tag": "y"}, {"tag": ()}, {})
    assert made.mask(Eq("tag", "y"), 4).tolist() == [True, True, False, False]
    assert made.mask(Exists("tag"), 4).tolist() == [True, True, True, False]
    where = parse({"tag": {"contains_all": ["x", "y"]}})
    assert where is not None
    assert made.mask(where, 4).tolist() == [True, False, False, False]


def test_a_range_holds_within_one_value() -> None:
    """Not one bound by one value and the other by another."""
    made = columns({"n": (1, 9)}, {"n": (1, 5)})
    assert made.mask(Range("n", gt=2, lt=8), 2).tolist() == [False, True]


def test_groups() -> None:
    rows: list[dict[str, Any]] = [{"s": "x"}, {"s": ("y", "x")}, {"s": 3}, {"s": 3.0}, {}, {"s": ()}, {"s": (4, "y")}]
    found = columns(*rows).groups("s", 7).tolist()
    assert found[2] == found[3]
    assert found[4] == found[5] == -1
    assert len({found[0], found[1], found[2]}) == 3
    assert columns(*rows).groups("other", 7).tolist() == [-1] * 7


def test_dropped_values_are_dropped() -> None:
    """What nobody keeps is not held in memory either."""
    made = columns({"x": "secret"}, {"x": "open"})
    copy = made.kept(np.array([-1, 0]))
    assert "secret" not in repr(vars(copy._columns["x"]) | {"values": copy._columns["x"]._values})
    assert copy._columns["x"]._values == [("text", "open")]


def test_bytes_per_value() -> None:
    tracemalloc.start()
    made = Columns()
    for start in range(0, 20_000, 1000):
        made.add(start, [{"city": ("Oslo", "Rome")[n % 2], "n": n} for n in range(start, start + 1000)])
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used < 20_000 * 60
    assert made.mask(Range("n", gte=100, lt=200), 20_000).sum() == 100
