"""Arrays that grow at their end while others read what is there already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Growing", "Mask", "Rows", "Scores", "spans"]

Rows = NDArray[np.int64]
"""Row numbers of a table."""
Mask = NDArray[np.bool_]
"""One truth value per row."""
Scores = NDArray[np.float32]
"""One score per row; larger is better."""


class Growing:
    """An array to whose end one thread appends, in amortised O(1), while others read from the part they know of.

    Room is made by doubling into a new array, so a view that somebody holds stays what it was.
    """

    __slots__ = ("_array", "count")

    def __init__(self, dtype: Any, width: int = 0, start: NDArray[Any] | None = None) -> None:
        shape = (0, width) if width else (0,)
        self._array: NDArray[Any] = np.empty(shape, dtype) if start is None else start
        self.count = len(self._array)

    def extend(self, values: Sequence[Any] | NDArray[Any]) -> None:
        """Append values; whoever is told of the new count afterwards sees them."""
        end = self.count + len(values)
        if end > len(self._array):
            larger = np.empty((max(end, 2 * len(self._array), 16), *self._array.shape[1:]), self._array.dtype)
            larger[: self.count] = self._array[: self.count]
            self._array = larger
        if len(values):
            self._array[self.count : end] = values
        self.count = end

    def first(self, count: int) -> NDArray[Any]:
        """Give a view of the first `count` values."""
        return self._array[:count]

    def all(self) -> NDArray[Any]:
        """Give a view of all values."""
        count = self.count  # first: the array that stands then holds as many
        return self._array[:count]

    def set(self, at: int, value: Any) -> None:
        """Replace one value in place."""
        self._array[at] = value


def spans(starts: NDArray[Any], lengths: NDArray[Any]) -> Rows:
    """Spell out the positions of spans: start, start + 1, ... for each of them in turn."""
    total = int(lengths.sum())
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(total, dtype=np.int64)
