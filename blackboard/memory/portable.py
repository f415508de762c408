"""The records of a path as a file, and back: JSON lines, checked as a whole before anything is stored."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO, Literal

from blackboard.errors import ConfigError
from blackboard.keys import path_segments
from blackboard.memory.embedder import Embedder, Space
from blackboard.memory.lines import FORMAT, VERSION, End, Header, RecordLine, checked, records
from blackboard.memory.new import Body
from blackboard.memory.paths import Paths
from blackboard.memory.records import Records
from blackboard.memory.sets import ready

__all__ = ["Existing", "Imported", "export", "import_"]

PAGE = 200
"""Records read, or stored, at once."""

Existing = Literal["refuse", "keep", "replace"]
"""What becomes of records whose ids are in the file and in the path."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import came to: records `stored`, and those that were there already and `kept`."""

    stored: int
    kept: int


async def export(source: Records, *, vectors: bool = True) -> AsyncIterator[bytes]:
    """Yield every record as a line, in order of first write, between a header and an end.

    The last line carries the count and the SHA-256 of the lines before. What is written meanwhile may come or not. What a
    consolidation has put together comes as the one record that stands for it.
    """
    tail = await source.tail(0, 1)
    head = Header(
        format=FORMAT, version=VERSION, namespace=source.namespace, path=[*path_segments(source.path)],
        time=source.store.server_time(), space=tail.space if vectors else None,
    )  # fmt: skip
    seal, count = hashlib.sha256(), 0
    line = head.spell()
    seal.update(line)
    yield line
    async for page in source.walk(PAGE, vectors=vectors, space=tail.space):
        for stored in page:
            if stored.record.superseded_by is not None and stored.record.subject is None:
                continue
            line = RecordLine.of(stored, vectors=vectors).spell()
            seal.update(line)
            count += 1
            yield line
    yield End(count=count, sha256=seal.hexdigest()).spell()


async def import_(
    target: Records, paths: Paths, embedder: Embedder | None, file: BinaryIO, existing: Existing
) -> Imported:
    """Store the records of a file in a path, under their ids; `existing` says what of those that are there already.

    Vectors are taken over if they are of the embedder's space; else the records are to be embedded when the path is tended.
    """
    if existing not in ("refuse", "keep", "replace"):
        raise ConfigError(f"existing is refuse, keep or replace, got {existing!r}", value=existing)
    _readable(file)
    start = file.tell()
    space = None if embedder is None else Space.of(embedder)

    def body(header: Header, line: RecordLine) -> Body:
        fits = space is not None and space.text() == header.space
        return line.body(target.policy, space if fits else None, embeds=space is not None)

    header = checked(file, body)
    file.seek(start)
    if existing == "refuse":
        await _refuse(target, file)
        file.seek(start)
    await ready(target)
    await paths.enter(target.path)
    stored = kept = 0
    lines = records(file)
    while page := [*islice(lines, PAGE)]:
        if existing == "keep":
            there = {one.record.id for one in await target.fetch([line.id for line in page]) if one is not None}
            kept += len(there)
            page = [line for line in page if line.id not in there]
        await target.put_all([body(header, line) for line in page])
        stored += len(page)
    return Imported(stored, kept)


def _readable(file: Any) -> None:
    """Refuse what is not a file of bytes that can be read more than once."""
    if not (hasattr(file, "seekable") and file.seekable() and isinstance(file.readline(0), bytes)):
        raise ConfigError(
            f"an import reads a file of bytes twice, such as open(path, 'rb') or io.BytesIO, got {type(file).__name__}",
            value=type(file).__name__,
        )


async def _refuse(target: Records, file: BinaryIO) -> None:
    lines = records(file)
    while page := [line.id for line in islice(lines, PAGE)]:
        for found in await target.fetch(page):
            if found is not None:
                raise ConfigError(
                    f"record {found.record.id!r} is in path {target.path!r} already, nothing was stored; say whether what "
                    "is there is to be kept or replaced",
                    value=found.record.id,
                )
