"""Durations and sizes: what people write is read exactly, everything else is refused and named."""

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blackboard.errors import ConfigError
from blackboard.quantities import seconds, size


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (0.5, 0.5),
        (30, 30.0),
        ("30", 30.0),
        ("0.5", 0.5),
        ("500ms", 0.5),
        ("30s", 30.0),
        (" 5 m ", 300.0),
        ("2h", 7200.0),
        ("7d", 604800.0),
        ("1w", 604800.0),
        ("1.5H", 5400.0),
        ("PT5M", 300.0),
        ("PT0.5S", 0.5),
        ("P1DT12H", 129600.0),
        ("P2W", 1209600.0),
        (timedelta(milliseconds=1), 0.001),
        (timedelta(days=36525), 36525 * 86400.0),
    ],
)
def test_duration(written: Any, expected: float) -> None:
    assert seconds(written) == expected


@pytest.mark.parametrize(
    "written",
    [
        0,
        -5,
        -0.5,
        "0",
        "-5m",
        "0s",
        math.nan,
        math.inf,
        -math.inf,
        "nan",
        "inf",
        1e15,
        10**400,
        "5300w",
        0.0001,
        "0.5ms",
    ],
)
def test_duration_out_of_range(written: Any) -> None:
    with pytest.raises(ConfigError, match="longer than 0") as caught:
        seconds(written)
    assert repr(written) in str(caught.value)
    assert caught.value.value is written


@pytest.mark.parametrize(
    "written",
    [True, False, None, "", "P", "PT", "P1M", "P1Y", "5 years", "1h30", "5mm", "soon", b"30s", [30], "PT5", "T5M"],
)
def test_duration_unreadable(written: Any) -> None:
    with pytest.raises(ConfigError, match="not readable") as caught:
        seconds(written)
    assert repr(written) in str(caught.value)


@given(st.integers(min_value=1, max_value=10**9))
def test_duration_in_milliseconds_is_exact(number: int) -> None:
    assert round(seconds(f"{number}ms") * 1000) == number


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (0, 0),
        (128, 128),
        ("128", 128),
        ("128B", 128),
        ("64KB", 64_000),
        ("64k", 64_000),
        ("64KiB", 65_536),
        ("1MiB", 1 << 20),
        ("1.5GiB", 3 << 29),
        (" 2 mb ", 2_000_000),
    ],
)
def test_size(written: Any, expected: int) -> None:
    assert size(written) == expected


@pytest.mark.parametrize("written", [True, -1, 1.5, None, "", "64iB", "-5", "1.5", "0.1KiB", "64TB", "many", "nan"])
def test_size_refused(written: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        size(written)
    assert repr(written) in str(caught.value)
