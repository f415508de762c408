"""The index over vectors: built once, searched by any number of threads, never changed in between."""

from __future__ import annotations

import math
from typing import Any, Literal

import faiss as _faiss
import numpy as np
from numpy.typing import NDArray

from blackboard.errors import ConfigError
from blackboard.memory.arrays import Mask, Rows, Scores
from blackboard.memory.embedder import Space

__all__ = ["Index", "Kind", "best", "compare", "kind_for"]

faiss: Any = _faiss  # it carries no types

Kind = Literal["flat", "rabitq", "hnsw"]
"""How an index finds candidates: by comparing with all vectors, with their codes, or along a graph."""

REFINED = 10
"""Candidates compared exactly per vector asked for, to begin with."""
FURTHER = 4
"""How many times as far the next look goes where these were too few."""
DOUBT = 3.0
"""By how many standard deviations of its error an estimate may be wrong; what could be better than the worst hit is looked at."""
FEW = 0.2
"""Share of vectors up to which a selection is compared exactly, one by one."""
TRAINED = 20_000
"""Vectors that codes are trained on: their mean is all that is learnt."""
PIECE = 4_096
"""Vectors converted at a time."""
LINKS = 32
"""Links per vector of a graph (the M of HNSW, Malkov and Yashunin 2018)."""
BREADTH = 400
"""Least breadth of a search along a graph (its efSearch)."""


class Index:
    """Vectors by position, 0 to `count` - 1: filled, then sealed, then searched.

    Vectors of a cosine space are held with 16 bits a number, as they are stored, so nothing is lost; others with 32.
    Above that a `rabitq` index holds codes of about 1 bit a number (RaBitQ, Gao and Long 2024), rotated, and compares the
    best of them exactly, as many as it takes; `hnsw` holds a graph. Scores are inner products, or negative squared distances under `l2`.

    FAISS crashes if an index is added to while it is searched: `extend` is refused once it is sealed.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.sealed: Kind | None = None
        self._exact: Any = _exact(space)
        self._coarse: Any = None

    @property
    def count(self) -> int:
        """How many vectors it holds."""
        count: int = self._exact.ntotal
        return count

    def extend(self, vectors: NDArray[Any]) -> None:
        """Append vectors, of shape (n, dimension), before it is sealed."""
        if self.sealed is not None:
            raise RuntimeError("an index that may be searched is never added to")
        faiss.omp_set_num_threads(1)
        for start in range(0, len(vectors), PIECE):
            self._exact.add(_floats(vectors[start : start + PIECE]))

    def seal(self, kind: Kind) -> Index:
        """Make it ready for searches; takes seconds per 100,000 vectors for codes, a minute for a graph."""
        faiss.omp_set_num_threads(1)
        if kind != "flat" and self.count:
            self._coarse = _codes(self.space) if kind == "rabitq" else _graph(self.space)
            if kind == "rabitq":
                step = max(1, self.count // TRAINED)
                self._coarse.train(_floats(self._held()[::step]))
            for start in range(0, self.count, PIECE):
                self._coarse.add(_floats(self._held()[start : start + PIECE]))
        self.sealed = kind
        return self

    def search(self, query: Scores, k: int, allowed: Mask | None = None) -> tuple[Rows, Scores]:
        """Find the `k` best positions and their scores, the best first; fewer only if fewer are allowed.

        Exact for `flat`, and for a selection of up to a fifth whatever the kind.
        """
        faiss.omp_set_num_threads(1)
        open_ = self.count if allowed is None else int(np.count_nonzero(allowed))
        k = min(k, open_)
        if k <= 0:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        if allowed is not None and open_ == self.count:
            allowed = None
        if self._coarse is not None and open_ > FEW * self.count:
            found = self._refined(query, k, open_, allowed)
            if found is not None:
                return found
        return self._compared(query, k, allowed)

    def take(self, positions: Rows) -> Scores:
        """Copy the vectors at these positions, of shape (n, dimension)."""
        return _floats(self._held()[positions])

    def _refined(self, query: Scores, k: int, open_: int, allowed: Mask | None) -> tuple[Rows, Scores] | None:
        """Compare the best by estimate exactly, and ever more of them until the others are estimated worse beyond doubt.

        How wrong estimates are is learnt from those that were compared: codes cannot order hundreds of vectors that lie
        about equally near. None if comparing all is cheaper by then.
        """
        reach = math.ceil(k * REFINED * self.count / open_)
        while reach <= self.count // 4:
            parameters = faiss.SearchParametersHNSW(efSearch=max(reach, BREADTH)) if self.sealed == "hnsw" else None
            estimates, positions = (found[0] for found in self._coarse.search(query[None], reach, params=parameters))
            estimates = -estimates if self.space.metric == "l2" else estimates
            kept = positions >= 0 if allowed is None else (positions >= 0) & allowed[positions]
            chosen: Rows = positions[kept]
            if len(chosen) >= k:
                scores = compare(query, self.take(chosen), self.space)
                doubt = DOUBT * float((scores - estimates[kept]).std())
                hits, values = best(chosen, scores, k)
                if values[-1] >= estimates[-1] + doubt:
                    return hits, values
            reach *= FURTHER
        return None

    def _compared(self, query: Scores, k: int, allowed: Mask | None) -> tuple[Rows, Scores]:
        """Compare with every allowed vector."""
        parameters = None
        if allowed is not None:
            bits = np.packbits(allowed, bitorder="little")
            parameters = faiss.SearchParameters(sel=faiss.IDSelectorBitmap(bits))
        found = self._exact.search(query[None], k, params=parameters)
        scores: Scores = found[0][0]
        positions: Rows = found[1][0]
        return positions, -scores if self.space.metric == "l2" else scores

    def _held(self) -> NDArray[Any]:
        """The vectors where FAISS keeps them, uncopied; valid as long as nothing is added."""
        kind = np.float16 if self.space.metric == "cosine" else np.float32
        if not self.count:
            return np.empty((0, self.space.dimension), kind)
        codes: NDArray[Any] = faiss.rev_swig_ptr(self._exact.codes.data(), self.count * self._exact.code_size)
        return codes.view(kind).reshape(self.count, self.space.dimension)


def compare(query: Scores, vectors: Scores, space: Space) -> Scores:
    """Score vectors exactly against a query: larger is better under every metric."""
    if space.metric != "l2":
        product: Scores = vectors @ query
        return product
    scores = np.empty(len(vectors), np.float32)
    for start in range(0, len(vectors), PIECE):
        apart = vectors[start : start + PIECE] - query
        scores[start : start + PIECE] = -np.einsum("ij,ij->i", apart, apart)
    return scores


def best(positions: Rows, scores: Scores, k: int) -> tuple[Rows, Scores]:
    """Choose the `k` largest scores, the largest first; of equal ones the lower position."""
    if len(scores) > 4 * k > 0:
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        kept = scores >= least
        positions, scores = positions[kept], scores[kept]
    order = np.lexsort((positions, -scores))[:k]
    return positions[order], scores[order]


def _exact(space: Space) -> Any:
    if space.metric == "cosine":
        half = faiss.ScalarQuantizer.QT_fp16
        return faiss.IndexScalarQuantizer(space.dimension, half, faiss.METRIC_INNER_PRODUCT)
    return faiss.IndexFlat(space.dimension, _metric(space))


def _codes(space: Space) -> Any:
    """Make an empty index of 1-bit codes behind a random rotation, which makes any data as good as the method promises."""
    dimension = space.dimension
    rotation = faiss.RandomRotationMatrix(dimension, dimension)
    rotation.init(1)  # always the same, so that two processes answer alike
    codes = faiss.IndexRaBitQFastScan(dimension, _metric(space))
    return faiss.IndexPreTransform(rotation, codes)


def _graph(space: Space) -> Any:
    if space.metric == "cosine":
        half = faiss.ScalarQuantizer.QT_fp16
        return faiss.IndexHNSWSQ(space.dimension, half, LINKS, faiss.METRIC_INNER_PRODUCT)
    return faiss.IndexHNSWFlat(space.dimension, LINKS, _metric(space))


def _metric(space: Space) -> int:
    metric: int = faiss.METRIC_L2 if space.metric == "l2" else faiss.METRIC_INNER_PRODUCT
    return metric


def _floats(vectors: NDArray[Any]) -> Scores:
    return np.ascontiguousarray(vectors, np.float32)


def kind_for(setting: str, count: int, flat_limit: int) -> Kind:
    """Choose how `count` vectors are searched under a namespace's settings."""
    if setting in ("flat", "rabitq", "hnsw"):
        return setting  # type: ignore[return-value]
    if setting != "auto":
        raise ConfigError(f"index is auto, flat, rabitq or hnsw in a process, got {setting!r}", value=setting)
    return "flat" if count <= flat_limit else "rabitq"
