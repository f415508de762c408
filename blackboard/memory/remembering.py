"""From what is said to what is stored: bodies are checked, given their vectors, and written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic import BaseModel

from blackboard.errors import ConfigError, EmbedderFailed, RecordConflict, RecordMissing
from blackboard.memory.embedder import Embedder, Space, checked, embedded, pack
from blackboard.memory.new import Body, Edit, New, Said
from blackboard.memory.paths import Paths
from blackboard.memory.record import Record
from blackboard.memory.records import Records
from blackboard.memory.sets import ready
from blackboard.telemetry import logger

__all__ = ["remember", "update"]

log = logger("memory")


async def remember(
    records: Records, paths: Paths, embedder: Embedder | None, items: Iterable[Said | New]
) -> list[Record]:
    """Store items in their order; all are checked, and the embedder is asked once for all, before the first is written."""
    _several(items)
    new = [item if isinstance(item, New) else New(item) for item in items]
    bodies = [Body.of(item, records.policy) for item in new]
    if not bodies:
        return []
    await ready(records)
    bodies = await _with_vectors(records, embedder, bodies, [item.embedding for item in new])
    await paths.enter(records.path)
    return await records.put_all(bodies)


def _several(items: Any) -> None:
    """Refuse a single thing: the letters of a text could be remembered one by one."""
    kind = type(items).__name__
    if isinstance(items, (str, bytes, Mapping, BaseModel)) or not isinstance(items, Iterable):
        raise ConfigError(
            f"what is remembered at once is a list of texts, models or New, got {kind}: {cast('object', items)!r:.80}; "
            "remember takes one of them",
            value=kind,
        )


async def update(records: Records, embedder: Embedder | None, id: str, edit: Edit, expected: int) -> Record:
    """Replace a record by its next version, if it has the version that is expected."""
    if type(expected) is not int or expected < 1:
        raise ConfigError(
            f"expected is the version that was read, a whole number from 1; got {expected!r}", value=expected
        )
    await ready(records)
    (stored,) = await records.fetch([id])
    ids = {"namespace": records.namespace, "path": records.path, "record": id}
    if stored is None:
        raise RecordMissing(f"record {id!r} is not in path {records.path!r}: nothing was written", **ids)
    found = stored.record.version
    if found != expected:
        raise RecordConflict(
            f"record {id!r} has version {found}, not {expected}: nothing was written", version=found, **ids
        )
    body = Body.edited(stored.record, stored.ttl, edit, records.policy)
    if body.without != "keep" or edit.embedding is not None:
        (body,) = await _with_vectors(records, embedder, [body], [edit.embedding])
    return await records.put(body, over=stored)


async def _with_vectors(
    records: Records, embedder: Embedder | None, bodies: Sequence[Body], given: Sequence[Sequence[float] | None]
) -> list[Body]:
    """Give bodies the vectors that came with them or that the embedder makes; if it fails, they are to get them later."""
    if embedder is None:
        if any(vector is not None for vector in given):
            raise ConfigError("an embedding was given, but no embedder says of which space; pass one to board.memory")
        return [replace(body, without="none") for body in bodies]
    space = Space.of(embedder)
    packed: list[bytes | None] = [
        None if vector is None else pack(checked([vector], space, 1), space)[0] for vector in given
    ]
    asked = [at for at, vector in enumerate(given) if vector is None]
    try:
        made = pack(await embedded(embedder, [bodies[at].text for at in asked]), space) if asked else []
        for at, vector in zip(asked, made, strict=True):
            packed[at] = vector
    except EmbedderFailed as failed:
        log.warning(
            "%d records are stored without vectors, to be embedded later: %s", len(asked), failed,
            extra={"namespace": records.namespace, "path": records.path},
        )  # fmt: skip
    return [replace(body, vector=vector, space=space.text()) for body, vector in zip(bodies, packed, strict=True)]
