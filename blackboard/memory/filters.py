"""Filters on metadata: typed trees, parsed from plain dicts, that hold for a record or do not.

A filter is data from the first to the last: no text in a query language is made of it, so no value can widen it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from blackboard.errors import ConfigError
from blackboard.memory.record import Metadata, Scalar

__all__ = ["All", "Any", "Eq", "Exists", "Filter", "In", "Not", "Range", "Typed", "Where", "parse", "typed"]

DEEPEST = 32
"""How deep `all`, `any` and `not` may be nested."""

Typed = tuple[str, Scalar]
"""A value beside the name of its type: what two values are compared by."""


def typed(value: Scalar) -> Typed:
    """Tell a value's type apart from its value, so that 1 and 1.0 are equal, and 1, True and "1" are three things.

    Numbers compare exactly whatever their type: 2**53 + 1 is not the float 2**53.
    """
    if value is None:
        return "none", None
    if isinstance(value, bool):
        return "boolean", value
    return ("text" if isinstance(value, str) else "number"), value


def _operand(value: object) -> Typed:
    """Check a value that a filter compares with."""
    if isinstance(value, (list, tuple, set, frozenset)):
        raise ConfigError(
            f"a filter compares with a single value, got {value!r}; write {{'in': [...]}} for any of several, "
            "{'contains_all': [...]} for all of them",
            value=value,
        )
    if isinstance(value, float) and math.isnan(value):
        raise ConfigError("a filter compares with nan, which nothing equals; leave it out", value=value)
    if value is None or isinstance(value, (str, int, float)):
        return typed(value)
    raise ConfigError(
        f"a filter compares with text, numbers, booleans or None, got {value!r} of type {type(value).__name__}",
        value=value,
    )


class Filter(ABC):
    """What records are chosen by. Instances are immutable, hashable and equal where they hold for the same values."""

    __slots__ = ()

    @abstractmethod
    def matches(self, metadata: Metadata) -> bool:
        """Say whether it holds for a record with this metadata."""


Where = Mapping[str, object] | Filter
"""A filter, as a plain dict or as an object."""


@dataclass(frozen=True, slots=True)
class Eq(Filter):
    """Holds where the name's value, or one of its several values, equals `value` and is of the same type."""

    name: str
    value: Scalar = field(compare=False)
    typed: Typed = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _named(self.name)
        object.__setattr__(self, "typed", _operand(self.value))

    def matches(self, metadata: Metadata) -> bool:
        """Say whether it holds for a record with this metadata."""
        return any(typed(value) == self.typed for value in _values(metadata, self.name))


@dataclass(frozen=True, slots=True)
class In(Filter):
    """Holds where the name's value, or one of its several values, is among `values`. None of them: holds nowhere."""

    name: str
    values: Sequence[Scalar] = field(compare=False)
    typed: frozenset[Typed] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _named(self.name)
        object.__setattr__(self, "values", tuple(_listed("in", self.values)))
        object.__setattr__(self, "typed", frozenset(map(_operand, self.values)))

    def matches(self, metadata: Metadata) -> bool:
        """Say whether it holds for a record with this metadata."""
        return any(typed(value) in self.typed for value in _values(metadata, self.name))


@dataclass(frozen=True, slots=True)
class Range(Filter):
    """Holds where the name's value, or one of its several values, lies within all bounds that are given.

    Bounds are numbers, or texts compared by code point (dates in ISO 8601 sort that way); values of another type lie
    outside.
    """

    name: str
    gt: float | str | None = None
    gte: float | str | None = None
    lt: float | str | None = None
    lte: float | str | None = None

    def __post_init__(self) -> None:
        _named(self.name)
        kinds = {_operand(bound)[0] for bound in (self.gt, self.gte, self.lt, self.lte) if bound is not None}
        if kinds not in ({"number"}, {"text"}):
            raise ConfigError(
                f"a range needs bounds that are all numbers or all text, got {self!r}", name=self.name, value=self
            )

    def matches(self, metadata: Metadata) -> bool:
        """Say whether it holds for a record with this metadata."""
        return any(self.holds(value) for value in _values(metadata, self.name))

    @property
    def kind(self) -> str:
        """The type of the values that can lie within: `number` or `text`."""
        return next(typed(bound)[0] for bound in (self.gt, self.gte, self.lt, self.lte) if bound is not None)

    def holds(self, value: Scalar) -> bool:
        """Say whether one value lies within the bounds."""
        if typed(value)[0] != self.kind:
            return False
        one: float = cast("float", value)  # of the bounds' type, so they compare
        return (
            (self.gt is None or one > cast("float", self.gt))
            and (self.gte is None or one >= cast("float", self.gte))
            and (self.lt is None or one < cast("float", self.lt))
            and (self.lte is None or one <= cast("float", self.lte))
        )


@dataclass(frozen=True, slots=True)
class Exists(Filter):
    """Holds where the name is there, whatever its value, None included; with `present=False` where it is not."""

    name: str
    present: bool = True

    def __post_init__(self) -> None:
        _named(self.name)
        if not isinstance(self.present, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"exists takes true or false, got {self.present!r}", name=self.name, value=self.present)

    def matches(self, metadata: Metadata) -> bool:
        """Say whether it holds for a record with this metadata."""
        return (self.name in metadata) is self.present


@dataclass(frozen=True, slots=True)
class All(Filter):
    """Holds where every one of the filters does."""

    filters: Sequence[Filter]

    def __post_init__(self) -> None:
        object.__setattr__(self, "filters", _several("all", self.filters))

    def matches(self, metadata: Metadata) -> bool:
        """Say whether it holds for a record with this metadata."""
        return all(each.matches(metadata) for each in self.filters)


@dataclass(frozen=True, slots=True)
class Any(Filter):
    """Holds where at least one of the filters does."""

    filters: Sequence[Filter]

    def __post_init__(self) -> None:
        object.__setattr__(self, "filters", _several("any", self.filters))

    def matches(self, metadata: Metadata) -> bool:
        """Say whether it holds for a record with this metadata."""
        return any(each.matches(metadata) for each in self.filters)


@dataclass(frozen=True, slots=True)
class Not(Filter):
    """Holds where the filter does not, records without the name included."""

    filter: Filter

    def __post_init__(self) -> None:
        _several("not", (self.filter,))

    def matches(self, metadata: Metadata) -> bool:
        """Say whether it holds for a record with this metadata."""
        return not self.filter.matches(metadata)


def parse(where: Where | None) -> Filter | None:
    """Read a filter from its dict; None stays None and means every record.

    ``{"city": "Oslo"}`` equals · ``{"n": {"gte": 1, "lt": 5}}`` lies between · ``{"tag": {"in": ["a", "b"]}}`` is any of
    these · ``{"tag": {"contains_all": ["a", "b"]}}`` has all of these · ``{"x": {"exists": True}}`` is there. Several
    names must all hold. ``{"all": [...]}``, ``{"any": [...]}`` and ``{"not": {...}}`` combine. A name may hold any
    characters and is taken literally; names that begin with ``$`` or are called all, any or not need the objects
    (`Eq("all", 1)`). Raises ConfigError, a ValueError, for whatever is not understood, an empty filter included.
    """
    return None if where is None else _shallow(_parsed(where, 0))


def _shallow(where: Filter) -> Filter:
    """Refuse a tree of objects that is too deep to be gone through: a dict of the greatest depth makes two levels of each."""
    level = [where]
    for _ in range(2 * DEEPEST + 3):
        level = [*{id(part): part for one in level for part in _parts(one)}.values()]
        if not level:
            return where
    raise ConfigError(f"a filter may be nested {DEEPEST} deep", value=DEEPEST)


def _parts(where: Filter) -> Sequence[Filter]:
    match where:
        case All() | Any():
            return where.filters
        case Not():
            return (where.filter,)
        case Eq() | In() | Range() | Exists():
            return ()
        case _:
            raise ConfigError(
                f"{type(where).__name__} is no filter that is known here; make it of All, Any, Not, Eq, In, Range and Exists",
                value=where,
            )


def _parsed(where: object, depth: int) -> Filter:
    if isinstance(where, Filter):
        return where
    if not isinstance(where, Mapping):
        raise ConfigError(f"a filter is a dict of names to values, got {where!r}", value=where)
    if depth > DEEPEST:
        raise ConfigError(f"a filter may be nested {DEEPEST} deep", value=DEEPEST)
    entries = cast("Mapping[object, object]", where)
    if not entries:
        raise ConfigError("an empty filter says nothing; leave it out (None) to mean every record", value=where)
    return _together([_entry(name, value, depth) for name, value in entries.items()])


def _entry(name: object, value: object, depth: int) -> Filter:
    if name in ("all", "any"):
        parts = [_parsed(part, depth + 1) for part in _listed(name, value)]
        return All(parts) if name == "all" else Any(parts)
    if name == "not":
        return Not(_parsed(value, depth + 1))
    text = _named(name)
    if text.startswith("$"):
        raise ConfigError(
            f"{text!r} is no operator; combine with all, any and not, or write Eq({text!r}, ...) if it is a name",
            name=text,
        )
    if isinstance(value, Mapping):
        return _condition(text, cast("Mapping[object, object]", value))
    return Eq(text, cast("Scalar", value))


_BOUNDS = ("gt", "gte", "lt", "lte")
_OPERATORS: Mapping[str, Callable[[str, object], Filter]] = {
    "eq": lambda name, operand: Eq(name, cast("Scalar", operand)),
    "in": lambda name, operand: In(name, cast("Sequence[Scalar]", operand)),
    "contains_all": lambda name, operand: All([Eq(name, one) for one in _listed("contains_all", operand)]),
    "exists": lambda name, operand: Exists(name, cast("bool", operand)),
}


def _condition(name: str, operators: Mapping[object, object]) -> Filter:
    """Read what stands under a name: bounds of one range, and other operators, all of which must hold."""
    known = {*_BOUNDS, *_OPERATORS}
    for operator in operators:
        if operator not in known:
            raise ConfigError(
                f"{operator!r} under {name!r} is no operator; there are {', '.join(sorted(known))}, "
                f"and {{'not': {{{name!r}: ...}}}} for the opposite",
                name=name,
                operator=operator,
            )
    if not operators:
        raise ConfigError(f"{name!r} has no operator; there are {', '.join(sorted(known))}", name=name)
    bounds = {bound: operand for bound, operand in operators.items() if bound in _BOUNDS}
    parts: list[Filter] = []
    if bounds:
        for bound, operand in bounds.items():
            if operand is None:
                raise ConfigError(f"{bound} under {name!r} needs a number or text, got None", name=name)
        parts.append(Range(name, **cast("dict[str, float]", bounds)))
    parts += [_OPERATORS[cast("str", each)](name, operand) for each, operand in operators.items() if each in _OPERATORS]
    return _together(parts)


def _together(parts: Sequence[Filter]) -> Filter:
    return parts[0] if len(parts) == 1 else All(parts)


def _named(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"a filter names metadata by a text that is not empty, got {name!r}", name=name)
    return name


def _listed(operator: str, operand: object) -> Sequence[Scalar]:
    if isinstance(operand, (list, tuple, set, frozenset)):
        return tuple(cast("Iterable[Scalar]", operand))
    raise ConfigError(f"{operator} takes a list, got {operand!r}", operator=operator, value=operand)


def _several(operator: str, filters: Iterable[Filter]) -> tuple[Filter, ...]:
    several = tuple(filters)
    if not several:
        raise ConfigError(f"{operator} needs at least one filter", operator=operator)
    for each in several:
        if not isinstance(each, Filter):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"{operator} combines filters, got {each!r}; parse a dict first", value=each)
    return several


def _values(metadata: Metadata, name: str) -> Sequence[Scalar]:
    """Give the values under a name: none where it is missing, several where it is multi-valued."""
    if name not in metadata:
        return ()
    value = metadata[name]
    return value if isinstance(value, tuple) else (value,)
