"""Each checker on the smallest history that breaks its promise, and on one that breaks none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blackboard.testing.history import (
    Grant,
    Operation,
    Stored,
    check_effects,
    check_grants,
    check_thread,
)

WRITES = [
    Operation("t", "a", 1, 1.0, 2.0, "acknowledged"),
    Operation("t", "b", 1, 3.0, 4.0, "unknown"),
    Operation("t", "c", 2, 5.0, 6.0, "acknowledged"),
    Operation("t", "d", 1, 7.0, 8.0, "refused"),
]
GRANTS = [Grant("t", "one", 1, 0.0, 0.5, 4.2), Grant("t", "two", 2, 4.3, 4.5, 9.0)]
WHOLE = Stored("t", ["a", "b", "c"], [0, 1, 2], [1, 1, 2], 2)


def promises(stored: Stored, writes: list[Operation] | None = None) -> set[str]:
    return {found.promise for found in check_thread(WRITES if writes is None else writes, GRANTS, stored)}


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert promises(WHOLE) == set()
    assert promises(Stored("t", ["a", "c"], [0, 1], [1, 2], 1)) == set(), "an unknown write may be missing"
    assert promises(Stored("t", [], [], []), []) == set()
    assert check_grants(GRANTS) == []
    assert check_effects({"e": 1, "f": 0}) == []


@pytest.mark.parametrize(
    ("stored", "promise"),
    [
        (replace(WHOLE, items=["a", "b"]), "lost"),
        (replace(WHOLE, items=["a", "a", "b", "c"]), "doubled"),
        (replace(WHOLE, items=["a", "b", "c", "z"]), "made up"),
        (replace(WHOLE, items=["a", "b", "c", "d"]), "refused but stored"),
        (replace(WHOLE, steps=[0, 2, 3], latest=3), "gap"),
        (replace(WHOLE, fences=[1, 2, 1]), "fence fell"),
        (replace(WHOLE, latest=1), "latest is not the tail"),
        (replace(WHOLE, items=["c", "a", "b"]), "reordered"),
    ],
)
def test_a_broken_promise_is_found(stored: Stored, promise: str) -> None:
    assert promise in promises(stored)


def test_a_stale_write_is_found_whether_it_was_acknowledged_or_not() -> None:
    late = Operation("t", "e", 1, 7.0, 8.0, "acknowledged")
    stored = Stored("t", ["a", "b", "c", "e"], [0, 1, 2, 3], [1, 1, 2, 2], 3)
    assert "stale write" in promises(stored, [*WRITES, late])
    assert "stale write" in promises(stored, [*WRITES, replace(late, outcome="unknown")])
    assert promises(WHOLE, [*WRITES, replace(late, outcome="unknown")]) == set()


def test_two_holders_and_a_fence_given_out_twice() -> None:
    overlapping = [GRANTS[0], replace(GRANTS[1], granted=4.1)]
    assert {found.promise for found in check_grants(overlapping)} == {"two holders"}
    reused = [GRANTS[0], replace(GRANTS[1], fence=1)]
    assert {found.promise for found in check_grants(reused)} == {"fence reused"}
    elsewhere = [GRANTS[0], replace(GRANTS[1], granted=4.1, thread="u", fence=1)]
    assert check_grants(elsewhere) == []


def test_a_repeated_effect() -> None:
    assert [found.thread for found in check_effects({"e": 2, "f": 1})] == ["e"]
