"""Contestants measured in turns, so that whatever else the machine does hits all of them alike."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median

__all__ = ["Times", "alternate", "ratio", "undisturbed"]

Times = Mapping[str, list[float]]
"""Seconds of every round, by contestant; the rounds of all of them stand in the same order."""

BLOCKS = 10
"""Into how many stretches of time the rounds are cut; a ratio is the median of theirs."""


async def alternate(contestants: Mapping[str, Callable[[], Awaitable[object]]], rounds: int, *, warm: int) -> Times:
    """Time each contestant once per round, each round beginning with another one; the first `warm` do not count."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    turns = list(contestants.items())
    with undisturbed():
        for number in range(warm + rounds):
            turns.append(turns.pop(0))
            for name, act in turns:
                began = time.perf_counter()
                await act()
                if number >= warm:
                    times[name].append(time.perf_counter() - began)
    return times


def ratio(times: Times, name: str, other: str) -> float:
    """How many times as long `name` took as `other`: the medians of each stretch of rounds, and the median of those."""
    mine, theirs = times[name], times[other]
    size = max(1, len(mine) // BLOCKS)
    stretches = range(0, len(mine) - size + 1, size)
    return median(median(mine[at : at + size]) / median(theirs[at : at + size]) for at in stretches)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keep Python's garbage collector from running inside a measurement."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
