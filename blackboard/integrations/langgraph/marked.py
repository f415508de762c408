"""The codec's text with a mark before each item of a list or dict, so that the items can be cut without decoding them.

The mark is the byte c1, which stands neither in UTF-8 nor at the head of a msgpack value: so an item says of itself by which of
the two it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from blackboard.codec import encode
from blackboard.codec.classes import class_of
from blackboard.codec.encoding import TAG, Admit, dumps
from blackboard.errors import CorruptValue, EncodeError

__all__ = ["KIND", "MARK", "head", "key", "pairs", "spell", "split", "unmarked", "whole"]

KIND = "bb"
"""What the serializer calls such bytes."""

MARK = b"\xc1"

_ENDS = {b"[": b"]", b"{": b"}"}
_KEY = re.compile(rb'\xc1"(?:[^"\\]|\\.)*"')


def spell(value: Any, admit: Admit) -> bytes:
    """Encode a value, and mark the items if it is a list or a dict; raises EncodeError with the place."""
    kind = class_of(value)
    try:
        if kind is list and value:
            return b"[" + b"".join([MARK + encode(item, admit=admit) for item in value])
        if kind is dict and value and _is_plain(value):
            return b"{" + b"".join(_entries(value, admit))
    except (EncodeError, UnicodeEncodeError):
        pass  # as a whole: then the error names the place, and what is no text has an envelope
    return encode(value, admit=admit)


def unmarked(data: bytes) -> bytes:
    """Return the plain text of what was spelled."""
    if data[1:2] != MARK:
        return data
    if data[:1] not in _ENDS:
        raise CorruptValue(f"not an encoded value: it begins with {data[:2]!r}")
    return data[:1] + data[2:].replace(MARK, b",") + _ENDS[data[:1]]


def head(data: bytes) -> tuple[Literal["log", "map"], int, int] | None:
    """Tell what a list or dict is made of: (`log` or `map`, how many, where they begin); None for anything else."""
    if data[1:2] != MARK:
        return None
    return ("log" if data[:1] == b"[" else "map"), data.count(MARK), 1


def split(data: bytes, at: int, count: int) -> Sequence[bytes]:
    """Cut `count` items, the first of which begins at `at`; raises ValueError if that is not how many there are."""
    before, *items = data[at:].split(MARK)
    if before or len(items) != count:
        raise ValueError(f"{len(items)} items behind byte {at}, not {count}")
    return [MARK + item for item in items]


def pairs(data: bytes, at: int, count: int) -> Sequence[tuple[bytes, bytes]]:
    """Cut the entries of a dict, each with its key."""
    return [(key(entry), entry) for entry in split(data, at, count)]


def key(entry: bytes) -> bytes:
    """Return what an entry of a dict has before its value; raises ValueError if it has no key."""
    found = _KEY.match(entry)
    if found is None:
        raise ValueError(f"not an entry: {entry[:40]!r}")
    return found[0]


def whole(kind: str, items: Sequence[bytes]) -> bytes:
    """Put a list or dict together; of two entries with one key the last counts, in the place of the first."""
    return (b"[" if kind == "log" else b"{") + b"".join(items)


def _is_plain(value: dict[Any, Any]) -> bool:
    """Whether each key is a text, and the dict none that the codec writes as pairs."""
    return all(type(name) is str for name in value) and not (len(value) == 1 and next(iter(value)).startswith(TAG))


def _entries(value: dict[str, Any], admit: Admit) -> Iterator[bytes]:
    for name, item in value.items():
        yield MARK + dumps(name).encode() + b":" + encode(item, admit=admit)
