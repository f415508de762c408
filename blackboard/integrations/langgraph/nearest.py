"""Which items are nearest to a question: the best of the vectors of each counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["nearest"]


def nearest(question: NDArray[Any], vectors: Sequence[bytes | None]) -> tuple[list[int], list[float]]:
    """Order items by the largest cosine of one of their vectors; of equal ones the earlier.

    `vectors` has for each item its unit vectors in a row, 32 bits a number, or None; items without any are left out. Returns
    places and scores. Every vector is compared.
    """
    held = [(at, data) for at, data in enumerate(vectors) if data]
    if not held:
        return [], []
    stride = 4 * len(question)
    rows = np.frombuffer(b"".join(data for _, data in held), "<f4").reshape(-1, len(question))
    counts = np.array([len(data) // stride for _, data in held])
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    best = np.maximum.reduceat(rows @ question.astype(np.float32), starts)
    order = np.argsort(-best, kind="stable")
    return [held[at][0] for at in order.tolist()], best[order].astype(float).tolist()
