"""An embedder without a model: words and their pieces, hashed into a vector."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from blackboard.errors import ConfigError
from blackboard.memory.embedder import LARGEST, Metric

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["DIMENSION", "HashingEmbedder"]

DIMENSION = 512
"""Numbers per vector, if not said otherwise."""

SMALLEST = 16
LONG = 20_000
"""From how many characters on a call is worth a thread of its own."""

_WORD = re.compile(r"\w+")
_PIECES = 0.5
"""What the pieces of a word weigh beside the word, as a share of the squared length."""


class HashingEmbedder:
    """Vectors from the words of a text, their inflected forms near each other; the same on every machine, forever.

    Feature hashing with signs (Weinberger et al., 2009) of casefolded words and of their character n-grams, repeated
    words counting with the logarithm. It needs no model and no download, knows no synonyms, and is far behind any
    trained model; beside BM25 it adds spelling variants and inflections.
    """

    metric: Metric = "cosine"
    name = "hashing-1"

    def __init__(self, dimension: int = DIMENSION) -> None:
        if type(dimension) is not int or not SMALLEST <= dimension <= LARGEST:
            raise ConfigError(f"hashing makes {SMALLEST} to {LARGEST} numbers, got {dimension!r}", value=dimension)
        self.dimension = dimension

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> npt.NDArray[np.float32]:
        """Return one vector of unit length per text; a text without words gets one of its own."""
        if sum(map(len, texts)) > LONG:
            return await asyncio.to_thread(self._embed, texts)
        return self._embed(texts)

    def _embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        import numpy as np

        vectors = np.zeros((len(texts), self.dimension), np.float64)
        for row, text in enumerate(texts):
            vector = vectors[row]
            for word, times in Counter(_WORD.findall(text.casefold())).items():
                weight = 1 + math.log(times)
                for bucket, value in _features(word, self.dimension):
                    vector[bucket] += weight * value
            length = float(np.linalg.norm(vector))
            if length < 1e-9:  # no words, or features that cancel each other
                bucket, sign = _hashed("=" + text, self.dimension)
                vector[:], vector[bucket], length = 0, sign, 1
            vectors[row] /= length
        return vectors.astype(np.float32)


@lru_cache(maxsize=1 << 16)
def _features(word: str, dimension: int) -> tuple[tuple[int, float], ...]:
    """Give buckets and values of a word and its pieces; a word as a whole has about the length 1."""
    marked = f"<{word}>"
    sizes = (3, 4) if word.isascii() else (2, 3)  # scripts without spaces carry more in a character
    pieces = {marked[at : at + size] for size in sizes for at in range(len(marked) - size + 1)}
    whole, part = math.sqrt(1 - _PIECES), math.sqrt(_PIECES / max(1, len(pieces)))
    hashed = [
        (_hashed(f"w{word}", dimension), whole),
        *((_hashed(f"p{piece}", dimension), part) for piece in sorted(pieces)),
    ]
    return tuple((bucket, sign * value) for (bucket, sign), value in hashed)


def _hashed(feature: str, dimension: int) -> tuple[int, int]:
    """Hash a feature to a bucket and a sign that do not depend on each other."""
    number = int.from_bytes(hashlib.blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest())
    return (number >> 1) % dimension, 1 if number & 1 else -1
