"""The judge of sameness: equal, of the same types all the way down, with everything that `==` overlooks."""

# ruff: noqa: PLR0911 - one line per kind of value
from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import math
import struct
from typing import Any

import numpy as np
from pydantic import BaseModel


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, float) and not isinstance(a, np.generic):
        return struct.pack(">d", a) == struct.pack(">d", b)
    if isinstance(a, complex) and not isinstance(a, np.generic):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, decimal.Decimal):
        return bool(a.as_tuple() == b.as_tuple())
    if isinstance(a, np.generic):
        return bool(a.dtype == b.dtype and a.tobytes() == b.tobytes())
    if isinstance(a, np.ndarray):
        return same_arrays(a, b)
    if isinstance(a, dt.datetime | dt.time):
        zones = same_zones(a.tzinfo, b.tzinfo)
        return a.replace(tzinfo=None) == b.replace(tzinfo=None) and a.fold == b.fold and zones
    return same_containers(a, b)


def same_zones(a: dt.tzinfo | None, b: dt.tzinfo | None) -> bool:
    return type(a) is type(b) and str(a) == str(b) and getattr(a, "key", None) == getattr(b, "key", None)


def same_arrays(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    like = a.dtype == b.dtype and a.dtype.byteorder == b.dtype.byteorder and a.shape == b.shape and b.flags.writeable
    fortran = [array.flags.f_contiguous and not array.flags.c_contiguous for array in (a, b)]
    if fortran[0] != fortran[1]:
        return False
    if a.dtype == object:
        return like and all(same(x, y) for x, y in zip(a.flat, b.flat, strict=True))
    return like and repr(a.tolist()) == repr(b.tolist())


def same_containers(a: Any, b: Any) -> bool:
    if isinstance(a, BaseModel):
        parts = ("__dict__", "__pydantic_extra__", "__pydantic_private__", "__pydantic_fields_set__")
        return all(same(getattr(a, part), getattr(b, part)) for part in parts)
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, enum.Enum):
        return a is b
    if isinstance(a, collections.deque):
        return a.maxlen == b.maxlen and same(list(a), list(b))
    if isinstance(a, collections.defaultdict) and a.default_factory is not b.default_factory:
        return False
    if isinstance(a, dict):
        return len(a) == len(b) and all(map(same, list(a), list(b))) and all(map(same, a.values(), b.values()))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, set | frozenset):
        return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
    return bool(a == b) or (isinstance(a, float) and math.isnan(a))
