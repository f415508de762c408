"""The lexicon: which rows hold which words, and what that is worth (BM25)."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import bm25s as _bm25s  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
from numpy.typing import NDArray

from blackboard.memory.arrays import Growing, Mask, Rows, Scores, spans

__all__ = ["Lexicon"]

bm25s: Any = _bm25s  # its types are incomplete

K1 = 1.5
"""How much a word that occurs again adds; the library's default, not tuned on any data."""
B = 0.75
"""How much a long text is held against a word; the same."""


class Lexicon:
    """Words by row, and BM25 scores over the rows that are alive (Robertson's idf floored as in Lucene).

    Rows are added, then settled into an index that never changes; later ones are kept beside it. A score equals that of
    one index over the living rows alone: an index of BM25 holds finished scores, so what it holds is brought from the
    mean length and the idf of its own rows to those of the rows that live now.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._tokens = Growing(np.int32)
        self._ends = Growing(np.int64, start=np.zeros(1, np.int64))
        self._lengths = Growing(np.int32)
        self._base: _Base | None = None
        self._settled: int | None = None
        self._later: dict[int, tuple[array[int], array[int]]] = {}

    def add(self, rows: Sequence[Sequence[str]]) -> None:
        """Append rows, each as its words."""
        first = self._lengths.count
        known = self._numbers
        numbered = [[known.setdefault(word, len(known)) for word in words] for words in rows]
        self._tokens.extend([number for numbers in numbered for number in numbers])
        lengths = np.fromiter(map(len, numbered), np.int32, len(numbered))
        end = int(self._ends.all()[-1])
        self._lengths.extend(lengths)
        self._ends.extend(end + np.cumsum(lengths, dtype=np.int64))
        if self._settled is not None:
            for row, numbers in enumerate(numbered, first):
                self._post(row, numbers)

    def settle(self) -> None:
        """Build the index over all rows so far; they are never many for long, and later ones are kept beside it."""
        self._settled = self._lengths.count
        if self._tokens.count:
            self._base = _Base(self._documents(), len(self._numbers))

    def kept(self, rows: Rows) -> Lexicon:
        """Copy only these rows, in this order, with the words that they hold and no others."""
        ends = self._ends.all()
        lengths = self._lengths.all()[rows]
        tokens = self._tokens.all()[spans(ends[rows], lengths)]
        used, renumbered = np.unique(tokens, return_inverse=True)
        copy = Lexicon()
        words = list(self._numbers)  # they stand in the order of their numbers
        copy._numbers = {words[number]: at for at, number in enumerate(used.tolist())}
        copy._tokens.extend(renumbered)
        copy._lengths.extend(lengths)
        copy._ends.extend(np.cumsum(lengths, dtype=np.int64))
        return copy

    def mean_length(self, alive: Mask) -> float:
        """Mean number of words of the rows that are alive."""
        lengths = self._lengths.first(len(alive))[alive]
        return float(lengths.mean()) if len(lengths) else 0.0

    def scores(self, words: Iterable[str], alive: Mask, mean: float) -> Scores:
        """Score every row for a query; 0 for rows that hold none of its words, or are not alive.

        `mean` is `mean_length(alive)`. A word that is given twice counts twice.
        """
        total = np.zeros(len(alive), np.float32)
        living = int(np.count_nonzero(alive))
        for number, times in Counter(self._numbers.get(word, -1) for word in words).items():
            if number < 0:
                continue
            parts = [
                part for part in (self._settled_part(number, mean), self._later_part(number, mean, len(alive))) if part
            ]
            parts = [(rows[alive[rows]], worth[alive[rows]]) for rows, worth in parts]
            holders = sum(len(rows) for rows, _ in parts)
            for rows, worth in parts:
                total[rows] += np.float32(times * idf(holders, living)) * worth
        return total

    def coverage(self, words: Iterable[str], alive: Mask, before: Sequence[Rows] = ()) -> Scores:
        """Say how much of a query each row holds: about 1 for a row of mean length that has each of its words once.

        It is BM25 (with its factor k1 + 1) over the sum of the idf of the query's words. With `before`, rows by row or -1
        for none, a row is read together with those, as if their texts were one.
        """
        chain = [np.arange(len(alive)), *before]
        lengths = _together(self._lengths.first(len(alive)), chain)
        damped = damping(lengths, float(lengths[alive].mean()) if alive.any() else 0.0)
        after = [_inverse(rows) for rows in before]
        counts, total = np.zeros(len(alive), np.float32), np.zeros(len(alive), np.float32)
        worth, living = 0.0, int(np.count_nonzero(alive))
        for word, times in Counter(words).items():
            rows, occurrences = self._occurrences(word, alive)
            counts[rows] = occurrences
            reached = _reached(rows, after, alive)
            together = _together(counts, [rows[reached] for rows in chain])
            counts[rows] = 0
            value = times * idf(len(reached), living)
            worth += value
            total[reached] += np.float32(value) * together / (together + damped[reached])
        return total * np.float32((1 + K1) / worth) if worth > 0 else total

    def _occurrences(self, word: str, alive: Mask) -> tuple[Rows, Scores]:
        """Find the living rows with a word, and how often it stands in each."""
        number = self._numbers.get(word, -1)
        parts = [] if number < 0 else [self._settled_part(number, 1.0), self._later_part(number, 1.0, len(alive))]
        rows = np.concatenate([np.empty(0, np.int64), *(part[0] for part in parts if part)])
        worth = np.concatenate([np.empty(0, np.float32), *(part[1] for part in parts if part)])
        lives = alive[rows]
        rows, worth = rows[lives], worth[lives]
        return rows, np.rint(worth * damping(self._lengths.all()[rows], 1.0) / (1 - worth)).astype(np.float32)

    def _post(self, row: int, numbers: Sequence[int]) -> None:
        for number, times in Counter(numbers).items():
            rows, counts = self._later.setdefault(number, (array("i"), array("i")))
            counts.append(times)  # before its row: whoever reads the rows finds the counts of all of them
            rows.append(row)

    def _documents(self) -> list[list[int]]:
        ends, tokens = self._ends.all(), self._tokens.all()
        return [tokens[start:end].tolist() for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]

    def _settled_part(self, number: int, mean: float) -> tuple[Rows, Scores] | None:
        return None if self._base is None else self._base.part(number, mean, self._lengths.all())

    def _later_part(self, number: int, mean: float, size: int) -> tuple[Rows, Scores] | None:
        posted = self._later.get(number)
        if posted is None:
            return None
        rows = np.frombuffer(posted[0][:], np.int32)  # copies: an array that is viewed cannot grow
        counts = np.frombuffer(posted[1][:], np.int32)[: len(rows)]
        known = int(np.searchsorted(rows, size))
        held, times = rows[:known].astype(np.int64), counts[:known].astype(np.float32)
        return held, (times / (times + damping(self._lengths.all()[held], mean))).astype(np.float32)


class _Base:
    """An index over the first rows, made once."""

    def __init__(self, documents: list[list[int]], vocabulary: int) -> None:
        index = bm25s.BM25(k1=K1, b=B, method="lucene")
        made = index.build_index_from_ids(range(vocabulary), documents, show_progress=False)
        self._values: Scores = made["data"]
        self._rows: NDArray[np.int32] = made["indices"]
        self._starts: NDArray[np.int64] = made["indptr"]
        self._size = len(documents)
        self._vocabulary = vocabulary
        self._mean = sum(map(len, documents)) / len(documents)

    def part(self, number: int, mean: float, lengths: NDArray[np.int32]) -> tuple[Rows, Scores] | None:
        """Find the rows with a word and what its occurrences are worth there, without the idf, at this mean length."""
        if number >= self._vocabulary:
            return None
        start, end = int(self._starts[number]), int(self._starts[number + 1])
        rows = self._rows[start:end].astype(np.int64)
        own = np.float32(idf(end - start, self._size))
        damped = own / self._values[start:end] - 1  # damping / count, as it was
        now = damping(lengths[rows], mean) / damping(lengths[rows], self._mean)
        return rows, (1 / (1 + damped * now)).astype(np.float32)


def idf(holders: int, rows: int) -> float:
    """What a word is worth that stands in `holders` of `rows` rows."""
    return math.log(1 + (rows - holders + 0.5) / (holders + 0.5))


def damping(lengths: NDArray[Any], mean: float) -> Scores:
    """How little an occurrence counts in texts of these lengths."""
    return (K1 * (1 - B + B * lengths / max(mean, 1e-9))).astype(np.float32)


def _together(values: NDArray[Any], chain: Sequence[Rows]) -> Scores:
    """Add up what stands in rows and in those before them; -1 adds nothing."""
    total = values[chain[0]].astype(np.float32)
    for rows in chain[1:]:
        total += np.where(rows >= 0, values[rows], 0)
    return total


def _inverse(before: Rows) -> Rows:
    """Turn "the row before each" into "the row after each"."""
    after = np.full(len(before), -1, np.int64)
    known = np.flatnonzero(before >= 0)
    after[before[known]] = known
    return after


def _reached(rows: Rows, after: Sequence[Rows], alive: Mask) -> Rows:
    """Give living rows and the living ones that are read together with them."""
    if not after:
        return rows
    marked = np.zeros(len(alive), np.bool_)
    marked[rows] = True
    for follow in after:
        following = follow[rows]
        marked[following[following >= 0]] = True
    return np.flatnonzero(marked & alive)
