"""Data that looks like an envelope of ours or of anybody's stays data."""

from __future__ import annotations

from typing import Any

import pytest

from blackboard.codec import Types, decode, encode
from blackboard.codec.decoding import _BUILTINS
from blackboard.codec.encoding import NAMED
from blackboard.codec.scalars import BY_TAG
from tests.codec.same import same

FOREIGN = [
    {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", "HumanMessage"], "kwargs": {"content": "x"}},
    {"lc": 1, "type": "secret", "id": ["OPENAI_API_KEY"]},
    {"lc": 2, "type": "constructor", "id": ["decimal", "Decimal"], "args": ["1.0"], "kwargs": {}},
    {"__send__": True, "arg": 1, "node": "n"},
    {"__bytes__": "AAE="},
    {"__type__": "os.system", "args": ["true"]},
    {"py/object": "os.system"},
    {"value": 1, "id": "abc"},
    {"value": 1, "resumable": True, "ns": None, "when": "during"},
    {"$ref": "#/x"},
    {"__proto__": {}},
]
TAGS = sorted({*_BUILTINS, *NAMED, *(f"!{tag}" for tag in BY_TAG), "!", "!unknown", "!!dict"})
PAYLOADS: list[Any] = [
    1,
    None,
    "0.10",
    [],
    {},
    [["a", 1]],
    ["os:system", "00000000", {}],
    {"!dict": [["a", 1]]},
    {"!tuple": []},
]
OURS = [{tag: payload} for tag in TAGS for payload in PAYLOADS]


@pytest.mark.parametrize("value", FOREIGN + OURS, ids=str)
def test_stays_data_at_every_depth(value: Any) -> None:
    (key, inner), *rest = value.items()
    places = [
        value,
        [value, [value]],
        {"a": value, "b": {"c": [value]}},
        {key: value},
        {key: {key: {key: inner}}},
        {key: inner, "other": 1},
        (value,),
        {1: value},
        {(key,): value, key: key},
        {"x": {key}},
    ]
    for place in places:
        assert same(decode(encode(place)), place)
        once = decode(encode(place)), encode(place).decode()
        assert same(decode(encode(list(once))), list(once))
    assert rest == list(value.items())[1:]


def test_a_dict_with_a_marker_and_other_keys_needs_no_escape() -> None:
    assert encode({"!decimal": 1, "a": 2}) == b'{"!decimal":1,"a":2}'
    assert encode({"!decimal": "1"}) == b'{"!dict":[["!decimal","1"]]}'


def test_no_class_is_built_from_data() -> None:
    built: list[Any] = []

    class Trap:
        def __init__(self, *args: Any) -> None:
            built.append(args)

    name = f"{__name__}:{Trap.__qualname__}"
    for tag in NAMED:
        assert same(decode(encode({tag: [name, "0", {}]}), types=Types([Trap])), {tag: [name, "0", {}]})
    assert built == []
