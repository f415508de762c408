"""Ranking is exact: what it leaves uncompared could not have been among the best."""

from __future__ import annotations

from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blackboard.errors import ConfigError
from blackboard.memory import ranking
from blackboard.memory.embedder import Metric, Space
from blackboard.memory.frame import Frame
from blackboard.memory.index import Kind
from blackboard.memory.ranking import Nearest, Parts, Ranked, Ranking, Weights, diversified, ordered
from blackboard.memory.record import Token
from blackboard.memory.table import Row, Table
from blackboard.settings import MemoryNamespace

VOCABULARY = [f"w{number}" for number in range(30)]
DAY = 86_400_000_000


def frame_of(count: int, seed: int, metric: Metric = "cosine", kind: Kind = "flat", bare: float = 0.1) -> Frame:
    """Rows with random words and vectors, some of them without a vector, some of them not alive any more."""
    chance = np.random.default_rng(seed)
    space = Space("made-up", 8, metric)
    table = Table(space)
    vectors = chance.standard_normal((count, 8)).astype(np.float32)
    if metric == "cosine":
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors.astype(np.float16).astype(np.float32)
    rows = [
        Row(
            f"{n}",
            1,
            n,
            [VOCABULARY[int(at)] for at in chance.integers(0, 30, int(chance.integers(1, 9)))],
            vid=-1 if (without := chance.random() < bare) else n,
            vector=None if without else vectors[n],
            valid_from=int(chance.integers(0, 30)) * DAY,
            importance=float(chance.random()),
            metadata={"session": int(chance.integers(0, 3))},
        )
        for n in range(count)
    ]
    table.add(rows[: count // 2])
    table.settle(kind)
    table.add(rows[count // 2 :], forgotten=[f"{n}" for n in range(0, count, 11)])
    return Frame(table, Token(1, count))


def plainly(
    frame: Frame, mask: np.ndarray, vector: np.ndarray | None, words: list[str], weights: Weights
) -> np.ndarray:
    """The score of every row, one by one, as the documentation has it; -inf for those that are not found."""
    before = frame.preceding(weights.by)
    chains = [np.arange(frame.size)]
    for _ in range(weights.context):
        chains.append(np.array([before[row] if row >= 0 else -1 for row in chains[-1]]))
    coverage = frame.coverage(words, chains[1:]) if weights.lexical else np.zeros(frame.size)
    near = np.zeros(frame.size) if vector is None else frame.nearness(vector, np.arange(frame.size)).astype(float)
    metric = frame.space.metric if frame.space else "cosine"
    held = frame.alive & (frame.vids >= 0) if vector is not None else np.zeros(frame.size, bool)
    near[~held] = 0
    if metric == "dot":
        near = near / (1 + abs(near))
    if metric == "l2":
        near = np.where(held, 1 / (1 - near), 0)
    scores = np.full(frame.size, -np.inf)
    for row in np.flatnonzero(mask & (held | (coverage > 0))):
        chain = [int(rows[row]) for rows in chains]
        halves = [0.5**distance * (at == row or (at >= 0 and held[at])) for distance, at in enumerate(chain)]
        dense = sum(h * near[at] for h, at in zip(halves, chain, strict=True)) / sum(halves)
        lexical = weights.lexical if held[row] else 1
        relevance = (1 - lexical) * dense + lexical * coverage[row]
        age = (30 * DAY - frame.valid_from[row]) / 1e6
        scores[row] = (1 - weights.recency - weights.importance) * relevance
        scores[row] += weights.recency * 0.5 ** (age / weights.half_life) + weights.importance * frame.importance[row]
    return scores


class Case(NamedTuple):
    seed: int
    rows: int
    metric: Metric
    weights: Weights
    k: int
    open: float
    bare: float
    few: int


cases = st.builds(
    Case,
    seed=st.integers(0, 50),
    rows=st.sampled_from([1, 7, 60, 400]),
    metric=st.sampled_from(["cosine", "dot", "l2"]),
    weights=st.builds(
        Weights,
        lexical=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
        recency=st.sampled_from([0.0, 0.4]),
        importance=st.sampled_from([0.0, 0.3]),
        half_life=st.just(86400.0),
        context=st.integers(0, 3),
        by=st.sampled_from([None, "session", "none"]),
    ),
    k=st.sampled_from([1, 3, 20, 500]),
    open=st.sampled_from([1.0, 0.5, 0.02]),
    bare=st.sampled_from([0.0, 0.3, 1.0]),
    few=st.sampled_from([0, 2000]),
)


@settings(deadline=None, max_examples=60)
@given(cases)
def test_the_best_are_those_of_comparing_everything(case: Case) -> None:
    frame = frame_of(case.rows, case.seed, case.metric, bare=case.bare)
    chance = np.random.default_rng(case.seed + 1)
    vector = chance.standard_normal(8).astype(np.float32)
    words = [VOCABULARY[int(at)] for at in chance.integers(0, 30, 3)]
    mask = frame.alive & (chance.random(case.rows) < case.open)
    wanted = plainly(frame, mask, vector, words, case.weights)
    with patch.multiple(ranking, FEW=case.few, POOL=3, MOST=1000):
        found = ordered(frame, mask, vector=vector, words=words, weights=case.weights, at=30 * DAY).best(case.k)
    assert len(found) == min(case.k, int((wanted > -np.inf).sum()))
    assert [one.score for one in found] == pytest.approx(sorted(wanted, reverse=True)[: len(found)], abs=1e-6)
    assert [one.score for one in found] == pytest.approx([wanted[one.row] for one in found], abs=1e-6)


def test_the_index_alone_is_asked_where_nothing_else_counts() -> None:
    frame = frame_of(500, 3)
    vector = np.random.default_rng(4).standard_normal(8).astype(np.float32)
    alone = ordered(frame, frame.alive, vector=vector, words=["w1"], weights=Weights(lexical=0.0), at=0)
    assert isinstance(alone, Nearest)
    found, whole = (
        alone.best(500),
        Ranking(frame, frame.alive, vector=vector, words=[], weights=Weights(lexical=0.0), at=0),
    )
    assert [one.row for one in found] == [one.row for one in whole.best(500)]
    assert [one.score for one in found] == pytest.approx([one.score for one in whole.best(500)])
    for more in ({"lexical": 0.1}, {"recency": 0.1}, {"importance": 0.1}, {"context": 1}):
        weights = Weights(**{"lexical": 0.0, **more})  # type: ignore[arg-type]
        assert isinstance(ordered(frame, frame.alive, vector=vector, words=[], weights=weights, at=0), Ranking)
    assert isinstance(
        ordered(frame, frame.alive, vector=None, words=["w1"], weights=Weights(lexical=0.0), at=0), Ranking
    )


def test_asking_for_more_goes_on_where_it_was() -> None:
    frame = frame_of(500, 3)
    vector = np.random.default_rng(4).standard_normal(8).astype(np.float32)
    made = Ranking(frame, frame.alive, vector=vector, words=["w1"], weights=Weights(), at=0)
    few = made.best(5)
    assert made.best(50)[:5] == few
    everything = made.best(1000)
    assert everything[:5] == few
    assert len(everything) == len(made) < 500


def test_few_vectors_are_compared() -> None:
    """Of rows that could not be among the best, the vectors are not read."""
    frame = frame_of(5000, 5, bare=0)
    compared = 0
    nearness = frame.nearness

    def counted(query: np.ndarray, rows: np.ndarray) -> np.ndarray:
        nonlocal compared
        compared += len(rows)
        return nearness(query, rows)

    frame.nearness = counted  # type: ignore[method-assign]
    vector = np.random.default_rng(6).standard_normal(8).astype(np.float32)
    made = Ranking(frame, frame.alive, vector=vector, words=["w1", "w2"], weights=Weights(), at=0)
    assert len(made.best(10)) == 10
    assert compared <= 500


def test_what_is_compared_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where too many promise too much, those that were compared are ranked, and by their true scores."""
    monkeypatch.setattr(ranking, "FEW", 0)
    monkeypatch.setattr(ranking, "MOST", 1)
    frame = frame_of(3000, 9, bare=0)
    vector = np.random.default_rng(8).standard_normal(8).astype(np.float32)
    weights = Weights(lexical=0.01, recency=0.9, half_life=1e9)
    made = Ranking(frame, frame.alive, vector=vector, words=["w3"], weights=weights, at=30 * DAY)
    ranked = made.best(10)
    assert len({one.row for one in ranked}) == 10
    assert int(made._known.sum()) - int((~frame.alive).sum()) <= 300
    wanted = plainly(frame, frame.alive, vector, ["w3"], weights)
    assert [one.score for one in ranked] == pytest.approx([wanted[one.row] for one in ranked])


def test_codes_find_what_comparing_everything_finds() -> None:
    frame = frame_of(2000, 7, kind="rabitq", bare=0)
    vector = np.random.default_rng(8).standard_normal(8).astype(np.float32)
    weights = Weights(lexical=0.3)
    wanted = plainly(frame, frame.alive, vector, ["w3"], weights)
    ranked = Ranking(frame, frame.alive, vector=vector, words=["w3"], weights=weights, at=30 * DAY).best(10)
    assert len(set(np.argsort(-wanted)[:10].tolist()) & {one.row for one in ranked}) >= 9


def test_equal_scores_come_in_the_order_of_the_rows() -> None:
    table = Table(None)
    table.add([Row(f"{n}", 1, n, ["same"]) for n in range(9)])
    table.settle("flat")
    frame = Frame(table, Token(1, 9))
    ranked = Ranking(frame, frame.alive, vector=None, words=["same"], weights=Weights(), at=0).best(4)
    assert [one.row for one in ranked] == [0, 1, 2, 3]


def test_a_frame_without_rows() -> None:
    table = Table(None)
    table.settle("flat")
    frame = Frame(table)
    assert Ranking(frame, frame.alive, vector=None, words=["a"], weights=Weights(context=2), at=0).best(3) == []


def test_weights_are_those_of_the_namespace_unless_given() -> None:
    policy = MemoryNamespace(
        lexical_weight=0.3, recency_weight=0.1, importance_weight=0.2, recency_half_life="1h", context=2, context_by="s"
    )
    assert Weights.of(policy) == Weights(0.3, 0.1, 0.2, 3600, 2, "s")
    given_ = Weights.of(policy, lexical=0, recency=0, importance=0, context=0)
    assert given_ == Weights(0, 0, 0, 3600, 0, "s")


@pytest.mark.parametrize("wrong", [{"lexical": True}, {"recency": 1.1}, {"importance": "1"}, {"context": -1}])
def test_weights_refuse(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Weights(**wrong)  # type: ignore[arg-type]


def test_diversity_takes_turns() -> None:
    ranked = [Ranked(row, Parts(dense=score)) for row, score in enumerate([0.9, 0.89, 0.5, 0.1])]
    vectors = np.array([[1, 0], [1, 0], [0, 2], [0, 0]], np.float32)

    def order(diversity: float) -> list[int]:
        return [one.row for one in diversified(ranked, vectors, diversity)]

    assert order(0) == [0, 1, 2, 3]
    assert order(0.5) == [0, 2, 3, 1]
    assert order(1)[0] == 0
    assert diversified([], np.zeros((0, 2), np.float32), 0.5) == []
