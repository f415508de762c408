"""What the team knows from earlier surveys: a record for each document as it was read last, and one for each finding."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from blackboard import Blackboard
from blackboard.memory.new import New
from survey_documents import EXTRACTION, Document, Finding

__all__ = ["Cited", "Knowledge"]

TERMS = 8
"""How many of its terms a document is found by."""

BATCH = 200
"""Findings that are remembered at once."""

CITED = 5
"""Findings of earlier surveys that a report cites."""


class Known(BaseModel, frozen=True):
    """A document as it was read last. Its findings are records of their own, under ids that follow from it."""

    name: str
    digest: str
    findings: int
    terms: dict[str, int]
    extraction: int

    def memory_text(self) -> str:
        """Say what it is found by: its name and the terms that it uses most."""
        most = sorted(self.terms, key=lambda term: (-self.terms[term], term))[:TERMS]
        return f"{self.name}: {', '.join(most)}"

    def ids(self) -> list[str]:
        """Give the ids of its findings: the same for the same bytes, so that remembering twice changes nothing."""
        return [f"{self.name}:{self.digest[:16]}:{number}" for number in range(self.findings)]


class Cited(BaseModel, frozen=True):
    """A finding of an earlier survey that bears on this one."""

    document: str
    text: str


class Knowledge:
    """What a team has found in documents, whichever survey it was; `board` is where it is remembered."""

    def __init__(self, board: Blackboard) -> None:
        self._documents, self._findings = board.memory("survey/documents"), board.memory("survey/findings")

    async def load(self, *, search: bool) -> None:
        """Load the packages that remembering and searching need: on a busy machine that takes longer than a lease lasts."""
        if search:
            self._findings.view()
        if self._findings.embedder is not None:
            await self._findings.embedder.embed(["anything"])

    async def recall(self, document: Document) -> tuple[list[Finding], dict[str, int]] | None:
        """Give the findings and terms of a document whose bytes were read before; None if they have to be read."""
        known = await self._known(document.name)
        if not known or (known[0].digest, known[0].extraction) != (document.digest, EXTRACTION):
            return None
        found = await asyncio.gather(*map(self._findings.get, known[0].ids()))
        findings = [record.parsed(Finding) for record in found if record is not None]
        return (findings, known[0].terms) if len(findings) == known[0].findings else None

    async def remember(
        self, document: Document, findings: Sequence[Finding], terms: Mapping[str, int], survey: str
    ) -> int:
        """Remember what was read, the findings first: a document counts as known when all of them are there.

        Doing it again does no harm. What was found in other bytes of the document is forgotten at the end.
        """
        known = Known(
            name=document.name, digest=document.digest, findings=len(findings), terms=dict(terms), extraction=EXTRACTION
        )
        labels = {"document": document.name, "digest": document.digest, "survey": survey}
        new = [
            New(finding, id=name, metadata={**labels, "kind": finding.kind})
            for name, finding in zip(known.ids(), findings, strict=True)
        ]
        for start in range(0, len(new), BATCH):
            await self._findings.remember_all(new[start : start + BATCH])
        await self._documents.remember(known, subject=document.name, metadata=labels)
        await self._forget_before(known)
        return len(findings)

    async def digest(self, name: str) -> str | None:
        """Give the digest of the bytes that a document had when it was read last; None if it never was."""
        known = await self._known(name)
        return known[0].digest if known else None

    async def cited(self, terms: Sequence[str], survey: str) -> list[Cited]:
        """Recall the sentences of earlier surveys that bear most on some terms."""
        if not terms:
            return []
        where = {"all": [{"kind": "sentence"}, {"not": {"survey": survey}}]}
        found = await self._findings.recall(" ".join(terms), k=CITED, where=where, diversity=0.3)
        return [Cited(document=str(hit.record.metadata["document"]), text=hit.record.text) for hit in found]

    async def _known(self, name: str) -> list[Known]:
        """Give what was known of a document, the newest first."""
        return [record.parsed(Known) for record in await self._documents.history(name)]

    async def _forget_before(self, known: Known) -> None:
        older = {name for one in await self._known(known.name) for name in one.ids()} - {*known.ids()}
        found = await asyncio.gather(*map(self._findings.get, sorted(older)))
        if there := [record.id for record in found if record is not None]:
            await self._findings.forget(there, reason="the document has changed")
