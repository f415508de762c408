"""One write under way: what its script is told, and what is learned from an answer that it was told too little."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from blackboard.errors import (
    BlackboardError,
    EmbedderMismatch,
    OutcomeUnknown,
    RecordConflict,
    RecordMissing,
    StoreRegressed,
)
from blackboard.keys import PathKeys
from blackboard.memory.new import Body
from blackboard.memory.record import Token
from blackboard.memory.stored import Stored
from blackboard.store.protocol import Part

__all__ = ["MOST_ASKED", "ROUNDS", "Forgotten", "Put", "Removal", "refusal"]

ROUNDS = 12
"""How often a write is told that what it stands on has moved before it gives up."""

MOST_ASKED = 1000
"""How many records around its own a write looks at in one round, at most: those that expired are passed over."""

Call = tuple[list[str], list[Part]]


@dataclass(slots=True)
class _Write:
    """What every write knows: its op id, the record that it is about, and what was learned of the records around."""

    keys: PathKeys
    op: str
    id: str
    content: str = ""
    subject: str = ""
    near: list[str] = field(default_factory=list[str])
    rounds: int = 0

    def learn(self, reply: Sequence[Any]) -> None:
        """Take over what a MOVED says, and look further in the next round."""
        self.content, self.subject = reply[1].decode(), reply[2].decode()
        self.near = [*dict.fromkeys([*self.near, *(one.decode() for one in reply[3])])]
        self.rounds += 1

    def _fixed(self) -> list[str]:
        where = self.keys
        return [
            where.head, where.log, where.order, where.expiring, where.subjects, where.pending, where.ops,
            where.record(self.id),
        ]  # fmt: skip

    def _about(self, subject: str | None) -> str:
        """The list of a subject; the record's own key, of which no list is made, where there is none."""
        return self.keys.subject(subject) if subject else self.keys.record(self.id)

    def _told(self, keep_ms: int, known: Token | None) -> list[Part]:
        incarnation, seq = ("", 0) if known is None else (known.incarnation, known.seq)
        return [self.op, keep_ms, incarnation, seq, self.id]

    def _near(self) -> list[str]:
        return [self.keys.record(one) for one in self.near]

    @property
    def _reach(self) -> int:
        return min(int(4**self.rounds), MOST_ASKED)


@dataclass(slots=True)
class Put(_Write):
    """A body on its way; `id` is made up where the body names none, and then an equal content is found instead.

    `indexed` is "1" where the server is to search the vectors of the path, from the first one on.
    """

    body: Body = field(kw_only=True)
    expected: int | None = None
    indexed: str = ""

    @classmethod
    def of(cls, keys: PathKeys, body: Body, over: Stored | None = None, *, indexed: str = "") -> Put:
        """Begin a write, over the version that was read if there is one; it gets its op id when it is sent."""
        put = cls(
            keys,
            "",
            body.id or secrets.token_hex(12),
            content=body.stands,
            subject=body.subject or "",
            body=body,
            indexed=indexed,
        )
        if over is not None:
            put.expected, put.content, put.subject = over.record.version, over.content, over.record.subject or ""
        return put

    @property
    def size(self) -> int:
        """About how many bytes are sent."""
        body = self.body
        return 1000 + 4 * len(body.text) + len(body.value) + len(body.vector or b"")

    def call(self, keep_ms: int, known: Token | None) -> Call:
        """Spell the keys and arguments of put.lua."""
        body, where = self.body, self.keys
        digest = body.digest
        names = [
            *self._fixed(), where.content(digest), where.same(digest), where.content(self.content or digest),
            where.same(self.content or digest), self._about(body.subject), self._about(self.subject), where.vectors,
            where.sources, where.contents, *self._near(),
        ]  # fmt: skip
        args = [
            *self._told(keep_ms, known), "" if self.expected is None else self.expected, self.content, self.subject,
            int(body.id is None), self._reach, digest, body.subject or "", _number(body.valid_from),
            _number(body.created), _number(body.ttl), body.text, body.value, body.labels, repr(body.importance),
            "1" if body.pinned else "", body.space if body.vector else "", body.vector or b"", body.without, self.indexed,
            *self.near,
        ]  # fmt: skip
        return names, args


@dataclass(slots=True)
class Removal(_Write):
    """A record on its way out; `only` is a version, `expired`, or empty for whatever stands."""

    only: str = ""

    def call(self, keep_ms: int, known: Token | None) -> Call:
        """Spell the keys and arguments of forget.lua."""
        where = self.keys
        none = where.record(self.id)
        content, same = (where.content(self.content), where.same(self.content)) if self.content else (none, none)
        names = [*self._fixed(), content, same, self._about(self.subject), where.vectors, where.sources, where.contents]
        names += self._near()
        args = [*self._told(keep_ms, known), self.only, self.content, self.subject, self._reach, *self.near]
        return names, args


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A record that was removed: its id, the version and digest of its content; version 0 of one that had expired."""

    id: str
    version: int
    content: str
    token: Token

    @classmethod
    def of(cls, id: str, answer: bytes, incarnation: int) -> Forgotten:
        """Read the answer of forget.lua."""
        seq, version, content = answer.decode().split(" ")
        return cls(id, int(version), content, Token(incarnation, int(seq)))


def refusal(namespace: str, path: str, id: str, reply: Sequence[Any], space: str = "") -> BlackboardError:
    """Return the error that an answer of one of the scripts stands for."""
    ids: dict[str, Any] = {"namespace": namespace, "path": path, "record": id}
    match reply[0]:
        case b"ABSENT":
            return RecordMissing(f"record {id!r} is not in path {path!r}: nothing was written", **ids)
        case b"CONFLICT":
            version = int(reply[1])
            return RecordConflict(
                f"record {id!r} has version {version} meanwhile: nothing was written", version=version, **ids
            )
        case b"SPACE":
            stored = reply[1].decode()
            return EmbedderMismatch(
                f"the vectors of path {path!r} come from {stored}, not from {space}: nothing was written; use that "
                "embedder, or migrate",
                stored=stored, offered=space, **ids,
            )  # fmt: skip
        case b"REGRESSED":
            lost = reply[1].decode()
            return StoreRegressed(
                f"the store has lost what it had acknowledged about path {path!r}: its {lost} is not what it was",
                lost=lost, **ids,
            )  # fmt: skip
        case b"MOVED":
            return OutcomeUnknown(
                f"the records around {id!r} are changed by others all the time; nothing was written", **ids
            )
        case _:
            return OutcomeUnknown(f"a write of record {id!r} was answered too late: it may have been applied", **ids)


def _number(value: int | None) -> Part:
    return "" if value is None else value
