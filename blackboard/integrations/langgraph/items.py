"""A store's items as records: what is stored of one, and how it is read and kept alive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from typing import Any, cast

from langchain_core.messages.base import TextAccessor
from langchain_core.runnables.utils import AddableDict
from langgraph.store.base import Item, SearchItem

from blackboard import codec, keys
from blackboard.codec.classes import class_of, storable
from blackboard.errors import ConfigError
from blackboard.memory.new import EPOCH, Body
from blackboard.memory.record import Record, Token
from blackboard.memory.records import Records
from blackboard.memory.stored import Stored
from blackboard.quantities import seconds
from blackboard.store.script import Script

__all__ = ["ItemBody", "expecting", "item", "life_ms", "search_item", "spelled", "touch", "value_of"]

_TOUCH = Script("blackboard.integrations.langgraph", "touch.lua", prelude=("blackboard.claims:guard.lua",))

SLICE = 500
"""Records whose time one call begins anew."""


@dataclass(frozen=True, slots=True)
class ItemBody(Body):
    """An item on its way: its key is its id and its text, `vector` the vectors of its texts one after the other.

    What stands for its content is its key, for an item is never looked for by what it says: so a put knows what it
    replaces without asking, however many put the same key at once.
    """

    @property
    def digest(self) -> str:
        """What stands for the content."""
        return _digest(self.id or "")

    @property
    def stands(self) -> str:
        """The same, of whatever stands under the key."""
        return self.digest


def spelled(value: Mapping[str, Any], key: str) -> bytes:
    """Encode a value; EncodeError, naming the place, for what would not come back the same, ConfigError for what is no dict."""
    if not isinstance(value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(
            f"the value of item {key!r} must be a dict, got {type(value).__name__}: {value!r}", value=value
        )
    return codec.encode(dict(value), path=key, admit=_admit)


def life_ms(minutes: object) -> int | None:
    """Return for how many ms an item is kept; None for ever. ConfigError for what is no number of minutes above 0."""
    if minutes is None:
        return None
    if isinstance(minutes, bool) or not isinstance(minutes, (int, float)) or not minutes > 0:
        raise ConfigError(f"a ttl is a number of minutes above 0, or None for ever; got {minutes!r}", value=minutes)
    return max(1, round(seconds(minutes * 60, what="ttl") * 1000))


def expecting(records: Records, key: str, version: int) -> Stored:
    """Say of what is to be replaced which version it must have; 0: that there is nothing."""
    if type(version) is not int or version < 0:
        raise ConfigError(f"expected is a version that was read, or 0 for none; got {version!r}", value=version)
    stands = Record(keys.path_segments(records.path), key, key, Token(0, 0), version=version)
    return Stored(stands, None, None, _digest(key), None)


def item(namespace: tuple[str, ...], stored: Stored) -> Item:
    """Make the item of a record."""
    return Item(namespace=namespace, **_told(stored))


def search_item(namespace: tuple[str, ...], stored: Stored, score: float | None) -> SearchItem:
    """Make the item of a record that was found."""
    return SearchItem(namespace, score=score, **_told(stored))


async def touch(records: Records, ids: Sequence[str]) -> None:
    """Begin the time of items anew, of those that have one: one round trip for each 500."""
    for start in range(0, len(ids), SLICE):
        part = ids[start : start + SLICE]
        names = [name for one in part for name in (records.keys.record(one), records.keys.content(_digest(one)))]
        await records.store.call(_TOUCH, [records.keys.expiring, *names], part)


def value_of(record: Record) -> dict[str, Any]:
    """Return the value of an item; of what was remembered here in another way, its text."""
    value: object = record.value
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"text": record.text}


def _told(stored: Stored) -> dict[str, Any]:
    record = stored.record
    return {
        "key": record.id,
        "value": value_of(record),
        "created_at": EPOCH + timedelta(microseconds=record.created),
        "updated_at": EPOCH + timedelta(microseconds=record.updated),
    }


def _digest(key: str) -> str:
    return blake2b(key.encode(), digest_size=16, person=b"item").hexdigest()


def _admit(value: Any) -> Any:
    cls = class_of(value)
    if cls is TextAccessor:
        return str(value)  # what a message says is a text
    if cls is AddableDict:
        return dict(value)
    if storable(cls):
        raise ValueError(
            f"a store holds plain values, and {cls.__qualname__} is a class; put its fields (model_dump())"
        )
    return value
