"""NumPy arrays and scalars."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from blackboard.codec import decode, encode
from blackboard.errors import EncodeError
from tests.codec.same import same

ARRAYS = [
    np.arange(6, dtype="f4").reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
    np.arange(10)[::2],
    np.arange(3, dtype=">i4"),
    np.arange(3, dtype="<u8"),
    np.array(3.0),
    np.zeros((0, 4), "f4"),
    np.zeros((4, 0, 2), ">f8"),
    np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")]),
    np.array([(1, (2.0, 3.0))], dtype=[("a", ">i2"), ("b", "f8", (2,))]),
    np.array([((1, 2), 3)], dtype=[("p", [("x", "i1"), ("y", "i8")]), ("q", "u2")]),
    np.zeros(2, dtype=np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    np.zeros(2, dtype=[(("title", "a"), "i4"), ("b", "S3")]),
    np.zeros((2, 2), dtype=[("a", "i4", (2, 3))]),
    np.array(["2026-01-01", "NaT"], dtype="datetime64[D]"),
    np.array([1, 2], dtype="timedelta64[25us]"),
    np.array(["é", "bc"]),
    np.array([b"a", b"bc\0"]),
    np.array(["", ""], dtype="U0"),
    np.array([True, False]),
    np.array([1 + 2j, np.nan], dtype="c8"),
    np.array([np.nan, -0.0, np.inf], dtype="f2"),
    np.array([1, "a", None], dtype=object),
    np.array([[1, (2,)], [{"a"}, [3]]], dtype=object),
    np.array(None, dtype=object),
    np.empty((0, 2), dtype=object),
    np.asfortranarray(np.array([[1, 2], [3, 4]], dtype=object)),
]
SCALARS = [
    np.float32(1.5),
    np.float64(0.1),
    np.float64("nan"),
    np.float16(2),
    np.bool_(1),
    np.int8(-1),
    np.uint64(2**64 - 1),
    np.complex64(1j),
    np.str_("é"),
    np.bytes_(b"ab"),
    np.datetime64("2026-01-01"),
    np.datetime64("NaT"),
    np.timedelta64(5, "h"),
    ARRAYS[9][0],
    np.dtype(">i4").type(3),
]


@pytest.mark.parametrize(
    "value", ARRAYS + SCALARS, ids=lambda value: f"{type(value).__name__}-{value.dtype}-{value.shape}"
)
def test_exact(value: Any) -> None:
    back = decode(encode(value))
    assert same(value, back), (value, back)
    assert encode(back) == encode(value)
    assert same([value, {"k": value}], decode(encode([value, {"k": value}])))


def test_what_comes_back_can_be_changed_in_place() -> None:
    value = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    value.flags.writeable = False
    back = decode(encode(value))
    back += 1
    assert back.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert back.flags.owndata
    assert back.flags.f_contiguous


def test_padding_is_no_part_of_the_value() -> None:
    kind = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    noisy = np.frombuffer(bytes(range(32)), kind).copy()
    clean = np.zeros(2, kind)
    clean["a"], clean["b"] = noisy["a"], noisy["b"]
    assert encode(noisy) == encode(clean) == encode(decode(encode(noisy)))


def test_an_array_in_an_object_array() -> None:
    outer = np.empty(2, dtype=object)
    outer[0], outer[1] = np.arange(3), [np.float32(1)]
    back = decode(encode(outer))
    assert same(outer[0], back[0])
    assert same(outer[1], back[1])


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (np.ma.masked_array([1, 2], mask=[False, True]), "value"),
        (np.ma.masked_array([1, None], mask=[False, True], dtype=object), "value"),
        (np.rec.array([(1,)], dtype=[("a", "i4")]), "value"),
        (np.array([(1, None)], dtype=[("a", "i4"), ("b", "O")]), "value"),
        (np.array([1, object()], dtype=object), "value.flat[1]"),
        (np.array([1], dtype=np.dtype("i4", metadata={"a": 1})), "value"),
        (np.array([(1, None)], dtype=[("a", "i4"), ("b", "O")])[0], "value"),
        (np.dtype("f4"), "value"),
        (np.longdouble("1.1"), "value"),
        (np.zeros(1, dtype=[("a", "i1"), ("b", "clongdouble", (2,))]), "value"),
        (np.random.default_rng(), "value"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_refused(value: Any, path: Any) -> None:
    with pytest.raises(EncodeError) as caught:
        encode(value)
    assert caught.value.path == path


@pytest.mark.parametrize(
    "masked",
    [
        np.ma.masked_array([1.5, 2.5], mask=[False, True]),
        np.ma.masked_array([[1, 2], [3, 4]]),
        np.ma.masked_array([1, None], mask=[False, True], dtype=object),
    ],
)
def test_a_masked_array_is_stored_as_its_refusal_says(masked: Any) -> None:
    """What `numpy.asarray` makes of it has lost the mask."""
    with pytest.raises(EncodeError, match="store its data and its mask") as caught:
        encode({"rows": masked})
    assert caught.value.path == "value.rows"
    told = str(caught.value)
    assert "asarray" not in told
    assert "(numpy.ma.getdata(a), numpy.ma.getmaskarray(a))" in told
    data, mask = decode(encode((np.ma.getdata(masked), np.ma.getmaskarray(masked))))
    back = np.ma.array(data, mask=mask)
    assert (back.tolist(), np.ma.getmaskarray(back).tolist()) == (masked.tolist(), np.ma.getmaskarray(masked).tolist())
    assert back.dtype == masked.dtype


def test_another_subclass_of_an_array_is_not_said_to_be_the_same() -> None:
    with pytest.raises(EncodeError, match=r"numpy\.asarray gives its items alone: store apart what else it holds"):
        encode(np.rec.array([(1,)], dtype=[("a", "i4")]))


def test_numpy_is_loaded_only_when_a_value_needs_it() -> None:
    data = encode(np.float32(1.5))
    code = (
        "import sys; from blackboard.codec import encode, decode; encode([1, {'a': 2.5}, (3,)])\n"
        f"assert 'numpy' not in sys.modules; assert decode({data!r}) == 1.5; assert 'numpy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
