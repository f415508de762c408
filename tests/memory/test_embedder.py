"""Spaces, and vectors checked, stored and read again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blackboard.errors import ConfigError, CorruptValue, EmbedderFailed, EmbeddingInvalid
from blackboard.memory.embedder import Embedder, Metric, Space, checked, embedded, for_settings, pack, unpack, whole
from blackboard.settings import Embedding

COSINE, L2 = Space("m", 3), Space("m", 3, "l2")


class Fixed:
    """Answers what it was given."""

    name, dimension = "fixed", 2
    metric: Metric = "cosine"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def test_space_is_spelled_canonically() -> None:
    assert COSINE.text() == '{"dimension":3,"metric":"cosine","model":"m"}'
    assert Space.parse(COSINE.text()) == COSINE
    assert COSINE.id == Space("m", 3, "cosine").id
    assert len({COSINE.id, L2.id, Space("n", 3).id, Space("m", 4).id}) == 4
    assert len(COSINE.id) == 16


def test_space_of_an_embedder() -> None:
    assert Space.of(Fixed([])) == Space("fixed", 2, "cosine")
    with pytest.raises(ConfigError, match="str lacks 'name'"):
        Space.of("minilm")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [("", 3, "l2"), ("m", 0, "l2"), ("m", 9000, "l2"), ("m", True, "l2"), ("m", 3, "L2")])
def test_space_refuses(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        Space(*wrong)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"model":"m","dimension":3,"metric":"l2","more":1}'])
def test_space_that_is_not_readable(text: str) -> None:
    with pytest.raises(CorruptValue):
        Space.parse(text)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[1.0, 2.0]], r"the shape \(1, 2\)"),
        ([[1.0, 2.0, 3.0]] * 2, r"the shape \(2, 3\)"),
        ([], r"the shape \(0,\)"),
        ([[1.0, 2.0, 3.0], [1.0]], "differ in length"),
        ([[1.0, math.nan, 3.0]], "vector 0 holds a number that is not finite"),
        ([[1.0, math.inf, 3.0]], "not finite"),
        ([[1.0, 1e300, 3.0]], "not finite"),
        ([[0.0, 0.0, 0.0]], "is zero"),
        ([["1", "2", "3"]], "holds numbers"),
        ([[True, False, True]], "holds numbers"),
        ([[None, 1.0, 2.0]], "holds numbers"),
        (None, "holds numbers"),
    ],
)
def test_vectors_are_refused(vectors: Any, message: str) -> None:
    with pytest.raises(EmbeddingInvalid, match=message):
        checked(vectors, COSINE, 1)


@pytest.mark.parametrize("metric", ["dot", "l2"])
def test_vectors_too_long_to_be_compared_are_refused(metric: Metric) -> None:
    """Their products and distances would be infinite, and what is not a number is found by nobody."""
    space = Space("m", 3, metric)
    for row in ([1e38, 0, 0], [3e18, 3e18, 3e18], [-1e19, 0, 0]):
        with pytest.raises(EmbeddingInvalid, match=r"vector 1 is longer than 4\.6e\+18"):
            checked([[1, 0, 0], row], space, 2)
    longest = checked([[4.6e18, 0, 0], [-4.6e18, 0, 0]], space, 2)
    with np.errstate(over="raise"):
        assert np.isfinite(longest @ longest[0]).all()
        assert np.isfinite(((longest - longest[0]) ** 2).sum(axis=1)).all()
    assert checked([[1e38, 0, 0]], COSINE, 1).tolist() == [[1, 0, 0]]


@given(st.lists(st.floats(-(2.0**100), 2.0**100), min_size=3, max_size=3))
def test_stored_vectors_are_whole(row: list[float]) -> None:
    for space in (COSINE, L2):
        try:
            made = checked([row], space, 1)
        except EmbeddingInvalid:
            continue
        whole(unpack(pack(made, space)[0], space), space)


@pytest.mark.parametrize(
    "wrong", [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.5, 0.0, 0.0], [math.nan, 1.0, 0.0], [math.inf, 0, 0]]
)
def test_stored_vectors_that_nobody_made(wrong: list[float]) -> None:
    with pytest.raises(EmbeddingInvalid, match="m: a vector has the length .* instead of 1"):
        whole(np.array(wrong, np.float32), COSINE)
    if not math.isfinite(sum(wrong)):
        with pytest.raises(EmbeddingInvalid, match="instead of at most"):
            whole(np.array(wrong, np.float32), L2)


def test_the_wrong_one_of_several_is_named() -> None:
    with pytest.raises(EmbeddingInvalid, match="vector 1 is zero") as caught:
        checked([[1, 0, 0], [0, 0, 0]], COSINE, 2)
    assert caught.value.position == 1


def test_directions_get_unit_length() -> None:
    assert checked([[3, 0, 4]], COSINE, 1).tolist() == [[pytest.approx(0.6), 0.0, pytest.approx(0.8)]]
    assert checked([[1e-30, 0, 0]], COSINE, 1).tolist() == [[1, 0, 0]]
    assert checked([[1e38, 1e38, 0]], COSINE, 1)[0, 0] == pytest.approx(2**-0.5)
    assert checked([[3, 0, 4]], L2, 1).tolist() == [[3, 0, 4]]
    assert checked([[0, 0, 0]], L2, 1).tolist() == [[0, 0, 0]]
    assert checked(np.empty((0, 3)), COSINE, 0).shape == (0, 3)


def test_vectors_as_they_are_stored() -> None:
    cosine = checked([[3, 0, 4], [1, 0, 0]], COSINE, 2)
    short, long = pack(cosine, COSINE), pack(cosine, L2)
    assert [len(each) for each in short] == [6, 6]
    assert [len(each) for each in long] == [12, 12]
    assert short[1] == b"\x00\x3c\x00\x00\x00\x00"
    assert long[1] == b"\x00\x00\x80\x3f" + bytes(8)
    with pytest.raises(CorruptValue, match="has 6 bytes, found 12"):
        unpack(long[0], COSINE)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=3).filter(lambda row: max(map(abs, row)) > 1e-3))
def test_stored_vectors_come_back(row: list[float]) -> None:
    exact, near = checked([row], L2, 1), checked([row], COSINE, 1)
    assert unpack(pack(exact, L2)[0], L2).tolist() == row
    assert np.abs(unpack(pack(near, COSINE)[0], COSINE) - near[0]).max() < 1e-3


async def test_what_an_embedder_raises_is_its_failure() -> None:
    with pytest.raises(EmbedderFailed, match="the embedder fixed failed: OSError") as caught:
        await embedded(Fixed(OSError("no route")), ["a"])
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.retryable


async def test_errors_of_ours_pass() -> None:
    with pytest.raises(ConfigError, match="not installed"):
        await embedded(Fixed(ConfigError("not installed")), ["a"])


async def test_what_an_embedder_returns_is_checked() -> None:
    assert (await embedded(Fixed([[0, 2]]), ["a"])).tolist() == [[0, 1]]
    with pytest.raises(EmbeddingInvalid):
        await embedded(Fixed([[0, 2]]), ["a", "b"])


def test_settings_name_the_embedder() -> None:
    def made(**values: Any) -> tuple[str, int, str]:
        embedder: Embedder | None = for_settings(Embedding(**values))
        assert embedder is not None
        return embedder.name, embedder.dimension, embedder.metric

    assert for_settings(Embedding(kind="none")) is None
    assert made() == ("hashing-1", 512, "cosine")
    assert made(dimension=64) == ("hashing-1", 64, "cosine")
    assert made(kind="minilm") == ("all-MiniLM-L6-v2-onnx-int8", 384, "cosine")
    assert made(kind="openai", url="http://localhost/v1", model="e", dimension=9) == ("e", 9, "cosine")
