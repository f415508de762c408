"""What the codec knows about a class: its stored name, its fields, and a print that changes when they change."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import json
import re
import types
import typing
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

__all__ = [
    "MISSING",
    "Shape",
    "class_of",
    "describe",
    "is_class",
    "name_of",
    "private_of",
    "shape_of",
    "state_of",
    "storable",
]

MISSING: Any = object()
"""Stands for an attribute that is not there."""

_FLATTENING = (str, bytes, bytearray, int, float, complex, list, dict, set, frozenset, BaseException)
"""Builtins that hold content outside fields; a dataclass or model on top of one is refused, else it would be lost."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class Shape:
    """How values of a class are stored. `print` is 8 hex digits of SHA-256 over fields, types and validator names."""

    name: str
    kind: Literal["model", "dataclass", "namedtuple"]
    fields: tuple[str, ...]
    print: str


_shapes: weakref.WeakKeyDictionary[type, Shape | None] = weakref.WeakKeyDictionary()


def class_of(value: object) -> type[Any]:
    """The exact class of a value."""
    return type(value)


def is_class(value: object) -> typing.TypeGuard[type]:
    """Whether it is a class proper; `list[int]` pretends to be one."""
    return isinstance(value, type) and not isinstance(value, types.GenericAlias)


def name_of(cls: type) -> str:
    """The stored name, `module:qualname`; the arguments of a generic model are spelled with their modules too."""
    generic: dict[str, Any] = cls.__dict__.get("__pydantic_generic_metadata__") or {}
    if generic.get("args"):
        inner = (name_of(arg) if is_class(arg) else repr(arg) for arg in generic["args"])
        return f"{name_of(generic['origin'])}[{', '.join(inner)}]"
    return f"{cls.__module__}:{cls.__qualname__}"


def shape_of(cls: type) -> Shape | None:
    """The shape of a model, dataclass or namedtuple class, None for every other class."""
    try:
        return _shapes[cls]
    except KeyError:
        shape = _shapes[cls] = _measure(cls)
        return shape


def describe(cls: type, fields: tuple[str, ...]) -> None:
    """Have values of a plain class stored like those of a dataclass with these fields, which must be all that it holds."""
    _shapes[cls] = _shape(cls, "dataclass", [(name, "") for name in fields], [])


def storable(cls: type[Any]) -> bool:
    """Whether values of this very class are stored under its name: it has a shape or is an enum with members."""
    if issubclass(cls, enum.Enum):
        return bool(cls.__members__)
    return cls is not BaseModel and shape_of(cls) is not None


def _measure(cls: type[Any]) -> Shape | None:
    if issubclass(cls, BaseModel):
        cls.model_rebuild(raise_errors=False)
        described = [(name, f"{f.annotation!r} {f.metadata!r}") for name, f in cls.__pydantic_fields__.items()]
        return None if issubclass(cls, _FLATTENING) else _shape(cls, "model", described, _validators(cls))
    if dataclasses.is_dataclass(cls):
        described = [(f.name, repr(f.type)) for f in dataclasses.fields(cls)]
        return None if issubclass(cls, (*_FLATTENING, tuple)) else _shape(cls, "dataclass", described, [])
    if tuple in cls.__mro__ and hasattr(cls, "_fields") and hasattr(cls, "_field_defaults"):
        return _shape(cls, "namedtuple", [(name, "") for name in getattr(cls, "_fields", ())], [])
    return None


def _shape(cls: type, kind: Any, described: list[tuple[str, str]], validators: list[str]) -> Shape:
    text = _ADDRESS.sub("", json.dumps([described, validators]))
    mark = hashlib.sha256(text.encode()).hexdigest()[:8]
    return Shape(name_of(cls), kind, tuple(name for name, _ in described), mark)


def _validators(cls: type[BaseModel]) -> list[str]:
    marks = cls.__pydantic_decorators__
    return sorted({*marks.validators, *marks.field_validators, *marks.root_validators, *marks.model_validators})


def state_of(value: Any, shape: Shape) -> dict[str, Any]:
    """Every attribute to store: the fields in their order, then what else the value carries.

    A field that is not set is left out. What else: a model's extra fields, a dataclass's other attributes; cached
    properties are left out, they are computed again.
    """
    if shape.kind == "namedtuple":
        return dict(zip(shape.fields, value, strict=True))
    held: Mapping[str, Any] = getattr(value, "__dict__", {})
    if shape.kind == "model":
        return {name: held[name] for name in shape.fields if name in held} | (value.__pydantic_extra__ or {})
    read = {name: getattr(value, name, MISSING) for name in shape.fields}
    state = {name: item for name, item in read.items() if item is not MISSING}
    return state | {name: item for name, item in held.items() if name not in state and not _computed(value, name)}


def _computed(value: object, name: str) -> bool:
    return isinstance(getattr(type(value), name, None), functools.cached_property)


def private_of(value: Any, shape: Shape) -> dict[str, Any]:
    """The private attributes that a model value holds."""
    return dict(value.__pydantic_private__ or {}) if shape.kind == "model" else {}
