"""Artifacts whose bytes stand in the backend: chunks as strings in the slot of the digest."""

from __future__ import annotations

from blackboard import keys
from blackboard.artifacts.head import Head
from blackboard.artifacts.source import Source
from blackboard.points import reach
from blackboard.store.client import Store

__all__ = ["Chunks"]


class Chunks:
    """Writes, reads and removes the chunks of one backend.

    A chunk is written once under the id of its upload, with an expiry: only the script that completes the upload takes
    that away, and no late repetition of a write (NX) can bring it back.
    """

    def __init__(self, store: Store, upload_ttl: float) -> None:
        self._store, self._px = store, max(1, int(upload_ttl * 1000))

    async def write(self, source: Source, upload: str) -> str:
        """Write every chunk; returns the file that they stand in, which is none."""
        where = keys.ArtifactKeys(source.digest)
        async for number, data in source.chunks():
            reach("artifact", "chunk")
            await self._store.command("SET", where.chunk(upload, number), data, "PX", self._px, "NX")
        return ""

    async def read(self, head: Head, number: int) -> bytes | None:
        """Read one chunk; None if it is not there."""
        key = keys.ArtifactKeys(head.digest).chunk(head.upload, number)
        data: bytes | None = await self._store.command("GET", key)
        return data

    async def whole(self, head: Head) -> bool:
        """Tell whether every chunk is there."""
        there = await self._store.batch([("EXISTS", key) for key in head.chunks]) if head.chunks else []
        return all(there)
