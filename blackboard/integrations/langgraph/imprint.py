"""What a message held at one moment: enough to prove that it holds the same still, and to make another one like it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter, is_
from typing import Any, TypeGuard

__all__ = ["Imprint", "Imprints", "Original", "are_messages"]

_HOME = "langchain_core.messages."
"""The package whose models are spelled by what stands in them and nothing else; a subclass from elsewhere may add a serializer."""

_PLAIN = frozenset((str, int, float, bool, type(None), bytes))
"""Types that nothing changes in place, and that read as they were written."""

_kind: Callable[[Any], type[Any]] = type

_Part = tuple[Any, list[str], tuple[Any, ...]]
"""A dict or list that is not empty, its keys, and its values."""


def are_messages(value: Any) -> TypeGuard[list[Any]]:
    """Tell whether a value is a list that begins with a message of LangChain's own."""
    return _kind(value) is list and bool(value) and _is_message(value[0])


def _is_message(item: object) -> bool:
    return type(item).__module__.startswith(_HOME)


class Imprint:
    """The very objects that a message held, in their order, down to the values that cannot change.

    So what is told apart is identity: an equal value in the place of another counts as a change, and it is left to the bytes
    whether it is one. A change in place of the message, or of any list or dict within, never goes unseen.
    """

    __slots__ = ("_empty", "_extra", "_fields", "_given", "_kind", "_message", "_parts")

    def __init__(self, message: Any, parts: Sequence[_Part], empty: Sequence[Any]) -> None:
        self._message = message
        self._kind = _kind(message)
        self._fields, self._extra = message.__dict__, message.__pydantic_extra__
        self._given, self._parts, self._empty = _shared(frozenset(message.__pydantic_fields_set__)), parts, empty

    @classmethod
    def of(cls, item: Any) -> Imprint | None:
        """Take it; None for what is no message of LangChain's, or holds more than plain values, lists, and dicts by text."""
        if not _is_message(item) or item.__pydantic_private__:
            return None
        parts, empty, seen = list[_Part](), list[Any](), set[int]()
        found: list[Any] = [item.__dict__, {} if item.__pydantic_extra__ is None else item.__pydantic_extra__]
        while found:
            container = found.pop()
            if id(container) in seen:
                continue
            seen.add(id(container))
            if not container:
                empty.append(container)
                continue
            part = _part(container)
            inner = [value for value in part[2] if type(value) not in _PLAIN]
            if any(type(key) is not str for key in part[1]) or any(type(value) not in (dict, list) for value in inner):
                return None
            parts.append(part)
            found += inner
        return cls(item, parts, empty)

    def enter(self, columns: _Columns) -> None:
        """Put it behind others."""
        columns.messages.append(self._message)
        columns.kinds.append(self._kind)
        columns.given.append(self._given)
        columns.fields.append(self._fields)
        columns.extras.append(self._extra)
        columns.empty += self._empty
        for container, keys, values in self._parts:
            if keys:
                columns.dicts.append(container)
                columns.sizes.append(len(values))
                columns.keys += keys
                columns.values += values
            else:
                columns.lists.append(container)
                columns.list_sizes.append(len(values))
                columns.list_items += values

    def stands(self, item: Any) -> bool:
        """Tell whether an item is this message, unchanged."""
        if item is not self._message or type(item) is not self._kind or any(self._empty):
            return False
        if item.__dict__ is not self._fields or item.__pydantic_extra__ is not self._extra:
            return False
        for container, keys, values in self._parts:
            if len(container) != len(values):
                return False
            if not all(map(is_, container.values() if keys else container, values)):
                return False
            if keys and list(container) != keys:
                return False
        return bool(item.__pydantic_fields_set__ == self._given)


@functools.lru_cache(maxsize=256)
def _shared(names: frozenset[str]) -> frozenset[str]:
    """Give the same set for equal ones: most messages of a list are given the same fields."""
    return names


def _part(container: Any) -> _Part:
    kind = _kind(container)
    if kind is dict:
        return container, list(container), tuple(container.values())
    return container, [], tuple(container)


class Imprints:
    """The imprints of a list's items, None for an item that has none.

    Whether all of them stand is told at once, from columns of what all of them hold: in half the time that one after the other
    takes.
    """

    __slots__ = ("_columns", "_each")

    def __init__(self, each: Iterable[Imprint | None] = ()) -> None:
        self._each, self._columns = list(each), _Columns()

    def __len__(self) -> int:
        return len(self._each)

    def __getitem__(self, at: int) -> Imprint | None:
        return self._each[at] if at < len(self._each) else None

    def __setitem__(self, at: int, imprint: Imprint | None) -> None:
        self._each += [None] * (at + 1 - len(self._each))
        self._each[at] = imprint
        if at < len(self._columns.messages):
            self._columns = _Columns()

    def first(self, count: int) -> Imprints:
        """Return those of the first items."""
        return Imprints(self._each[:count])

    def stand(self, items: Sequence[Any]) -> bool:
        """Tell whether these are the messages, every one of them, unchanged."""
        columns = self._columns
        if len(items) != len(self._each):
            return False
        for imprint in self._each[len(columns.messages) :]:
            if imprint is None:
                return False
            imprint.enter(columns)
        return columns.stand(items)


class _Columns:
    """What some messages hold, one after the other; each is compared in one call, so that no other thread runs meanwhile."""

    __slots__ = (
        "dicts", "empty", "extras", "fields", "given", "keys", "kinds", "list_items", "list_sizes", "lists", "messages",
        "sizes", "values",
    )  # fmt: skip

    def __init__(self) -> None:
        self.messages, self.kinds, self.given = list[Any](), list[type[Any]](), list[Any]()
        self.fields, self.extras, self.empty = list[Any](), list[Any](), list[Any]()
        self.dicts, self.sizes, self.keys, self.values = list[Any](), list[int](), list[str](), list[Any]()
        self.lists, self.list_sizes, self.list_items = list[Any](), list[int](), list[Any]()

    def stand(self, items: Sequence[Any]) -> bool:
        """Tell whether these are the messages, unchanged; what one part hides, another shows."""
        return (
            all(map(is_, items, self.messages))
            and all(map(is_, map(type, items), self.kinds))
            and all(map(is_, map(_fields, items), self.fields))
            and all(map(is_, map(_extra, items), self.extras))
            and list(map(_given, items)) == self.given
            and not any(self.empty)
            and list(map(len, self.dicts)) == self.sizes
            and list(map(len, self.lists)) == self.list_sizes
            and all(map(is_, chain.from_iterable(map(dict[Any, Any].values, self.dicts)), self.values))
            and all(map(is_, chain.from_iterable(self.lists), self.list_items))
            and list(chain.from_iterable(self.dicts)) == self.keys
        )


_fields, _extra, _given = map(attrgetter, ("__dict__", "__pydantic_extra__", "__pydantic_fields_set__"))


class Original:
    """A message that was read and is given to nobody, and which of its fields hold what must not be shared with a copy."""

    __slots__ = ("extra", "fields", "given", "inner", "kind")

    def __init__(self, message: Any, inner: Sequence[tuple[str, Any]]) -> None:
        self.kind, self.fields, self.inner = _kind(message), message.__dict__, inner
        self.given, self.extra = message.__pydantic_fields_set__, message.__pydantic_extra__

    @classmethod
    def of(cls, item: Any) -> Original | None:
        """Take a message over; None for what is no message of LangChain's, or holds more than plain values, lists and dicts."""
        if not _is_message(item) or item.__pydantic_private__:
            return None
        inner = [(name, value) for name, value in item.__dict__.items() if type(value) not in _PLAIN]
        whole = all(_is_plain(value) for _, value in inner) and _is_plain(item.__pydantic_extra__)
        return cls(item, inner) if whole else None


def _is_plain(value: Any) -> bool:
    kind = _kind(value)
    if kind is list:
        return all(map(_is_plain, value))
    if kind is dict:
        return _PLAIN.issuperset(map(type, value)) and all(map(_is_plain, value.values()))
    return kind in _PLAIN
