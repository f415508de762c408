"""The lines of exported records: one JSON object each, told apart by `line`, checked as a whole before any is stored."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, TypeAdapter, ValidationError

from blackboard import codec
from blackboard.errors import ConfigError, CorruptValue, EmbeddingInvalid
from blackboard.keys import check_id
from blackboard.memory.embedder import Space, unpack, whole
from blackboard.memory.new import Body, beginning, labelled, microseconds, said, weight
from blackboard.memory.stored import Stored
from blackboard.quantities import LONGEST
from blackboard.settings import MemoryNamespace

__all__ = ["FORMAT", "VERSION", "End", "Header", "Line", "RecordLine", "checked", "records"]

FORMAT, VERSION = "blackboard-memory", 1
"""What a header says first; a change that older code would misread gets the next number."""

LONGEST_LINE = 64 << 20
"""Bytes of a line beyond which a file is none of ours."""


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else base64.b64decode(body, validate=True)


Base64 = Annotated[bytes, BeforeValidator(_bytes), PlainSerializer(lambda data: base64.b64encode(data).decode())]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def spell(self) -> bytes:
        """Return the line, its end included."""
        told = self.model_dump(mode="json", exclude_defaults=True) | {"line": getattr(self, "line", "")}
        return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class Header(_Line):
    """The first line: which path this is, when it was read, and the embedding space of the vectors."""

    line: Literal["header"] = "header"
    format: str
    version: int
    namespace: str
    path: list[str]
    time: int
    space: str | None = None


class RecordLine(_Line):
    """One record. Times are in µs, `ttl` in ms."""

    line: Literal["record"] = "record"
    id: str
    text: str
    value: Base64 = b""
    subject: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    importance: float = 0.5
    created: int
    updated: int
    valid_from: int
    valid_until: int | None = None
    superseded_by: str | None = None
    ttl: Annotated[int, Field(ge=1, le=round(LONGEST * 1000))] | None = None
    pinned: bool = False
    vector: Base64 = b""

    @classmethod
    def of(cls, stored: Stored, *, vectors: bool) -> RecordLine:
        """Say what is stored of a record."""
        record = stored.record
        return cls(
            id=record.id, text=record.text, value=b"" if record.value is None else codec.encode(record.value),
            subject=record.subject,
            metadata={name: list(one) if isinstance(one, tuple) else one for name, one in record.metadata.items()},
            importance=record.importance, created=record.created, updated=record.updated,
            valid_from=record.valid_from, valid_until=record.valid_until, superseded_by=record.superseded_by,
            ttl=stored.ttl, pinned=record.pinned, vector=(stored.vector or b"") if vectors else b"",
        )  # fmt: skip

    def body(self, policy: MemoryNamespace, space: Space | None, *, embeds: bool) -> Body:
        """Say what is to be stored; without a space that fits, the vector is left to be made if somebody embeds.

        Raises ConfigError, EmbeddingInvalid or CorruptValue for what could not have been remembered.
        """
        keeps = bool(self.vector) and space is not None
        if keeps and space is not None:
            whole(unpack(self.vector, space), space)
        if self.value:
            codec.decode(self.value)
        return Body(
            said(self.text, policy)[0], self.value, id=check_id(self.id, "record id"),
            subject=None if self.subject is None else check_id(self.subject, "subject"),
            metadata=labelled(self.metadata), importance=weight(self.importance),
            valid_from=beginning(self.valid_from), ttl=self.ttl, pinned=self.pinned,
            created=microseconds(self.created), vector=self.vector if keeps else None,
            space=space.text() if keeps and space is not None else "", without="pend" if embeds else "none",
        )  # fmt: skip


class End(_Line):
    """The last line: how many records there are, and the SHA-256 of the lines before."""

    line: Literal["end"] = "end"
    count: int
    sha256: str


Line = Annotated[Header | RecordLine | End, Field(discriminator="line")]

_LINES: TypeAdapter[Header | RecordLine | End] = TypeAdapter(Line)


def checked(file: BinaryIO, admit: Callable[[Header, RecordLine], object]) -> Header:
    """Read a whole file and return its header; ConfigError names the line that is wrong and what to do.

    `admit` is shown every record, and raises what `RecordLine.body` does for one that could not be stored.
    """
    name = getattr(file, "name", "the file")
    header, end, count, seal = None, None, 0, hashlib.sha256()
    for number, (data, line) in enumerate(_numbered(file, name), 1):
        if (number == 1) != isinstance(line, Header) or end is not None:
            raise _wrong(name, number, "it is not where such a line stands", "give one whole file that was exported")
        if isinstance(line, Header):
            header = _known(line, name)
        elif isinstance(line, End):
            end = line
            if (line.count, line.sha256) != (count, seal.hexdigest()):
                raise _wrong(name, number, "the lines before it are not those that were written", "export anew")
        elif header is not None:
            count += 1
            try:
                admit(header, line)
            except (ConfigError, CorruptValue, EmbeddingInvalid) as error:
                raise _wrong(name, number, f"record {line.id!r:.80}: {error}", "leave it out, or mend it") from error
        seal.update(data)
    if header is None or end is None:
        raise ConfigError(f"{name} is cut: its last line is missing; export anew", value=name)
    return header


def records(file: BinaryIO) -> Iterator[RecordLine]:
    """Read the records of a file that was checked."""
    for _, line in _numbered(file, getattr(file, "name", "the file")):
        if isinstance(line, RecordLine):
            yield line


def _numbered(file: BinaryIO, name: str) -> Iterator[tuple[bytes, Header | RecordLine | End]]:
    number = 0
    while data := file.readline(LONGEST_LINE):
        number += 1
        try:
            line = _LINES.validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            told = f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}".removeprefix(": ")
            raise _wrong(name, number, told, "give a file that was exported from a memory") from None
        yield data, line


def _known(header: Header, name: str) -> Header:
    if header.format != FORMAT:
        raise _wrong(name, 1, f"its format is {header.format!r}", "give a file that was exported from a memory")
    if header.version != VERSION:
        raise _wrong(name, 1, f"its version is {header.version}, known here is {VERSION}", "use a newer blackboard")
    return header


def _wrong(name: str, number: int, what: str, mend: str) -> ConfigError:
    return ConfigError(f"{name}, line {number}: {what}; {mend}", value=name, line=number)
