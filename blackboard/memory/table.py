"""The rows of a view: appended by one, read by many, each of whom sees them as of one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blackboard.memory.arrays import Growing, Mask, Rows
from blackboard.memory.columns import Columns
from blackboard.memory.embedder import Space
from blackboard.memory.filters import Eq
from blackboard.memory.index import Kind
from blackboard.memory.lexicon import Lexicon
from blackboard.memory.record import Metadata
from blackboard.memory.vectors import Vectors

__all__ = ["NEVER", "Row", "Table"]

NEVER = np.iinfo(np.int64).max
"""A time that does not come."""

_NUMBERS: Mapping[str, Any] = {
    "version": np.int64,
    "seq": np.int64,
    "vid": np.int64,
    "created": np.int64,
    "valid_from": np.int64,
    "valid_until": np.int64,
    "expires": np.int64,
    "importance": np.float32,
}
"""What is held of each row as a number, named as in `Row`."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a view holds of one version of a record. Times in µs, NEVER where there is none; `vid` is -1 without a vector."""

    id: str
    version: int
    seq: int
    words: Sequence[str]
    vid: int = -1
    vector: NDArray[np.float32] | None = None
    created: int = 0
    valid_from: int = 0
    valid_until: int = NEVER
    expires: int = NEVER
    importance: float = 0.5
    subject: str | None = None
    metadata: Metadata = field(default_factory=dict[str, Any])


class Table:
    """Rows by number. Another version of a record is another row, and the one before it ends.

    One writer at a time appends and ends rows; a reader who holds (size, epoch) sees the first `size` rows, and of those
    the ones that had not ended by `epoch`: appending takes nothing from it, whatever it is reading at the time.
    """

    def __init__(self, space: Space | None) -> None:
        self.space = space
        self.epoch = 0
        self.ids: list[str] = []
        self.columns = Columns()
        self.subjects = Columns()
        self.lexicon = Lexicon()
        self.vectors = None if space is None else Vectors(space)
        self.settled = 0
        self.living = 0
        self._numbers = {name: Growing(kind) for name, kind in _NUMBERS.items()}
        self._ended = Growing(np.int64)
        self._order = Growing(np.int64)
        self._before = Growing(np.int64)
        self._slots = Growing(np.int64)
        self._newest: dict[str, int] = {}
        self._orders = 0

    @property
    def size(self) -> int:
        """How many rows there are, ended ones included."""
        return len(self.ids)

    def add(self, rows: Sequence[Row], forgotten: Iterable[str] = ()) -> None:
        """End the rows of forgotten records, then append rows, each ending what stood under its id. Ids are distinct."""
        self.epoch += 1
        for record in forgotten:
            self._end(record)
        if not rows:
            return
        first = self.size
        orders = [self._take_over(row.id) for row in rows]
        self._before.extend([self._newest.get(row.id, -1) for row in rows])
        self._order.extend(orders)
        self._ended.extend(np.full(len(rows), NEVER))
        self._slots.extend(self._placed(first, rows))
        for name, numbers in self._numbers.items():
            numbers.extend([getattr(row, name) for row in rows])
        self.lexicon.add([row.words for row in rows])
        self.columns.add(first, [row.metadata for row in rows])
        self.subjects.add(first, [{} if row.subject is None else {_SUBJECT: row.subject} for row in rows])
        self.ids.extend(row.id for row in rows)
        for number, row in enumerate(rows, first):
            self._newest[row.id] = number

    def settle(self, kind: Kind) -> None:
        """Build the indexes over the rows so far, once, before anybody reads. Slow: not on the event loop."""
        self.settled = self.size
        self.lexicon.settle()
        if self.vectors is not None:
            self.vectors.settle(kind)

    def adopt(self, space: Space) -> None:
        """Take vectors of this space from now on; there were none before."""
        self.space, self.vectors = space, Vectors(space)
        self.vectors.settle("flat")

    def kept(self, size: int, epoch: int) -> Table:
        """Copy what a reader of (size, epoch) sees, in order of first write, with nothing left of what had ended."""
        rows = np.flatnonzero(self.alive(size, epoch))
        rows = rows[np.argsort(self._order.all()[rows], kind="stable")]
        moved = np.full(size, -1, np.int64)
        moved[rows] = np.arange(len(rows))
        copy = Table(self.space)
        copy.epoch, copy.living = epoch, len(rows)
        copy.ids = [self.ids[row] for row in rows.tolist()]
        copy._newest = {record: row for row, record in enumerate(copy.ids)}
        for name, numbers in self._numbers.items():
            copy._numbers[name].extend(numbers.all()[rows])
        copy._order.extend(np.arange(len(rows)))
        copy._orders = len(rows)
        copy._ended.extend(np.full(len(rows), NEVER))
        copy._before.extend(np.full(len(rows), -1))
        copy.columns, copy.subjects = self.columns.kept(moved), self.subjects.kept(moved)
        copy.lexicon = self.lexicon.kept(rows)
        slots = self._slots.all()[rows]
        if self.vectors is not None:
            copy.vectors = self.vectors.kept(slots[slots >= 0])
            copy.vectors.owners.extend(np.flatnonzero(slots >= 0))
        copy._slots.extend(np.where(slots >= 0, np.cumsum(slots >= 0) - 1, -1))
        return copy

    def numbers(self, name: str, size: int) -> NDArray[Any]:
        """Give one column of the first rows, as `Row` names it."""
        return self._numbers[name].first(size)

    def slots(self, rows: Rows) -> Rows:
        """Say where the vectors of rows stand among all vectors; -1 for none."""
        return self._slots.all()[rows]

    def alive(self, size: int, epoch: int) -> Mask:
        """Say which of the first rows had not ended by an epoch."""
        alive: Mask = self._ended.first(size) > epoch
        return alive

    def row_of(self, id: str, size: int, epoch: int) -> int | None:
        """Find the row of a record as a reader of (size, epoch) sees it."""
        row = self._newest.get(id, -1)
        before = self._before.all()
        while row >= size:
            row = int(before[row])
        return row if row >= 0 and self._ended.all()[row] > epoch else None

    def preceding(self, alive: Mask, groups: NDArray[np.int64] | None) -> Rows:
        """Find for each row the living one before it in order of first write, within its group; -1 for none."""
        rows = np.flatnonzero(alive if groups is None else alive & (groups >= 0))
        rows = rows[np.argsort(self._order.all()[rows], kind="stable")]
        found = np.full(len(alive), -1, np.int64)
        if groups is not None:
            rows = rows[np.argsort(groups[rows], kind="stable")]
            same = groups[rows[1:]] == groups[rows[:-1]]
            found[rows[1:][same]] = rows[:-1][same]
        else:
            found[rows[1:]] = rows[:-1]
        return found

    def subject(self, subject: str, size: int) -> Mask:
        """Say which of the first rows are about a subject."""
        return self.subjects.mask(Eq(_SUBJECT, subject), size)

    def _end(self, id: str) -> None:
        row = self._newest.get(id, -1)
        if row >= 0 and self._ended.all()[row] == NEVER:
            self._ended.set(row, self.epoch)
            self.living -= 1

    def _take_over(self, id: str) -> int:
        """End the row of a record that gets another, and give its place in the order; a new record comes last."""
        row = self._newest.get(id, -1)
        if row >= 0 and self._ended.all()[row] == NEVER:
            self._ended.set(row, self.epoch)
            return int(self._order.all()[row])
        self._orders += 1
        self.living += 1
        return self._orders - 1

    def _placed(self, first: int, rows: Sequence[Row]) -> list[int]:
        """Append the vectors of rows, and say where."""
        held = [(number, row.vector) for number, row in enumerate(rows, first) if row.vector is not None]
        slots = [-1] * len(rows)
        if held and self.vectors is not None:
            start = self.vectors.add([number for number, _ in held], np.stack([vector for _, vector in held]))
            for slot, (number, _) in enumerate(held, start):
                slots[number - first] = slot
        return slots


_SUBJECT = "subject"
