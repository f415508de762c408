"""Recall: what a path knows about a question, found in the view and read from the store before it is handed out."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Literal, TypeVar, overload

from blackboard.errors import ConfigError, EmbedderFailed, EmbedderMismatch
from blackboard.keys import check_id
from blackboard.memory.arrays import Scores
from blackboard.memory.embedder import Embedder, Space, checked, embedded
from blackboard.memory.filters import Filter, Where, parse
from blackboard.memory.frame import Frame
from blackboard.memory.new import check_text, microseconds
from blackboard.memory.ranking import Nearest, Parts, Ranked, Ranking, Weights, diversified, ordered
from blackboard.memory.record import Record, Token
from blackboard.memory.stored import Stored
from blackboard.memory.view import View
from blackboard.memory.words import words
from blackboard.settings import MemoryNamespace
from blackboard.telemetry import logger

__all__ = ["MOST_PATHS", "Consistency", "Hit", "Question", "Recall", "few", "merged", "recall"]

Consistency = Literal["strong", "eventual"]
"""Whether a recall sees every write acknowledged before it (`strong`), or what this process has seen so far."""

MOST = 1_000
"""Most hits of one recall."""
MOST_PATHS = 64
"""Most paths that one recall looks into."""
ROUNDS = 3
"""How often a recall reads on because what it found had changed meanwhile."""
INLINE = 2_000
"""Rows up to which a search is not worth a thread."""
DIVERSE = 50
"""Hits among which a diverse selection is made, at least; five per hit if that is more."""

log = logger("memory")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Hit:
    """A record that was found, as it is stored now. `score` is what it was ranked by, `parts` what that is made of.

    `before` are the records before it that it was read together with, the nearest last; `parts` is None unless asked for.
    """

    record: Record
    score: float
    parts: Parts | None = None
    before: tuple[Record, ...] = ()


@dataclass(frozen=True, slots=True)
class Recall(Sequence[Hit]):
    """The answer to a recall: a sequence of hits, the best first.

    `near` holds what came nearest if nothing reached the least score. `token` says as of when the path was searched (None
    for several paths, or one that was never written to); each hit is as it was when it was read, later than that.
    `complete` is False if the embedder failed and words alone were compared, or if the server searches and its vector set
    does not hold every vector that the path is to have.
    """

    hits: tuple[Hit, ...] = ()
    near: tuple[Hit, ...] = ()
    token: Token | None = None
    complete: bool = True

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[index]

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, checked."""

    text: str
    k: int
    weights: Weights
    where: Filter | None = None
    subject: str | None = None
    as_of: int | None = None
    least: float | None = None
    diversity: float = 0.0
    embedding: Sequence[float] | None = None
    explain: bool = False
    consistency: Consistency = "strong"

    @classmethod
    def of(
        cls,
        policy: MemoryNamespace,
        text: str,
        *,
        k: int = 10,
        where: Where | None = None,
        subject: str | None = None,
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
    ) -> Question:
        """Check what is asked; ConfigError that names what is wrong and how to mend it."""
        if type(text) is not str or not (text.strip() or embedding is not None):
            raise ConfigError(f"a question is a text, got {text!r}; give it words, or an embedding", value=text)
        if type(k) is not int or not 1 <= k <= MOST:
            raise ConfigError(f"k is 1 to {MOST} hits, got {k!r}", value=k)
        if min_score is not None and (type(min_score) not in (int, float) or math.isnan(min_score)):
            raise ConfigError(f"min_score is a number, got {min_score!r}", value=min_score)
        if type(diversity) not in (int, float) or not 0 <= diversity <= 1:
            raise ConfigError(f"diversity is 0 to 1, got {diversity!r}", value=diversity)
        if consistency not in ("strong", "eventual"):
            raise ConfigError(f"consistency is strong or eventual, got {consistency!r}", value=consistency)
        if not text.strip():
            lexical = 0.0
        return cls(
            check_text(text, "a question"),
            k,
            Weights.of(policy, lexical=lexical, recency=recency, importance=importance, context=context),
            parse(where),
            None if subject is None else check_id(subject, "subject"),
            None if as_of is None else microseconds(as_of),
            min_score,
            diversity,
            embedding,
            explain,
            consistency,
        )


async def recall(
    views: Sequence[View], embedder: Embedder | None, question: Question, at_least: Token | None = None
) -> Recall:
    """Answer a question from one path or from several, whose hits are put together by their scores.

    Two round trips for a path (what is new, and the hits as they are now), one with `consistency="eventual"`; another two
    when what was found had changed meanwhile. A record that is gone, has expired, or is not what was searched, is never
    returned, and another takes its place. `at_least` is a token of the first path: StoreRegressed if it is not so far.

    If the embedder fails, words alone are compared and the answer is marked; EmbedderFailed where words do not count.
    EmbedderMismatch if a path's vectors are of another space, unless words alone count.
    """
    few(views)
    tokens = [at_least, *[None] * (len(views) - 1)]
    frames = await asyncio.gather(*map(_frame, views, [question] * len(views), tokens))
    probe, complete = await _probe(embedder, question, frames)
    answers = await asyncio.gather(
        *(_answer(view, frame, probe, question) for view, frame in zip(views, frames, strict=True))
    )
    return merged(
        question.k, [Recall(tuple(hits), tuple(near), frame.token, complete) for hits, near, frame in answers]
    )


def few(paths: Sequence[object]) -> None:
    """Raise ConfigError for more paths than one recall looks into."""
    if len(paths) > MOST_PATHS:
        raise ConfigError(
            f"a recall looks into {MOST_PATHS} paths at most, and there are more; name a path further down",
            value=len(paths),
        )


def merged(k: int, answers: Sequence[Recall]) -> Recall:
    """Put the answers of several paths together by their scores; the answer of one stays what it is."""
    if len(answers) == 1:
        return answers[0]
    hits = heapq.nlargest(k, (hit for answer in answers for hit in answer.hits), key=lambda hit: hit.score)
    near = heapq.nlargest(k, (hit for answer in answers for hit in answer.near), key=lambda hit: hit.score)
    return Recall(tuple(hits), () if hits else tuple(near), None, all(answer.complete for answer in answers))


@dataclass(frozen=True, slots=True)
class _Probe:
    """The question as a vector."""

    space: Space
    vector: Scores


async def _frame(view: View, question: Question, at_least: Token | None) -> Frame:
    known = view.frame
    if question.consistency == "eventual" and known.token is not None:
        life, seq = (known.token.incarnation, 0) if at_least is None else (at_least.incarnation, at_least.seq)
        if known.token.incarnation == life and known.token.seq >= seq:
            return known
    return await view.refresh(at_least)


async def _probe(embedder: Embedder | None, question: Question, frames: Sequence[Frame]) -> tuple[_Probe | None, bool]:
    """Make the question's vector if vectors count and there are any; False if that failed."""
    if question.weights.lexical == 1:
        return None, True
    if embedder is None and question.embedding is None:
        if question.weights.lexical == 0:
            raise ConfigError("lexical=0 compares vectors alone, and no embedder makes one; pass one to board.memory")
        return None, True
    space = Space.of(embedder) if embedder else next((frame.space for frame in frames if frame.space), None)
    if space is None:  # nothing has a vector
        return None, True
    for frame in frames:
        _same(space, frame)
    if question.embedding is not None:
        return _Probe(space, checked([question.embedding], space, 1)[0]), True
    assert embedder is not None
    if all(frame.stored_space is None for frame in frames):
        return None, True
    vector = await _vector(embedder, question)
    return (None, False) if vector is None else (_Probe(space, vector), True)


async def _vector(embedder: Embedder, question: Question) -> Scores | None:
    """Have the question embedded; None if that failed and its words count."""
    try:
        vector: Scores = (await embedded(embedder, [question.text], query=True))[0]
    except EmbedderFailed as failed:
        if question.weights.lexical == 0:
            raise
        log.warning("a question is answered by words alone: %s", failed)
        return None
    return vector


def _same(space: Space, frame: Frame) -> None:
    if frame.stored_space not in (None, space.text()):
        raise EmbedderMismatch(
            f"the path's vectors are of the space {frame.stored_space}, and the question's would be of {space.text()}; "
            "use that embedder, migrate, or ask with lexical=1 for words alone",
            stored=frame.stored_space,
            offered=space.text(),
        )


async def _answer(
    view: View, frame: Frame, probe: _Probe | None, question: Question
) -> tuple[list[Hit], list[Hit], Frame]:
    """Search one path, and once more if what was found had changed meanwhile; the last time others take its place."""
    for rounds in range(ROUNDS):
        if probe is not None:
            _same(probe.space, frame)
        search = _Search(view, frame, probe, question)
        last = rounds == ROUNDS - 1
        found = await search.found(fill=last)
        if found is not None:
            return *found, frame
        frame = await view.refresh()
    raise AssertionError("the last search fills up what is missing")


async def _worked(frame: Frame, work: Callable[[], T]) -> T:
    return work() if frame.size <= INLINE else await asyncio.to_thread(work)


class _Search:
    """One search in one frame."""

    def __init__(self, view: View, frame: Frame, probe: _Probe | None, question: Question) -> None:
        self._view, self._frame, self._probe, self._question = view, frame, probe, question
        self._now = view.records.store.server_time()
        self._at = max(self._now, frame.clock) if question.as_of is None else question.as_of
        self._read = dict[int, Hit | None]()

    @cached_property
    def _ranking(self) -> Nearest | Ranking:
        question = self._question
        return ordered(
            self._frame,
            self._frame.mask(question.where, now_us=self._now, as_of=question.as_of, subject=question.subject),
            vector=None if self._probe is None else self._probe.vector,
            words=words(question.text),
            weights=question.weights,
            at=self._at,
        )

    async def found(self, *, fill: bool) -> tuple[list[Hit], list[Hit]] | None:
        """Return the hits, or else what came near; None if some had changed, unless others are to take their place."""
        k, reach = self._question.k, self._question.k
        while True:
            passed, missed = await _worked(self._frame, partial(self._chosen, reach))
            chosen = passed or missed
            await self._fetch([one for one in chosen if one.row not in self._read])
            hits = [hit for one in chosen if (hit := self._read[one.row]) is not None]
            if len(hits) < len(chosen) and not fill:
                return None
            if len(hits) >= k or len(chosen) < reach:
                return (hits[:k], []) if passed else ([], hits[:k])
            reach *= 2

    def _chosen(self, reach: int) -> tuple[list[Ranked], list[Ranked]]:
        """Rank, and part what reaches the least score from what does not."""
        question = self._question
        pool = max(DIVERSE, 5 * reach) if question.diversity else reach
        ranked = self._ranking.best(pool)
        passed = [one for one in ranked if question.least is None or one.score >= question.least]
        if question.diversity:
            rows = [one.row for one in passed]
            passed = diversified(passed, self._frame.vectors(_rows(rows)), question.diversity)
        return passed[:reach], ranked[:reach]

    async def _fetch(self, ranked: Sequence[Ranked]) -> None:
        """Read rows from the store, with those before them, and keep what is still what was searched."""
        weights, frame = self._question.weights, self._frame
        before = {one.row: frame.before(one.row, weights.context, weights.by) for one in ranked}
        rows = list(dict.fromkeys([*before, *(row for found in before.values() for row in found)]))
        if not rows:
            return
        stored = dict(zip(rows, await self._view.records.fetch([frame.ids[row] for row in rows]), strict=True))
        for one in ranked:
            there = stored[one.row]
            if there is None or there.record.version != int(frame.versions[one.row]) or not self._fits(there):
                self._read[one.row] = None
                continue
            told = [found.record for row in before[one.row] if (found := stored[row]) is not None and self._fits(found)]
            parts = one.parts if self._question.explain else None
            self._read[one.row] = Hit(there.record, one.score, parts, tuple(told))

    def _fits(self, stored: Stored) -> bool:
        """Say whether a record as it is now may be handed out for the question."""
        record, question = stored.record, self._question
        return (
            record.valid_from <= self._at
            and (record.valid_until is None or record.valid_until > self._at)
            and (question.subject is None or record.subject == question.subject)
            and (question.where is None or question.where.matches(record.metadata))
        )


def _rows(rows: Sequence[int]) -> Any:
    import numpy as np

    return np.array(rows, np.int64)
