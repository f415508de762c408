"""What does not fit, of all that was read of a path: the records against what is derived from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from blackboard.errors import CorruptValue
from blackboard.memory.embedder import Space, unpack
from blackboard.memory.finding import Finding, Where
from blackboard.memory.frame import Frame
from blackboard.memory.pointer import Pointer
from blackboard.memory.sets import Element
from blackboard.memory.stored import Stored
from blackboard.memory.survey import Survey

__all__ = ["against_index", "against_rows", "against_snapshot", "against_vectors"]

CLOSE = 2e-3
"""How much a number of a vector may differ between store and index, which may keep 16 bits of it."""
LARGEST = 127
"""The largest number of 8 bits, as a vector set holds them."""


def against_rows(survey: Survey) -> Iterator[Finding]:
    """Judge the rows and keys by which records are found, and the log."""
    yield from _order(survey)
    yield from _expiring(survey)
    yield from _about(survey)
    yield from _contents(survey)
    yield from _said(survey)
    yield from _subjects(survey)
    yield from _sources(survey)
    yield from _log(survey)


def _order(survey: Survey) -> Iterator[Finding]:
    for name, flaw in survey.unreadable.items():
        yield Finding("record", "mismatched", name, flaw)
    for name in survey.order:
        if name not in survey.records and name not in survey.unreadable and not survey.due(name):
            yield Finding("order", "orphaned", name, "the record is gone, and nobody forgot it")
    for name in survey.records.keys() - survey.order.keys():
        yield Finding("order", "missing", name, "it is not listed")
    for name in survey.pending:
        row = survey.records.get(name)
        if row is None or row.vid is not None:
            yield Finding("pending", "orphaned", name, "there is no vector to be made")
    if survey.head.count != len(survey.order):
        yield Finding("head", "mismatched", "count", f"{survey.head.count}, but {len(survey.order)} are listed")


def _expiring(survey: Survey) -> Iterator[Finding]:
    for name, at in survey.expiring.items():
        row = survey.records.get(name)
        if row is None and name not in survey.order and name not in survey.unreadable:
            yield Finding("expiring", "orphaned", name, "the record is gone")
        elif row is not None and row.record.expires != at:
            yield Finding("expiring", "mismatched", name, f"{at}, but it expires at {row.record.expires}")
    for name, row in survey.records.items():
        if row.record.expires is not None and name not in survey.expiring:
            yield Finding("expiring", "missing", name, f"it expires at {row.record.expires}")


def _about(survey: Survey) -> Iterator[Finding]:
    """Judge by what a sweep finds the subject of a record whose time is over."""
    for name, subject in survey.about.items():
        row = survey.records.get(name)
        if row is None and name not in survey.order and name not in survey.unreadable:
            yield Finding("subjects", "orphaned", name, "the record is gone")
        elif row is not None and (row.record.expires is None or row.record.subject != subject):
            yield Finding("subjects", "mismatched", name, f"{subject}, but it is not about that, or does not expire")
    for name, row in survey.records.items():
        if row.record.expires is not None and row.record.subject is not None and name not in survey.about:
            yield Finding("subjects", "missing", name, "a sweep would not find its row in the list of its subject")


def _contents(survey: Survey) -> Iterator[Finding]:
    rows: list[tuple[Where, str, str]] = [("content", digest, name) for digest, name in survey.contents.items()]
    rows.extend(("same", digest, name) for digest, names in survey.same.items() for name in names)
    for where, digest, name in rows:
        row = survey.records.get(name)
        if row is None and name not in survey.unreadable and not survey.due(name):
            yield Finding(where, "orphaned", name, digest)
        elif row is not None and row.content != digest:
            yield Finding(where, "mismatched", name, digest)
    entered = {(digest, name) for _, digest, name in rows}
    for name, row in survey.records.items():
        if row.record.subject is None and (row.content, name) not in entered:
            yield Finding("content", "missing", name, "an exact duplicate would not be recognised")


def _said(survey: Survey) -> Iterator[Finding]:
    """Judge by what a sweep finds what a record has said whose time is over, where others say the same."""
    for name, digest in survey.said.items():
        row = survey.records.get(name)
        if row is None and name not in survey.order and name not in survey.unreadable:
            yield Finding("contents", "orphaned", name, "the record is gone")
        elif row is not None and (row.record.expires is None or name not in survey.same.get(digest, {})):
            yield Finding(
                "contents", "mismatched", name, f"{digest}, but it is not among several that say so, or does not expire"
            )
    for name, row in survey.records.items():
        if row.record.expires is not None and name in survey.same.get(row.content, {}) and name not in survey.said:
            yield Finding("contents", "missing", name, "a sweep would not find its row among those that say the same")


def _subjects(survey: Survey) -> Iterator[Finding]:
    for subject, rows in survey.subjects.items():
        for name, since in rows.items():
            row = survey.records.get(name)
            if row is None or row.record.subject != subject:
                swept = survey.due(name) and survey.about.get(name) == subject
                if name not in survey.unreadable and not swept:
                    yield Finding("subject", "orphaned", name, subject)
            elif row.record.valid_from != since:
                yield Finding("subject", "mismatched", name, f"{since}, but it is valid from {row.record.valid_from}")
    for name, row in survey.records.items():
        about = row.record.subject
        if about is not None and name not in survey.subjects.get(about, {}):
            yield Finding("subject", "missing", name, about)


def _sources(survey: Survey) -> Iterator[Finding]:
    """Judge what is superseded by a merged record, and the rows by which it is current again when that is forgotten."""
    for name, row in survey.records.items():
        by, entered = row.record.superseded_by, survey.sources.get(name)
        known = by in survey.order or by in survey.records or by in survey.unreadable
        if by is not None and row.record.subject is None and not known:
            yield Finding("superseded", "orphaned", name, f"superseded by {by}, which is gone")
        elif by is not None and row.record.subject is None and entered is None:
            yield Finding("sources", "missing", name, f"it would stay superseded by {by} when that is forgotten")
        elif entered is not None and (by is None or survey.order.get(by) != entered):
            yield Finding("sources", "mismatched", name, f"{entered}, but it is superseded by {by}")
    for name in survey.sources.keys() - survey.records.keys() - survey.order.keys() - survey.unreadable.keys():
        yield Finding("sources", "orphaned", name, "the record is gone")


def _log(survey: Survey) -> Iterator[Finding]:
    seqs = [change.seq for change in survey.log]
    logged = {(change.seq, change.id) for change in survey.log}
    gone = sorted(set(range(survey.head.trimmed + 1, survey.head.token.seq + 1)).difference(seqs))
    for name, row in survey.records.items():
        seq = row.record.token.seq
        if survey.head.trimmed < seq <= survey.head.token.seq and (seq, name) not in logged:
            yield Finding("log", "missing", name, f"seq {seq}")
    for seq in gone:
        yield Finding("log", "missing", f"seq {seq}", "views cannot follow over it")


def against_index(survey: Survey, frame: Frame) -> Iterator[Finding]:
    """Judge the index of this process."""
    rows = {frame.ids[row]: int(row) for row in np.flatnonzero(frame.alive)}
    seen = Counter(frame.ids[row] for row in np.flatnonzero(frame.alive))
    for name, times in seen.items():
        if times > 1:
            yield Finding("index", "duplicate", name, f"{times} rows")
        if name not in survey.records and name not in survey.unreadable and not survey.due(name):
            yield Finding("index", "orphaned", name)
    for name, stored in survey.records.items():
        row = rows.get(name)
        if row is None:
            yield Finding("index", "missing", name)
            continue
        held = (int(frame.versions[row]), int(frame.seqs[row]))
        if held != (stored.record.version, stored.record.token.seq):
            yield Finding("index", "mismatched", name, f"version and seq {held}")
        elif not _same_vector(stored, frame, row):
            yield Finding("index", "mismatched", name, "its vector differs")


def against_vectors(survey: Survey, held: Mapping[str, Element] | None) -> Iterator[Finding]:
    """Judge the vector set of the path; None: there is none that could be searched."""
    if survey.head.space is None:
        return
    if held is None:
        yield Finding("vectors", "missing", "", "the set does not hold all vectors yet")
        return
    space = Space.parse(survey.head.space)
    for name in held:
        row = survey.records.get(name)
        if (row is None or row.vector is None) and name not in survey.unreadable and not survey.due(name):
            yield Finding("vectors", "orphaned", name)
    for name, stored in survey.records.items():
        if stored.vector is not None and name not in held:
            yield Finding("vectors", "missing", name, "no recall would find it")
        elif stored.vector is not None and not _same_direction(stored.vector, held[name], space):
            yield Finding("vectors", "mismatched", name, "its vector differs")


def _same_direction(stored: bytes, element: Element, space: Space) -> bool:
    try:
        vector = unpack(stored, space)
    except CorruptValue:
        return False
    held = np.frombuffer(element.numbers, np.int8).astype(np.float32) * (element.most / LARGEST)
    return held.shape == vector.shape and bool(np.allclose(held, vector, rtol=0, atol=element.most / LARGEST + CLOSE))


def _same_vector(stored: Stored, frame: Frame, row: int) -> bool:
    if frame.space is None or stored.vector is None:
        return True
    try:
        vector = unpack(stored.vector, frame.space)
    except CorruptValue:
        return False
    return bool(np.allclose(frame.vectors(np.array([row]))[0], vector, rtol=CLOSE, atol=CLOSE))


def against_snapshot(survey: Survey, pointer: Pointer | None, rows: Sequence[Stored]) -> Iterator[Finding]:
    """Judge the snapshot: with the log after it replayed, it has to come to what the records are."""
    named: set[str] = set() if pointer is None else {*pointer.names()}
    for name, stays in survey.chunks.items():
        if name not in survey.registered or (stays and name not in named):
            yield Finding("snapshot", "orphaned", f"chunk {name}", "no pointer names it")
    if pointer is not None and pointer.space in (None, survey.head.space):  # else nobody loads it
        yield from _snapshot_rows(survey, pointer.token.seq, rows)


def _snapshot_rows(survey: Survey, watermark: int, rows: Sequence[Stored]) -> Iterator[Finding]:
    settled = {change.id for change in survey.log if change.seq > watermark} | survey.unreadable.keys()
    for name, times in Counter(row.record.id for row in rows).items():
        if times > 1 and name not in settled:
            yield Finding("snapshot", "duplicate", name, f"{times} rows")
    held = {row.record.id: row for row in rows}
    for name in held.keys() - settled:
        row, stored = held[name], survey.records.get(name)
        if stored is not None and not _same_row(row, stored):
            yield Finding("snapshot", "mismatched", name, f"version {row.record.version}, seq {row.record.token.seq}")
        elif stored is None and not survey.due(name):
            yield Finding("snapshot", "orphaned", name)
    for name in survey.records.keys() - held.keys() - settled:
        if survey.records[name].record.token.seq <= watermark:
            yield Finding("snapshot", "missing", name)


def _same_row(row: Stored, stored: Stored) -> bool:
    ours, theirs = row.record, stored.record
    return (ours.version, ours.token, ours.text, ours.subject, dict(ours.metadata), row.vid, row.vector) == (
        theirs.version, theirs.token, theirs.text, theirs.subject, dict(theirs.metadata), stored.vid, stored.vector,
    )  # fmt: skip
