"""Values of the standard library (and pydantic's own) that are stored under a tag of their own."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import fractions
import ipaddress
import pathlib
import re
import struct
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import pydantic.networks
from pydantic_core import TzInfo

__all__ = ["BY_CLASS", "BY_TAG", "Scalar", "float_bits", "float_from_bits", "text_bytes", "text_from_bytes"]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A class, its tag, and how its values become a plain value (str, int, float, bytes, None, lists of them) and back.

    `dump` raises ValueError with the reason for a value that it cannot keep.
    """

    tag: str
    cls: type
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


def float_bits(value: float) -> str:
    """The 8 bytes of a double in hex, so that a NaN keeps its payload."""
    return struct.pack(">d", value).hex()


def float_from_bits(text: str) -> float:
    """The double of these 8 bytes."""
    (value,) = struct.unpack(">d", bytes.fromhex(text))
    return float(value)


def text_bytes(value: str) -> str:
    """A str that is not valid Unicode (surrogates), in base64; pairs of them stay two code points."""
    return base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()


def text_from_bytes(text: str) -> str:
    """The str of these bytes."""
    return base64.b64decode(text, validate=True).decode("utf-8", "surrogatepass")


def _dump_zone(zone: dt.tzinfo | None) -> Any:
    if zone is None:
        return None
    if type(zone) is ZoneInfo:
        if not zone.key:
            raise ValueError("a ZoneInfo without key cannot be found again; use ZoneInfo(key)")
        return zone.key
    if type(zone) is dt.timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
        return ["offset", offset // dt.timedelta(microseconds=1), *name]
    if type(zone) is TzInfo:
        return ["pydantic", _dump_offset(zone)]
    raise ValueError(f"time zone of class {type(zone).__module__}.{type(zone).__qualname__}; use zoneinfo.ZoneInfo")


def _dump_offset(zone: dt.tzinfo) -> int:
    offset = zone.utcoffset(None)
    assert offset is not None
    return offset // dt.timedelta(seconds=1)


def _load_zone(stored: Any) -> dt.tzinfo | None:
    match stored:
        case None:
            return None
        case str():
            return ZoneInfo(stored)
        case ["offset", int(offset), *name]:
            return dt.timezone(dt.timedelta(microseconds=offset), *name)
        case ["pydantic", int(seconds)]:
            return TzInfo(seconds)
        case _:
            raise ValueError(f"not a time zone: {stored!r}")


def _dump_moment(value: Any) -> Any:
    text = value.replace(tzinfo=None).isoformat()
    return [text, value.fold, _dump_zone(value.tzinfo)] if value.fold or value.tzinfo is not None else text


def _load_moment(cls: Any) -> Callable[[Any], Any]:
    def load(stored: Any) -> Any:
        text, fold, zone = (stored, 0, None) if isinstance(stored, str) else stored
        return cls.fromisoformat(text).replace(fold=fold, tzinfo=_load_zone(zone))

    return load


def _load_bytes(stored: str) -> bytes:
    return base64.b64decode(stored, validate=True)


def _dump_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _dump_delta(value: dt.timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _dump_slice(value: slice) -> list[Any]:
    parts = [value.start, value.stop, value.step]
    if any(type(part) not in (int, type(None)) for part in parts):
        raise ValueError("a slice of anything but int")
    return parts


def _star(cls: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda stored: cls(*stored)


def _from_text(cls: Callable[[str], Any]) -> Callable[[Any], Any]:
    def load(stored: Any) -> Any:
        if not isinstance(stored, str):
            raise TypeError(f"{stored!r} is no str")
        return cls(stored)

    return load


def _by_text(*classes: type) -> Iterator[Scalar]:
    for cls in classes:
        yield Scalar(cls.__name__.lower(), cls, str, _from_text(cls))


def _urls() -> Iterator[Scalar]:
    names = (
        "AmqpDsn AnyHttpUrl AnyUrl AnyWebsocketUrl ClickHouseDsn CockroachDsn FileUrl FtpUrl HttpUrl KafkaDsn MariaDBDsn"
        " MongoDsn MySQLDsn NatsDsn PostgresDsn RedisDsn SnowflakeDsn WebsocketUrl"
    )
    found = (getattr(pydantic.networks, name, None) for name in names.split())
    yield from _by_text(*(cls for cls in found if isinstance(cls, type)))


_SCALARS = (
    Scalar("bytes", bytes, _dump_bytes, _load_bytes),
    Scalar("bytearray", bytearray, _dump_bytes, lambda stored: bytearray(_load_bytes(stored))),
    Scalar("complex", complex, lambda value: [value.real, value.imag], _star(complex)),
    Scalar("datetime", dt.datetime, _dump_moment, _load_moment(dt.datetime)),
    Scalar("date", dt.date, dt.date.isoformat, dt.date.fromisoformat),
    Scalar("time", dt.time, _dump_moment, _load_moment(dt.time)),
    Scalar("timedelta", dt.timedelta, _dump_delta, _star(dt.timedelta)),
    Scalar("timezone", dt.timezone, _dump_zone, _load_zone),
    Scalar("zoneinfo", ZoneInfo, _dump_zone, _load_zone),
    Scalar("tzinfo", TzInfo, _dump_zone, _load_zone),
    Scalar(
        "fraction", fractions.Fraction, lambda value: [value.numerator, value.denominator], _star(fractions.Fraction)
    ),
    Scalar("range", range, lambda value: [value.start, value.stop, value.step], _star(range)),
    Scalar("slice", slice, _dump_slice, _star(slice)),
    Scalar("pattern", re.Pattern, lambda value: [value.pattern, value.flags], _star(re.compile)),
    *_by_text(decimal.Decimal, uuid.UUID),
    *_by_text(pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath),
    *_by_text(ipaddress.IPv4Address, ipaddress.IPv4Network, ipaddress.IPv4Interface),
    *_by_text(ipaddress.IPv6Address, ipaddress.IPv6Network, ipaddress.IPv6Interface),
    *_urls(),
)

BY_CLASS = {scalar.cls: scalar for scalar in _SCALARS}
"""Scalars by exact class."""

BY_TAG = {scalar.tag: scalar for scalar in _SCALARS}
"""Scalars by tag."""
