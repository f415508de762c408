"""The filters of a store's search: LangGraph's operators on fields of a value, compared exactly."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeGuard, cast

from blackboard.errors import ConfigError

__all__ = ["Test", "conditions", "same"]

Test = Callable[[Mapping[str, Any]], bool]
"""Says whether all conditions hold for a value."""

Check = Callable[[Any], bool]

NUMBERS = (int, float, Decimal)
ORDERED = (*NUMBERS, str, bytes, date, time, timedelta)
"""Of what kinds values have an order."""

_ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def conditions(filter: Mapping[str, Any] | None) -> Test | None:
    """Read a filter; None if it asks for nothing.

    A field equals a plain value, or what `$eq $ne $gt $gte $lt $lte` say holds for it; a dict without operators holds for
    the fields that it names, and a list item by item. Numbers are compared as numbers, exactly; a boolean is none, a text
    is none, and what is of another kind is neither greater nor less. A field that is missing counts as None.
    ConfigError (a ValueError) for an operator that is not known and an operand that has no order.
    """
    if not filter:
        return None
    if not _is_dict(filter):
        raise ConfigError(f"a filter is a dict of fields, got {filter!r}", value=filter)
    checks = [(name, _check(name, wanted)) for name, wanted in filter.items() if _named(name)]
    return lambda value: all(check(value.get(name)) for name, check in checks)


def _named(name: object) -> bool:
    """Refuse an operator that stands where a field is named: read as a field it would hold for nothing."""
    if type(name) is str and name.startswith("$"):
        raise ConfigError(
            f"a filter names fields, and {name!r} is none; operators stand below the field that they test"
        )
    return True


def _check(field: str, wanted: Any) -> Check:
    if _is_dict(wanted):
        if any(isinstance(name, str) and name.startswith("$") for name in wanted):
            checks = [_operator(field, name, operand) for name, operand in wanted.items()]
            return lambda value: all(check(value) for check in checks)
        inner = [(name, _check(f"{field}.{name}", each)) for name, each in wanted.items()]
        return lambda value: _is_dict(value) and all(check(value.get(name)) for name, check in inner)
    if _is_list(wanted):
        items = [_check(field, each) for each in wanted]
        return lambda value: (
            _is_list(value)
            and len(value) == len(items)
            and all(check(each) for check, each in zip(items, value, strict=True))
        )
    return lambda value: same(value, wanted)


def _operator(field: str, name: Any, operand: Any) -> Check:
    if name == "$eq":
        return lambda value: same(value, operand)
    if name == "$ne":
        return lambda value: not same(value, operand)
    if name not in _ORDER:
        known = ", ".join(["$eq", "$ne", *_ORDER])
        raise ConfigError(f"filter on {field!r}: unknown operator {name!r}; known are {known}", value=name)
    if isinstance(operand, bool) or not isinstance(operand, ORDERED):
        raise ConfigError(
            f"filter on {field!r}: {name} takes a number, a text or a time, got {operand!r}", value=operand
        )
    compare = _ORDER[name]
    return lambda value: _comparable(value, operand) and bool(compare(value, operand))


def same(one: Any, other: Any) -> bool:
    """Compare two values through and through; 1, True and "1" are three."""
    if _is_dict(one) and _is_dict(other):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if _is_list(one) and _is_list(other):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _comparable(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or not isinstance(one, ORDERED):
        return False
    if isinstance(other, NUMBERS):
        return isinstance(one, NUMBERS) and not _signalling(one, other)
    if isinstance(one, datetime) and isinstance(other, datetime):
        return (one.utcoffset() is None) == (other.utcoffset() is None)
    return type(one) is type(other) and not (isinstance(one, time) and _zoned(one) != _zoned(cast("time", other)))


def _signalling(*numbers: Any) -> bool:
    """Tell whether one is a Decimal that is no number, which cannot be compared at all."""
    return any(isinstance(number, Decimal) and number.is_nan() for number in numbers)


def _zoned(moment: time) -> bool:
    return moment.utcoffset() is not None


def _is_dict(value: object) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(value, Mapping)


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, (list, tuple))
