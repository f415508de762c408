"""Coverage is BM25 on one scale for every query, of rows read alone or together with those before them."""

import math
import random

import numpy as np
import pytest

from blackboard.memory.lexicon import Lexicon, idf

VOCABULARY = [f"w{number}" for number in range(40)]
QUERIES = [["w0"], ["w3", "w30", "w39"], ["w1", "w1", "w2"], ["w5", "unknown"]]


def texts(count: int, seed: int) -> list[list[str]]:
    chance = random.Random(seed)
    weights = [1 / (rank + 1) for rank in range(len(VOCABULARY))]
    return [chance.choices(VOCABULARY, weights, k=chance.randint(1, 25)) for _ in range(count)]


def lexicon_of(rows: list[list[str]], settled: int) -> Lexicon:
    lexicon = Lexicon()
    lexicon.add(rows[:settled])
    lexicon.settle()
    for row in rows[settled:]:
        lexicon.add([row])
    return lexicon


def everything(count: int) -> np.ndarray:
    return np.ones(count, np.bool_)


def before(count: int) -> np.ndarray:
    return np.arange(count) - 1


@pytest.mark.parametrize("query", QUERIES, ids=" ".join)
def test_alone_it_is_bm25_over_what_the_query_is_worth(query: list[str]) -> None:
    rows = texts(200, 1)
    lexicon, alive = lexicon_of(rows, 120), everything(200)
    worth = sum(idf(sum(word in row for row in rows), 200) for word in query)
    wanted = lexicon.scores(query, alive, lexicon.mean_length(alive)) * 2.5 / worth
    np.testing.assert_allclose(lexicon.coverage(query, alive), wanted, rtol=1e-3)


def test_a_row_of_mean_length_with_each_word_once_has_one() -> None:
    lexicon = lexicon_of([["a", "b"], ["c", "d"], ["a", "c"]], 2)
    assert lexicon.coverage(["a", "b"], everything(3)).tolist() == pytest.approx(
        [1, 0, idf(2, 3) / (idf(2, 3) + idf(1, 3))]
    )


def test_a_word_that_nobody_has_counts_against_all() -> None:
    lexicon = lexicon_of([["a"], ["b"]], 2)
    share = idf(1, 2) / (idf(1, 2) + idf(0, 2))
    assert lexicon.coverage(["a", "unknown"], everything(2)).tolist() == pytest.approx([share, 0])
    assert lexicon.coverage(["unknown"], everything(2)).tolist() == [0, 0]
    assert lexicon.coverage([], everything(2)).tolist() == [0, 0]


@pytest.mark.parametrize("query", QUERIES, ids=" ".join)
@pytest.mark.parametrize("settled", [0, 120, 200])
def test_together_it_is_that_of_the_joined_texts(query: list[str], settled: int) -> None:
    rows = texts(200, 2)
    joined = [[*(rows[at - 1] if at else []), *row] for at, row in enumerate(rows)]
    found = lexicon_of(rows, settled).coverage(query, everything(200), [before(200)])
    np.testing.assert_allclose(found, lexicon_of(joined, 200).coverage(query, everything(200)), rtol=1e-3)


def test_together_with_two_before() -> None:
    rows = texts(60, 3)
    joined = [[word for row in rows[max(0, at - 2) : at + 1] for word in row] for at in range(60)]
    chain = [before(60), np.maximum(before(60) - 1, -1)]
    found = lexicon_of(rows, 30).coverage(["w1", "w7"], everything(60), chain)
    np.testing.assert_allclose(found, lexicon_of(joined, 60).coverage(["w1", "w7"], everything(60)), rtol=1e-3)


def test_rows_that_are_not_alive_count_for_nothing() -> None:
    rows = texts(100, 4)
    alive = np.random.default_rng(5).random(100) < 0.6
    left = [row for row, lives in zip(rows, alive, strict=True) if lives]
    living = np.flatnonzero(alive)
    previous = np.full(100, -1)
    previous[living[1:]] = living[:-1]
    found = lexicon_of(rows, 50).coverage(["w2", "w9"], alive, [previous])
    wanted = lexicon_of(left, len(left)).coverage(["w2", "w9"], everything(len(left)), [before(len(left))])
    assert not found[~alive].any()
    np.testing.assert_allclose(found[alive], wanted, rtol=1e-3)


def test_nothing_is_there() -> None:
    empty = lexicon_of([], 0)
    assert empty.coverage(["a"], everything(0)).tolist() == []
    dead = lexicon_of([["a"]], 1).coverage(["a"], np.zeros(1, np.bool_), [np.array([-1])])
    assert dead.tolist() == [0]
    assert not math.isnan(dead[0])
