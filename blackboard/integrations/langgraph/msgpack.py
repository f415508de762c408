"""Where the items of a msgpack list or dict end, without decoding them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

__all__ = ["KIND", "head", "key", "pairs", "split", "whole"]

KIND = "msgpack"
"""What LangGraph's serializer calls such bytes."""

_FIXED = {
    0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
    0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
"""Bytes that follow the first one: numbers, and extensions of a fixed size with their type."""

_SIZED = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
          0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}  # fmt: skip
"""Width of the length that follows, and what is not counted in it: bytes, extensions, text."""

_NESTED = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""Width of the count that follows, and how many items each counted one is: lists and dicts."""


def head(data: bytes) -> tuple[Literal["log", "map"], int, int] | None:
    """Tell what a list or dict is made of: (`log` or `map`, how many, where they begin); None for anything else."""
    first = data[0] if data else 0
    if 0x80 <= first <= 0x9F:
        return ("map" if first < 0x90 else "log"), first & 15, 1
    if first not in _NESTED:
        return None
    width, each = _NESTED[first]
    return ("map" if each == 2 else "log"), int.from_bytes(data[1 : 1 + width], "big"), 1 + width


def whole(kind: str, items: Sequence[bytes]) -> bytes:
    """Put a list or dict together."""
    start = _head(len(items), 0x90, 0xDC) if kind == "log" else _head(len(items), 0x80, 0xDE)
    return b"".join((start, *items))  # one copy, not two: lists are long


def split(data: bytes, at: int, count: int) -> Sequence[bytes]:
    """Cut `count` items, the first of which begins at `at`; raises ValueError if that is not where they end."""
    items: list[bytes] = []
    for _ in range(count):
        end = _end(data, at)
        items.append(data[at:end])
        at = end
    if at != len(data):
        raise ValueError(f"items end at byte {at} of {len(data)}")
    return items


def pairs(data: bytes, at: int, count: int) -> Sequence[tuple[bytes, bytes]]:
    """Cut the entries of a dict, each with its key."""
    halves = split(data, at, 2 * count)
    return [(halves[place], halves[place] + halves[place + 1]) for place in range(0, 2 * count, 2)]


def key(entry: bytes) -> bytes:
    """Return the key of an entry of a dict."""
    return entry[: _end(entry, 0)]


def _head(count: int, short: int, long: int) -> bytes:
    if count < 16:
        return bytes((short | count,))
    return (
        bytes((long,)) + count.to_bytes(2, "big") if count < 1 << 16 else bytes((long + 1,)) + count.to_bytes(4, "big")
    )


def _end(data: bytes, at: int) -> int:
    """Find the end of the item that begins at `at`; what it holds is stepped over, so that depth costs no stack."""
    open_items = 1
    while open_items:
        open_items -= 1
        first = data[at]
        at += 1
        if 0x80 <= first <= 0x9F:
            open_items += (first & 15) * (2 if first < 0x90 else 1)
        elif 0xA0 <= first <= 0xBF:
            at += first & 31
        elif first in _FIXED:
            at += _FIXED[first]
        elif first in _SIZED:
            width, more = _SIZED[first]
            at += width + more + int.from_bytes(data[at : at + width], "big")
        elif first in _NESTED:
            width, each = _NESTED[first]
            open_items += each * int.from_bytes(data[at : at + width], "big")
            at += width
    return at
