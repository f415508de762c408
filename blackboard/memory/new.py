"""What is to be remembered: checked whole before anything is sent, and spelled as it is stored."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Literal, cast

from pydantic import BaseModel

from blackboard import codec
from blackboard.errors import ConfigError
from blackboard.keys import check_id
from blackboard.memory.record import Metadata, Record, Scalar
from blackboard.quantities import seconds
from blackboard.settings import MemoryNamespace

__all__ = [
    "Body",
    "Edit",
    "Labels",
    "Life",
    "New",
    "Said",
    "beginning",
    "check_text",
    "labelled",
    "microseconds",
    "said",
    "weight",
]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FURTHEST = 1 << 58
"""Most µs from 1970 to a time: every datetime is nearer."""

Life = float | str | timedelta | None
"""How long a record is kept after its last write: a duration, None for ever, `policy` as its namespace says, `keep` as before."""

Labels = Mapping[str, Scalar | Sequence[Scalar]]
"""Metadata as they are given: names to single values, or to several in a list or tuple."""

Said = str | BaseModel
"""What can be remembered: a text, or a model, which is kept beside the text that it is found by."""


@dataclass(frozen=True, slots=True)
class New:
    """One thing to remember, with all that can be said about it; see `Memory.remember`."""

    what: Said
    id: str | None = None
    subject: str | None = None
    metadata: Labels | None = None
    importance: float = 0.5
    valid_from: datetime | int | None = None
    ttl: Life = "policy"
    embedding: Sequence[float] | None = None
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Edit:
    """What is to become of a record; None, and a `ttl` of `keep`, leave as it is. See `Memory.update`."""

    what: Said | None = None
    metadata: Labels | None = None
    importance: float | None = None
    valid_from: datetime | int | None = None
    ttl: Life = "keep"
    embedding: Sequence[float] | None = None
    pinned: bool | None = None


@dataclass(frozen=True, slots=True)
class Body:
    """One write as it is stored; times in µs, `ttl` in ms. A `valid_from` or `created` of None is the time of the write.

    Without a vector, `without` says what that means: keep the one that stands, make it later, or do without.
    """

    text: str
    value: bytes = b""
    id: str | None = None
    subject: str | None = None
    metadata: Metadata = field(default_factory=dict[str, Scalar | tuple[Scalar, ...]])
    importance: float = 0.5
    valid_from: int | None = None
    ttl: int | None = None
    pinned: bool = False
    created: int | None = None
    vector: bytes | None = None
    space: str = ""
    without: Literal["keep", "pend", "none"] = "pend"

    @classmethod
    def of(cls, new: New, policy: MemoryNamespace) -> Body:
        """Check what is to be remembered; raises ConfigError that names what is wrong and how to mend it."""
        text, value = said(new.what, policy)
        return cls(
            text,
            value,
            id=None if new.id is None else check_id(new.id, "record id"),
            subject=None if new.subject is None else check_id(new.subject, "subject"),
            metadata=labelled(new.metadata or {}),
            importance=weight(new.importance),
            valid_from=None if new.valid_from is None else beginning(new.valid_from),
            ttl=life(new.ttl, policy),
            pinned=flag(new.pinned),
        )

    @classmethod
    def edited(cls, stored: Record, ttl: int | None, edit: Edit, policy: MemoryNamespace) -> Body:
        """Apply an edit to a record that is kept for `ttl` ms; raises ConfigError as `of`. Its vector stays if its text does."""
        value = b"" if stored.value is None else codec.encode(stored.value)
        text, value = (stored.text, value) if edit.what is None else said(edit.what, policy)
        return cls(
            text,
            value,
            id=stored.id,
            subject=stored.subject,
            metadata=stored.metadata if edit.metadata is None else labelled(edit.metadata),
            importance=stored.importance if edit.importance is None else weight(edit.importance),
            valid_from=stored.valid_from if edit.valid_from is None else beginning(edit.valid_from),
            ttl=ttl if edit.ttl == "keep" else life(edit.ttl, policy),
            pinned=stored.pinned if edit.pinned is None else flag(edit.pinned),
            without="keep" if text == stored.text else "pend",
        )

    @property
    def labels(self) -> bytes:
        """The metadata as it is stored: names in order, so that equal metadata are equal bytes."""
        return codec.encode({name: _plain(self.metadata[name]) for name in sorted(self.metadata)})

    @property
    def digest(self) -> str:
        """What is equal for equal contents: BLAKE2b, 128 bits, of text or value, subject and metadata."""
        content: list[Any] = [self.value or self.text, self.subject, self.labels]
        return blake2b(codec.encode(content), digest_size=16).hexdigest()

    @property
    def stands(self) -> str:
        """The digest of what stands under its id already, where the writer knows it without asking; empty where not."""
        return ""


def said(what: Said, policy: MemoryNamespace) -> tuple[str, bytes]:
    """Return the text that something is found by, and a model's fields, encoded; a text has none.

    A model's text is what its method `memory_text` returns if it has one, else its fields, one `name: value` a line.
    """
    if isinstance(what, BaseModel):
        told = getattr(what, "memory_text", None)
        text = told() if callable(told) else _lines(what)
        value = codec.encode(what.model_dump(mode="python"), path=type(what).__name__)
    else:
        text, value = what, b""
    return _text(text, policy), value


def life(ttl: Life, policy: MemoryNamespace) -> int | None:
    """Return for how many ms a record is kept; None: until somebody forgets it."""
    kept = policy.ttl if ttl == "policy" else ttl
    return None if kept is None else max(1, round(seconds(kept, what="ttl") * 1000))


def weight(importance: float) -> float:
    """Check an importance."""
    if type(importance) not in (int, float) or not 0 <= importance <= 1:
        raise ConfigError(f"importance must be a number from 0 to 1, got {importance!r}", value=importance)
    return float(importance)


def flag(pinned: bool) -> bool:
    """Check whether a record is pinned."""
    if not isinstance(pinned, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not be typed
        raise ConfigError(f"pinned must be True or False, got {pinned!r}", value=pinned)
    return pinned


def microseconds(moment: datetime | int) -> int:
    """Return a time in µs since 1970; a datetime must say which time zone it is in."""
    since = moment
    if isinstance(moment, datetime):
        if moment.utcoffset() is None:
            raise ConfigError(f"{moment!r} has no time zone; say which, such as tzinfo=timezone.utc", value=moment)
        since = (moment - EPOCH) // timedelta(microseconds=1)
    if type(since) is not int or abs(since) > FURTHEST:
        raise ConfigError(f"a time is a datetime with a time zone, or µs since 1970; got {moment!r}", value=moment)
    return since


def beginning(moment: datetime | int) -> int:
    """Return a time from which something is valid, in µs, as it can be sorted: the last 64-bit float that is not after it.

    That is the time itself from 1684 to 2255, and for whole seconds in every year of a datetime; else it is within 32 µs.
    """
    since = microseconds(moment)
    near = float(since)
    return int(near if near <= since else math.nextafter(near, -math.inf))


def labelled(metadata: Labels) -> dict[str, Scalar | tuple[Scalar, ...]]:
    """Check metadata; several values become a tuple."""
    if not isinstance(metadata, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not be typed
        raise ConfigError(f"metadata is a dict of names to values, got {metadata!r}", value=metadata)
    return {check_id(name, "a name of metadata"): _labels(name, value) for name, value in metadata.items()}


def _labels(name: str, value: object) -> Scalar | tuple[Scalar, ...]:
    if isinstance(value, (list, tuple)):
        return tuple(_label(name, one) for one in cast("Sequence[object]", value))
    return _label(name, value)


def _label(name: str, value: object) -> Scalar:
    if type(value) is str:
        return check_text(value, f"metadata {name!r}")
    if value is None or type(value) in (bool, int) or (type(value) is float and math.isfinite(value)):
        return cast("Scalar", value)
    raise ConfigError(
        f"metadata {name!r} must be text, a finite number, a boolean, None or a list of them, got {value!r}",
        value=value,
    )


def check_text(text: str, what: str) -> str:
    """Return a text unchanged that can be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{what} {text[:40]!r} holds a lone surrogate; use valid text", value=text) from None
    return text


def _text(text: object, policy: MemoryNamespace) -> str:
    if not isinstance(text, str):
        raise ConfigError(
            f"what is remembered is a text or a model, got {type(text).__name__}: {text!r:.80}", value=text
        )
    if not text.strip():
        raise ConfigError(f"there is nothing to remember in {text!r}; give it a text", value=text)
    size = len(check_text(text, "text").encode())
    if size > policy.text_limit:
        raise ConfigError(
            f"a text of {size} bytes is longer than text_limit, {policy.text_limit}; cut it, or keep it as an artifact "
            "and remember what it says",
            value=size,
        )
    return text


def _lines(model: BaseModel) -> str:
    fields = {name: getattr(model, name) for name in type(model).model_fields} | (model.model_extra or {})
    return "\n".join(f"{name}: {_spelled(value)}" for name, value in fields.items() if value is not None)


def _spelled(value: object) -> str:
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(map(str, cast("Sequence[object]", value)))
    return str(value)


def _plain(value: Scalar | tuple[Scalar, ...]) -> Any:
    return list(value) if isinstance(value, tuple) else value
