"""The team of a survey: a planner, workers and a writer, each a process of its own; `survey.py` starts them.

They share nothing but the board, the documents and two places outside it: the ledger, where every document gets
exactly one line, and a folder of notes. What a member was told by the board it notes in a journal, which the survey
checks against the board at the end.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from blackboard import Blackboard, LeaseHeld, LeaseLost, Log, OutcomeUnknown, Run, ServerUnavailable, Settings
from blackboard.errors import AlreadyFinished
from blackboard.points import Watcher, watch
from survey_documents import Document, Finding, collect, extract, read, terms
from survey_memory import Knowledge
from survey_report import Survey, compose, words_of_model

__all__ = ["Journal", "Ledger", "Member", "Places", "Plan", "Reading", "Receipt", "Report", "serve"]

LEASE = 2.0
"""Seconds after which a member that is gone or stopped is replaced."""

PATIENCE = 60.0
"""Seconds for which a worker waits for others while nothing is finished, and a call for a server that is gone."""

FAREWELL = 10.0
"""Seconds for which a worker that has lost its lease waits for the answer to its last commit."""


class Plan(BaseModel):
    """State of the planner's run."""

    documents: list[Document] = []


class Reading(BaseModel):
    """State of the run that reads one document; how far it is stands in the cursor `offset`."""

    document: Document
    findings: Log[Finding] = Log()
    terms: dict[str, int] = {}
    recalled: bool = False


class Receipt(BaseModel, frozen=True):
    """What the ledger answers: the line's key, and what it says."""

    key: str
    document: str
    digest: str
    findings: int


class Report(BaseModel):
    """State of the writer's run."""

    out: str
    words: str = ""
    text: str = ""


class Places(BaseModel, frozen=True):
    """Where a survey stands: its threads on the board, and its files below the data directory."""

    directory: Path
    survey: str

    @property
    def files(self) -> Path:
        return self.directory / f"survey-{self.survey}"

    @property
    def ledger(self) -> Path:
        return self.files / "ledger.jsonl"

    @property
    def journals(self) -> Path:
        return self.files / "journals"

    @property
    def log(self) -> Path:
        return self.files / "team.log"

    @property
    def notes(self) -> Path:
        return self.files / "notes"

    @property
    def plan(self) -> str:
        return f"survey/{self.survey}/plan"

    @property
    def report(self) -> str:
        return f"survey/{self.survey}/report"

    def document(self, document: Document) -> str:
        return f"survey/{self.survey}/document/{document.name}"


class Member(BaseModel, frozen=True):
    """What one process is told to be; `stop_at` names a point of the code and which time it is reached in a run.

    `afresh` has it read what is known already.
    """

    role: Literal["planner", "worker", "writer"]
    name: str
    places: Places
    number: int = 0
    paths: tuple[str, ...] = ()
    limit: int | None = None
    out: str = ""
    model: str | None = None
    afresh: bool = False
    stop_at: tuple[str, int] | None = None


class Journal:
    """What a member saw, one JSON line each in a file of its own, written before it goes on; it survives its member."""

    def __init__(self, places: Places, name: str) -> None:
        places.journals.mkdir(parents=True, exist_ok=True)
        path = places.journals / f"{name}-{os.getpid()}-{time.time_ns()}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._name = name

    def note(self, event: str, **what: Any) -> None:
        line = {"member": self._name, "event": event, **what}
        os.write(self._file, json.dumps(line).encode() + b"\n")


class Ledger:
    """A system outside the board: it takes every line that it is given, the same one twice as well, and keeps it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def enter(self, receipt: Receipt) -> Receipt:
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, receipt.model_dump_json().encode() + b"\n")
            os.fsync(file)
        finally:
            os.close(file)
        return receipt

    def find(self, key: str) -> Receipt | None:
        return next((line for line in self.lines() if line.key == key), None)

    def lines(self) -> Iterator[Receipt]:
        if self._path.exists():
            for line in self._path.read_bytes().splitlines():
                yield Receipt.model_validate_json(line)


def replace(path: Path, text: str) -> str:
    """Write a file whole or not at all; writing it again does no harm. Returns where it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    return str(path)


class Team:
    """One member at work: the board, what it was told, and its journal; it stops itself where it was told to."""

    def __init__(self, board: Blackboard, member: Member, journal: Journal) -> None:
        self.board, self.member, self.places, self.journal = board, member, member.places, journal
        self.knowledge = Knowledge(board)
        self._stopper = stopper(*member.stop_at, journal) if member.stop_at else None

    async def planner(self) -> None:
        """Split the work: list the documents and where each is cut, and commit that as the plan."""
        async with self.board.run(self.places.plan, Plan, start=Plan, lease_ttl=LEASE, wait=3 * LEASE) as run:
            self._entered(run)
            if not run.done:
                run.state.documents = collect(self.member.paths, self.member.limit)
                await self._commit(run, run.finish(len(run.state.documents)))

    async def worker(self) -> None:
        """Read whatever nobody else reads, until every document of the plan is finished."""
        plan = await self.board.thread(self.places.plan).latest(Plan)
        assert plan is not None, "the planner comes first"
        left: list[Document] = plan.state.documents
        first = self.member.number * 7 % max(1, len(left))
        left = left[first:] + left[:first]  # workers begin at different documents
        until = time.monotonic() + PATIENCE
        while left:
            still = [document for document in left if not await self._finished(document)]
            if len(still) < len(left):
                until = time.monotonic() + PATIENCE
            elif time.monotonic() > until:
                raise SystemExit(f"{len(still)} documents are not finished, and nobody goes on with them")
            left = still
            await asyncio.sleep(0.1 if left else 0)

    async def writer(self) -> None:
        """Compose the report from what the board holds, and close the survey with where it is."""
        start = Report(out=self.member.out)
        async with self.board.run(
            self.places.report, Report, start=lambda: start, lease_ttl=LEASE, wait=3 * LEASE
        ) as run:
            self._entered(run)
            while not run.done:
                if run.next == "start":
                    survey = await self._survey()
                    words = run.effect("words", str, semantics="at-least-once", fingerprint=self.places.survey)
                    run.state.words = await words.call(self._words, survey)
                    cited = await self.knowledge.cited([term for term, *_ in survey.terms()], self.places.survey)
                    run.state.text = compose(survey, run.state.words, cited)
                    await self._commit(run, run.commit(next="write"))
                else:
                    write = run.effect("write", str, semantics="at-least-once")
                    path = await write.call(lambda out, text: replace(Path(out), text), run.state.out, run.state.text)
                    await self._commit(run, run.finish(path))

    async def _finished(self, document: Document) -> bool:
        """Drive one document as far as it goes; False if somebody else has it, or got it, or the board is away."""
        thread = self.places.document(document)
        try:
            if await self.board.thread(thread).status() == "finished":
                return True
            async with self.board.run(
                thread, Reading, start=lambda: Reading(document=document), lease_ttl=LEASE
            ) as run:
                self._entered(run)
                with watch(self._stopper) if self._stopper else nullcontext():
                    while not run.done:
                        await (self._file(run) if run.next == "file" else self._know(run))
        except (AlreadyFinished, LeaseHeld, LeaseLost, OutcomeUnknown, ServerUnavailable):
            return False
        return True

    async def _know(self, run: Run[Reading]) -> None:
        """Take over what is known of a document with these bytes, or else read on."""
        begun = self.member.afresh or "offset" in run.cursors
        known = None if begun else await self.knowledge.recall(run.state.document)
        if known is None:
            await self._read(run)
            return
        run.state.findings.extend(known[0])
        run.state.terms, run.state.recalled = known[1], True
        await self._commit(run, run.commit(next="file"))

    async def _read(self, run: Run[Reading]) -> None:
        """Read the next chunk, and commit what was found together with how far we are."""
        document, offset = run.state.document, run.cursors.get("offset", 0)
        end = next(end for end in document.ends if end > offset)
        self.journal.note("read", thread=run.thread, offset=offset)
        text = read(document, offset, end)
        run.state.findings.extend(extract(text, offset))
        for term, count in terms(text).items():
            run.state.terms[term] = run.state.terms.get(term, 0) + count
        run.cursors["offset"] = end
        await self._commit(run, run.commit(next="read" if end < document.size else "file"))

    async def _file(self, run: Run[Reading]) -> None:
        """Enter the document into the ledger, once; write its note; remember what was read; and finish."""
        state, ledger = run.state, Ledger(self.places.ledger)
        async with run.effect("ledger", Receipt, semantics="at-most-once", scope="thread") as effect:
            receipt = Receipt(
                key=effect.key, document=state.document.name, digest=state.document.digest, findings=len(state.findings)
            )
            if effect.standing == "unknown":
                there = ledger.find(effect.key)
                self.journal.note("resolved", thread=run.thread, effect=effect.name, happened=there is not None)
                await (effect.retry() if there is None else effect.complete(there))
            if effect.standing == "run":
                await effect.complete(ledger.enter(receipt))
        note = run.effect("note", str, semantics="at-least-once", record="commit", fingerprint=receipt.key)
        text = "\n".join(f"{finding.offset}\t{finding.kind}\t{finding.text}" for finding in state.findings)
        path = self.places.notes / f"{state.document.digest}.tsv"
        await note.call(replace, path, text + "\n")
        if not state.recalled:
            keep = run.effect("remember", int, semantics="at-least-once", record="commit", fingerprint=receipt.key)
            await keep.call(self.knowledge.remember, state.document, [*state.findings], state.terms, self.places.survey)
        await self._commit(run, run.finish(receipt))

    async def _commit(self, run: Run[Any], commit: Awaitable[None]) -> None:
        """Commit, and note what the server answered, also if the lease is found lost while the answer is on its way."""

        async def answered() -> None:
            step = run.step + 1
            try:
                await commit
            except (AlreadyFinished, LeaseLost) as refused:
                # A commit that our own clock forbade was not sent, and nobody refused it.
                if "newest" in refused.ids or "status" in refused.ids:
                    self.journal.note("refused", thread=run.thread, step=step, fence=run.lease.fence, why=str(refused))
                raise
            self.journal.note(
                "acknowledged", thread=run.thread, step=run.step, checkpoint=run.checkpoint, fence=run.lease.fence,
                done=run.done,
            )  # fmt: skip

        asking = asyncio.ensure_future(answered())
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.shield(asking)
        except asyncio.CancelledError:
            await asyncio.wait({asking}, timeout=FAREWELL)
            raise

    def _entered(self, run: Run[Any]) -> None:
        self.journal.note(
            "entered", thread=run.thread, step=run.step, checkpoint=run.checkpoint, fence=run.lease.fence,
            takeover=run.lease.takeover,
        )  # fmt: skip

    async def _survey(self) -> Survey:
        plan = await self.board.thread(self.places.plan).latest(Plan)
        assert plan is not None, "the planner comes first"
        found, recalled = {}, set[str]()
        for document in plan.state.documents:
            latest = await self.board.thread(self.places.document(document)).latest(Reading)
            assert latest is not None, "the workers come before the writer"
            found[document.name] = (document, list(latest.state.findings), latest.state.terms)
            if latest.state.recalled:
                recalled.add(document.name)
        return Survey(found, recalled)

    async def _words(self, survey: Survey) -> str:
        if self.member.model is None:
            return survey.words()
        return await asyncio.to_thread(words_of_model, self.member.model, survey)


def stopper(point: str, time_reached: int, journal: Journal) -> Watcher:
    """Make a watcher that stops this process where it is told to, once, having said so."""
    left = time_reached

    def at(reached: str) -> None:
        nonlocal left
        left -= reached == point
        if left == 0 and reached == point:
            journal.note("stopped", point=point)
            os.kill(os.getpid(), signal.SIGSTOP)

    return at


async def start_signal() -> None:
    """Wait for a line from whoever started us; when they are gone, so are we, as if killed."""
    loop, started = asyncio.get_running_loop(), asyncio.Event()

    def heard() -> None:
        if not os.read(0, 64):
            os._exit(1)
        started.set()

    loop.add_reader(0, heard)
    await started.wait()


async def serve(member: Member) -> None:
    """Open the board, say so, wait for the start, and do what the role is."""
    journal = Journal(member.places, member.name)
    logging.basicConfig(filename=member.places.log, format="%(asctime)s %(process)d %(name)s: %(message)s")
    settings = Settings.load(backend={"retry_deadline": PATIENCE})
    async with Blackboard.open(directory=member.places.directory, settings=settings) as board:
        team = Team(board, member, journal)
        if member.role != "planner":
            await team.knowledge.load(search=member.role == "writer")
        journal.note("ready")
        await start_signal()
        roles: dict[str, Callable[[], Awaitable[None]]] = {
            "planner": team.planner, "worker": team.worker, "writer": team.writer
        }  # fmt: skip
        await roles[member.role]()
