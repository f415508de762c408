"""A chunk of a snapshot: packed rows, self-describing, of what a view needs to know of each record and nothing else.

Layout, little endian: magic, version, number of rows; a fingerprint (CRC-32) of each id, so that what is forgotten is
found without reading the rest; then one column after the other. What comes from a store is not trusted: the pointer
holds the length and the digest of every chunk, and nothing is unpacked that does not have them.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from blackboard.errors import CorruptValue
from blackboard.memory.record import Metadata, Record, Scalar, Token
from blackboard.memory.stored import Stored

__all__ = [
    "LONGEST_BYTES",
    "LONGEST_ROWS",
    "LONGEST_START",
    "Chunk",
    "fingerprints",
    "holds",
    "pack",
    "sealed",
    "unpack",
    "weight",
]

LONGEST_ROWS = 1024
"""Rows of a chunk: packed and read at 0.5 million rows/s in segments of this size (measured, loopback)."""

LONGEST_BYTES = 4 << 20
"""Bytes of a chunk: what one script or one reply carries without holding up the server for long."""

MAGIC, VERSION = b"bbch", 1
HEADER = struct.Struct("<4sHI")

LONGEST_START = HEADER.size + 4 * LONGEST_ROWS
"""How many bytes from the start of any chunk are enough for `holds`."""

ABSENT = -(1 << 63)
"""Stands for None in a column of numbers."""

LEFT_OUT = 0xFFFFFFFF
"""Stands for None in a column of bytes, in place of a length."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """What the pointer says of a chunk: its number in its generation, its digest (BLAKE2b, 128 bits), rows and bytes."""

    number: int
    digest: str
    rows: int
    size: int

    def open(self, data: bytes | None, path: tuple[str, ...], incarnation: int) -> list[Stored]:
        """Verify and unpack; CorruptValue for anything but exactly what was written."""
        if data is None or len(data) != self.size or _digest(data) != self.digest:
            raise CorruptValue(f"chunk {self.number} of the snapshot is not what was written", path=path)
        rows = unpack(data, path, incarnation)
        if len(rows) != self.rows:
            raise CorruptValue(f"chunk {self.number} of the snapshot has {len(rows)} rows, not {self.rows}", path=path)
        return rows


def sealed(number: int, rows: Sequence[Stored]) -> tuple[Chunk, bytes]:
    """Pack rows, and say of the chunk what the pointer has to."""
    data = pack(rows)
    return Chunk(number, _digest(data), len(rows), len(data)), data


def weight(row: Stored) -> int:
    """About how many bytes a row takes in a chunk, and never fewer."""
    record = row.record
    words = sum(map(len, (record.id, record.text, record.subject or "", record.superseded_by or "")))
    labels = sum(32 + len(name) + len(repr(value)) for name, value in record.metadata.items())
    return 256 + 4 * words + 6 * labels + len(row.vector or b"")


def fingerprints(ids: Iterable[str]) -> frozenset[int]:
    """Shorten ids to what a chunk can be asked for."""
    return frozenset(map(_fingerprint, ids))


def holds(start: bytes, wanted: frozenset[int]) -> bool:
    """Tell from the start of a chunk whether it may hold an id with one of these fingerprints; False is certain.

    A chunk that cannot be read may hold anything.
    """
    if len(start) < HEADER.size or HEADER.unpack_from(start)[:2] != (MAGIC, VERSION):
        return True
    count: int = HEADER.unpack_from(start)[2]
    if len(start) < HEADER.size + 4 * count:
        return True
    return not wanted.isdisjoint(struct.unpack_from(f"<{count}I", start, HEADER.size))


def pack(rows: Sequence[Stored]) -> bytes:
    """Write rows in their order."""
    records = [row.record for row in rows]
    numbers: Iterable[Sequence[int | None]] = (
        [record.token.seq for record in records],
        [record.version for record in records],
        [row.vid for row in rows],
        [record.created for record in records],
        [record.updated for record in records],
        [record.valid_from for record in records],
        [record.valid_until for record in records],
        [record.expires for record in records],
        [record.pinned for record in records],
    )
    parts = [HEADER.pack(MAGIC, VERSION, len(rows))]
    parts.append(struct.pack(f"<{len(rows)}I", *(_fingerprint(record.id) for record in records)))
    form = struct.Struct(f"<{len(rows)}q")
    parts += [form.pack(*(ABSENT if each is None else each for each in column)) for column in numbers]
    parts.append(struct.pack(f"<{len(rows)}d", *(record.importance for record in records)))
    parts += _strings([record.id.encode() for record in records])
    parts += _strings([record.text.encode() for record in records])
    parts += _strings([_bytes(record.subject) for record in records])
    parts += _strings([_bytes(record.superseded_by) for record in records])
    parts += _strings([row.vector for row in rows])
    parts += _strings([json.dumps([dict(record.metadata) for record in records], separators=(",", ":")).encode()])
    return b"".join(parts)


def unpack(data: bytes, path: tuple[str, ...], incarnation: int) -> list[Stored]:
    """Read what `pack` has written, without values, digests of content and TTLs; CorruptValue for anything else."""
    try:
        return list(_rows(_Reader(data), path, incarnation))
    except (struct.error, ValueError) as error:
        raise CorruptValue(f"not a chunk of a snapshot: {error}", path=path) from error


class _Reader:
    """The columns of a chunk, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        magic, version, self.rows = self._take(HEADER)
        if (magic, version) != (MAGIC, VERSION):
            raise ValueError(f"magic {magic!r}, version {version}")
        self._take(struct.Struct(f"<{self.rows}I"))

    def numbers(self) -> tuple[int | None, ...]:
        column = self._take(struct.Struct(f"<{self.rows}q"))
        return tuple(None if each == ABSENT else each for each in column) if ABSENT in column else column

    def whole(self) -> tuple[int, ...]:
        column: tuple[int, ...] = self._take(struct.Struct(f"<{self.rows}q"))
        return column

    def floats(self) -> tuple[float, ...]:
        column: tuple[float, ...] = self._take(struct.Struct(f"<{self.rows}d"))
        return column

    def strings(self, count: int) -> Iterator[bytes | None]:
        """One column of bytes; read it to its end before the next."""
        for length in self._take(struct.Struct(f"<{count}I")):
            if length == LEFT_OUT:
                yield None
                continue
            end = self._at + length
            if end > len(self._data):
                raise ValueError("it ends too early")
            yield self._data[self._at : end]
            self._at = end

    def texts(self) -> list[str | None]:
        return [None if each is None else each.decode() for each in self.strings(self.rows)]

    def end(self) -> None:
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes too many")

    def _take(self, form: struct.Struct) -> tuple[Any, ...]:
        values = form.unpack_from(self._data, self._at)
        self._at += form.size
        return values


def _rows(read: _Reader, path: tuple[str, ...], incarnation: int) -> Iterator[Stored]:
    seqs, versions, vids, created, updated = read.whole(), read.whole(), read.numbers(), read.whole(), read.whole()
    valid_from, valid_until, expires, pinned = read.whole(), read.numbers(), read.numbers(), read.whole()
    importance = read.floats()
    ids, texts, subjects, superseded = read.texts(), read.texts(), read.texts(), read.texts()
    vectors = list(read.strings(read.rows))
    (metadata,) = read.strings(1)
    read.end()
    labels = map(_labels, json.loads(metadata or b""))
    columns = zip(
        ids, texts, seqs, versions, subjects, labels, importance, created, updated, valid_from, valid_until, expires,
        superseded, pinned, vids, vectors, strict=True,
    )  # fmt: skip
    for name, text, seq, version, subject, told, weigh, born, at, since, until, end, by, pin, vid, vector in columns:
        if name is None or text is None:
            raise ValueError("a row without id or text")
        record = Record(
            path, name, text, Token(incarnation, seq), version=version, subject=subject, metadata=told,
            importance=weigh, created=born, updated=at, valid_from=since, valid_until=until, expires=end,
            superseded_by=by, pinned=bool(pin), embedded=vid is not None,
        )  # fmt: skip
        yield Stored(record, vid, vector, "", None)


def _labels(tree: dict[str, Scalar | list[Scalar]]) -> Metadata:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in tree.items()}


def _strings(values: Sequence[bytes | None]) -> list[bytes]:
    lengths = (LEFT_OUT if each is None else len(each) for each in values)
    return [struct.pack(f"<{len(values)}I", *lengths), *(each for each in values if each is not None)]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _fingerprint(id: str) -> int:
    return zlib.crc32(id.encode())


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
