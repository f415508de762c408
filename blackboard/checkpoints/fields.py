"""One field of a state as a channel: what it holds at one moment, and how much of that is stored already."""

from __future__ import annotations

import hashlib
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import takewhile
from typing import Any, Protocol
from uuid import UUID

from blackboard.checkpoints.channels import Channel, Items, Ref, Segments, Value
from blackboard.checkpoints.log import Log, Tail, tail_of
from blackboard.codec import Types, decode, encode, join, key_place
from blackboard.errors import CorruptValue

__all__ = ["Content", "Mark", "Stored", "capture", "capture_log", "open_items"]

Mark = bytes | int | tuple[bytes, ...] | tuple[tuple[bytes, bytes], ...]
"""What tells two contents of a field apart: the digest of a value, the length of a Log, the digests of a list's items,
or encoded key and digest of each entry of a dict, in order."""

Known = Sequence[bytes] | Mapping[bytes, bytes] | None
"""The digests of what is stored: of a list's items, of a dict's entries by encoded key; None if the reference says
enough."""

_KEYS = frozenset({bool, bytes, date, datetime, Decimal, float, int, str, time, timedelta, type(None), UUID})
"""Types of the keys of a dict that can be a map: what is one key in Python is one key after loading."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What the last acknowledged checkpoint holds of a field, and where."""

    ref: Ref
    known: Known = None


class Content(Protocol):
    """What a field holds at one moment, encoded, so that nothing that happens later changes it."""

    @property
    def mark(self) -> Mark:
        """What tells this content from another of the same field."""
        ...

    def channel(self, stored: Stored | None) -> Channel:
        """Return what the engine has to store, given what is stored."""
        ...

    def acknowledged(self) -> Known:
        """Take note that this content is stored; return what the next one is compared with."""
        ...


def capture(value: Any, path: str, inline_limit: int) -> Content:
    """Encode what a field holds; raises EncodeError with a path that begins with the field's.

    A list or a dict is encoded item by item; one that would fit into the manifest stays a value. Everything else is a
    value, a dict with other keys than plain scalars too.
    """
    content: Content | None = None
    kind: Any = value.__class__
    if kind is list:
        content = _capture_list(value, path, inline_limit)
    elif kind is dict:
        content = _capture_dict(value, path, inline_limit)
    return content or ValueContent(encode(value, path=path))


def _capture_list(value: list[Any], path: str, inline_limit: int) -> ListContent | ValueContent:
    items = [encode(item, path=f"{path}[{index}]") for index, item in enumerate(value)]
    if sum(map(len, items)) + len(items) < inline_limit:
        return ValueContent(join(items))
    return ListContent(items, tuple(map(_digest, items)))


def _capture_dict(value: dict[Any, Any], path: str, inline_limit: int) -> DictContent | None:
    if not all(map(_is_key, value)):
        return None
    entries = dict(_entry(key, item, path) for key, item in value.items())
    if sum(map(len, entries.values())) <= inline_limit:
        return None
    return DictContent(entries, {key: _digest(entry) for key, entry in entries.items()})


def capture_log(held: Log[Any]) -> LogContent:
    """Take a Log as it is now: it costs a copy of what is pending."""
    tail = tail_of(held)
    return LogContent(tail, len(held), tail.encoded.copy())


def open_items(ref: Ref, items: Sequence[bytes], types: Types) -> tuple[Any, Known]:
    """Decode the items of a log or map as one list: the list or dict that they are, and their digests.

    Raises CorruptValue if they are not as many values as items, or not entries of a map.
    """
    values = decode(join(items), types=types)
    if len(values) != len(items):
        raise CorruptValue(f"{len(items)} items of a {ref.kind} hold {len(values)} values", key=str(ref.segments))
    if ref.kind == "log":
        return values, tuple(map(_digest, items))
    found: dict[Any, Any] = {}
    known: dict[bytes, bytes] = {}
    for item, entry in zip(items, values, strict=True):
        match entry:
            case [key, value]:
                found[key] = value
                known[encode(key)] = _digest(item)
            case [key] if key in found:
                del found[key]
                del known[encode(key)]
            case _:
                raise CorruptValue("an item of a map is neither an entry nor a tombstone", key=str(ref.segments))
    return found, known


@dataclass(frozen=True, slots=True)
class ValueContent:
    """Anything that is stored whole."""

    data: bytes

    @property
    def mark(self) -> Mark:
        """Return the digest."""
        return _digest(self.data)

    def channel(self, stored: Stored | None) -> Channel:
        """Give it whole; the engine sees by its digest that it stands already."""
        return Value(self.data)

    def acknowledged(self) -> Known:
        """Return None: the reference carries the digest."""
        return None


@dataclass(frozen=True, slots=True)
class LogContent:
    """A Log up to the length that it had; `new` is what no acknowledged commit has stored."""

    tail: Tail
    mark: int
    new: Sequence[bytes]

    def channel(self, stored: Stored | None) -> Channel:
        """Give what is new behind all that is stored."""
        base = stored.ref.segments if stored is not None and len(self.new) < self.mark else ()
        return Items("log", base, self.new, lambda: self.tail.encode(self.mark))

    def acknowledged(self) -> Known:
        """Let the Log forget the bytes that are stored; None, it knows by itself what is new."""
        self.tail.acknowledge(self.mark)
        return None


@dataclass(frozen=True, slots=True)
class ListContent:
    """A list: the items before the first that differs from what is stored cost nothing."""

    items: Sequence[bytes]
    mark: tuple[bytes, ...]

    def channel(self, stored: Stored | None) -> Channel:
        """Give the items from the first difference on, behind a prefix of what is stored."""
        same = 0
        base: Segments = ()
        if stored is not None and isinstance(stored.known, Sequence):
            pairs = zip(stored.known, self.mark, strict=False)
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            base = _cut(stored.ref.segments, same)
        return Items("log", base, self.items[same:], lambda: self.items)

    def acknowledged(self) -> Known:
        """Return the digests of the items."""
        return self.mark


@dataclass(frozen=True, slots=True)
class DictContent:
    """A dict: its entries by encoded key, each the encoding of [key, value]; a tombstone encodes [key].

    A map is folded as a dict is filled: a key that is set again keeps its place, one that was deleted before comes
    last. So stored keys that lead the dict in their stored order stay, and all others are deleted and set in the
    dict's order.
    """

    entries: Mapping[bytes, bytes]
    digests: Mapping[bytes, bytes]

    @property
    def mark(self) -> Mark:
        """Return keys and digests in order."""
        return tuple(self.digests.items())

    def channel(self, stored: Stored | None) -> Channel:
        """Give tombstones and changed entries, or the whole dict if the map would have doubled."""
        whole = list(self.entries.values())
        if stored is not None and isinstance(stored.known, Mapping):
            changes = self._changes(stored.known)
            if stored.ref.count + len(changes) <= 2 * len(whole) + 8:
                return Items("map", stored.ref.segments, changes, lambda: whole)
        return Items("map", (), whole, lambda: whole)

    def acknowledged(self) -> Known:
        """Return the digests of the entries."""
        return self.digests

    def _changes(self, known: Mapping[bytes, bytes]) -> list[bytes]:
        kept = _leading(self.digests, known)
        gone = [join([key]) for key in known if key not in kept]
        return gone + [
            self.entries[key] for key, digest in self.digests.items() if key not in kept or known[key] != digest
        ]


def _leading(order: Iterable[bytes], known: Iterable[bytes]) -> set[bytes]:
    """Return the longest start of `order` that stands in `known` in the same order."""
    rest = iter(known)
    return set(takewhile(lambda key: key in rest, order))  # a search in an iterator goes on where the last one ended


def _cut(segments: Segments, count: int) -> Segments:
    """Return the first `count` items of a log as prefixes of its segments."""
    kept: list[tuple[str, int]] = []
    for segment, length in segments:
        if count <= 0:
            break
        kept.append((segment, min(length, count)))
        count -= length
    return tuple(kept)


def _entry(key: Any, item: Any, path: str) -> tuple[bytes, bytes]:
    name = encode(key, path=f"{path} key {reprlib.repr(key)}")
    return name, join([name, encode(item, path=f"{path}{key_place(key)}")])


def _is_key(key: Any) -> bool:
    """Tell whether a key can stand in a map; NaN cannot, it is no key twice."""
    return (type(key) in _KEYS or isinstance(key, Enum)) and bool(key == key)  # noqa: PLR0124


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
