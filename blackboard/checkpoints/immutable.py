"""What may stand in a Log: types, and values, that are immutable all the way down."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from pathlib import PurePath
from typing import Annotated, Any, ForwardRef, Literal, NewType, TypeVar, Union, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel

__all__ = ["Unresolved", "mutable_type", "mutable_value"]

_ATOMS = frozenset({
    bool, bytes, complex, date, datetime, Decimal, float, Fraction, int, IPv4Address, IPv4Interface, IPv4Network,
    IPv6Address, IPv6Interface, IPv6Network, str, time, timedelta, types.NoneType, UUID,
})  # fmt: skip
_FAMILIES = (enum.Enum, PurePath)
_BOXES = (tuple, frozenset)


class Unresolved(Exception):
    """A forward reference inside the type is not defined yet: ask again at first use."""


def mutable_type(annotation: Any) -> str | None:
    """Name the first part of a type whose values can change after they were made; None if there is none.

    Walks tuples, frozensets, unions, Annotated, NewType, type aliases, named tuples, frozen pydantic models and frozen
    dataclasses, recursive ones included. What it does not know counts as mutable, Any and object too; an unbound type
    variable passes, because the type is asked again when it is bound. Raises Unresolved for a forward reference.
    """
    return _first(_mutable(annotation, set()))


def mutable_value(value: Any) -> str | None:
    """Name the first part of a value that can change; None if there is none.

    Sees what an annotation cannot: an instance of a subclass that is not frozen, or a type variable's value.
    """
    kind = type(value)
    if kind in _ATOMS or issubclass(kind, _FAMILIES):
        return None
    if issubclass(kind, _BOXES):
        return _first(map(mutable_value, value))
    if not _frozen(kind):
        return kind.__qualname__
    names = kind.model_fields if issubclass(kind, BaseModel) else (part.name for part in dataclasses.fields(kind))
    return _first(mutable_value(getattr(value, name)) for name in names)


def _first(found: Iterable[str | None]) -> str | None:
    return next((name for name in found if name is not None), None)


def _mutable(annotation: Any, seen: set[int]) -> Iterator[str | None]:
    """Yield the names of mutable parts; `seen` holds the classes above, which a recursive type meets again."""
    origin = get_origin(annotation)
    if annotation is None or annotation in (Ellipsis, ()) or origin is Literal or isinstance(annotation, TypeVar):
        return
    if isinstance(annotation, str | ForwardRef):
        raise Unresolved(str(annotation))
    if isinstance(annotation, NewType):
        yield from _mutable(annotation.__supertype__, seen)
    elif isinstance(annotation, type) and origin is None:
        yield from _mutable_class(annotation, seen)
    elif origin is Annotated:
        yield from _mutable(annotation.__origin__, seen)
    elif origin in (Union, types.UnionType, *_BOXES):
        for part in get_args(annotation):
            yield from _mutable(part, seen)
    elif (alias := getattr(annotation, "__value__", None)) is not None and id(annotation) not in seen:
        seen.add(id(annotation))
        yield from _mutable(alias, seen)
    elif isinstance(origin, type) and _frozen(origin):
        for part in (origin, *get_args(annotation)):
            yield from _mutable(part, seen)
    elif alias is None:
        yield _spell(annotation)


def _mutable_class(cls: type, seen: set[int]) -> Iterator[str | None]:
    if cls in _ATOMS or issubclass(cls, _FAMILIES) or id(cls) in seen:
        return
    named = issubclass(cls, tuple) and hasattr(cls, "_fields")
    if not (named or _frozen(cls)):
        yield _spell(cls)
        return
    seen.add(id(cls))
    for name, annotation in _fields(cls):
        for part in _mutable(annotation, seen):
            yield f"{part} (in {cls.__name__}.{name})"


def _frozen(cls: type) -> bool:
    if issubclass(cls, BaseModel):
        return cls.model_config.get("frozen") is True and cls.model_config.get("extra") != "allow"
    return dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined, no-any-return]


def _fields(cls: type) -> Iterator[tuple[str, Any]]:
    if issubclass(cls, BaseModel):
        if not cls.__pydantic_complete__ and not cls.model_rebuild(raise_errors=False):
            raise Unresolved(cls.__name__)
        for name, info in cls.model_fields.items():
            yield name, info.annotation
        return
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError as missing:
        raise Unresolved(str(missing)) from None
    own = cls._fields if issubclass(cls, tuple) else [part.name for part in dataclasses.fields(cls)]  # type: ignore[attr-defined]
    for name in own:
        yield name, hints.get(name, Any)


def _spell(annotation: Any) -> str:
    if annotation in _BOXES:
        return f"{annotation.__name__} without the types of its items"
    return annotation.__qualname__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation).removeprefix("typing.")
