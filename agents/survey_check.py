"""The proof at the end of a survey: what the board says, against the documents, the ledger and what the members noted."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from blackboard import Blackboard
from blackboard.checkpoints.manifest import Manifest
from blackboard.claims.effect import SettledEffect
from blackboard.codec import Types, decode
from survey_crew import Event, events
from survey_documents import Document, Finding, extract, read, terms
from survey_memory import Knowledge
from survey_report import heading
from survey_team import Ledger, Places, Plan, Reading, Receipt, Report

__all__ = ["Findings", "check"]

LONGEST = 100_000
"""Checkpoints of one thread that are looked at: all of them."""


@dataclass
class Findings:
    """What the check counted; `wrong` says in words what is not as it must be, `lost` and `repeated` count it."""

    documents: int = 0
    read: int = 0
    recalled: int = 0
    steps: int = 0
    acknowledged: int = 0
    takeovers: int = 0
    refused: int = 0
    accepted: int = 0
    once: int = 0
    resolved: int = 0
    lost: int = 0
    repeated: int = 0
    report: str = ""
    wrong: list[str] = field(default_factory=list[str])

    def expect(self, what: str, expected: Iterable[object], found: Iterable[object]) -> None:
        """Compare two bags of things: what is missing is lost, what is too much is repeated."""
        wanted, there = Counter(expected), Counter(found)
        lost, repeated = (wanted - there).total(), (there - wanted).total()
        self.lost += lost
        self.repeated += repeated
        if lost or repeated:
            self.wrong.append(f"{what}: {lost} lost, {repeated} repeated")


async def check(board: Blackboard, places: Places) -> Findings:
    """Check a survey that is over from outside: it reads everything and changes nothing."""
    found = Findings()
    plan = await board.thread(places.plan).latest(Plan)
    documents = plan.state.documents if plan else []
    found.documents = len(documents)
    if not documents:
        found.wrong.append("there is no plan, or no document in it")
    histories = {name: await board.thread(name).history(limit=LONGEST) for name in _threads(places, documents)}
    for thread, history in histories.items():
        _chain(found, thread, history)
    _promises(found, histories, list(events(places)))
    keys = [await _document(board, places, document, found) for document in documents]
    lines = [line.key for line in Ledger(places.ledger).lines()]
    found.expect("lines of the ledger against recorded effects", keys, lines)
    await _report(board, places, documents, found)
    return found


def _threads(places: Places, documents: Sequence[Document]) -> list[str]:
    return [places.plan, *(places.document(document) for document in documents), places.report]


def _chain(found: Findings, thread: str, history: Sequence[Manifest]) -> None:
    """The checkpoints of a thread are one chain without gaps, and no older driver wrote after a newer one."""
    found.steps += len(history)
    for newer, older in zip(history, [*history[1:], None], strict=True):
        step, parent = (older.step, older.checkpoint) if older else (-1, None)
        if (newer.step, newer.parent) != (step + 1, parent):
            found.wrong.append(f"{thread}: step {newer.step} does not follow step {step}")
        if older and newer.fence < older.fence:
            found.accepted += 1
            found.wrong.append(f"{thread}: step {newer.step} was written by a driver that had been replaced")


def _promises(found: Findings, histories: dict[str, list[Manifest]], noted: Sequence[Event]) -> None:
    """What a member was told is in the history: every acknowledged step, and no write that was refused."""
    stored = {(thread, one.step, one.checkpoint): one.fence for thread, history in histories.items() for one in history}
    for event in noted:
        match event["event"]:
            case "acknowledged" | "entered" as told:
                fence = stored.get((event["thread"], event["step"], event["checkpoint"]))
                found.acknowledged += fence == event["fence"]  # who enters a new thread commits its first step
                found.takeovers += event.get("takeover", False)
                if fence is None or (told == "acknowledged" and fence != event["fence"]):
                    found.lost += 1
                    found.wrong.append(f"{event['thread']}: step {event['step']} was acknowledged and is not there")
            case "refused":
                found.refused += 1
                written = [one for one in histories[event["thread"]] if one.fence == event["fence"]]
                if any(one.step >= event["step"] for one in written):
                    found.accepted += 1
                    found.wrong.append(f"{event['thread']}: step {event['step']} was refused, and is there")
            case "resolved":
                found.resolved += 1


async def _document(board: Blackboard, places: Places, document: Document, found: Findings) -> str:
    """Read a document again in one go and compare; returns the key under which it must be in the ledger."""
    name = places.document(document)
    thread = board.thread(name)
    if await thread.status() != "finished":
        found.wrong.append(f"{document.name} is {await thread.status()}, not finished")
    if hashlib.sha256(Path(document.path).read_bytes()).hexdigest() != document.digest:
        found.wrong.append(f"{document.name} changed while it was read")
    latest = await thread.latest(Reading)
    starts = (0, *document.ends)
    texts = [(start, read(document, start, end)) for start, end in zip(starts, document.ends, strict=False)]
    findings = [finding for start, text in texts for finding in extract(text, start)]
    found.expect(f"findings of {document.name}", findings, latest.state.findings if latest else ())
    words = Counter[str]()
    for _, text in texts:
        words += terms(text)
    found.expect(
        f"words of {document.name}", words.elements(), Counter(latest.state.terms if latest else {}).elements()
    )
    await _memory(board, document, findings, found)
    return await _effects(board, name, found)


async def _memory(board: Blackboard, document: Document, findings: Sequence[Finding], found: Findings) -> None:
    """What was found is remembered, once and no more; unless another survey has read the document with other bytes."""
    knowledge = Knowledge(board)
    if await knowledge.digest(document.name) in (document.digest, None):
        known = await knowledge.recall(document)
        found.expect(f"memory of {document.name}", findings, known[0] if known else ())


async def _effects(board: Blackboard, thread: str, found: Findings) -> str:
    """Every effect of the thread is recorded as done; returns the key of its line in the ledger."""
    key = ""
    for effect in await board.thread(thread).effects():
        if not isinstance(effect, SettledEffect) or effect.state != "done":
            found.wrong.append(f"{thread}: effect {effect.key} is {effect.state}")
            continue
        found.once += 1
        if effect.key.endswith("/ledger"):
            key = decode(effect.result, types=Types.of(Receipt)).key
    return key


async def _report(board: Blackboard, places: Places, documents: Sequence[Document], found: Findings) -> None:
    await _effects(board, places.report, found)
    latest = await board.thread(places.report).latest(Report)
    if latest is None or await board.thread(places.report).status() != "finished":
        found.wrong.append("there is no report")
        return
    found.report = latest.state.out
    lines = Path(found.report).read_text("utf-8").splitlines() if Path(found.report).exists() else []
    said = [line for line in lines if line.startswith("### ")]
    found.expect("documents in the report", map(heading, documents), said)
