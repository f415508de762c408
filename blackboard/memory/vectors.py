"""The vectors of a table: an index over the first ones, and those that came later beside it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blackboard.memory.arrays import Growing, Mask, Rows, Scores
from blackboard.memory.embedder import Space
from blackboard.memory.index import PIECE, Index, Kind, best, compare

__all__ = ["Vectors"]


class Vectors:
    """Vectors by slot, in the order they came; `owners` says which row each belongs to. Appended by one, read by many."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.owners = Growing(np.int64)
        self._index = Index(space)
        self._later = Growing(np.float32, space.dimension)

    @property
    def count(self) -> int:
        """How many vectors there are."""
        return self.owners.count

    def add(self, owners: Sequence[int], vectors: Scores) -> int:
        """Append vectors of shape (n, dimension), and return the slot of the first."""
        first = self.count
        if self._index.sealed is None:
            self._index.extend(vectors)
        else:
            self._later.extend(vectors)
        self.owners.extend(owners)  # last: it counts what is there
        return first

    def settle(self, kind: Kind) -> None:
        """Build the index over the vectors so far; later ones are kept beside it."""
        self._index.seal(kind)

    def kept(self, slots: Rows) -> Vectors:
        """Copy only these vectors, in this order, without owners, not settled."""
        copy = Vectors(self.space)
        for start in range(0, len(slots), PIECE):
            copy._index.extend(self.take(slots[start : start + PIECE]))
        return copy

    def take(self, slots: Rows) -> Scores:
        """Copy the vectors in these slots, of shape (n, dimension)."""
        settled = self._index.count
        found = np.empty((len(slots), self.space.dimension), np.float32)
        early = slots < settled
        found[early] = self._index.take(slots[early])
        found[~early] = self._later.all()[slots[~early] - settled]
        return found

    def search(self, query: Scores, k: int, mask: Mask, count: int) -> tuple[Rows, Scores]:
        """Find the `k` best rows of a mask, and their scores, among the first `count` vectors; the best first."""
        allowed = mask[self.owners.first(count)]
        settled = self._index.count
        slots, scores = self._index.search(query, k, allowed[:settled])
        later = np.flatnonzero(allowed[settled:])
        if len(later):
            vectors = self._later.first(count - settled)
            if len(later) < len(vectors):
                vectors = vectors[later]
            slots = np.concatenate([slots, later + settled])
            scores = np.concatenate([scores, compare(query, vectors, self.space)])
        return best(self.owners.first(count)[slots], scores, k)
