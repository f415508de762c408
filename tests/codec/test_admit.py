"""Who is asked about classes while a value is written, and plain classes that are described."""

from __future__ import annotations

from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

from blackboard.codec import Types, decode, encode
from blackboard.codec.classes import describe
from blackboard.errors import CorruptValue, EncodeError


class Order(BaseModel):
    price: Any


class Phase(Enum):
    QUERY = "q"


class Words(dict[str, Any]):
    pass


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right


describe(Slotted, ("left", "right"))


def test_it_is_asked_about_classes_alone() -> None:
    asked: list[Any] = []

    def admit(value: Any) -> Any:
        asked.append(value)
        return value

    order = Order(price=[Phase.QUERY, Decimal(1)])
    value = [order, {"a": (1, "b", None)}, {2}, b"x"]
    assert encode(value, admit=admit) == encode(value)
    assert asked == [order, Phase.QUERY]


def test_what_it_returns_is_stored_instead() -> None:
    def admit(value: Any) -> Any:
        return dict(value) if isinstance(value, Words) else value

    assert encode({"a": [Words(b=1)]}, admit=admit) == encode({"a": [{"b": 1}]})
    with pytest.raises(EncodeError) as refused:
        encode({"a": [Words(b=[object()])]}, admit=admit)
    assert refused.value.path == "value.a[0].b[0]"


def test_what_it_raises_refuses_with_the_place() -> None:
    def admit(value: Any) -> Any:
        raise ValueError(f"no {type(value).__name__}")

    with pytest.raises(EncodeError, match=r"cannot store state\[1\]\.x: no Order") as refused:
        encode([1, {"x": Order(price=1)}], path="state", admit=admit)
    assert refused.value.path == "state[1].x"
    assert encode([Order(price=1)]) == encode([Order(price=1)], admit=lambda value: value)


def test_one_encoding_within_another_has_its_own() -> None:
    def admit(value: Any) -> Any:
        return encode(Order(price=1)).decode() if isinstance(value, Phase) else value

    stored = decode(encode([Phase.QUERY, Phase.QUERY], admit=admit))
    assert stored == [encode(Order(price=1)).decode()] * 2


def test_a_described_class_is_stored_by_its_fields() -> None:
    data = encode(Slotted(1, [Slotted("a", None)]))
    back = decode(data, types=Types([Slotted]))
    assert (back.left, back.right[0].left, back.right[0].right) == (1, "a", None)
    assert encode(back) == data
    missing = data.replace(b',"right":null', b"")
    with pytest.raises((CorruptValue, ValueError), match="right"):
        decode(missing, types=Types([Slotted]))
