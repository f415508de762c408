"""A frame: what a path holds as of one moment, to be searched by any number of threads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blackboard.memory.arrays import Mask, Rows, Scores
from blackboard.memory.embedder import Space
from blackboard.memory.filters import Filter
from blackboard.memory.index import compare
from blackboard.memory.record import Token
from blackboard.memory.table import Table

__all__ = ["Frame"]


class Frame:
    """The records of a path as of `token`, one row for each, and more rows that are not alive (any more).

    It never changes: a view that has read on makes the next one, which shares what they have in common. Masks and scores
    have one value per row, `size` of them. Whatever is asked takes time in proportion to the rows, a millisecond or so
    per 100,000: ask in a thread. `token` is None for a path that nobody has written to yet, `space` the space of the
    vectors, `stored_space` what the path's head says about it, which is another text if the vectors are not `space`'s.
    """

    def __init__(
        self, table: Table, token: Token | None = None, *, clock: int = 0, stored_space: str | None = None
    ) -> None:
        self.token = token
        self.clock = clock
        self.stored_space = stored_space
        self.size = table.size
        self._table = table
        self.epoch = table.epoch
        self._vectors = 0 if table.vectors is None else table.vectors.count
        self._preceding: dict[str | None, Rows] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return int(np.count_nonzero(self.alive))

    def __repr__(self) -> str:
        return f"<Frame at {self.token}: {self.size} rows>"

    @property
    def space(self) -> Space | None:
        """The space of the vectors held; None where there are none."""
        return self._table.space

    @cached_property
    def alive(self) -> Mask:
        """Which rows are the present version of a record that is there."""
        return self._table.alive(self.size, self.epoch)

    @cached_property
    def vectors_alive(self) -> int:
        """How many records have their vector."""
        return int(np.count_nonzero(self.alive & (self.vids >= 0)))

    @property
    def ids(self) -> list[str]:
        """Ids by row; longer than `size` if rows have come since, which are none of this frame's."""
        return self._table.ids

    @property
    def versions(self) -> NDArray[np.int64]:
        """Versions by row."""
        return self._table.numbers("version", self.size)

    @property
    def seqs(self) -> NDArray[np.int64]:
        """By row the seq of the record's last write."""
        return self._table.numbers("seq", self.size)

    @property
    def vids(self) -> NDArray[np.int64]:
        """By row the id of the vector, -1 where there is none."""
        return self._table.numbers("vid", self.size)

    @property
    def created(self) -> NDArray[np.int64]:
        """By row when the record was first written, µs."""
        return self._table.numbers("created", self.size)

    @property
    def valid_from(self) -> NDArray[np.int64]:
        """By row since when what the record says is true, µs."""
        return self._table.numbers("valid_from", self.size)

    @property
    def importance(self) -> Scores:
        """Importances by row."""
        return self._table.numbers("importance", self.size)

    def row_of(self, id: str) -> int | None:
        """Find the row of a record; None if it is not there."""
        return self._table.row_of(id, self.size, self.epoch)

    def mask(
        self,
        where: Filter | None = None,
        *,
        now_us: int,
        as_of: int | None = None,
        superseded: bool = False,
        subject: str | None = None,
    ) -> Mask:
        """Choose rows: alive, not expired, valid at `as_of` (now if None), about `subject`, and `where` holds; exactly.

        With `superseded`, what is valid no more is chosen too. `now_us` is server time as the caller knows it; a frame
        that has seen a later one goes by that, so that a record is never taken for one of the future.
        """
        now = max(now_us, self.clock)
        at = now if as_of is None else as_of
        chosen: Mask = self.alive & (self._table.numbers("expires", self.size) > now)
        chosen &= self._table.numbers("valid_from", self.size) <= at
        if not superseded:
            chosen &= self._table.numbers("valid_until", self.size) > at
        if subject is not None:
            chosen &= self._table.subject(subject, self.size)
        if where is not None:
            chosen &= self._table.columns.mask(where, self.size)
        return chosen

    def dense(self, query: NDArray[Any], mask: Mask, k: int) -> tuple[Rows, Scores]:
        """Find the `k` rows of a mask whose vectors are nearest, and their scores, the best first.

        Fewer only if fewer of the mask have a vector. Exact up to the size and selectivity that `Index` states.
        """
        vectors = self._table.vectors
        if vectors is None or k <= 0 or not self._vectors:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        return vectors.search(np.ascontiguousarray(query, np.float32), k, mask, self._vectors)

    def nearness(self, query: NDArray[Any], rows: Rows) -> Scores:
        """Score given rows by their vectors, exactly, as `dense` does; -inf for those that have none."""
        found = np.full(len(rows), -np.inf, np.float32)
        slots = self._table.slots(rows)
        held = slots >= 0
        if self._table.vectors is not None and held.any():
            vectors = self._table.vectors.take(slots[held])
            found[held] = compare(np.ascontiguousarray(query, np.float32), vectors, self._table.vectors.space)
        return found

    def vectors(self, rows: Rows) -> Scores:
        """Copy the vectors of rows, of shape (n, dimension), zeros for those that have none."""
        if self._table.vectors is None:
            return np.zeros((len(rows), 0), np.float32)
        slots = self._table.slots(rows)
        found = np.zeros((len(rows), self._table.vectors.space.dimension), np.float32)
        found[slots >= 0] = self._table.vectors.take(slots[slots >= 0])
        return found

    def lexical(self, words: Iterable[str]) -> Scores:
        """Score every row by BM25 for the words of a query (`words.words`); 0 for none of them, and for rows not alive."""
        return self._table.lexicon.scores(words, self.alive, self._mean_length)

    def coverage(self, words: Iterable[str], before: Sequence[Rows] = ()) -> Scores:
        """Say how much of a query's words each row holds, read together with the rows before it; see `Lexicon.coverage`."""
        return self._table.lexicon.coverage(words, self.alive, before)

    def preceding(self, by: str | None = None) -> Rows:
        """Give for each row the one before it in the order of first write, among those alive; -1 for none.

        With `by`, among those that have the same (first) value of that metadata; a row that has none has no neighbours.
        """
        with self._lock:
            if by not in self._preceding:
                groups = None if by is None else self._table.columns.groups(by, self.size)
                self._preceding[by] = self._table.preceding(self.alive, groups)
            return self._preceding[by]

    def before(self, row: int, n: int, by: str | None = None) -> list[int]:
        """List the up to `n` rows before one, the nearest last; see `preceding`."""
        if not n:
            return []
        preceding, found = self.preceding(by), list[int]()
        while len(found) < n and (row := int(preceding[row])) >= 0:
            found.append(row)
        return found[::-1]

    @cached_property
    def _mean_length(self) -> float:
        return self._table.lexicon.mean_length(self.alive)
