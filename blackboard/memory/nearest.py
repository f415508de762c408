"""Recall by the server: its vector set names candidates, and the records themselves are compared, exactly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from blackboard import codec
from blackboard.errors import ConfigError, CorruptValue
from blackboard.memory.arrays import Scores
from blackboard.memory.embedder import Embedder, Space, checked, embedded, unpack
from blackboard.memory.ranking import Parts, Ranked, diversified
from blackboard.memory.recall import Hit, Question, Recall, few, merged
from blackboard.memory.record import Record, Token
from blackboard.memory.records import Records
from blackboard.memory.sets import Near, near, ready, refuse
from blackboard.memory.stored import Stored, labels
from blackboard.telemetry import logger

__all__ = ["recall"]

ROUNDS = 2
"""How often a search begins again because what it found had changed meanwhile."""
SPARE = 20
"""Candidates asked for beyond twice the hits: what has ended and what 8 bits a number put too far away."""
FURTHER = 16
"""How many times as far the next look goes."""
SLICE = 250
"""Records read in one round trip."""
PROMISING = 1_600
"""Records that are compared, at least, before the best of them are taken as they are; 80 per hit if that is more."""
JUDGED = ("metadata", "subject", "seq")
"""The fields by which candidates are sorted out where conditions may leave few of many."""
DIVERSE = 50
"""Hits among which a diverse selection is made, at least; five per hit if that is more."""

log = logger("memory")


async def recall(
    records: Sequence[Records], embedder: Embedder | None, question: Question, at_least: Token | None = None
) -> Recall:
    """Answer a question from one path or several, each by the server's vector set; `complete` says whether it holds all.

    Two round trips: the candidates as of one moment, and their records. More where filters, the validity or shares of
    recency and importance leave too few of them: then the server compares with every vector, and candidates are read on,
    nearest first, until no other could be among the best. Scores are those of the stored vectors. Raises ConfigError if
    there is no vector to compare, EmbedderFailed, EmbedderMismatch, StoreRegressed.
    """
    few(records)
    await ready(records[0])
    space, vector = await _probe(records, embedder, question)
    if space is None:
        return Recall(token=records[0].known)
    tokens = [at_least, *[None] * (len(records) - 1)]
    answers = [Search(one, space, vector, question).answer(token) for one, token in zip(records, tokens, strict=True)]
    return merged(question.k, await asyncio.gather(*answers))


async def _probe(
    records: Sequence[Records], embedder: Embedder | None, question: Question
) -> tuple[Space | None, Scores]:
    """Make the question's vector; without an embedder its space is that of the first path that has one."""
    none = np.empty(0, np.float32)
    if embedder is not None:
        space = Space.of(embedder)
        if question.embedding is None:
            return space, (await embedded(embedder, [question.text], query=True))[0]
    elif question.embedding is None:
        raise ConfigError(
            'index = "server" compares vectors alone, and no embedder makes one of the question; pass one to '
            "board.memory, or an embedding"
        )
    else:
        stored = await records[0].store.batch([("HGET", one.keys.head, "space") for one in records])
        first = next((text for text in stored if text is not None), None)
        if first is None:
            return None, none
        space = Space.parse(first.decode())
        refuse(records[0].policy, space)
    return space, checked([question.embedding], space, 1)[0]


class Search:
    """One search in one path."""

    def __init__(self, records: Records, space: Space, vector: Scores, question: Question) -> None:
        self._records, self._space, self._vector, self._question = records, space, vector, question
        self._wanted = max(DIVERSE, 5 * question.k) if question.diversity else question.k

    async def answer(self, at_least: Token | None) -> Recall:
        """Search a path that has come as far as a token; once more if what was found was changed since the set was asked."""
        for again in range(ROUNDS, -1, -1):
            found = Candidates(self._space, self._vector, self._question, last=not again)
            first = await self._gather(found, at_least)
            if not found.moved:
                return self._chosen(found.ranked(), first)
        raise AssertionError("the last search takes what it finds")

    async def _gather(self, found: Candidates, at_least: Token | None) -> Near:
        """Read candidates until the best are among them; returns what the set answered first."""
        exact, count = False, 2 * self._wanted + SPARE
        first = asked = await self._near(count, exact, at_least)
        found.at(asked, self._records.store.server_time())
        while True:
            fresh = found.fresh(asked)
            for start in range(0, len(fresh), SLICE):
                part = fresh[start : start + SLICE]
                last = part[-1][1]
                if exact and found.selective:
                    part = found.fitting(part, await self._records.read([name for name, _ in part], *JUDGED))
                stored = await self._records.fetch([name for name, _ in part], vectors=True, space=self._space.text())
                found.add(part, stored)
                if found.moved or found.enough(self._wanted, last):
                    return first
            if len(asked.hits) >= asked.card or (exact and len(asked.hits) < count):
                return first
            exact, count = True, min(FURTHER * count, asked.card)
            asked = await self._near(count, exact, at_least)

    async def _near(self, count: int, exact: bool, at_least: Token | None) -> Near:
        vector = self._vector.astype("<f4").tobytes()
        return await near(self._records, self._space, vector, count, exact=exact, at_least=at_least)

    def _chosen(self, ranked: list[tuple[Ranked, Record, Scores]], first: Near) -> Recall:
        """Part what reaches the least score from what does not, and put it into a diverse order if that is asked for."""
        question = self._question
        best = ranked[: self._wanted]
        passed = [one for one in best if question.least is None or one[0].score >= question.least]
        if question.diversity and passed:
            order = diversified([one for one, _, _ in passed], np.array([v for _, _, v in passed]), question.diversity)
            held = {one[0].row: one for one in passed}
            passed = [held[one.row] for one in order]
        hits = [
            Hit(record, one.score, one.parts if question.explain else None)
            for one, record, _ in (passed or best)[: question.k]
        ]
        found, close = (hits, []) if passed else ([], hits)
        return Recall(tuple(found), tuple(close), first.token, first.complete)


class Candidates:
    """Records that the set named, compared exactly. `moved` says that one was written after the set was asked, and ended."""

    def __init__(self, space: Space, vector: Scores, question: Question, *, last: bool) -> None:
        self._space, self._vector, self._question, self._last = space, vector, question, last
        self._found: list[tuple[Ranked, Record, Scores]] = []
        self._seen = set[str]()
        self._now = self._since = 0
        self._doubt = 0.0
        self.moved = False

    def at(self, asked: Near, clock: int) -> None:
        """Take over as of when the set was asked; a server that took over may be behind what its records say."""
        self._now, self._since = max(asked.now, clock), 0 if asked.token is None else asked.token.seq

    def fresh(self, asked: Near) -> list[tuple[str, float]]:
        """Choose the candidates that were not read yet."""
        return [hit for hit in asked.hits if hit[0] not in self._seen]

    @property
    def selective(self) -> bool:
        """Whether there are conditions that few records may meet."""
        question = self._question
        return question.where is not None or question.subject is not None or question.as_of is not None

    def fitting(
        self, named: Sequence[tuple[str, float]], told: Sequence[Sequence[bytes | None]]
    ) -> list[tuple[str, float]]:
        """Choose the candidates that are worth reading: a few of their fields show what they would be refused for."""
        kept: list[tuple[str, float]] = []
        for hit, (metadata, subject, seq) in zip(named, told, strict=True):
            self._seen.add(hit[0])
            if metadata is None or seq is None:
                continue
            where, about = self._question.where, self._question.subject
            fits = (about is None or subject == about.encode()) and (
                where is None or where.matches(labels(codec.decode(metadata)))
            )
            if fits or int(seq) > self._since:
                kept.append(hit)
        return kept

    def add(self, named: Sequence[tuple[str, float]], stored: Sequence[Stored | None]) -> None:
        """Compare records, and learn from each by how much the set may be wrong; one that does not fit is left out."""
        for (name, estimate), one in zip(named, stored, strict=True):
            self._seen.add(name)
            if one is None or one.vector is None:
                continue
            changed = one.record.token.seq > self._since
            if not self._fits(one.record, changed=changed):
                self.moved |= changed and not self._last
                continue
            try:
                vector = unpack(one.vector, self._space)
            except CorruptValue as wrong:
                log.warning("record %r cannot be found: %s", name, wrong)
                continue
            nearness = float(vector @ self._vector)
            if not changed:
                self._doubt = max(self._doubt, 2 * abs(nearness - estimate))
            self._found.append((Ranked(len(self._found), self._parts(one.record, nearness)), one.record, vector))

    def enough(self, wanted: int, last: float) -> bool:
        """Tell whether no candidate that is estimated at less than `last` could be among the best `wanted`."""
        if len(self._found) < wanted:
            return False
        if len(self._found) >= max(PROMISING, 80 * wanted):
            return True
        weights = self._question.weights
        beside = weights.recency + weights.importance
        least = sorted((one.score for one, _, _ in self._found), reverse=True)[wanted - 1]
        return (1 - beside) * (last + self._doubt) + beside <= least

    def ranked(self) -> list[tuple[Ranked, Record, Scores]]:
        """All of them, the best first, with the record and its vector; of equal ones the earlier record."""
        return sorted(self._found, key=lambda one: (-one[0].score, one[1].created))

    def _fits(self, record: Record, *, changed: bool) -> bool:
        """Say whether a record may be handed out for the question; one that was changed meanwhile as of then."""
        question = self._question
        now = max(self._now, record.updated) if changed else self._now
        at = now if question.as_of is None else question.as_of
        return (
            record.valid_from <= at
            and (record.valid_until is None or record.valid_until > at)
            and (question.subject is None or record.subject == question.subject)
            and (question.where is None or question.where.matches(record.metadata))
        )

    def _parts(self, record: Record, nearness: float) -> Parts:
        weights = self._question.weights
        at = self._now if self._question.as_of is None else self._question.as_of
        age = max(at - record.valid_from, 0) / 1e6
        return Parts(
            dense=(1 - weights.recency - weights.importance) * nearness,
            recency=weights.recency * 0.5 ** (age / weights.half_life),
            importance=weights.importance * record.importance,
        )
