"""Which records say nearly the same: groups in which every two are alike, found without a language model."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blackboard import codec
from blackboard.memory.embedder import Space, unpack
from blackboard.memory.stored import Stored
from blackboard.memory.words import words

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Alike", "alike"]

LARGEST = 32
"""Most records of a group: what one script puts together."""

PIECE = 256
"""Rows that are compared with all others at once."""


@dataclass(frozen=True, slots=True)
class Alike:
    """Records that say nearly the same; `likeness` is that of the two that are least alike."""

    members: tuple[Stored, ...]
    likeness: float


@dataclass(frozen=True, slots=True)
class _Said:
    """What a record says, as far as likeness goes."""

    stored: Stored
    words: frozenset[str]
    exact: tuple[str, ...]


async def alike(rows: Iterable[Stored], space: Space | None, vectors: float, shared: float) -> list[Alike]:
    """Group records of equal metadata whose vectors and words are alike and whose numbers are equal.

    Two are alike if the cosine of their vectors is at least `vectors` (where one has none, that is not asked) and
    they share at least `shared` of their words (Jaccard). In a group every two are alike (complete linkage), so that no chain
    of small differences leads from one statement to another.
    """
    return await asyncio.to_thread(_groups, [*rows], space, vectors, shared)


def _groups(rows: list[Stored], space: Space | None, vectors: float, shared: float) -> list[Alike]:
    found: list[Alike] = []
    for part in _comparable(rows):
        pairs = sorted(_pairs(part, space, vectors, shared), key=lambda pair: (-pair[0], pair[1], pair[2]))
        found += [Alike(tuple(part[at].stored for at in members), least) for members, least in _linked(pairs)]
    return found


def _comparable(rows: Sequence[Stored]) -> Iterator[list[_Said]]:
    """Put together what differs in nothing but its words: metadata and every word with a digit in it are equal."""
    parts: defaultdict[tuple[bytes, tuple[str, ...]], list[_Said]] = defaultdict(list)
    for row in rows:
        said = words(row.record.text)
        exact = tuple(sorted(word for word in said if any(map(str.isdigit, word))))
        labels = {name: row.record.metadata[name] for name in sorted(row.record.metadata)}
        parts[codec.encode(labels), exact].append(_Said(row, frozenset(said), exact))
    return (part for part in parts.values() if len(part) > 1)


def _pairs(part: list[_Said], space: Space | None, vectors: float, shared: float) -> Iterator[tuple[float, int, int]]:
    """Yield the likeness of every two that are alike."""
    import numpy as np

    units = _units(part, space)
    for start in range(0, len(part), PIECE):
        near = None if units is None else units[start : start + PIECE] @ units.T
        for at in range(start, min(start + PIECE, len(part))):
            row = None if near is None else near[at - start]
            others = range(at + 1, len(part)) if row is None else _candidates(row, at, vectors)
            for other in others:
                common = _jaccard(part[at].words, part[other].words)
                if common >= shared:
                    cosine = 1.0 if row is None or np.isnan(row[other]) else float(row[other])
                    yield min(1.0, cosine) * common, at, other


def _candidates(row: npt.NDArray[np.float32], at: int, vectors: float) -> list[int]:
    import numpy as np

    close = np.isnan(row) | (row >= vectors)
    return [int(other) for other in np.flatnonzero(close) if other > at]


def _units(part: list[_Said], space: Space | None) -> npt.NDArray[np.float32] | None:
    """The directions of all vectors, as rows; nan for one that is missing. None if there is no space."""
    import numpy as np

    if space is None:
        return None
    units = np.full((len(part), space.dimension), np.nan, np.float32)
    for at, said in enumerate(part):
        if said.stored.vector is not None:
            vector = unpack(said.stored.vector, space)
            length = float(np.linalg.norm(vector))
            units[at] = vector / length if length else np.nan
    return units


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    union = len(one | other)
    return len(one & other) / union if union else 1.0


def _linked(pairs: Sequence[tuple[float, int, int]]) -> Iterator[tuple[list[int], float]]:
    """Join groups, the most alike first, as long as every two of the result are alike."""
    likeness = {(one, other): value for value, one, other in pairs}
    group_of: dict[int, list[int]] = {}
    for _, one, other in pairs:
        mine, others = group_of.get(one, [one]), group_of.get(other, [other])
        if mine is others or len(mine) + len(others) > LARGEST:
            continue
        if all((min(a, b), max(a, b)) in likeness for a in mine for b in others):
            joined = sorted([*mine, *others])
            group_of.update(dict.fromkeys(joined, joined))
    for members in {id(group): group for group in group_of.values()}.values():
        yield members, min(likeness[a, b] for at, a in enumerate(members) for b in members[at + 1 :])
