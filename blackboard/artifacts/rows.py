"""The list of artifacts: a hint by which they are found again; each artifact's head is the truth."""

from __future__ import annotations

from collections.abc import AsyncIterator

from blackboard import keys
from blackboard.artifacts.head import Head
from blackboard.errors import CorruptValue
from blackboard.store.client import Store
from blackboard.store.members import members
from blackboard.telemetry import logger

__all__ = ["Row", "listed"]

PAGE = 100
"""Artifacts per page of a listing."""

log = logger("artifacts")


Row = tuple[str, Head | None, list[bytes]]
"""Digest, head and references of one row; the head is None if nothing is stored."""


async def listed(store: Store, number: int) -> AsyncIterator[list[Row]]:
    """Yield the rows in one shard of the list, page by page.

    The references are spelled owners and times in turn, read with the head. A damaged head is logged and passed over, so
    that it holds up neither those who look at the others nor their collection.
    """
    async for digests in members(store, keys.artifacts(number), PAGE):
        where = [keys.ArtifactKeys(digest) for digest in digests]
        found = await store.batch([("HGETALL", key) for one in where for key in (one.head, one.refs)])
        page: list[Row] = []
        for digest, flat, refs in zip(digests, found[::2], found[1::2], strict=True):
            try:
                page.append((digest, Head.of(digest, flat), refs))
            except CorruptValue as damaged:
                log.warning("an artifact was passed over: %s", damaged)
        yield page
