"""Records without a vector: which there are, and the vectors that they get."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from blackboard.errors import EmbedderFailed, EmbedderMismatch
from blackboard.memory.embedder import Embedder, Space, embedded, pack
from blackboard.memory.records import Records
from blackboard.memory.writing import refusal
from blackboard.store.script import Script
from blackboard.telemetry import logger

__all__ = ["EMBEDDED", "embed", "parts", "sweep"]

LACKING = Script("blackboard.memory", "lacking.lua", prelude=("blackboard.claims:guard.lua", "path.lua"))

EMBEDDED = 64
"""Texts that the embedder is given at once."""

SLICE = 500
"""Records that are looked at by one script."""

log = logger("memory")


async def embed(records: Records, embedder: Embedder, *, strict: bool = False) -> int:
    """Make the vectors that are missing, and return how many.

    Stops where the embedder fails, or where the path's space is another one; with `strict` EmbedderFailed and
    EmbedderMismatch are raised. What was made stays.
    """
    space, made = Space.of(embedder).text(), 0
    waiting = sorted(row.decode() for row in await records.store.command("SMEMBERS", records.keys.pending))
    try:
        for part in parts(waiting, EMBEDDED):
            made += await _made(records, embedder, part, space)
    except (EmbedderFailed, EmbedderMismatch) as failed:
        if strict:
            raise
        log.warning("path %r: %d records still have no vector: %s", records.path, len(waiting) - made, failed)
    return made


async def _made(records: Records, embedder: Embedder, ids: Sequence[str], space: str) -> int:
    stored = (await records.tail(0, 1)).space
    if stored not in (None, space):
        raise refusal(records.namespace, records.path, ids[0], [b"SPACE", stored.encode()], space)
    found = [one.record for one in await records.fetch(ids) if one is not None]
    if not found:
        return 0
    made = 0
    vectors = pack(await embedded(embedder, [record.text for record in found]), Space.of(embedder))
    for record, vector in zip(found, vectors, strict=True):
        made += await records.set_vector(record.id, record.version, vector, space)
    return made


async def sweep(records: Records) -> int:
    """List every record that lacks a vector of the path's space as pending, and no other; returns how many.

    One that is written meanwhile is listed by its own write.
    """
    waiting = sorted(row.decode() for row in await records.store.command("SMEMBERS", records.keys.pending))
    for part in parts(waiting, SLICE):
        await _listed(records, part)
    after = total = 0
    while rows := await records.rows(after, SLICE):
        after = rows[-1][1]
        total += await _listed(records, [name for name, _ in rows])
    return total


async def _listed(records: Records, ids: Sequence[str]) -> int:
    where = records.keys
    names = [where.head, where.pending, *map(where.record, ids)]
    reply = await records.store.call(LACKING, names, ids)
    if reply[0] != b"OK":
        raise refusal(records.namespace, records.path, ids[0], reply)
    return int(reply[1])


def parts(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Cut a list into slices."""
    return (ids[start : start + size] for start in range(0, len(ids), size))
