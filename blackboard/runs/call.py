"""Pending calls: what a checkpoint says is to be done next, recorded before it is done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from blackboard import keys
from blackboard.codec import Types, decode, encode
from blackboard.errors import ConfigError, CorruptValue

__all__ = ["Call", "PendingCall", "Semantics", "check_calls", "read_calls", "spell_calls"]

Semantics = Literal["at-least-once", "at-most-once"]
Standing = Literal["waiting", "running", "unknown", "done", "failed", "abandoned"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call that is intended: `key` names it in its thread for ever (a tool call's id), `tool` what is called.

    Its effect stands under `key` in the scope of the thread, so it is the same effect whichever step performs it.
    """

    key: str
    tool: str
    args: Any = None
    semantics: Semantics = "at-least-once"

    def __post_init__(self) -> None:
        keys.check_id(self.key, "key of a call")
        if self.semantics not in ("at-least-once", "at-most-once"):
            raise ConfigError(
                f"semantics must be 'at-least-once' or 'at-most-once', got {self.semantics!r}", value=self.semantics
            )


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call of the newest checkpoint and where it stands.

    `standing` is waiting (never begun), running or unknown (begun by a driver who is gone, or by this one), done (then
    `result` holds what was recorded), failed or abandoned. `external_ref` is what the outside world called it.
    """

    call: Call
    standing: Standing
    result: Any = None
    attempt: int = 0
    external_ref: str | None = None

    @property
    def key(self) -> str:
        """The key of the call."""
        return self.call.key


def check_calls(calls: Iterable[Call]) -> tuple[Call, ...]:
    """Return the calls that a commit intends; raises ConfigError for what is no call and for a key that is used twice."""
    if isinstance(calls, Call) or not isinstance(calls, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"pending takes a list of Call(key, tool, ...), not {calls!r}", value=calls)
    found: dict[str, Call] = {}
    for call in calls:
        if not isinstance(call, Call):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not be typed
            raise ConfigError(f"pending takes Call(key, tool, ...), not {call!r}", value=call)
        if call.key in found:
            raise ConfigError(f"two pending calls have the key {call.key!r}; a key names one call", value=call.key)
        found[call.key] = call
    return tuple(found.values())


def spell_calls(calls: Sequence[Call]) -> bytes:
    """Encode the pending calls of a commit."""
    rows = [[call.key, call.tool, call.args, call.semantics] for call in calls]
    return encode(rows, path="pending") if rows else b""


def read_calls(data: bytes, types: Types | None = None) -> tuple[Call, ...]:
    """Decode the pending calls of a manifest."""
    rows: Sequence[Any] = decode(data, types=types) if data else ()
    try:
        return tuple(Call(*row) for row in rows)
    except TypeError as error:
        raise CorruptValue(f"pending calls are not what was written: {error}") from error
