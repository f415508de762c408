"""Vectors that lie in clusters, as embeddings do, and the peers that search them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import faiss as _faiss
import numpy as np
from numpy.typing import NDArray

from blackboard.errors import ServerRefused
from blackboard.store.client import Store

__all__ = ["Clusters", "Flat", "Graph", "VectorSet", "found"]

faiss: Any = _faiss  # it carries no types

Floats = NDArray[np.float32]


class Clusters:
    """Unit vectors around centres, each centre with about a hundred; queries lie among them."""

    def __init__(self, count: int, dimension: int, *, queries: int, seed: int = 7) -> None:
        random = np.random.default_rng(seed)
        centres = _unit(random.standard_normal((max(1, count // 100), dimension)))
        self.vectors = self._around(random, centres, count)
        self.queries = self._around(random, centres, queries)

    @staticmethod
    def _around(random: np.random.Generator, centres: Floats, count: int) -> Floats:
        chosen = centres[random.integers(len(centres), size=count)]
        return _unit(chosen + 0.05 * random.standard_normal(chosen.shape).astype(np.float32))


def _unit(vectors: NDArray[Any]) -> Floats:
    unit: Floats = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


def found(got: Sequence[Sequence[int]], exact: Sequence[Sequence[int]]) -> float:
    """The share of what an exact search finds that another one has found."""
    hits = sum(len(set(mine) & set(theirs)) for mine, theirs in zip(got, exact, strict=True))
    return hits / sum(map(len, exact))


class Flat:
    """FAISS's exact search in 32 bits a number: what every other one is held against."""

    def __init__(self, vectors: Floats) -> None:
        faiss.omp_set_num_threads(1)
        self._index = faiss.IndexFlatIP(vectors.shape[1])
        self._index.add(vectors)

    def search(self, query: Floats, k: int = 10, allowed: NDArray[np.int64] | None = None) -> list[int]:
        chosen = None if allowed is None else faiss.SearchParameters(sel=faiss.IDSelectorBatch(allowed))
        _, rows = self._index.search(query[None], k, params=chosen)
        return [int(row) for row in rows[0] if row >= 0]


class Graph:
    """FAISS's HNSW with 32 links and a breadth of 64."""

    def __init__(self, vectors: Floats) -> None:
        faiss.omp_set_num_threads(1)
        self._index = faiss.IndexHNSWFlat(vectors.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
        self._index.hnsw.efSearch = 64
        self._index.add(vectors)

    def search(self, query: Floats, k: int = 10) -> list[int]:
        _, rows = self._index.search(query[None], k)
        return [int(row) for row in rows[0] if row >= 0]


class VectorSet:
    """A server's own vector set, 8 bits a number, asked over the same kind of socket."""

    KEY = "vectors"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def offered(self) -> bool:
        """Whether the server has such sets."""
        try:
            await self._store.command("VCARD", self.KEY)
        except ServerRefused:
            return False
        return True

    async def fill(self, vectors: Floats, progress: Callable[[int], None] = lambda _: None) -> None:
        for start in range(0, len(vectors), 500):
            part = vectors[start : start + 500]
            adds = [("VADD", self.KEY, "FP32", one.tobytes(), str(start + at), "Q8") for at, one in enumerate(part)]
            await self._store.batch(adds, deadline=60)
            progress(start)

    async def search(self, query: Floats, k: int = 10) -> list[int]:
        return [int(row) for row in await self._store.command("VSIM", self.KEY, "FP32", query.tobytes(), "COUNT", k)]
