"""Filters: what they hold for, what they refuse, and that nothing widens them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any as Whatever

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blackboard.errors import ConfigError
from blackboard.memory.filters import DEEPEST, All, Any, Eq, Exists, Filter, In, Not, Range, parse
from blackboard.memory.record import Metadata


def holds(where: Mapping[str, object] | Filter, **metadata: Whatever) -> bool:
    parsed = parse(where)
    assert parsed is not None
    return parsed.matches(metadata)


def test_nothing_means_every_record() -> None:
    assert parse(None) is None


def test_dict_becomes_objects() -> None:
    where = {
        "city": "Oslo",
        "n": {"gte": 1, "lt": 5},
        "tag": {"in": ["a", "b"]},
        "any": [{"x": {"exists": True}}, {"not": {"y": None}}],
    }
    assert parse(where) == All(
        (
            Eq("city", "Oslo"),
            Range("n", gte=1, lt=5),
            In("tag", ("a", "b")),
            Any((Exists("x"), Not(Eq("y", None)))),
        )
    )
    assert parse({"city": "Oslo"}) == Eq("city", "Oslo") == parse({"city": {"eq": "Oslo"}})
    assert parse(Eq("city", "Oslo")) == Eq("city", "Oslo")


@pytest.mark.parametrize(
    ("wanted", "stored", "equal"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (0.0, -0.0, True),
        (1, "1", False),
        (1, True, False),
        (True, 1, False),
        (0, False, False),
        ("True", True, False),
        (None, None, True),
        (None, "", False),
        (None, 0, False),
        ("", "", True),
        ("a", "A", False),
        ("é", "e\u0301", False),
        (2**53, float(2**53), True),
        (2**53 + 1, float(2**53), False),
        (2**70, 2.0**70, True),
        (math.inf, math.inf, True),
        (0, math.nan, False),
    ],
)
def test_equality_is_of_type_and_value(wanted: object, stored: object, equal: bool) -> None:
    assert holds({"x": wanted}, x=stored) is equal
    assert holds({"x": {"in": [wanted]}}, x=stored) is equal
    assert holds({"x": {"contains_all": [wanted]}}, x=stored) is equal
    assert holds({"not": {"x": wanted}}, x=stored) is not equal


def test_filters_are_equal_where_they_hold_for_the_same() -> None:
    """Whoever keeps an answer under a filter must not hand out that of another."""
    assert Eq("x", 1) == Eq("x", 1.0)
    assert len({Eq("x", 1), Eq("x", 1.0), Eq("x", value=True), Eq("x", "1")}) == 3
    assert In("x", (1, 2)) == In("x", (2, 1, 1))
    assert In("x", (1,)) != In("x", (True,))


def test_several_values_match_by_any_of_them() -> None:
    tags = {"tags": ("a", "b", 3)}
    assert holds({"tags": "b"}, **tags)
    assert holds({"tags": {"in": ["x", "a"]}}, **tags)
    assert holds({"tags": {"contains_all": ["a", 3]}}, **tags)
    assert not holds({"tags": {"contains_all": ["a", "c"]}}, **tags)
    assert holds({"tags": {"gte": 3}}, **tags)
    assert not holds({"tags": "a"}, tags=())
    assert holds({"tags": {"exists": True}}, tags=())


def test_bounds_hold_for_one_and_the_same_value() -> None:
    assert not holds({"n": {"gt": 3, "lt": 5}}, n=(1, 9))
    assert holds({"n": {"gt": 3, "lt": 5}}, n=(1, 4, 9))


@pytest.mark.parametrize(
    ("bounds", "value", "within"),
    [
        ({"gt": 1}, 1, False),
        ({"gte": 1}, 1, True),
        ({"lt": 1}, 1, False),
        ({"lte": 1}, 1.0, True),
        ({"gte": 1}, True, False),
        ({"gte": 0}, "1", False),
        ({"gte": "2024-05", "lt": "2024-06"}, "2024-05-31", True),
        ({"gte": "2024-05"}, 2025, False),
        ({"gt": -math.inf}, math.nan, False),
        ({"gt": float(2**53)}, 2**53 + 1, True),
        ({"gte": 0}, None, False),
    ],
)
def test_range(bounds: dict[str, object], value: object, within: bool) -> None:
    assert holds({"n": bounds}, n=value) is within


@pytest.mark.parametrize(
    "wrap", [Not, lambda one: All((one,)), lambda one: Any((one, Exists("y")))], ids=["not", "all", "any"]
)
def test_objects_nested_too_deep_are_refused(wrap: Callable[[Filter], Filter]) -> None:
    """However they came about, and whoever goes through them: refused before anything does."""
    for depth, refused in ((DEEPEST, False), (3 * DEEPEST, True), (20_000, True)):
        where: Filter = Eq("x", 1)
        for _ in range(depth):
            where = wrap(where)
        if refused:
            with pytest.raises(ConfigError, match="nested 32 deep"):
                parse(where)
            with pytest.raises(ConfigError, match="nested 32 deep"):
                parse({"all": [where]})
        else:
            assert holds(where, x=1)


def test_the_deepest_dict() -> None:
    """Each level of a dict of several names is two of objects."""
    where: dict[str, object] = {"x": {"in": [1], "exists": True}, "y": 1}
    for _ in range(DEEPEST):
        where = {"all": [where], "x": 1}
    assert holds(where, x=1, y=1)
    with pytest.raises(ConfigError, match="nested 32 deep"):
        parse({"not": where})


def test_a_filter_of_somebody_else() -> None:
    """Filters are answered by columns as well as one by one, so that only those that are known are taken."""

    class Odd(Filter):
        def matches(self, metadata: Metadata) -> bool:
            return True

    for where in (Odd(), Not(Odd()), All((Eq("x", 1), Odd()))):
        with pytest.raises(ConfigError, match="Odd is no filter that is known here"):
            parse(where)


def test_missing_names() -> None:
    assert not holds({"x": None})
    assert not holds({"x": {"lt": 5}})
    assert not holds({"x": {"in": []}}, x=1)
    assert holds({"not": {"x": 1}})
    assert holds({"x": {"exists": False}})
    assert holds({"x": {"exists": True}}, x=None)


@pytest.mark.parametrize("name", ["a.b", "__class__", "v' OR 1=1 --", "*", "ключ", " ", "matches"])
def test_names_are_literal(name: str) -> None:
    assert holds({name: 1}, **{name: 1})
    assert not holds({name: 1}, a=1, v=1, matches=2)


def test_names_that_the_dict_form_needs_for_itself() -> None:
    assert holds(Eq("all", 1), all=1)
    assert holds(Eq("$ne", 1), **{"$ne": 1})


HOSTILE: list[Mapping[str, object]] = [
    {"user_id": '") or true or ("'},
    {"user_id": {"$ne": ""}},
    {"user_id": {"$regex": ".*"}},
    {"v' OR 1=1 --": 1},
    {"user_id": "*"},
    {"user_id": "alice|bob"},
    {"user_id": "alice} @user_id:{bob"},
    {"user_id": ["alice", "bob"]},
    {"user_id": {"in": "alice"}},
    {"user_id": {"like": "%"}},
    {"$or": [{"user_id": "alice"}, {"user_id": "bob"}]},
    {"": "x"},
    {"a.b": 1},
    {"__class__": 1},
    {"user_id": {"in": ["*", "?", "al[i]ce"]}},
    {"user_id": b"alice"},
]


@pytest.mark.parametrize("where", HOSTILE, ids=str)
def test_hostile_filters_hold_for_nobody(where: Mapping[str, object]) -> None:
    """C26: compared literally, or refused; never another tenant's row."""
    rows: list[Metadata] = [{"user_id": name, "n": n} for name in ("alice", "bob") for n in range(5)]
    try:
        parsed = parse(where)
    except ValueError:
        return
    assert parsed is not None
    assert [row for row in rows if parsed.matches(row)] == []


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({}, "leave it out"),
        ({"x": {}}, "'x' has no operator"),
        ({"x": {"$ne": 1}}, "'\\$ne' under 'x' is no operator"),
        ({"x": {"ne": 1}}, "for the opposite"),
        ({"x": ["a"]}, "write {'in'"),
        ({"x": {"in": "abc"}}, "in takes a list, got 'abc'"),
        ({"x": {"in": [["a"]]}}, "single value"),
        ({"x": {"exists": 1}}, "true or false"),
        ({"x": {"gte": True}}, "all numbers or all text"),
        ({"x": {"gte": 1, "lt": "b"}}, "all numbers or all text"),
        ({"x": {"gte": None}}, "gte under 'x' needs"),
        ({"x": math.nan}, "nan"),
        ({"x": {"gt": math.nan}}, "nan"),
        ({"x": object}, "of type type"),
        ({"all": []}, "at least one"),
        ({"any": {"x": 1}}, "any takes a list"),
        ({"not": []}, "a dict of names"),
        ({"not": {}}, "leave it out"),
        ({"": 1}, "not empty"),
        ({1: 1}, "not empty"),
        ({"$or": []}, "Eq\\('\\$or'"),
        ("x = 1", "a dict of names"),
    ],
)
def test_what_is_not_understood_is_an_error(where: Whatever, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(where)


def test_objects_are_checked_too() -> None:
    for wrong in (
        lambda: Eq("", 1),
        lambda: Range("x"),
        lambda: All(()),
        lambda: Not({"x": 1}),  # type: ignore[arg-type]
        lambda: In("x", "abc"),
    ):
        with pytest.raises(ConfigError):
            wrong()


def test_depth_is_bounded() -> None:
    where: dict[str, object] = {"x": 1}
    for _ in range(32):
        where = {"not": where}
    assert holds(where, x=1)
    with pytest.raises(ConfigError, match="32 deep"):
        parse({"not": where})


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from("ab1")
)
names = st.sampled_from(["x", "y"])
metadata = st.dictionaries(names, st.one_of(scalars, st.lists(scalars, max_size=3).map(tuple)))
numbers = st.integers(-3, 3)
leaves: st.SearchStrategy[dict[str, Whatever]] = st.one_of(
    st.builds(lambda name, value: {name: value}, names, scalars),
    st.builds(lambda name, values: {name: {"in": values}}, names, st.lists(scalars, max_size=3)),
    st.builds(lambda name, low, high: {name: {"gte": low, "lt": high}}, names, numbers, numbers),
    st.builds(lambda name, present: {name: {"exists": present}}, names, st.booleans()),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda parts: {"all": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: {"any": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda part: {"not": part}, inner),
    ),
    max_leaves=8,
)


def same(one: object, other: object) -> bool:
    """Equality as JSON has it: numbers by value, everything else by type and value."""
    numeric = [isinstance(value, (int, float)) and not isinstance(value, bool) for value in (one, other)]
    return one == other if all(numeric) else type(one) is type(other) and one == other


def naive(where: dict[str, Whatever], row: Mapping[str, Whatever]) -> bool:
    ((name, value),) = where.items()
    match name:
        case "all":
            return all(naive(part, row) for part in value)
        case "any":
            return any(naive(part, row) for part in value)
        case "not":
            return not naive(value, row)
        case _:
            stored = row.get(name, ())
            several = stored if isinstance(stored, tuple) else (stored,)
            return naive_leaf(value, several, there=name in row)


def naive_leaf(value: Whatever, several: tuple[Whatever, ...], *, there: bool) -> bool:
    if not isinstance(value, dict):
        return any(same(one, value) for one in several)
    if "in" in value:
        return any(same(one, other) for one in several for other in value["in"])
    if "exists" in value:
        return there == bool(value["exists"])
    return any(type(one) in (int, float) and value["gte"] <= one < value["lt"] for one in several)


@given(trees, metadata)
def test_agrees_with_a_naive_reading(where: dict[str, Whatever], row: dict[str, Whatever]) -> None:
    assert holds(where, **row) is naive(where, row)
