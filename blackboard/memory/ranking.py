"""Ranking: what makes a record relevant to a query, and the best rows by it, exactly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blackboard.errors import ConfigError
from blackboard.memory.arrays import Mask, Rows, Scores
from blackboard.memory.embedder import Metric
from blackboard.memory.frame import Frame
from blackboard.settings import MemoryNamespace

__all__ = ["Nearest", "Parts", "Ranked", "Ranking", "Weights", "diversified", "ordered"]

Values = NDArray[np.float64]

NEIGHBOUR = 0.5
"""What the record before counts beside the record itself, the one before that half of it, and so on."""

POOL = 100
"""Rows whose vectors are compared in a first round, at least; five per hit if that is more."""
FEW = 2_000
"""Rows that are all compared, whatever they promise."""
TIE = 1e-9
"""By how much a row that was compared goes before one that could at most be as near."""
MOST = 16
"""Up to how many times the rows of the first round are compared before the best of them are taken as they are."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a score is made of; the parts, each weighted already, sum up to it.

    `dense` comes from its vector, `context` from the vectors of the records before it, `lexical` from the words of all of
    these.
    """

    dense: float = 0.0
    lexical: float = 0.0
    context: float = 0.0
    recency: float = 0.0
    importance: float = 0.0

    @property
    def score(self) -> float:
        """The sum of the parts."""
        return self.dense + self.lexical + self.context + self.recency + self.importance


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each thing counts: shares from 0 to 1. `half_life` in seconds, `by` names what makes records neighbours."""

    lexical: float = 0.5
    recency: float = 0.0
    importance: float = 0.0
    half_life: float = 7 * 86400.0
    context: int = 0
    by: str | None = None

    def __post_init__(self) -> None:
        for name in ("lexical", "recency", "importance"):
            share = getattr(self, name)
            if type(share) not in (int, float) or not 0 <= share <= 1:
                raise ConfigError(f"{name} is a share from 0 to 1, got {share!r}", value=share)
        if self.recency + self.importance > 1:
            raise ConfigError(
                f"recency and importance are shares of one score; {self.recency} and {self.importance} leave nothing "
                "for relevance",
                value=self.recency + self.importance,
            )
        if type(self.context) is not int or not 0 <= self.context <= 8:
            raise ConfigError(f"context is 0 to 8 records, got {self.context!r}", value=self.context)

    @classmethod
    def of(
        cls,
        policy: MemoryNamespace,
        *,
        lexical: float | None = None,
        recency: float | None = None,
        importance: float | None = None,
        context: int | None = None,
    ) -> Weights:
        """Take the weights of a namespace, except for those that are given; where the server searches, vectors alone count."""
        if policy.index == "server":
            for name, given in (("lexical", lexical), ("context", context)):
                if given:
                    raise ConfigError(
                        f'{name}={given!r} needs words and neighbours, and index = "server" compares vectors alone; '
                        "leave it out, or set another index",
                        value=given,
                    )
            lexical, context = 0.0, 0
        return cls(
            policy.lexical_weight if lexical is None else lexical,
            policy.recency_weight if recency is None else recency,
            policy.importance_weight if importance is None else importance,
            policy.recency_half_life,
            policy.context if context is None else context,
            policy.context_by,
        )


@dataclass(frozen=True, slots=True)
class Ranked:
    """A row and why it stands where it does."""

    row: int
    parts: Parts

    @property
    def score(self) -> float:
        """What it was ranked by."""
        return self.parts.score


class Nearest:
    """The rows of a mask in order of their own vectors, where nothing else counts: what the index finds. Asked in a thread."""

    def __init__(self, frame: Frame, mask: Mask, vector: Scores) -> None:
        self._frame, self._mask, self._vector = frame, mask, vector

    def best(self, k: int) -> list[Ranked]:
        """Return the `k` best rows, the best first; fewer only if fewer have a vector."""
        rows, scores = self._frame.dense(self._vector, self._mask, k)
        near = _near(scores, self._frame)
        return [Ranked(row, Parts(dense=value)) for row, value in zip(rows.tolist(), near.tolist(), strict=True)]


class Ranking:
    """The rows of a mask in order of their relevance to a query: a vector, words, or both. Made and asked in a thread.

    Relevance is `(1 - lexical) * nearness + lexical * coverage`; a row without a vector is judged by its words alone. Nearness
    is the cosine, `s / (1 + |s|)` of an inner product s, `1 / (1 + d²)` of a distance d; coverage is that of
    `Lexicon.coverage`. Both are of the same size for every query, so scores can be compared between queries and paths,
    and held against a least one. With `context` a row is read together with the rows before it: their words count as its
    own, and its nearness becomes the weighted mean of its own and theirs, each half as heavy as the one after it; one that
    is not there, or has no vector, is left out of the mean. Recency
    is `0.5 ** (age / half_life)`, counted from when a record became valid.

    A row counts as found if it has a vector to compare, or if it, or a row before it, has a word of the query.
    """

    def __init__(
        self, frame: Frame, mask: Mask, *, vector: Scores | None, words: Iterable[str], weights: Weights, at: int
    ) -> None:
        self._frame, self._vector, self._weights = frame, vector, weights
        self._held: Mask = frame.alive & (frame.vids >= 0) if vector is not None else np.zeros(frame.size, np.bool_)
        self._chain = self._rows_before()
        self._coverage = np.zeros(frame.size)
        if weights.lexical:
            self._coverage = frame.coverage(words, self._chain[1:]).astype(np.float64)
        self._own = np.where(self._held, weights.lexical, 1.0)
        self._beside = self._recency(at) + weights.importance * frame.importance.astype(np.float64)
        self._open: Mask = mask & (self._held | (self._coverage > 0))
        self._nearness = np.zeros(frame.size)
        self._known: Mask = ~self._held

    def __len__(self) -> int:
        return int(np.count_nonzero(self._open))

    def best(self, k: int) -> list[Ranked]:
        """Return the `k` best rows, the best first; fewer only if there are fewer. Of equal ones the earlier row.

        Rows whose vector has not been compared stand at the most that they could score, and the most promising are
        compared until none of them could be among the best. So it is exact, unless the promising are more than 1,600
        (80 per hit, if that is more): then it is the best of those. What an index of codes reports as nearest counts as such.
        """
        k = min(k, len(self))
        if k <= 0:
            return []
        reach = pool = max(POOL, 5 * k)
        self._survey(pool)
        while True:
            scores, compared = np.where(self._open, self._scores(), -np.inf), self._compared
            first = _largest(scores if reach <= MOST * pool else np.where(compared, scores, -np.inf), k)
            if compared[first].all():
                return [Ranked(row, self._parts(row)) for row in first.tolist()]
            self._compare(_largest(scores, min(reach, len(scores))))
            reach *= 4

    def _survey(self, pool: int) -> None:
        """Compare the nearest rows, and learn what the others cannot exceed; compare all if they are few."""
        wanted = self._open.copy()
        for before in self._chain[1:]:
            wanted[before[self._open & (before >= 0)]] = True
        wanted &= ~self._known
        if self._vector is None or not wanted.any():
            return
        if np.count_nonzero(wanted) <= FEW:
            self._know(np.flatnonzero(wanted))
            return
        rows, scores = self._frame.dense(self._vector, wanted, pool)
        self._nearness[wanted] = _near(scores[-1:], self._frame)[0] - TIE
        self._nearness[rows] = _near(scores, self._frame)
        self._known[rows] = True

    def _compare(self, rows: Rows) -> None:
        """Compare rows, and those before them, exactly."""
        needed = np.zeros(self._frame.size, np.bool_)
        for before in self._chain:
            reached = before[rows]
            needed[reached[reached >= 0]] = True
        self._know(np.flatnonzero(needed & ~self._known))

    def _know(self, rows: Rows) -> None:
        if self._vector is not None and len(rows):
            self._nearness[rows] = _near(self._frame.nearness(self._vector, rows), self._frame)
        self._known[rows] = True

    @property
    def _compared(self) -> Mask:
        """Which rows are known with all that stand before them."""
        compared = self._known.copy()
        for before in self._chain[1:]:
            compared &= self._known[before] | (before < 0)
        return compared

    def _rows_before(self) -> list[Rows]:
        """Give each row itself, the row before it, the one before that, as far as the context reaches."""
        chain = [np.arange(self._frame.size, dtype=np.int64)]
        if self._weights.context:
            preceding = self._frame.preceding(self._weights.by)
            for _ in range(self._weights.context):
                last = chain[-1]
                chain.append(np.where(last >= 0, preceding[last], -1))
        return chain

    @cached_property
    def _shares(self) -> list[Values]:
        """What each row and those before it count, nearest first: 1 in all, of those that are there and have a vector."""
        falling = [np.ones(self._frame.size)]
        for distance, before in enumerate(self._chain[1:], 1):
            falling.append(np.where((before >= 0) & self._held[before], NEIGHBOUR**distance, 0.0))
        whole = np.sum(falling, axis=0)
        return [weight / whole for weight in falling]

    def _mixed(self, values: Values) -> Values:
        """Mix each row's value with those of the rows before it."""
        mixed = values * self._shares[0]
        for share, before in zip(self._shares[1:], self._chain[1:], strict=True):
            mixed += share * values[before]
        return mixed

    @property
    def _for_relevance(self) -> float:
        return 1 - self._weights.recency - self._weights.importance

    def _scores(self) -> Values:
        relevance = (1 - self._own) * self._mixed(self._nearness) + self._own * self._coverage
        scores: Values = self._for_relevance * relevance + self._beside
        return scores

    def _recency(self, at: int) -> Values:
        if not self._weights.recency:
            return np.zeros(self._frame.size)
        age = np.maximum(at - self._frame.valid_from, 0) / 1e6
        recency: Values = self._weights.recency * 0.5 ** (age / self._weights.half_life)
        return recency

    def _parts(self, row: int) -> Parts:
        words = self._for_relevance * float(self._own[row])
        vectors = self._for_relevance * (1 - float(self._own[row]))
        before = [
            (float(share[row]), int(rows[row])) for share, rows in zip(self._shares[1:], self._chain[1:], strict=True)
        ]
        importance = self._weights.importance * float(self._frame.importance[row])
        return Parts(
            dense=vectors * float(self._shares[0][row]) * float(self._nearness[row]),
            lexical=words * float(self._coverage[row]),
            context=vectors * sum(share * float(self._nearness[one]) for share, one in before if share),
            recency=float(self._beside[row]) - importance,
            importance=importance,
        )


def ordered(
    frame: Frame, mask: Mask, *, vector: Scores | None, words: Iterable[str], weights: Weights, at: int
) -> Nearest | Ranking:
    """Order the rows of a mask by what counts, in whatever way takes least."""
    others = weights.lexical or weights.recency or weights.importance or weights.context
    if vector is not None and not others:
        return Nearest(frame, mask, vector)
    return Ranking(frame, mask, vector=vector, words=words, weights=weights, at=at)


def diversified(ranked: Sequence[Ranked], vectors: Scores, diversity: float) -> list[Ranked]:
    """Put rows into the order of maximal marginal relevance (Carbonell and Goldstein 1998).

    Next comes whatever has the largest `(1 - diversity) * score - diversity * likeness`, likeness being the largest cosine
    with a row that came already; rows without a vector (zeros) are like none.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    directions = vectors / np.where(lengths > 0, lengths, 1)
    scores = np.array([one.score for one in ranked])
    likeness = np.zeros(len(ranked))
    order: list[int] = []
    left = np.ones(len(ranked), np.bool_)
    while left.any():
        gains = np.where(left, (1 - diversity) * scores - diversity * likeness, -np.inf)
        chosen = int(np.argmax(gains))
        order.append(chosen)
        left[chosen] = False
        likeness = np.maximum(likeness, directions @ directions[chosen])
    return [ranked[at] for at in order]


def _near(scores: Scores, frame: Frame) -> Values:
    """Turn scores of a frame's index into nearness, which is of the same size under every metric."""
    metric: Metric = "cosine" if frame.space is None else frame.space.metric
    wide = scores.astype(np.float64)
    match metric:
        case "cosine":
            return wide
        case "dot":
            return np.asarray(wide / (1 + np.abs(wide)))
        case "l2":
            return np.asarray(1 / (1 - wide))  # a score under l2 is a negative squared distance


def _largest(scores: NDArray[Any], k: int) -> Rows:
    """Find the places of the `k` largest scores above -inf, the largest first, of equal ones the first."""
    if k < len(scores):
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        larger = np.flatnonzero(scores > least)
        places = np.sort(np.concatenate([larger, np.flatnonzero(scores == least)[: k - len(larger)]]))
    else:
        places = np.arange(len(scores))
    places = places[scores[places] > -np.inf]
    best: Rows = places[np.argsort(-scores[places], kind="stable")[:k]]
    return best
