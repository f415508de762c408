"""What beginning an effect answers: exactly one of these."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from blackboard import keys
from blackboard.claims.record import Semantics
from blackboard.claims.refusal import number, text
from blackboard.errors import ConfigError

__all__ = [
    "Busy",
    "Done",
    "Failed",
    "Mismatch",
    "Refusal",
    "Unknown",
    "check_bytes",
    "check_semantics",
    "check_text",
    "downstream_key",
    "refused",
]

LONGEST_DOWNSTREAM = 200
"""Longest key that is passed downstream, in characters; services commonly allow 255."""


@dataclass(frozen=True, slots=True)
class Done:
    """It happened: `result` is what was recorded by the attempt that won."""

    result: bytes
    attempt: int


@dataclass(frozen=True, slots=True)
class Failed:
    """It is over and will not be run again: recorded as failed for good, or abandoned by somebody who could decide."""

    error: bytes
    attempt: int
    state: Literal["failed", "abandoned"]


@dataclass(frozen=True, slots=True)
class Busy:
    """It is running now, under a lease that lasts `retry_after` seconds more unless renewed."""

    holder: str
    retry_after: float


@dataclass(frozen=True, slots=True)
class Unknown:
    """An at-most-once effect was started and not recorded: it may have happened. It is never run again by itself.

    Look outside (`external_ref`, or the downstream key), then resolve it. `started_at` is server time in microseconds;
    `fence` and `owner` say whose attempt it was.
    """

    key: str
    attempt: int
    started_at: int
    external_ref: str | None
    fence: int
    owner: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The key was used before with other arguments, whose `fingerprint` this is. Nothing was run or changed."""

    fingerprint: str


Refusal = Done | Failed | Busy | Unknown | Mismatch


def refused(key: str, reply: Sequence[Any]) -> Refusal | None:
    """Read the answer of a begin; None if it is none of these."""
    match text(reply[0]), reply[1:]:
        case "DONE", [attempt, result]:
            return Done(result, number(attempt))
        case "FAILED", [attempt, error, state]:
            return Failed(error, number(attempt), "abandoned" if state == b"abandoned" else "failed")
        case "BUSY", [holder, remaining]:
            return Busy(text(holder), remaining / 1000)
        case "UNKNOWN", [attempt, started, ref, fence, owner]:
            return Unknown(key, number(attempt), number(started), text(ref) or None, number(fence), text(owner))
        case "MISMATCH", [fingerprint]:
            return Mismatch(text(fingerprint))
        case _:
            return None


def check_semantics(semantics: Semantics) -> Semantics:
    """Return it unchanged; ConfigError if it is neither of the two."""
    if semantics not in get_args(Semantics):
        raise ConfigError(f"semantics must be one of {get_args(Semantics)}, got {semantics!r}", value=semantics)
    return semantics


def check_text(value: Any, what: str, *, least: int = 1) -> str:
    """Return it unchanged; ConfigError if it is no text of at least so many characters."""
    if not isinstance(value, str) or len(value) < least:
        raise ConfigError(f"{what} must be text{' that is not empty' * least}, not {value!r}", value=value)
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ConfigError(f"{what} {value!r} holds a lone surrogate; use valid text", value=value)
    return value


def check_bytes(value: bytes, what: str) -> bytes:
    """Return it unchanged; ConfigError if it is not bytes."""
    if not isinstance(value, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"{what} must be bytes, not {type(value).__name__}: encode it first", value=value)
    return value


def downstream_key(*ids: str) -> str:
    """Spell the key that a service downstream is given to recognise a repetition by; the same ids, the same key.

    Ids are percent-encoded and joined with colons, so different ids never share a key. A long one is cut and ends with
    the SHA-256 of the whole: at most 200 characters.
    """
    whole = ":".join(keys.encode(part, "part of a downstream key") for part in ids)
    if len(whole) <= LONGEST_DOWNSTREAM:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()
    return f"{whole[: LONGEST_DOWNSTREAM - len(digest) - 1]}#{digest}"
