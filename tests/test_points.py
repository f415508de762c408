"""Points cost nothing without a watcher, and tell it everything with one."""

import pytest

from blackboard import points


def test_nobody_watches() -> None:
    points.reach("commit", "before")


def test_a_watcher_is_told_and_the_one_before_comes_back() -> None:
    outer: list[str] = []
    inner: list[str] = []
    with points.watch(outer.append):
        points.reach("a", "before")
        with points.watch(inner.append):
            points.reach("b", "sent")
        points.reach("c", "after")
    points.reach("d", "after")
    assert (outer, inner) == (["a:before", "c:after"], ["b:sent"])


def test_what_a_watcher_raises_passes() -> None:
    def refuse(point: str) -> None:
        raise ArithmeticError(point)

    with pytest.raises(ArithmeticError, match="a:before"), points.watch(refuse):
        points.reach("a", "before")
    points.reach("a", "before")
