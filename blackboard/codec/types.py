"""The classes that stored values may be rebuilt as: declared by the caller, found by walking annotations."""

from __future__ import annotations

import contextlib
import sys
import typing
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, PydanticUserError

from blackboard.codec.classes import is_class, name_of, storable
from blackboard.errors import ConfigError

__all__ = ["Types"]

_Item = TypeVar("_Item")


class Types:
    """A registry of classes by their stored name. A name is only ever looked up here; nothing is imported.

    Declaring a class declares every class that its annotations name (fields, unions, arguments of generics, bounds of
    type variables, dataclass and TypedDict fields, ...) and, at the time of a lookup, every loaded subclass of each.
    Annotations that cannot be resolved, as in a function's local dataclass under `from __future__ import annotations`,
    are passed over: declare those classes by `register`.

    Two declared classes of one name raise ConfigError. Of two subclasses that nobody declared, the one defined last
    stands, as when the notebook cell that defines it runs again.
    """

    __slots__ = ("_declared", "_reached")

    def __init__(self, classes: Iterable[Any] = ()) -> None:
        self._declared: dict[str, type] = {}
        self._reached: dict[int, type] = {}
        for item in classes:
            self.register(item)

    @classmethod
    def of(cls, *annotations: Any) -> Types:
        """The registry of everything that these classes or annotations name."""
        return cls(annotations)

    def register(self, item: _Item) -> _Item:
        """Declare a class (or any annotation) and return it, so that it serves as a decorator.

        Raises ConfigError if another class of the same name is declared already; nothing is declared then.
        """
        reached = {id(cls): cls for cls in _walk([item], subclasses=False)}
        declared = dict(self._declared)
        for cls in filter(storable, reached.values()):
            name = name_of(cls)
            if declared.setdefault(name, cls) is not cls:
                raise ConfigError(f"two classes are called {name}; declare one of them, or rename one", name=name)
        self._declared = declared
        self._reached |= reached
        return item

    def joined(self, below: Types) -> Types:
        """The registry of both; where both declare a class of one name, this one's stands."""
        both = Types()
        both._declared = below._declared | self._declared
        both._reached = below._reached | self._reached
        return both

    def find(self, name: str) -> type | None:
        """The class of this stored name, or None if neither it nor a class that leads to it was declared."""
        known = self._declared.get(name)
        if known is None:
            for cls in _walk(self._reached.values(), subclasses=True):
                if name_of(cls) == name and storable(cls):
                    known = cls
        return known


def _walk(items: Iterable[Any], *, subclasses: bool) -> Iterator[type]:
    """Every class that the annotations lead to, and with `subclasses` every loaded subclass, breadth first."""
    seen: dict[int, Any] = {}
    queue = list(items)
    for item in queue:
        if id(item) in seen:
            continue
        seen[id(item)] = item
        if not is_class(item):
            queue.extend(_arguments(item))
        elif _ours(item):
            yield item
            queue.extend(_annotations(item))
            if subclasses:
                queue.extend(type.__subclasses__(item))


def _ours(cls: type) -> bool:
    """Whether a class can lead to stored ones; of the standard library's only its enums do."""
    return cls.__module__.partition(".")[0] not in sys.stdlib_module_names or storable(cls)


def _arguments(item: Any) -> Iterator[Any]:
    """The parts of an annotation that is no class."""
    if isinstance(item, (list, tuple)):
        yield from item
    elif isinstance(item, TypeVar):
        yield from (item.__bound__, *item.__constraints__, getattr(item, "__default__", None))
    elif typing.get_origin(item) is typing.Literal:
        yield from map(type, typing.get_args(item))
    elif type(item).__name__ == "TypeAliasType":
        yield item.__value__
    else:
        yield from (getattr(item, "__supertype__", None), typing.get_origin(item), *typing.get_args(item))


_known: weakref.WeakKeyDictionary[type, tuple[Any, ...]] = weakref.WeakKeyDictionary()


def _annotations(cls: type) -> tuple[Any, ...]:
    """The annotations of a class; kept once its forward references are resolved."""
    known = _known.get(cls)
    if known is None:
        known = (*_fields(cls), *_hints(cls))
        if getattr(cls, "__pydantic_complete__", True):
            _known[cls] = known
    return known


def _fields(cls: type[Any]) -> Iterator[Any]:
    if cls is BaseModel:
        return  # it has no fields, and lacks what pydantic gives its subclasses
    if issubclass(cls, BaseModel):
        with contextlib.suppress(TypeError, PydanticUserError):  # what is wrong with it concerns its own name alone
            cls.model_rebuild(raise_errors=False)
        yield from (field.annotation for field in cls.__pydantic_fields__.values())
        generic = cls.__pydantic_generic_metadata__
        yield from (generic["origin"], *generic["args"])
    else:
        yield from (field.type for field in getattr(cls, "__dataclass_fields__", {}).values())


def _hints(cls: type) -> Iterator[Any]:
    try:
        yield from typing.get_type_hints(cls, include_extras=True).values()
    except (NameError, TypeError, AttributeError, SyntaxError):
        return
