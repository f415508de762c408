"""What may stand in a Log: types, and values, that are immutable all the way down."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import (
    Annotated,
    Any,
    ForwardRef,
    Literal,
    NewType,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import (
    AwareDatetime,
    BaseModel,
    EmailStr,
    FutureDate,
    FutureDatetime,
    NaiveDatetime,
    PastDate,
    PastDatetime,
)

from blackboard.codec.classes import is_class
from blackboard.codec.scalars import BY_CLASS

__all__ = ["Unresolved", "mutable_type", "mutable_value"]

_ATOMS = frozenset(BY_CLASS) - {bytearray, slice} | {bool, float, int, str, types.NoneType}
"""Classes whose values are one immutable thing: what the codec stores as a scalar, and JSON's own."""

_MARKERS = frozenset({AwareDatetime, EmailStr, FutureDate, FutureDatetime, NaiveDatetime, PastDate, PastDatetime})
"""Classes of pydantic's that only annotate: their values are plain ones."""

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
    kind: Any = value.__class__
    if kind in _ATOMS or issubclass(kind, _FAMILIES):
        return None
    if issubclass(kind, _BOXES):
        return _first(map(mutable_value, value))
    if not _frozen(kind):
        return str(kind.__qualname__)
    return _first(mutable_value(getattr(value, name)) for name in _names(kind))


def _first(found: Iterable[str | None]) -> str | None:
    return next((name for name in found if name is not None), None)


def _mutable(annotation: Any, seen: set[int]) -> Iterator[str]:
    """Yield the names of mutable parts; `seen` holds the classes above, which a recursive type meets again."""
    origin = get_origin(annotation)
    if isinstance(annotation, str | ForwardRef):
        raise Unresolved(str(annotation))
    if annotation is None or annotation is Ellipsis or isinstance(annotation, TypeVar):
        return
    if origin is Literal or origin in _ATOMS:  # re.Pattern[str]
        return
    if is_class(annotation) and origin is None:
        yield from _mutable_class(annotation, seen)
    elif (parts := _parts(annotation, origin)) is None:
        yield _spell(annotation)
    elif id(annotation) not in seen:
        seen.add(id(annotation))
        for part in parts:
            yield from _mutable(part, seen)


def _parts(annotation: Any, origin: Any) -> tuple[Any, ...] | None:
    """Return the types that a special form is made of; None for one whose values are, or may be, mutable."""
    if isinstance(annotation, NewType):
        return (annotation.__supertype__,)
    if origin is Annotated:
        return (annotation.__origin__,)
    if origin in (Union, types.UnionType, *_BOXES):
        return get_args(annotation)
    if hasattr(annotation, "__value__"):  # a type alias
        return (annotation.__value__,)
    if is_class(origin) and _frozen(origin):
        return (origin, *get_args(annotation))
    return None


def _mutable_class(cls: type[Any], seen: set[int]) -> Iterator[str]:
    if cls in _ATOMS | _MARKERS or issubclass(cls, _FAMILIES) or id(cls) in seen:
        return
    if not (_named(cls) or _frozen(cls)):
        yield _spell(cls)
        return
    seen.add(id(cls))
    hints = _hints(cls)
    for name in _names(cls):
        for part in _mutable(hints.get(name, Any), seen):
            yield f"{part} (in {cls.__name__}.{name})"


def _frozen(cls: type[Any]) -> bool:
    if issubclass(cls, BaseModel):
        return cls.model_config.get("frozen") is True and cls.model_config.get("extra") != "allow"
    return bool(dataclasses.is_dataclass(cls) and getattr(cls, "__dataclass_params__").frozen)  # noqa: B009


def _named(cls: type[Any]) -> bool:
    return hasattr(cls, "_fields") and issubclass(cls, tuple)


def _names(cls: Any) -> Iterable[str]:
    """Return the names of the fields of a model, named tuple or dataclass."""
    named: Iterable[str] | None = getattr(cls, "model_fields", getattr(cls, "_fields", None))
    return [part.name for part in dataclasses.fields(cls)] if named is None else named


def _hints(cls: type[Any]) -> dict[str, Any]:
    if issubclass(cls, BaseModel):
        if not cls.__pydantic_complete__ and not cls.model_rebuild(raise_errors=False):
            raise Unresolved(cls.__name__)
        return {name: info.annotation for name, info in cls.model_fields.items()}
    try:
        return get_type_hints(cls, include_extras=True)
    except NameError as missing:
        raise Unresolved(str(missing)) from None


def _spell(annotation: Any) -> str:
    if annotation in _BOXES:
        return f"{annotation.__name__} without the types of its items"
    return annotation.__qualname__ if is_class(annotation) else str(annotation).removeprefix("typing.")
