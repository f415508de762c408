"""The records of a thread's effects: netstring-like frames, `<length>:<bytes>` joined, as records.lua spells them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from blackboard.errors import CorruptValue

__all__ = ["OpenEffect", "Semantics", "SettledEffect", "SettledState", "Settlement", "body_kind", "pack", "unpack"]

Semantics = Literal["at-least-once", "at-most-once"]
SettledState = Literal["done", "failed", "retry", "abandoned"]


def pack(*items: bytes | str | int) -> bytes:
    """Spell items as frames; a prefix of the items is a prefix of the bytes."""
    raw = [item if isinstance(item, bytes) else str(item).encode() for item in items]
    return b"".join(b"%d:%b" % (len(item), item) for item in raw)


def body_kind(state: str) -> str:
    """Say what the body of a settled record is; sealed, neither can be put in place of the other."""
    return "result" if state == "done" else "error"


def unpack(data: bytes) -> list[bytes]:
    """Read frames; CorruptValue if the bytes are none."""
    items: list[bytes] = []
    at = 0
    while at < len(data):
        colon = data.find(b":", at)
        size = data[at:colon]
        if colon < 0 or not size.isdigit() or colon + 1 + int(size) > len(data):
            raise CorruptValue(f"bytes are not frames at {at}: {data[at : at + 20]!r}")
        at = colon + 1 + int(size)
        items.append(data[colon + 1 : at])
    return items


@dataclass(frozen=True, slots=True)
class OpenEffect:
    """An effect that is running or whose outcome is unknown. `started_at` is server time in microseconds.

    `running` says that it began under `fence`: if that grant is not the newest any more, its outcome is unknown.
    """

    key: str
    fence: int
    owner: str
    attempt: int
    started_at: int
    semantics: Semantics
    fingerprint: str
    external_ref: str | None
    op: str
    state: Literal["running", "unknown"]

    @classmethod
    def parse(cls, key: bytes, data: bytes) -> OpenEffect:
        """Read a stored record; CorruptValue names the effect."""
        fence, owner, attempt, started, semantics, fingerprint, ref, op, state = _fields(key, data, 9)
        return cls(
            key.decode(), int(fence), owner, int(attempt), int(started), cast("Semantics", semantics), fingerprint,
            ref or None, op, cast('Literal["running", "unknown"]', state),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SettledEffect:
    """An effect whose attempt is over. `retry` may run again; `checkpoint` names the commit that settled it, if one did.

    `result` is the encoded result or error, `settled_at` server time in microseconds.
    """

    key: str
    checkpoint: str | None
    settled_at: int
    state: SettledState
    attempt: int
    fingerprint: str
    op: str
    fence: int
    owner: str
    begun: str
    result: bytes

    @classmethod
    def parse(cls, key: bytes, data: bytes) -> SettledEffect:
        """Read a stored record; CorruptValue names the effect."""
        *fields, result = _split(key, data, 10)
        checkpoint, settled, state, attempt, fingerprint, op, fence, owner, begun = (part.decode() for part in fields)
        return cls(
            key.decode(), checkpoint or None, int(settled), cast("SettledState", state), int(attempt), fingerprint,
            op, int(fence), owner, begun, result,
        )  # fmt: skip

    def spell(self) -> bytes:
        """Spell the record as it is stored."""
        return pack(
            self.checkpoint or "", self.settled_at, self.state, self.attempt, self.fingerprint, self.op, self.fence,
            self.owner, self.begun, self.result,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a commit needs to settle an effect together with the state.

    The commit may do so only if the open record under `key` starts with `expect`. `record` is the settled record; it
    begins with an empty checkpoint, which `within` fills in.
    """

    key: str
    expect: bytes
    record: bytes

    def within(self, checkpoint: str) -> bytes:
        """Return the record as the commit that writes `checkpoint` stores it: it counts once that is reached."""
        return pack(checkpoint) + self.record[len(pack("")) :]


def _split(key: bytes, data: bytes, count: int) -> list[bytes]:
    items = unpack(data)
    if len(items) != count:
        raise CorruptValue(f"the record of effect {key!r} has {len(items)} frames, not {count}", effect=key.decode())
    return items


def _fields(key: bytes, data: bytes, count: int) -> list[str]:
    return [item.decode() for item in _split(key, data, count)]
