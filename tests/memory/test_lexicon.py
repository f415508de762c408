"""Scores by word equal those of one index over what is there, however it came there."""

import random

import bm25s
import numpy as np
import pytest

from blackboard.memory.lexicon import Lexicon

VOCABULARY = [f"w{number}" for number in range(60)]


def texts(count: int, seed: int) -> list[list[str]]:
    chance = random.Random(seed)
    weights = [1 / (rank + 1) for rank in range(len(VOCABULARY))]
    return [chance.choices(VOCABULARY, weights, k=chance.randint(1, 25)) for _ in range(count)]


def whole(rows: list[list[str]], query: list[str]) -> np.ndarray:
    """What the library itself says of these rows."""
    index = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    index.index(rows, show_progress=False)
    known = [word for word in query if word in index.vocab_dict]
    return index.get_scores(known) if known else np.zeros(len(rows), np.float32)


def scores(lexicon: Lexicon, query: list[str], alive: np.ndarray) -> np.ndarray:
    return lexicon.scores(query, alive, lexicon.mean_length(alive))


QUERIES = [["w0"], ["w3", "w40", "w59"], ["w1", "w1", "w2"], ["unknown"], [], ["w5", "unknown"]]


@pytest.mark.parametrize("settled", [0, 1, 150, 300])
def test_settled_and_later_rows_score_as_one_index(settled: int) -> None:
    rows = texts(300, 1)
    lexicon = Lexicon()
    lexicon.add(rows[:settled])
    lexicon.settle()
    for start in range(settled, 300, 7):
        lexicon.add(rows[start : min(start + 7, 300)])
    for query in QUERIES:
        found = scores(lexicon, query, np.ones(300, np.bool_))
        np.testing.assert_allclose(found, whole(rows, query), rtol=1e-3, atol=1e-5)


def test_rows_that_are_not_alive_count_for_nothing() -> None:
    """Neither as hits, nor in the idf and the mean length of the others, at once."""
    rows = texts(300, 2)
    lexicon = Lexicon()
    lexicon.add(rows[:200])
    lexicon.settle()
    lexicon.add(rows[200:])
    alive = np.random.default_rng(3).random(300) < 0.6
    left = [row for row, lives in zip(rows, alive, strict=True) if lives]
    for query in QUERIES:
        found = scores(lexicon, query, alive)
        assert not found[~alive].any()
        np.testing.assert_allclose(found[alive], whole(left, query), rtol=1e-3, atol=1e-5)


def test_earlier_readers_see_their_rows_alone() -> None:
    rows = texts(100, 4)
    lexicon = Lexicon()
    lexicon.add(rows[:40])
    lexicon.settle()
    lexicon.add(rows[40:60])
    before = scores(lexicon, ["w0", "w2"], np.ones(60, np.bool_))
    lexicon.add(rows[60:])
    np.testing.assert_array_equal(scores(lexicon, ["w0", "w2"], np.ones(60, np.bool_)), before)


def test_kept_rows_in_their_order_and_words_that_are_gone() -> None:
    rows = texts(100, 5)
    rows[7] = ["secret", "w1"]
    lexicon = Lexicon()
    lexicon.add(rows)
    lexicon.settle()
    order = [number for number in range(99, -1, -1) if number != 7]
    copy = lexicon.kept(np.array(order))
    copy.settle()
    np.testing.assert_allclose(
        scores(copy, ["w0", "w9"], np.ones(99, np.bool_)), whole([rows[at] for at in order], ["w0", "w9"]), rtol=1e-3
    )
    assert "secret" not in copy._numbers
    assert len(copy._numbers) == len({word for at in order for word in rows[at]})


def test_rows_without_words() -> None:
    lexicon = Lexicon()
    lexicon.add([[], []])
    lexicon.settle()
    lexicon.add([[], ["w1"]])
    assert scores(lexicon, ["w1"], np.ones(4, np.bool_)).nonzero()[0].tolist() == [3]


def test_no_rows() -> None:
    lexicon = Lexicon()
    lexicon.settle()
    assert scores(lexicon, ["w1"], np.ones(0, np.bool_)).shape == (0,)
    assert lexicon.kept(np.empty(0, np.int64)).mean_length(np.ones(0, np.bool_)) == 0.0
