"""Models, dataclasses and namedtuples from their stored fields, also when the class has changed since."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticUndefined

from blackboard.codec.classes import Shape, class_of, shape_of
from blackboard.codec.opaque import Opaque
from blackboard.errors import StateInvalid

__all__ = ["rebuild"]


def rebuild(cls: type[Any], kind: str, stored: list[Any]) -> Any:
    """Rebuild a value from [name, print, state] or [name, print, state, notes].

    The constructor is not called and nothing is converted as long as the class is what it was (same print). Else see
    `_model` and `_fitted`.
    """
    name, print_, state = stored[:3]
    notes: Mapping[str, Any] = stored[3] if len(stored) > 3 else {}
    shape = shape_of(cls)
    if shape is None or shape.kind != kind:
        raise StateInvalid(f"{name} was a {kind} when it was stored", model=name, field=None)
    changed = shape.print != print_
    if issubclass(cls, BaseModel):
        return _model(cls, shape, state, notes, changed)
    filled = _filled(cls, shape, state, notes.get("absent", ()))
    if changed:
        filled = _fitted(cls, shape, filled)
    return _namedtuple(cls, shape, filled) if kind == "namedtuple" else _dataclass(cls, shape, filled)


def _model(
    cls: type[BaseModel], shape: Shape, state: dict[str, Any], notes: Mapping[str, Any], changed: bool
) -> BaseModel:
    """Set a model's parts as they were. A class that changed validates first; its `before` validators may migrate."""
    filled = dict(state)
    given = set(state) - set(notes.get("unset", ()))
    if changed and (made := _validated(cls, shape, state)) is not None:
        given |= made.__pydantic_fields_set__
        filled |= {name: item for name, item in _fields(made) if name not in state or not _alike(state[name], item)}
    for name in shape.fields:
        if name not in filled and name not in notes.get("absent", ()):
            filled[name] = _default(cls, shape, name, filled)
    extra = {name: item for name, item in filled.items() if name not in shape.fields}
    allows = cls.model_config.get("extra") == "allow"
    value = cls.__new__(cls)
    object.__setattr__(value, "__dict__", {name: filled[name] for name in shape.fields if name in filled})
    object.__setattr__(value, "__pydantic_fields_set__", given)
    if not cls.__pydantic_root_model__:
        object.__setattr__(value, "__pydantic_extra__", extra if extra or allows else None)
        object.__setattr__(value, "__pydantic_private__", _private(cls, notes.get("private", {})))
    return value


def _fields(made: BaseModel) -> Iterator[tuple[str, Any]]:
    return ((name, made.__dict__[name]) for name in type(made).__pydantic_fields__ if name in made.__dict__)


def _private(cls: type[BaseModel], stored: dict[str, Any]) -> dict[str, Any] | None:
    """The stored private attributes, and the defaults of those that are new."""
    if not cls.__private_attributes__ and not stored:
        return None
    private = dict(stored)
    for name, attribute in cls.__private_attributes__.items():
        default = attribute.get_default() if name not in stored else PydanticUndefined
        if default is not PydanticUndefined:
            private[name] = default
    return private


def _default(cls: type[BaseModel], shape: Shape, name: str, filled: dict[str, Any]) -> Any:
    default = cls.__pydantic_fields__[name].get_default(call_default_factory=True, validated_data=filled)
    if default is PydanticUndefined:
        raise _invalid(shape, name, "it is required and was not stored; give it a default")
    return default


def _validated(cls: type[BaseModel], shape: Shape, state: dict[str, Any]) -> BaseModel | None:
    """What the changed class makes of the stored fields; None if all that it objects to is an Opaque inside them.

    A stored value stays as it is unless the class now makes another type of it (a dict became a model): validators
    have seen it once. Fields that the class does not know are shown to it first, for its `before` validators.
    """
    known = {name: item for name, item in state.items() if name in shape.fields}
    try:
        try:
            return _validate(cls, state)
        except ValidationError:
            return _validate(cls, known)
    except ValidationError as error:
        _judge(shape, state, error)
        return None
    except Exception as error:
        raise _invalid(shape, None, f"{type(error).__name__}: {error}") from error


def _validate(cls: type[BaseModel], state: dict[str, Any]) -> BaseModel:
    given = state.get("root") if cls.__pydantic_root_model__ else dict(state)
    return cls.model_validate(given, by_alias=False, by_name=True)


def _judge(shape: Shape, state: Mapping[str, Any], error: ValidationError) -> None:
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        place = str(problem["loc"][0]) if problem["loc"] else None
        if not any(_opaques(state.get(place) if place is not None else state)):
            raise _invalid(shape, place, problem["msg"]) from error


def _opaques(value: Any) -> Iterator[Opaque]:
    """The opaque values inside a value, as far as containers and fields go."""
    kind = class_of(value)
    if kind is Opaque:
        yield value
    elif issubclass(kind, dict):
        for key, item in value.items():
            yield from _opaques(key)
            yield from _opaques(item)
    elif issubclass(kind, (list, tuple, set, frozenset)):
        for item in value:
            yield from _opaques(item)


def _alike(stored: Any, made: Any) -> bool:
    """Whether two values are of the same types all the way down."""
    kind = class_of(stored)
    if kind is not type(made):
        return False
    if issubclass(kind, dict):
        return stored.keys() == made.keys() and all(_alike(item, made[key]) for key, item in stored.items())
    if issubclass(kind, (list, tuple)):
        return len(stored) == len(made) and all(map(_alike, stored, made))
    if issubclass(kind, (set, frozenset)):
        return {type(item) for item in stored} == {type(item) for item in made}
    return True


def _filled(cls: Any, shape: Shape, state: dict[str, Any], absent: Any) -> dict[str, Any]:
    """The state of a dataclass or namedtuple, with defaults for the fields that were not stored."""
    filled = dict(state)
    makers = _namedtuple_defaults(cls) if shape.kind == "namedtuple" else _dataclass_defaults(cls)
    for name in shape.fields:
        if name not in filled and name not in absent:
            if name not in makers:
                raise _invalid(shape, name, "it is required and was not stored; give it a default")
            filled[name] = makers[name]()
    return filled


def _namedtuple_defaults(cls: Any) -> dict[str, Callable[[], Any]]:
    return {name: functools.partial(_same, default) for name, default in cls._field_defaults.items()}


def _dataclass_defaults(cls: Any) -> dict[str, Callable[[], Any]]:
    makers: dict[str, Callable[[], Any]] = {}
    for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if field.default_factory is not dataclasses.MISSING:
            makers[field.name] = field.default_factory
        elif field.default is not dataclasses.MISSING:
            makers[field.name] = functools.partial(_same, field.default)
    return makers


def _same(default: Any) -> Any:
    return default


def _fitted(cls: type, shape: Shape, state: dict[str, Any]) -> dict[str, Any]:
    """The state of a dataclass that changed, each field checked against its annotation, where pydantic knows it."""
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except (NameError, TypeError):
        return state
    fitted = dict(state)
    for name in (name for name in shape.fields if name in hints and name in state):
        try:
            made = TypeAdapter(hints[name]).validate_python(state[name])
        except PydanticUserError:
            continue
        except ValidationError as error:
            if any(_opaques(state[name])):
                continue
            raise _invalid(shape, name, error.errors()[0]["msg"]) from error
        if not _alike(state[name], made):
            fitted[name] = made
    return fitted


_bare: Callable[[type], object] = object.__new__
"""An instance without `__init__` or `__new__` of its class."""


def _dataclass(cls: type, shape: Shape, state: dict[str, Any]) -> Any:
    value = _bare(cls)
    for name, item in state.items():
        try:
            object.__setattr__(value, name, item)
        except AttributeError as error:
            raise _invalid(shape, name, "it was stored and the class has no place for it any more") from error
    return value


def _namedtuple(cls: Any, shape: Shape, state: dict[str, Any]) -> Any:
    for name in state:
        if name not in shape.fields:
            raise _invalid(shape, name, "it was stored and the class has no place for it any more")
    return cls._make(state[name] for name in shape.fields)


def _invalid(shape: Shape, field: str | None, reason: str) -> StateInvalid:
    what = shape.name if field is None else f"{shape.name}.{field}"
    return StateInvalid(
        f"the stored {what} does not fit the class as it is now: {reason}", model=shape.name, field=field
    )
