"""The memory of one path: what agents learn outlives the run, and is found, corrected and forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, BinaryIO

from blackboard.errors import ConfigError
from blackboard.keys import path_segments
from blackboard.memory import consolidation, forgetting, listing, migration, portable, remembering
from blackboard.memory.consolidation import Applied, Merge, Merged, Plan
from blackboard.memory.embedder import Embedder, Space
from blackboard.memory.filters import Where
from blackboard.memory.forgetting import Selection, Why
from blackboard.memory.listing import Changes, Page
from blackboard.memory.migration import Comparison, Migrated, Standing
from blackboard.memory.new import Edit, Labels, Life, New, Said
from blackboard.memory.paths import Paths
from blackboard.memory.portable import Existing, Imported
from blackboard.memory.receipt import Receipt
from blackboard.memory.record import Record, Token, checked
from blackboard.memory.records import Records
from blackboard.memory.sets import ready, refuse, served
from blackboard.memory.upkeep import Tended, Tending, tended

if TYPE_CHECKING:
    from blackboard.memory.finding import Report
    from blackboard.memory.pointer import Pointer
    from blackboard.memory.recall import Consistency, Recall
    from blackboard.memory.snapshot import Progress
    from blackboard.memory.survivors import Survivors
    from blackboard.memory.view import View
    from blackboard.memory.views import Views

__all__ = ["Memory"]


class Memory:
    """What is remembered at one path of a namespace. Made by `board.memory`; any number of tasks may use it at once.

    The records in the store are the truth, and every write is one script. Paths are compared segment by segment and byte
    by byte: nothing of one is ever seen from another that does not contain it.
    """

    def __init__(
        self,
        records: Records,
        paths: Paths,
        embedder: Embedder | None,
        views: Callable[[], Views] | None = None,
        tending: Tending | None = None,
    ) -> None:
        self.records, self.paths, self.embedder = records, paths, embedder
        self._views, self._tending = views, tending

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
        """Remember many things, each as `remember` does, and return their records in the same order; `New` says more than a text.

        All are checked, and the embedder is asked once, before the first is written. They are written in their order, but one
        about a subject may come after those that follow it. If a write fails, others may be stored: the same call again
        finds those and stores the rest.
        """
        remembered = await remembering.remember(self.records, self.paths, self.embedder, items)
        if self._tending is not None:
            self._tending.wrote(self.records, self.embedder)
        return remembered

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

    async def recall(
        self,
        query: str,
        *,
        k: int = 10,
        where: Where | None = None,
        subject: str | None = None,
        at_least: Token | None = None,
        consistency: Consistency = "strong",
        as_of: datetime | int | None = None,
        min_score: float | None = None,
        diversity: float = 0.0,
        recency: float | None = None,
        importance: float | None = None,
        lexical: float | None = None,
        context: int | None = None,
        embedding: Sequence[float] | None = None,
        explain: bool = False,
        below: bool = False,
    ) -> Recall:
        """Find the `k` records most relevant to a query, the best first, among those that all conditions hold for, exactly.

        Vectors and words count by `lexical`, the share of the words; `recency` and `importance` are shares of the whole,
        and `context` is how many records before one are read together with it: each as the namespace says unless given.
        `as_of` asks what was valid then. Hits below `min_score` are left out; if that leaves none, they are in `near`. With
        `diversity` up to 1 hits that say the same give way; their order is then no longer that of their scores. An
        `embedding` is taken instead of the query's. `explain` shows the parts of each score. `below` looks into the paths
        below this one too, 64 in all at most.

        Sees every write acknowledged before the call, by whomever, in two round trips: what is new, and the hits as they
        are stored. With `consistency="eventual"` it looks at what this process has seen, in one. `at_least` demands a
        token of this path. Raises ConfigError, StoreRegressed, EmbedderMismatch, EmbeddingInvalid; an embedder that fails
        leaves the words, and `complete` False.

        Where the server searches (`index = "server"`) vectors alone count: a share of the words, `context`, or a question
        that no embedder makes a vector of is a ConfigError, an embedder that fails an EmbedderFailed. It always sees every
        write; with conditions that few records meet, or shares of recency and importance, it takes more round trips.
        """
        from blackboard.memory.recall import MOST_PATHS, Question, recall

        question = Question.of(
            self.records.policy, query, k=k, where=where, subject=subject, consistency=consistency, as_of=as_of,
            min_score=min_score, diversity=diversity, recency=recency, importance=importance, lexical=lexical,
            context=context, embedding=embedding, explain=explain,
        )  # fmt: skip
        at_least = checked(at_least, "at_least")
        others = await self.paths.below(self.records.path, MOST_PATHS) if below else []  # one too many is refused
        if served(self.records.policy):
            from blackboard.memory import nearest

            known = [self.records, *(self._kept().records(self.records.namespace, path) for path in others)]
            return await nearest.recall(known, self.embedder, question, at_least)
        return await recall([self.view(), *map(self.view, others)], self.embedder, question, at_least)

    def view(self, path: str | None = None) -> View:
        """Return what this process knows of this path, or of another one; nothing is sent by that.

        ConfigError where the server searches: there is no view of such a path.
        """
        if served(self.records.policy):
            raise ConfigError(
                f'namespace {self.records.namespace!r} has index = "server": no process holds a view of it'
            )
        space = None if self.embedder is None else Space.of(self.embedder)
        return self._kept().of(self.records.namespace, self.records.path if path is None else path, space)

    def _kept(self) -> Views:
        if self._views is None:
            raise ConfigError("this memory was made without views, so nothing can be recalled; open it by board.memory")
        return self._views()

    async def snapshot(self) -> Pointer | None:
        """Build a snapshot of the index, which other processes load instead of reading every record; returns the pointer to it.

        It holds every write acknowledged before the call. One builds at a time: LeaseHeld, LeaseLost. None if nothing was
        ever remembered here, or others forgot faster than it could be built; then the snapshot before stands. None, too, where
        the server searches: what it searches is up to date in the store, and there is nothing to load.
        """
        if served(self.records.policy):
            return None
        from blackboard.memory.snapshot import Snapshots

        return await Snapshots(self.records).build()

    async def verify(self, *, repair: bool = False) -> Report:
        """Compare every record with what finds it, the log, this process's index or the server's, and the snapshot; see `Report`.

        What is written meanwhile is not judged. Reads all of the path into memory, and goes over the names of all keys of the
        server. With `repair`, what can be derived from the records is derived anew, unless it changed meanwhile.
        """
        from blackboard.memory.verify import verify

        await ready(self.records)
        return await verify(self.records, None if served(self.records.policy) else self.view(), repair=repair)

    async def forget(
        self,
        ids: str | Iterable[str] | None = None,
        *,
        where: Where | None = None,
        subject: str | None = None,
        everything: bool = False,
        below: bool = False,
        reason: str = "",
        actor: str = "",
    ) -> Receipt:
        """Forget records for good: by id, by what holds for them, or everything; also of the paths `below`.

        When it returns, the records, what finds them, their vectors and their rows in snapshots are gone from the store, and
        no recall anywhere that begins from now on returns them; what a record had superseded is valid again, the sources of a
        merged record too: to be rid of what they say, forget them with it. What was remembered meanwhile may stay. The receipt
        says how many and proves it: `verify_forgotten`. A call that is cut short is brought to its end by whoever tends the path
        next. Raises ConfigError unless exactly one kind of selection is given.
        """
        selection = Selection.of(ids, where, subject, everything=everything)
        why = Why(reason, actor)
        receipt = await forgetting.forget(self.records, selection, why)
        if below:
            others = await forgetting.forget_below(self.records, self.paths, selection, why)
            receipt = replace(receipt, below=others)
        return receipt

    async def receipts(self, limit: int = 100) -> list[Receipt]:
        """Read the newest receipts of what was forgotten here, the newest first."""
        return await forgetting.receipts(self.records, limit)

    async def verify_forgotten(self, receipt: Receipt) -> Survivors:
        """Look for what a receipt names in every key of its paths and in what this process knows; see `Survivors`.

        Goes over the names of all keys of the server: an audit, not a thing to do on every request.
        """
        from blackboard.memory.survivors import look

        if not isinstance(receipt, Receipt):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not be typed
            raise ConfigError(f"{receipt!r:.80} is no receipt; make one of its text by Receipt.parse", value=receipt)
        held: list[str] = []
        if self._views is not None and receipt.path == self.path and not served(self.records.policy):
            frame = await self.view().refresh()
            held = [name for name, alive in zip(frame.ids, frame.alive, strict=True) if alive]
        return await look(self.records.store, receipt, held)

    async def consolidate(
        self, where: Where | None = None, *, vectors: float = consolidation.VECTORS, words: float = consolidation.WORDS
    ) -> Plan:
        """Plan what could be put together: current records that say nearly the same; nothing is written by that.

        Two records without subjects are near-duplicates if their metadata and every word with a digit in it are equal, the
        cosine of their vectors is at least `vectors`, and they share at least `words` of their words; in a group every two
        are. What such measures cannot see, a "not" in a long sentence for one, is for whoever looks at the plan.
        """
        return await consolidation.plan(self.records, self.embedder, where, vectors=vectors, shared=words)

    async def apply(self, plan: Plan, *, merge: Merge | None = None) -> Applied:
        """Put the groups of a plan together: one new record for each, by which its sources are superseded, not forgotten.

        Each group changes as a whole, and only if no source has changed since it was planned. `merge` makes the text, of a
        language model for one; without it the longest text stands. Raises LeaseHeld, LeaseLost; what was merged stays so.
        """
        return await consolidation.apply(self.records, self.embedder, plan, merge)

    async def undo(self, merged: Merged) -> int:
        """Take a merged record apart again: what it superseded is current; returns how many records are."""
        return await consolidation.undo(self.records, merged)

    async def migrate(
        self,
        embedder: Embedder | None = None,
        *,
        queries: Sequence[str] = (),
        least_overlap: float = 0.0,
        progress: Progress | None = None,
    ) -> Migrated:
        """Change the embedding space of the path to that of `embedder` (this memory's own if none is given); see `Migrated`.

        Every text is embedded anew, beside the vectors that stand, while others read and write; then all records change over at
        once. Which of the first ten are the same is compared before, for `queries` or else for 50 of the records; below
        `least_overlap` nothing changes. Until the change embedders of the other space get EmbedderMismatch, and from then on
        those of this one; for a day it can be taken back: `rollback`, `settle`. Cut short anywhere, the same call goes on,
        and the path is whole meanwhile. Raises EmbedderFailed, EmbeddingInvalid, LeaseHeld, LeaseLost, and ConfigError
        while another change is under way. Where the server searches, its vector set is filled anew after the change, and recall
        says that it is not complete until then.
        """
        embedder = embedder or self.embedder
        if embedder is None:
            raise ConfigError("nothing says to which embedding space the path is to be brought; give an embedder")
        refuse(self.records.policy, Space.of(embedder))
        comparison = Comparison(queries, least_overlap, self.embedder)
        return await migration.migrate(self.records, embedder, comparison, progress)

    async def rollback(self) -> Standing:
        """Take a migration back that is not settled: all records change over at once to the vectors that they had before.

        What was written since the change has none of those; it is found by its words until the path is tended. Raises
        ConfigError if there is nothing to go back to, LeaseHeld, LeaseLost.
        """
        return await migration.rollback(self.records, self.embedder)

    async def settle(self) -> int:
        """End a migration as it stands: vectors of the space that the path does not have go; returns of how many records.

        Before the change that gives it up. Done a day after the change by whoever tends the path. Raises LeaseHeld, LeaseLost;
        the same call goes on.
        """
        return await migration.settle(self.records)

    async def space(self) -> Standing:
        """Read of which embedding space the path's vectors are, and what change of that is under way."""
        return await migration.standing(self.records)

    def export(self, *, vectors: bool = True) -> AsyncIterator[bytes]:
        """Yield every record as a line of JSON, between a header and an end that carries counts and a digest."""
        return portable.export(self.records, vectors=vectors)

    async def import_(self, file: BinaryIO, *, existing: Existing = "refuse") -> Imported:
        """Store exported records under their ids; a file that is cut, changed or foreign is refused as a whole.

        Of ids that are here already: all is refused, or those here are kept, or replaced. Vectors of another embedding space
        are left out and made when the path is tended. After an outage the same call with `keep` goes on. Raises ConfigError
        naming the line; nothing was stored then.
        """
        return await portable.import_(self.records, self.paths, self.embedder, file, existing)

    async def tend(self) -> Tended:
        """Tend the path: clear away what has run out, make missing vectors, keep the budget, renew the snapshot if it is due.

        Where the server searches, its vector set is filled with what it lacks instead: about a millisecond a record, in
        steps, from where it was left. Under another index a set that stands goes.

        Done in the background after every `snapshot_every` writes of a process; call it where processes are short. One tends
        at a time, another is told who it is.
        """
        return await tended(self.records, self.embedder)

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
