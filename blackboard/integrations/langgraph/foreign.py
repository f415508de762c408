"""Reading what LangGraph's own serializer wrote, without importing anything that the bytes name.

Its msgpack has extension types for objects, each a tuple of module, name and arguments; its older JSON has objects with `lc`.
"""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import ipaddress
import json
import pathlib
import re
import uuid
import zoneinfo
from collections.abc import Callable, Mapping
from typing import Any, cast

import ormsgpack
from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore[reportPrivateUsage] - checkpoints hold it
from langgraph.types import Send
from pydantic import BaseModel

from blackboard.errors import CorruptValue, StateInvalid

__all__ = ["Foreign"]

SINGLE, POSITIONAL, KEYWORDS, METHOD, PYDANTIC_1, PYDANTIC_2, ARRAY, SNAPSHOT = range(8)
"""The extension types of LangGraph's serializer."""

_STANDARD: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("re", "compile"): re.compile,
    **{(cls.__module__, cls.__name__): cls for cls in (
        set, frozenset, collections.deque, dt.datetime, dt.date, dt.time, dt.timedelta, dt.timezone, decimal.Decimal,
        ipaddress.IPv4Address, ipaddress.IPv4Interface, ipaddress.IPv4Network, ipaddress.IPv6Address,
        ipaddress.IPv6Interface, ipaddress.IPv6Network, uuid.UUID, zoneinfo.ZoneInfo,
    )},
    **{(module, cls.__name__): cls for module in ("pathlib", "pathlib._local")
        for cls in (pathlib.Path, pathlib.PosixPath, pathlib.WindowsPath)},
}  # fmt: skip


class Foreign:
    """Reads both forms; `find` answers the class of a `module:name`, None for one that is not known."""

    def __init__(self, find: Callable[[str], type | None]) -> None:
        self._find = find

    def msgpack(self, data: bytes) -> Any:
        """Read msgpack; raises StateInvalid for an object of a class that is not known, CorruptValue for other bytes."""
        reading = _Reading(self._found)
        try:
            return reading.unpack(data)
        except ValueError as error:
            cause = reading.failure or error
            if isinstance(cause, StateInvalid):
                raise cause from None
            raise CorruptValue(f"a value of kind 'msgpack' is not readable: {cause}", key="msgpack") from cause

    def json(self, data: bytes) -> Any:
        """Read JSON; an object that names no known class stays data. Raises CorruptValue."""
        try:
            return json.loads(data, object_hook=self._object)
        except Exception as error:
            raise CorruptValue(f"a value of kind 'json' is not readable: {error}", key="json") from error

    def _found(self, module: str, name: str) -> Callable[..., Any] | None:
        return _STANDARD.get((module, name)) or self._find(f"{module}:{name}")

    def _object(self, value: dict[str, Any]) -> Any:
        match value:
            case {"lc": 1 | 2, "type": "constructor", "id": [*module, str(name)]}:
                made = self._named(".".join(map(str, module)), name)
                return value if made is None else made(*value.get("args") or (), **value.get("kwargs") or {})
            case _:
                return value

    def _named(self, module: str, name: str) -> Any:
        """Find a class by the module that it was in; of langchain's, which have moved, by the name alone."""
        if module.startswith("langchain"):
            return _langchain().get(name)
        return self._found(module, name)


class _Reading:
    """One value that is unpacked. What goes wrong inside an extension is kept here: the unpacker does not tell."""

    def __init__(self, find: Callable[[str, str], Callable[..., Any] | None]) -> None:
        self._find = find
        self.failure: Exception | None = None

    def unpack(self, data: bytes) -> Any:
        return ormsgpack.unpackb(data, ext_hook=self._extension, option=ormsgpack.OPT_NON_STR_KEYS)

    def _extension(self, code: int, data: bytes) -> Any:
        try:
            return self._read(code, self.unpack(data))
        except Exception as error:
            self.failure = self.failure or error
            raise

    def _read(self, code: int, content: Any) -> Any:
        if code == SNAPSHOT:
            return _DeltaSnapshot(content)
        if code == ARRAY:
            return _array(*content)
        module, name, given = content[:3]
        made = self._find(module, name)
        if made is None:
            raise StateInvalid(
                f"class {module}:{name} is not declared; declare it: BlackboardSerializer(classes=[{name}])",
                model=f"{module}:{name}", field=None,
            )  # fmt: skip
        if code == METHOD:
            if (made, content[3]) != (dt.datetime, "fromisoformat"):
                raise ValueError(f"{module}.{name}.{content[3]} is no way to make a value")
            return dt.datetime.fromisoformat(given)
        return _made(code, made, given)


def _langchain() -> Mapping[str, type]:
    from langchain_core import documents, messages

    found = {name: getattr(messages, name) for name in messages.__all__} | {"Document": documents.Document}
    return {
        name: cls
        for name, cls in found.items()
        if isinstance(cls, type) and issubclass(cls, (messages.BaseMessage, documents.Document))
    }


def _made(code: int, made: Any, given: Any) -> Any:
    if code == SINGLE:
        return made(given)
    if code == POSITIONAL:
        return Send(given[0], given[1], timeout=given[2]) if made is Send and len(given) > 2 else made(*given)
    if code in (PYDANTIC_1, PYDANTIC_2) and issubclass(made, BaseModel):
        try:
            return made(**given)
        except ValueError:
            return made.model_construct(**given)
    if code in (KEYWORDS, PYDANTIC_1):
        return made(**given)
    raise ValueError(f"there is no extension type {code}")


def _array(dtype: str, shape: Any, order: Any, content: bytes) -> Any:
    import numpy as np

    kind = np.dtype(dtype)
    if kind.hasobject:
        raise ValueError("an array of pointers")
    return (
        np.frombuffer(content, dtype=kind).reshape(cast("tuple[int, ...]", tuple(shape)), order=order).copy(order="K")
    )
