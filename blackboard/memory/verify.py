"""Verifying a path: the records against everything that is derived from them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

from blackboard.errors import CorruptValue
from blackboard.memory.finding import Finding, Report
from blackboard.memory.judging import against_index, against_rows, against_snapshot, against_vectors
from blackboard.memory.mending import mended
from blackboard.memory.pointer import Pointer
from blackboard.memory.record import Token
from blackboard.memory.records import Records
from blackboard.memory.sets import members
from blackboard.memory.snapshot import Snapshots
from blackboard.memory.stored import Stored
from blackboard.memory.survey import Survey
from blackboard.memory.view import View

__all__ = ["Finding", "Report", "verify"]


async def verify(records: Records, view: View | None, *, repair: bool = False) -> Report:
    """Compare the records of a path with what finds them, the log, this process's index and the snapshot.

    Without a view it is the path's vector set in the place of the index. What is written meanwhile is not judged. Reads every record into memory, and goes over the names of all keys of the
    server. With `repair`, what can be derived from the records is derived anew, by scripts that check that nothing
    changed; a snapshot is built anew unless another holds the lease of the path. Raises as `Store.call` does.
    """
    survey = await Survey.read(records)
    if survey is None:
        return Report(None, {})
    size, against = await _searched(records, view, survey)
    pointer, rows, flaws = await _snapshot(records, survey)

    def judge() -> list[Finding]:
        snapshot = flaws or against_snapshot(survey, pointer, rows)
        return [*against_rows(survey), *against(), *snapshot]

    findings = await asyncio.to_thread(judge)
    changed = await _changed(records, survey.head.token)
    findings = [one for one in findings if one.name not in changed and not (one.where == "head" and changed)]
    if repair and findings:
        findings = await mended(records, view, survey, findings)
    return Report(survey.head.token, _compared(survey, rows) | size, tuple(findings), len(changed))


def _compared(survey: Survey, rows: list[Stored]) -> dict[str, int]:
    return {
        "records": len(survey.records), "contents": len(survey.contents), "subjects": len(survey.subjects),
        "log": len(survey.log), "snapshot": len(rows),
    }  # fmt: skip


async def _searched(
    records: Records, view: View | None, survey: Survey
) -> tuple[dict[str, int], Callable[[], Iterator[Finding]]]:
    """Read what is searched, the index of this process or the vector set; tell its size, and what judges it."""
    if view is None:
        held = await members(records)
        return {"vectors": len(held or ())}, partial(against_vectors, survey, held)
    frame = await view.refresh(survey.head.token)
    return {"index": len(frame)}, partial(against_index, survey, frame)


async def _snapshot(records: Records, survey: Survey) -> tuple[Pointer | None, list[Stored], list[Finding]]:
    """Read the snapshot; what makes it unusable is one finding, and then its rows are not judged."""
    try:
        pointer, rows = await Snapshots(records).read()
    except CorruptValue as unreadable:
        return None, [], [Finding("snapshot", "mismatched", "pointer", str(unreadable))]
    if pointer is None or pointer.token.incarnation == survey.head.token.incarnation:
        return pointer, rows, []
    return None, [], [Finding("snapshot", "mismatched", "pointer", "it is of another life of the path")]


async def _changed(records: Records, since: Token) -> set[str]:
    """Name the records that were written after a token."""
    changed: set[str] = set()
    after, more = since.seq, True
    while more:
        tail = await records.tail(after)
        changed |= {change.id for change in tail.changes}
        after, more = tail.changes[-1].seq if tail.changes else after, tail.more
    return changed
