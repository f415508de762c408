"""A record as it is stored, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha1
from typing import Any, cast

from blackboard import codec
from blackboard.errors import CorruptValue
from blackboard.keys import path_segments
from blackboard.memory.new import Body
from blackboard.memory.record import Record, Token

__all__ = ["LIGHT", "Stored", "answered", "labels", "light", "pairs", "parse", "tag"]

LIGHT: tuple[str, ...] = (
    "text", "value", "metadata", "importance", "pinned", "content", "subject", "ttl", "version", "seq", "created",
    "updated", "valid_from", "valid_until", "superseded_by", "expires", "vid", "of", "next_of", "next_vid",
)  # fmt: skip
"""The fields of a record, all but its vectors."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A record with what only the store and the index need to know.

    `vid` is the id of its vector of the space that was asked for, None if it has none; no other vector of that space has had
    it. `vector` are its bytes, if they were read. `content` is the digest of its content, `ttl` for how many ms after its
    last write it is kept.
    """

    record: Record
    vid: int | None
    vector: bytes | None
    content: str
    ttl: int | None


@lru_cache(maxsize=256)
def tag(space: str) -> bytes:
    """Shorten the text of an embedding space to what a vector is marked with: 16 hexadecimal digits, as path.lua does."""
    return sha1(space.encode(), usedforsecurity=False).hexdigest()[:16].encode()


def parse(
    path: str, incarnation: int, id: str, fields: Mapping[str, bytes | None], key: str, *, space: str | None
) -> Stored:
    """Read a record's hash, with its vector of a space; raises CorruptValue if it is not what was written."""
    try:
        told = {name: value for name, value in fields.items() if value is not None}
        return _parsed(path, incarnation, id, told, None if space is None else tag(space))
    except (KeyError, ValueError, TypeError, CorruptValue) as error:
        raise CorruptValue(f"record {id!r} of path {path!r} is not what was written: {error!r}", key=key) from error


def _parsed(path: str, incarnation: int, id: str, fields: Mapping[str, bytes], wanted: bytes | None) -> Stored:
    def number(name: str) -> int | None:
        return int(fields[name]) if name in fields else None

    def word(name: str) -> str | None:
        return fields[name].decode() if name in fields else None

    vid, vector = None, None
    for of, name_of_vid, name in (("of", "vid", "vector"), ("next_of", "next_vid", "next")):
        if vid is None and wanted is not None and fields.get(of) == wanted:
            vid, vector = int(fields[name_of_vid]), fields.get(name)
    record = Record(
        path_segments(path),
        id,
        fields["text"].decode(),
        Token(incarnation, int(fields["seq"])),
        int(fields["version"]),
        codec.decode(fields["value"]) if "value" in fields else None,
        subject=word("subject"),
        metadata=labels(codec.decode(fields["metadata"])),
        importance=float(fields["importance"]),
        created=int(fields["created"]),
        updated=int(fields["updated"]),
        valid_from=int(fields["valid_from"]),
        valid_until=number("valid_until"),
        expires=number("expires"),
        superseded_by=word("superseded_by"),
        pinned="pinned" in fields,
        embedded=vid is not None,
    )
    return Stored(record, vid, vector, fields["content"].decode(), number("ttl"))


def pairs(reply: Sequence[bytes]) -> dict[str, bytes | None]:
    """Read the reply of HGETALL."""
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def light(reply: Sequence[bytes | None]) -> dict[str, bytes | None]:
    """Read the reply of HMGET for all fields but the vectors."""
    return dict(zip(LIGHT, reply, strict=True))


def answered(path: str, id: str, body: Body, answer: bytes) -> Record:
    """Make the record that put.lua has stored of a body, from its answer."""
    words = [None if word == "-" else word for word in answer.decode().split(" ", 9)]
    incarnation, seq, version, vid, now, created, valid_from = (word or "" for word in words[:7])
    expires, valid_until, superseded_by = words[7:]
    return Record(
        path_segments(path),
        id,
        body.text,
        Token(int(incarnation), int(seq)),
        int(version),
        codec.decode(body.value) if body.value else None,
        subject=body.subject,
        metadata=body.metadata,
        importance=body.importance,
        created=int(created),
        updated=int(now),
        valid_from=int(valid_from),
        valid_until=None if valid_until is None else int(valid_until),
        expires=None if expires is None else int(expires),
        superseded_by=superseded_by or None,
        pinned=body.pinned,
        embedded=bool(vid),
    )


def labels(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Several values are a list where they are stored, and a tuple in a record, which is never changed."""
    return {
        name: tuple(cast("Sequence[Any]", value)) if type(value) is list else value for name, value in stored.items()
    }
