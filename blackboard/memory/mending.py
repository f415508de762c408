"""Mending what verifying has found: derived anew from the records, one script each, unless something changed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from blackboard.errors import LeaseHeld
from blackboard.memory import sets
from blackboard.memory.finding import Finding
from blackboard.memory.lease import Place, tend
from blackboard.memory.records import Records
from blackboard.memory.scrubbing import discard
from blackboard.memory.snapshot import Snapshots
from blackboard.memory.survey import Survey
from blackboard.memory.view import View
from blackboard.store.script import Script
from blackboard.telemetry import logger

__all__ = ["mended"]

MEND = Script(
    "blackboard.memory",
    "mend.lua",
    prelude=("blackboard.claims:guard.lua", "path.lua", "chain.lua", "said.lua", "sources.lua"),
)
ORPHAN = Script("blackboard.memory", "orphan.lua")
RECOUNT = Script("blackboard.memory", "recount.lua")

log = logger("memory")


async def mended(records: Records, view: View | None, survey: Survey, findings: Sequence[Finding]) -> list[Finding]:
    """Mend what can be mended, and return the findings with `repaired` set where that was done."""
    derived = {
        name: await _derived(records, survey, name) for name in dict.fromkeys(map(_incomplete, findings)) if name
    }
    found = [
        replace(one, repaired=derived[one.name] if _incomplete(one) else await _row(records, survey, one))
        for one in findings
    ]
    if view is None:
        await discard(Place(records.store, records.namespace, records.path))
        found = [replace(one, repaired=True) if one.where == "snapshot" else one for one in found]
    elif any(one.where == "snapshot" or one.name.startswith("seq ") for one in found):
        built = await _rebuilt(records, survey)
        found = [replace(one, repaired=built) if one.where == "snapshot" else one for one in found]
    if found and view is not None:
        await view.reload()
        found = [replace(one, repaired=True) if one.where == "index" else one for one in found]
    for one in found:
        what = "repaired" if one.repaired else "not repaired"
        log.warning("path %r: %s %s %r %s: %s", records.path, one.where, one.what, one.name, one.detail, what)
    return found


async def _row(records: Records, survey: Survey, finding: Finding) -> bool:
    match finding:
        case Finding("head"):
            await records.store.call(RECOUNT, (records.keys.head, records.keys.order), ())
            return True
        case Finding("order", "orphaned"):
            return bool(await records.forget([finding.name], expired=True))
        case Finding(
            "expiring" | "subjects" | "pending" | "content" | "same" | "contents" | "subject" | "sources", "orphaned"
        ) | Finding("content" | "same", "mismatched"):
            return await _unlinked(records, finding)
        case Finding("vectors"):
            return await _entered(records, survey, finding)
        case _:
            return False


def _incomplete(finding: Finding) -> str:
    """Name the record from which what was found is to be derived anew; empty if that is not how it is mended."""
    match finding:
        case (
            Finding(
                "order" | "expiring" | "subjects" | "content" | "contents" | "subject" | "sources" | "log", "missing"
            )
            | Finding("expiring" | "subjects" | "contents" | "subject" | "sources", "mismatched")
            | Finding("superseded", "orphaned")
        ):
            return finding.name
        case _:
            return ""


async def _derived(records: Records, survey: Survey, name: str) -> bool:
    stored = survey.records.get(name)
    if stored is None:
        return False
    where, subject = records.keys, stored.record.subject
    asked = (
        where.head, where.log, where.order, where.expiring, where.subjects, where.pending, where.record(name),
        where.content(stored.content), where.subject(subject) if subject else where.record(name), where.sources,
        where.same(stored.content), where.contents,
    )  # fmt: skip
    told = (name, stored.record.version, stored.content, subject or "", stored.record.superseded_by or "")
    reply = await records.store.call(MEND, asked, told)
    return bool(reply[0] == b"OK")


async def _unlinked(records: Records, finding: Finding) -> bool:
    where, name = records.keys, finding.name
    pointer, kind, field, value = {
        "expiring": (where.expiring, "zset", "version", ""),
        "subjects": (where.subjects, "hash", "version", ""),
        "pending": (where.pending, "set", "pend", ""),
        "content": (where.content(finding.detail), "string", "content", finding.detail),
        "same": (where.same(finding.detail), "zset", "content", finding.detail),
        "contents": (where.contents, "hash", "version", ""),
        "sources": (where.sources, "zset", "version", ""),
        "subject": (where.subject(finding.detail), "zset", "subject", finding.detail),
    }[finding.where]
    reply = await records.store.call(ORPHAN, (where.record(name), pointer), (name, kind, field, value))
    return bool(reply[0] == b"OK")


async def _entered(records: Records, survey: Survey, finding: Finding) -> bool:
    """Enter one vector into the vector set, or take it out; or fill the set, if that is what the finding is about."""
    if finding.name in survey.records or finding.what == "orphaned":
        return await sets.mend(records, [finding.name])
    try:
        async with tend(Place(records.store, records.namespace, records.path)):
            await sets.fill(records)
    except LeaseHeld as held:
        log.warning("path %r: its vector set is left as it is: %s", records.path, held)
        return False
    return True


async def _rebuilt(records: Records, survey: Survey) -> bool:
    """Build a snapshot anew; chunks that nobody named are named first, so that they go with the one before."""
    strays = survey.chunks.keys() - survey.registered
    if strays:
        await records.store.command("SADD", records.keys.chunks, *sorted(strays))
    try:
        return await Snapshots(records).build() is not None
    except LeaseHeld as held:
        log.warning("path %r: its snapshot is left as it is: %s", records.path, held)
        return False
