"""How alike two embedding spaces are: whether the same records come first in both."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from blackboard.memory.arrays import Scores
from blackboard.memory.embedder import Embedder, Space, embedded, unpack
from blackboard.memory.index import compare
from blackboard.memory.records import Records
from blackboard.memory.stored import Stored

__all__ = ["Probes", "asked", "overlap", "sampled"]

FIRST = 10
"""How many of the first records are compared."""

SAMPLE = 50
"""Records whose neighbours are compared where there are no questions."""

PAGE = 200
"""Records read at once."""


@dataclass(frozen=True, slots=True)
class Probes:
    """What is looked for in both spaces: a vector of each for every question, and the record that it is itself, if any."""

    source: Scores
    target: Scores
    own: Sequence[str | None]


async def asked(before: Embedder, after: Embedder, questions: Sequence[str]) -> Probes:
    """Have questions embedded in both spaces."""
    source = await embedded(before, questions, query=True)
    target = await embedded(after, questions, query=True)
    return Probes(source, target, [None] * len(questions))


async def sampled(records: Records, source: Space, target: Space) -> Probes | None:
    """Take records that have a vector of both spaces, evenly from all; None if there are none."""
    count = int(await records.store.command("ZCARD", records.keys.order))
    places = range(0, count, max(1, -(-count // SAMPLE)))
    rows = await records.store.batch([("ZRANGE", records.keys.order, at, at) for at in places])
    ids = [name.decode() for row in rows for name in row]
    pairs = zip(
        await records.fetch(ids, vectors=True, space=source.text()),
        await records.fetch(ids, vectors=True, space=target.text()),
        strict=True,
    )
    both = [(one, other) for one, other in pairs if one and other and one.vector and other.vector]
    if not both:
        return None
    return Probes(
        np.stack([unpack(one.vector or b"", source) for one, _ in both]),
        np.stack([unpack(other.vector or b"", target) for _, other in both]),
        [one.record.id for one, _ in both],
    )


async def overlap(records: Records, source: Space, target: Space, probes: Probes) -> float | None:
    """Return which share of the first ten records of one space is among the first ten of the other, on average.

    Every record is compared, by its vectors alone. None if there is nothing to compare.
    """
    before = await _first(records, source, probes.source, probes.own)
    after = await _first(records, target, probes.target, probes.own)
    shares = [len(one & other) / max(len(one), len(other)) for one, other in zip(before, after, strict=True) if one]
    return sum(shares) / len(shares) if shares else None


async def _first(records: Records, space: Space, probes: Scores, own: Sequence[str | None]) -> list[set[str]]:
    found: list[list[tuple[float, str]]] = [[] for _ in own]

    def rank(page: Sequence[Stored]) -> None:
        held = [one for one in page if one.vector is not None]
        if not held:
            return
        vectors = np.stack([unpack(one.vector or b"", space) for one in held])
        for at, probe in enumerate(probes):
            scores = zip(compare(probe, vectors, space).tolist(), (one.record.id for one in held), strict=True)
            found[at] = heapq.nlargest(FIRST, [*found[at], *(one for one in scores if one[1] != own[at])])

    async for page in records.walk(PAGE, space=space.text()):
        await asyncio.to_thread(rank, page)
    return [{name for _, name in one} for one in found]
