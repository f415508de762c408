"""Metadata by column: filters are answered for all rows at once, and exactly."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import reduce
from typing import Any as Anything
from typing import cast

import numpy as np
from numpy.typing import NDArray

from blackboard.memory.arrays import Growing, Mask, Rows
from blackboard.memory.filters import All, Any, Eq, Exists, Filter, In, Not, Range, Typed, typed
from blackboard.memory.record import Metadata, Scalar

__all__ = ["Columns"]


class Columns:
    """The metadata of the rows of a table. Rows are appended in order; a reader names how many of them it knows.

    A mask says what `Filter.matches` says of each row's metadata.
    """

    def __init__(self) -> None:
        self._columns: dict[str, _Column] = {}

    def add(self, first: int, rows: Sequence[Metadata]) -> None:
        """Append the metadata of rows, the first of which has the number `first`."""
        entries: dict[str, list[tuple[int, Scalar | tuple[Scalar, ...]]]] = {}
        for row, metadata in enumerate(rows, first):
            for name, value in metadata.items():
                entries.setdefault(name, []).append((row, value))
        for name, values in entries.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = _Column()
            column.add(values)

    def mask(self, where: Filter, size: int) -> Mask:
        """Say for each of the first `size` rows whether the filter holds."""
        match where:
            case All():
                return reduce(np.logical_and, [self.mask(one, size) for one in where.filters])
            case Any():
                return reduce(np.logical_or, [self.mask(one, size) for one in where.filters])
            case Not():
                return ~self.mask(where.filter, size)
            case Eq() | In() | Range() | Exists():
                column = self._columns.get(where.name)
                found = np.zeros(size, np.bool_)
                if column is not None:
                    column.mark(where, found)
                return ~found if isinstance(where, Exists) and not where.present else found
            case _:
                raise TypeError(f"a filter that columns do not know: {where!r}")

    def groups(self, name: str, size: int) -> NDArray[np.int64]:
        """Number the first `size` rows by their first value under a name: equal ones alike, -1 where there is none."""
        found = np.full(size, -1, np.int64)
        column = self._columns.get(name)
        if column is not None:
            column.number(found)
        return found

    def kept(self, moved: NDArray[np.int64]) -> Columns:
        """Copy with rows renumbered: `moved` gives each row's new number, -1 for those left out."""
        copy = Columns()
        for name, column in self._columns.items():
            kept = column.kept(moved)
            if kept is not None:
                copy._columns[name] = kept
        return copy


_NOTHING: tuple[str, None] = ("nothing", None)
"""What stands for a name whose value is an empty tuple: it exists, and equals nothing."""


class _Column:
    """The values under one name: numbers that a float64 holds exactly as such, all others by a code for each distinct one."""

    def __init__(self) -> None:
        self._number_rows, self._numbers = Growing(np.int32), Growing(np.float64)
        self._code_rows, self._codes = Growing(np.int32), Growing(np.int32)
        self._known: dict[Typed, int] = {}
        self._values: list[Typed] = []

    def add(self, entries: Sequence[tuple[int, Scalar | tuple[Scalar, ...]]]) -> None:
        rows: tuple[list[int], list[int]] = ([], [])
        numbers: list[float] = []
        codes: list[int] = []
        for row, value in entries:
            several: Sequence[Typed] = [typed(one) for one in value] if isinstance(value, tuple) else [typed(value)]
            for one in several or [_NOTHING]:
                if one[0] == "number" and exact(cast("float", one[1])):
                    rows[0].append(row)
                    numbers.append(cast("float", one[1]))
                else:
                    rows[1].append(row)
                    codes.append(self._code(one))
        self._numbers.extend(numbers)
        self._number_rows.extend(rows[0])
        self._codes.extend(codes)
        self._code_rows.extend(rows[1])

    def mark(self, where: Eq | In | Range | Exists, found: Mask) -> None:
        """Set the rows for which the filter holds; `Exists` whatever it asks for."""
        rows, numbers = self._first(self._number_rows, self._numbers, len(found))
        found[rows[_holding(where, numbers)]] = True
        rows, codes = self._first(self._code_rows, self._codes, len(found))
        if len(codes):
            found[rows[self._table(where)[codes]]] = True

    def number(self, found: NDArray[np.int64]) -> None:
        rows, codes = self._first(self._code_rows, self._codes, len(found))
        named = codes != self._known.get(_NOTHING, -1)
        found[rows[named][::-1]] = codes[named][::-1]  # from behind, so that a row's first value stays
        rows, numbers = self._first(self._number_rows, self._numbers, len(found))
        alone = found[rows] == -1
        same = np.unique(numbers[alone], return_inverse=True)[1]
        found[rows[alone][::-1]] = len(self._values) + same[::-1]

    def kept(self, moved: NDArray[np.int64]) -> _Column | None:
        copy = _Column()
        rows, numbers = _moved(self._number_rows.all(), self._numbers.all(), moved)
        copy._number_rows.extend(rows)
        copy._numbers.extend(numbers)
        rows, codes = _moved(self._code_rows.all(), self._codes.all(), moved)
        used, renumbered = np.unique(codes, return_inverse=True)
        copy._values = [self._values[code] for code in used]
        copy._known = {value: code for code, value in enumerate(copy._values)}
        copy._code_rows.extend(rows)
        copy._codes.extend(renumbered)
        return copy if copy._code_rows.count or copy._number_rows.count else None

    def _code(self, value: Typed) -> int:
        code = self._known.get(value)
        if code is None:
            code = len(self._values)
            self._values.append((sys.intern(value[0]), value[1]))
            self._known[value] = code
        return code

    def _first(self, rows: Growing, values: Growing, size: int) -> tuple[Rows, NDArray[Anything]]:
        known = rows.all()
        count = int(np.searchsorted(known, size))
        return known[:count], values.first(count)

    def _table(self, where: Eq | In | Range | Exists) -> Mask:
        """Say of each distinct value whether the filter holds for it."""
        values = self._values[:]
        if isinstance(where, (Eq, In)):
            table = np.zeros(len(values), np.bool_)
            for wanted in (where.typed,) if isinstance(where, Eq) else where.typed:
                code = self._known.get(wanted)
                if code is not None and code < len(values):
                    table[code] = True
            return table
        if isinstance(where, Exists):
            return np.ones(len(values), np.bool_)
        kind, holds = where.kind, where.holds
        return np.fromiter((value[0] == kind and holds(value[1]) for value in values), np.bool_, len(values))


def exact(number: float) -> bool:
    """Say whether a float64 holds a number as it is; not so for most integers beyond 2^53, and for nan, which equals nothing."""
    try:
        return float(number) == number
    except OverflowError:
        return False


def _holding(where: Eq | In | Range | Exists, numbers: NDArray[np.float64]) -> Mask:
    match where:
        case Exists():
            return np.ones(len(numbers), np.bool_)
        case Range():
            return _within(where, numbers)
        case _:
            wanted = (where.typed,) if isinstance(where, Eq) else where.typed
            values = [
                float(cast("float", value))
                for kind, value in wanted
                if kind == "number" and exact(cast("float", value))
            ]
            return numbers == values[0] if len(values) == 1 else np.isin(numbers, values)


def _within(where: Range, numbers: NDArray[np.float64]) -> Mask:
    """Compare with each bound; one that no float64 holds lies between two neighbours, of which the nearest is known."""
    inside = np.full(len(numbers), where.kind == "number")
    if where.kind != "number":
        return inside
    for bound, equal in ((where.gt, False), (where.gte, True)):
        if bound is not None:
            near = nearest(number := cast("float", bound))
            inside &= numbers >= near if near > number or (equal and near == number) else numbers > near
    for bound, equal in ((where.lt, False), (where.lte, True)):
        if bound is not None:
            near = nearest(number := cast("float", bound))
            inside &= numbers <= near if near < number or (equal and near == number) else numbers < near
    return inside


def nearest(number: float) -> float:
    """Give the float64 nearest to a number, infinity beyond the largest."""
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _moved(rows: Rows, values: NDArray[Anything], moved: NDArray[np.int64]) -> tuple[Rows, NDArray[Anything]]:
    """Renumber rows, and leave out what is not kept, rows that came since `moved` was made included."""
    there = moved[rows[: int(np.searchsorted(rows, len(moved)))]]
    kept = np.flatnonzero(there >= 0)
    kept = kept[np.argsort(there[kept], kind="stable")]
    return there[kept], values[kept]
