"""Durations, sizes and counts as people write them, turned into seconds, bytes and whole numbers."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator

from blackboard.errors import ConfigError

__all__ = ["LONGEST", "Duration", "Expiry", "Size", "seconds", "size", "whole"]

SHORTEST = 0.001
"""Shortest duration in seconds: servers count expiry in whole milliseconds."""

LONGEST = 100 * 365.25 * 86400.0
"""Longest duration in seconds: a hundred years."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_NUMBER = r"\d+(?:\.\d+)?"
_SIMPLE = re.compile(rf"([+-]?(?:{_NUMBER}|nan|inf))\s*(ms|[smhdw])?", re.IGNORECASE)
_ISO = re.compile(
    rf"P(?:(?P<w>{_NUMBER})W)?(?:(?P<d>{_NUMBER})D)?"
    rf"(?:T(?=\d)(?:(?P<h>{_NUMBER})H)?(?:(?P<m>{_NUMBER})M)?(?:(?P<s>{_NUMBER})S)?)?",
    re.IGNORECASE,
)
_DURATIONS = "write seconds, 500ms, 30s, 5m, 2h, 7d, 1w or ISO 8601 such as PT5M (no months, no years)"

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)(i?)b?", re.IGNORECASE)
_SIZES = "write bytes, 64KB (64,000) or 64KiB (65,536); K, M and G are known"


def seconds(value: Any, *, what: str = "a duration") -> float:
    """Return a duration in seconds, from seconds (int, float), a timedelta, text such as `30s` or `7d`, or ISO 8601.

    Between a millisecond and a hundred years, fractions honoured. Anything else, booleans, zero, negative numbers,
    NaN and infinities included, raises ConfigError (a ValueError) naming the value.
    """
    amount = _amount(value)
    if amount is None:
        raise ConfigError(f"{what} is not readable: {value!r}; {_DURATIONS}", value=value)
    if not SHORTEST <= amount <= LONGEST:
        raise ConfigError(
            f"{what} must be longer than 0 (at least 1 ms) and at most 100 years, got {value!r}; {_DURATIONS}",
            value=value,
        )
    return amount


def size(value: Any, *, what: str = "a size") -> int:
    """Return a size in bytes, from an int or text such as `128`, `64KB` (1000s) or `1MiB` (1024s).

    Raises ConfigError (a ValueError) for anything else, booleans and negative numbers included.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or (match[3] and not match[2]):
        raise ConfigError(f"{what} is not readable: {value!r}; {_SIZES}", value=value)
    amount = float(match[1]) * (1024 if match[3] else 1000) ** "_kmg".index(match[2].lower() or "_")
    if not math.isfinite(amount) or amount != int(amount):
        raise ConfigError(f"{what} must be a whole number of bytes, got {value!r}; {_SIZES}", value=value)
    return int(amount)


def whole(value: object, *, what: str = "a count", least: int = 1) -> int:
    """Return a count as it is; ConfigError (a ValueError) unless it is a whole number of at least `least`."""
    if type(value) is int and value >= least:
        return value
    raise ConfigError(f"{what} must be a whole number of at least {least}, got {value!r}", value=value)


def _amount(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    return _spelled(value.strip()) if isinstance(value, str) else None


def _spelled(text: str) -> float | None:
    if match := _SIMPLE.fullmatch(text):
        return float(match[1]) * _UNITS[(match[2] or "s").lower()]
    match = _ISO.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    return sum(float(number) * _UNITS[unit] for unit, number in match.groupdict().items() if number)


def _expiry(value: Any) -> float | None:
    if value is None or (isinstance(value, str) and value.strip().lower() == "none"):
        return None
    return seconds(value)


Duration = Annotated[float, BeforeValidator(seconds)]
"""A settings field that holds a duration: seconds after validation."""

Expiry = Annotated[float | None, BeforeValidator(_expiry)]
"""A settings field that holds a duration or none at all (None, or the text `none`): nothing expires."""

Size = Annotated[int, BeforeValidator(size)]
"""A settings field that holds a size: bytes after validation."""
