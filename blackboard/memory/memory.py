"""The memory of one path: what agents learn outlives the run, and is found, corrected and forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from blackboard.keys import path_segments
from blackboard.memory import listing, remembering
from blackboard.memory.embedder import Embedder
from blackboard.memory.filters import Where
from blackboard.memory.listing import Changes, Page
from blackboard.memory.new import Edit, Labels, Life, New, Said
from blackboard.memory.paths import Paths
from blackboard.memory.record import Record, Token
from blackboard.memory.records import Records

__all__ = ["Memory"]


class Memory:
    """What is remembered at one path of a namespace. Made by `board.memory`; any number of tasks may use it at once.

    The records in the store are the truth, and every write is one script. Paths are compared segment by segment and byte
    by byte: nothing of one is ever seen from another that does not contain it.
    """

    def __init__(self, records: Records, paths: Paths, embedder: Embedder | None) -> None:
        self.records, self.paths, self.embedder = records, paths, embedder

    def __repr__(self) -> str:
        return f"<Memory {self.records.namespace}:{self.records.path}>"

    @property
    def path(self) -> tuple[str, ...]:
        """The segments of the path."""
        return path_segments(self.records.path)

    async def remember(
        self,
        what: Said,
        *,
        id: str | None = None,
        subject: str | None = None,
        metadata: Labels | None = None,
        importance: float = 0.5,
        valid_from: datetime | int | None = None,
        ttl: Life = "policy",
        embedding: Sequence[float] | None = None,
        pinned: bool = False,
    ) -> Record:
        """Remember a text or a model, and return the record, or the one that says exactly the same (`duplicate` is set).

        What is the same has equal text or model, subject and metadata; it is recognised atomically, whoever else writes.
        With an `id` of your own that id is the identity: what it stood for gets its next version. Of the records about a
        `subject` the one with the newest `valid_from` (default: now) is current; an older one is put into its history, and
        of equal ones the later counts. `ttl` is how long the record is kept after its last write. An `embedding` is taken
        instead of the embedder's. If the embedder fails the record is kept all the same, and gets its vector later.

        Raises ConfigError for wrong arguments, EmbeddingInvalid, EmbedderMismatch, StoreRegressed: nothing was written.
        """
        new = New(what, id, subject, metadata, importance, valid_from, ttl, embedding, pinned)
        return (await self.remember_all([new]))[0]

    async def remember_all(self, items: Iterable[Said | New]) -> list[Record]:
        """Remember many things, in their order, each as `remember` does; `New` says more about one than its text.

        All are checked, and the embedder is asked once, before the first is written. If a write fails, those before may be
        stored: the same call again finds them and stores the rest.
        """
        return await remembering.remember(self.records, self.paths, self.embedder, items)

    async def get(self, id: str) -> Record | None:
        """Read a record; None if it was never remembered, was forgotten or has expired."""
        return await self.records.get(id)

    async def update(
        self,
        id: str,
        *,
        expected: int,
        what: Said | None = None,
        metadata: Labels | None = None,
        importance: float | None = None,
        valid_from: datetime | int | None = None,
        ttl: Life = "keep",
        embedding: Sequence[float] | None = None,
        pinned: bool | None = None,
    ) -> Record:
        """Replace a record by its next version, if it still has the version `expected`; what is not given stays.

        A new text gets a new vector, as `remember` makes it. The record is kept for its `ttl` from now on. Raises
        RecordConflict with the stored version, RecordMissing, and as `remember`: nothing was written.
        """
        edit = Edit(what, metadata, importance, valid_from, ttl, embedding, pinned)
        return await remembering.update(self.records, self.embedder, id, edit, expected)

    async def history(self, subject: str, limit: int = 100) -> list[Record]:
        """Read the records about a subject, the current one first, at most `limit`."""
        return await listing.history(self.records, subject, limit)

    async def count(self, where: Where | None = None) -> int:
        """Count the records that are there, or those that a filter holds for, which reads them all."""
        return await listing.count(self.records, where)

    async def changes(self, after: Token | None = None, *, limit: int = 1000) -> Changes:
        """Read what changed after a token, at most `limit` entries, oldest first; StoreRegressed if it was not given out here."""
        return await listing.changes(self.records, after, limit)

    async def list(self, where: Where | None = None, *, limit: int = 100, after: int = 0) -> Page:
        """Read at most `limit` records that a filter holds for, in order of first write; `page.after` leads to the next.

        A record that is there from the first page to the last comes once. Raises ConfigError for a filter that is not
        understood.
        """
        return await listing.page(self.records, where, limit, after)
