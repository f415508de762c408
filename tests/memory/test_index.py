"""Vectors are found exactly where that is promised, and nearly always where not; no search meets a change."""

import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from blackboard.errors import ConfigError
from blackboard.memory.embedder import Metric, Space
from blackboard.memory.index import Index, Kind, best, compare, kind_for
from blackboard.memory.vectors import Vectors
from tests.memory.viewing import vectors

METRICS: list[Metric] = ["cosine", "dot", "l2"]
KINDS: list[Kind] = ["flat", "rabitq", "hnsw"]


def space_of(metric: Metric, dimension: int = 32) -> Space:
    return Space("made-up", dimension, metric)


def index_of(made: npt.NDArray[np.float32], kind: Kind, metric: Metric = "cosine") -> Index:
    index = Index(space_of(metric, made.shape[1]))
    index.extend(made)
    return index.seal(kind)


def exactly(
    made: npt.NDArray[np.float32], query: npt.NDArray[np.float32], metric: Metric, k: int, allowed: Any = None
) -> tuple[list[int], list[float]]:
    """In double precision, one by one."""
    wide, wanted = made.astype(np.float64), query.astype(np.float64)
    scores = -((wide - wanted) ** 2).sum(axis=1) if metric == "l2" else wide @ wanted
    order = [at for at in np.argsort(-scores, kind="stable").tolist() if allowed is None or allowed[at]][:k]
    return order, scores[order].tolist()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [1.0, 0.9, 0.5, 0.1, 0.01])
def test_found_among_what_is_allowed(metric: Metric, kind: Kind, share: float) -> None:
    space = space_of(metric)
    made, queries = vectors(4_000, 1, space), vectors(20, 2, space)
    index = index_of(made, kind, metric)
    allowed = None if share == 1.0 else np.random.default_rng(3).random(4_000) < share
    hits = 0
    for query in queries:
        found, scores = index.search(query, 10, allowed)
        expected, values = exactly(made, query, metric, 10, allowed)
        assert len(found) == 10
        assert allowed is None or allowed[found].all()
        assert (np.diff(scores) <= 0).all()
        np.testing.assert_allclose(scores, exactly(made[found], query, metric, 10)[1], rtol=1e-4, atol=1e-5)
        hits += len({*found.tolist()} & {*expected})
        if kind == "flat" or share <= 0.1:
            np.testing.assert_allclose(scores, values, rtol=1e-4, atol=1e-5)
    assert hits >= (0.95 if kind == "hnsw" else 0.98) * 200


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_ends_of_the_scale(metric: Metric, kind: Kind) -> None:
    space = space_of(metric)
    made = vectors(30, 1, space)
    empty = index_of(made[:0], kind, metric)
    assert empty.search(made[0], 5)[0].tolist() == []
    index = index_of(made, kind, metric)
    assert sorted(index.search(made[0], 100)[0].tolist()) == list(range(30)), "more asked for than there are"
    assert index.search(made[0], 0)[0].tolist() == []
    assert index.search(made[0], 5, np.zeros(30, np.bool_))[0].tolist() == []
    one = np.zeros(30, np.bool_)
    one[17] = True
    assert index.search(made[0], 5, one)[0].tolist() == [17]
    assert index_of(made[:1], kind, metric).search(made[5], 3)[0].tolist() == [0]


@pytest.mark.parametrize("kind", KINDS)
def test_equal_vectors_are_all_found(kind: Kind) -> None:
    made = np.repeat(vectors(1, 1, space_of("cosine")), 50, axis=0)
    index = index_of(np.concatenate([made, vectors(3_000, 2, space_of("cosine"))]), kind)
    found, scores = index.search(made[0], 50)
    assert set(found.tolist()) == set(range(50))
    np.testing.assert_allclose(scores, 1.0, atol=1e-3)


@pytest.mark.parametrize("kind", ["rabitq", "hnsw"])
def test_a_selection_that_lies_far_away_is_filled(kind: Kind) -> None:
    """Where nothing near is allowed, the approximate order is given up for an exact one."""
    made = vectors(8_000, 1, space_of("cosine"))
    index = index_of(made, kind)
    query = made[0]
    allowed = np.ones(8_000, np.bool_)
    allowed[exactly(made, query, "cosine", 4_000)[0]] = False
    assert index.search(query, 10, allowed)[0].tolist() == exactly(made, query, "cosine", 10, allowed)[0]


@pytest.mark.parametrize("clusters", [10, 1_000])
def test_recall_of_codes(clusters: int) -> None:
    """Also where thousands of vectors lie about equally near, and codes alone would find a third."""
    chance = np.random.default_rng(1)
    centres = chance.standard_normal((clusters, 64))
    made, queries = (
        (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float16).astype(np.float32)
        for count in (20_000, 30)
        for made in [centres[chance.integers(0, clusters, count)] + 0.3 * chance.standard_normal((count, 64))]
    )
    index = index_of(made, "rabitq")
    hits = sum(
        len({*index.search(query, 10)[0].tolist()} & {*exactly(made, query, "cosine", 10)[0]}) for query in queries
    )
    assert hits >= 0.98 * 300


def test_nothing_is_added_once_it_may_be_searched() -> None:
    index = index_of(vectors(10, 1, space_of("cosine")), "flat")
    with pytest.raises(RuntimeError, match="never added to"):
        index.extend(vectors(1, 1, space_of("cosine")))
    assert index.count == 10


def test_taken_as_they_were_given() -> None:
    for metric in METRICS:
        made = vectors(5_000, 1, space_of(metric))
        np.testing.assert_array_equal(index_of(made, "rabitq", metric).take(np.array([4_999, 0])), made[[4_999, 0]])


def test_distances_of_vectors_far_from_the_origin() -> None:
    """The short way through norms and products would see nothing but rounding here."""
    space = Space("made-up", 8, "l2")
    made = (1e4 + 0.01 * np.arange(40)[:, None] * np.ones(8)).astype(np.float32)
    for found in (
        index_of(made, "flat", "l2").search(made[20], 3)[0],
        best(np.arange(40), compare(made[20], made, space), 3)[0],
    ):
        assert sorted(found.tolist()) == [19, 20, 21]


def test_best_breaks_ties_by_position() -> None:
    scores = np.array([1, 3, 3, 2, 3, 0], np.float32)
    assert best(np.arange(6), scores, 2)[0].tolist() == [1, 2]
    assert best(np.arange(6), scores, 4)[0].tolist() == [1, 2, 4, 3]
    assert best(np.arange(6), scores, 1)[0].tolist() == [1]
    assert best(np.arange(0), scores[:0], 3)[0].tolist() == []


def test_kind_by_settings() -> None:
    assert kind_for("auto", 20_000, 20_000) == "flat"
    assert kind_for("auto", 20_001, 20_000) == "rabitq"
    assert [kind_for(kind, 10**6, 20_000) for kind in KINDS] == KINDS
    with pytest.raises(ConfigError, match="index is auto"):
        kind_for("ivf", 1, 1)


def test_later_vectors_are_found_beside_the_index() -> None:
    space = space_of("cosine")
    made = vectors(3_000, 1, space)
    held = Vectors(space)
    held.add(range(1_000), made[:1_000])
    held.settle("rabitq")
    held.add(range(1_000, 2_000), made[1_000:2_000])
    mask = np.ones(3_000, np.bool_)
    count = held.count
    held.add(range(2_000, 3_000), made[2_000:])
    for at in (0, 999, 1_000, 1_999):
        assert held.search(made[at], 3, mask, count)[0].tolist() == exactly(made[:2_000], made[at], "cosine", 3)[0]
    assert held.search(made[2_500], 1, mask, held.count)[0].tolist() == [2_500]
    np.testing.assert_array_equal(held.take(np.array([0, 2_999, 1_500])), made[[0, 2_999, 1_500]])


@pytest.mark.parametrize("kind", KINDS)
def test_searches_while_others_build(kind: Kind) -> None:
    """For three seconds, two threads search what a third builds anew, adds to beside, and swaps; every hit is right."""
    space = space_of("cosine")
    made = vectors(2_500, 1, space)
    mask = np.ones(2_500, np.bool_)
    shared = [Vectors(space)]
    shared[0].add(range(1_000), made[:1_000])
    shared[0].settle(kind)
    end, wrong, searches = time.monotonic() + 3, list[str](), [0, 0]

    def search(mine: int) -> None:
        chance = np.random.default_rng(mine)
        while time.monotonic() < end:
            held = shared[0]
            count = held.count
            at = int(chance.integers(count))
            found, scores = held.search(made[at], 5, mask, count)
            if found[0] != at or scores[0] < 0.99 or len(found) != 5 or found.max() >= count:
                wrong.append(f"{at} of {count}: {found} {scores}")
            searches[mine] += 1

    def build() -> None:
        while time.monotonic() < end:
            fresh = shared[0].kept(np.arange(1_000))
            fresh.owners.extend(range(1_000))
            fresh.settle(kind)
            shared[0] = fresh
            for start in range(1_000, 2_500, 50):
                fresh.add(range(start, start + 50), made[start : start + 50])

    threads = [threading.Thread(target=search, args=(mine,)) for mine in (0, 1)] + [threading.Thread(target=build)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert min(searches) > 10
