# /// script
# requires-python = ">=3.11"
# dependencies = ["agent-blackboard[embedded,cli,memory]"]
# ///
"""A team of processes surveys a folder of documents, and may be killed anywhere: `python agents/survey.py --chaos`.

A planner splits the work, workers read and record what they find, each document with one line in a ledger outside the
board, and a writer composes a report. What was found is remembered: the next survey in the same directory reads only
the documents that have changed. With `--chaos` one worker is killed between an effect and its record, one in the
middle of a commit, one is stopped beyond its lease and woken, and the server is killed once. At the end everything is
checked from outside; the exit code is 0 only if nothing was lost and nothing done twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from blackboard import Blackboard, BlackboardError
from blackboard.store import embedded
from survey_check import Findings, check
from survey_crew import DISTURBANCES, Crew, Event
from survey_documents import Document, collect, name_of
from survey_report import missing_for_model
from survey_screen import Screen, screen, table
from survey_team import Member, Places, serve

FEWEST = 4
"""Documents that chaos needs: one for every worker that is lost, and one more."""


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--path", action="append", default=[], metavar="PATH",
                        help="a folder or file to survey, may be repeated (default: this project's documents and the licences on this machine)")  # fmt: skip
    parser.add_argument("--documents", type=_positive, default=None, metavar="N", help="survey the first N documents (default: 32, or all below --path)")  # fmt: skip
    parser.add_argument("--workers", type=_positive, default=3, metavar="N", help="worker processes (default: 3)")
    parser.add_argument("--chaos", action="store_true", help="kill two workers and the server, stop one worker beyond its lease")  # fmt: skip
    parser.add_argument("--afresh", action="store_true", help="read every document, also those that are known (--chaos does, to have something to disturb)")  # fmt: skip
    parser.add_argument("--directory", type=Path, default=None, metavar="DIR", help="where the data stays; the same directory goes on with a survey that was interrupted (default: BLACKBOARD_DIR, else a temporary one that is removed)")  # fmt: skip
    parser.add_argument("--out", type=Path, default=None, metavar="FILE", help="the report (default: in the directory, or a temporary file)")  # fmt: skip
    parser.add_argument("--model", nargs="?", const=os.environ.get("OPENAI_MODEL", ""), default=None, metavar="NAME",
                        help="have a model write the summary: OPENAI_BASE_URL, OPENAI_API_KEY, and OPENAI_MODEL unless named here")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    chosen = parser.parse_args(argv)
    if chosen.model == "":
        parser.error("--model needs a name, here or in OPENAI_MODEL")
    if chosen.model and (missing := missing_for_model()):
        parser.error(f"--model needs {missing} in the environment")
    return chosen


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


@contextmanager
def data(chosen: Path | None) -> Iterator[tuple[Path, bool]]:
    """Give the data directory, and whether it stays; a temporary one is removed with the server in it."""
    named = chosen or os.environ.get("BLACKBOARD_DIR")
    if named:
        yield Path(named).expanduser().resolve(), True
        return
    temporary = Path(tempfile.mkdtemp(prefix="survey-"))
    try:
        yield temporary, False
    finally:
        asyncio.run(embedded.down(temporary, force=True))
        shutil.rmtree(temporary, ignore_errors=True)


async def survey(chosen: argparse.Namespace, documents: list[Document], places: Places, shown: Screen) -> Findings:
    """Have the documents surveyed, unless they have been, and check what came of it."""
    async with Blackboard.open(directory=places.directory) as board:
        if chosen.chaos and await board.thread(places.plan).latest() is not None:
            raise SystemExit(
                f"--chaos needs a fresh survey, and {places.directory} has this one already: name another --directory"
            )
        if await board.thread(places.report).status() == "finished":
            shown.say("this survey is finished: it is checked again")
            return told(await check(board, places), set())
        steps = {places.document(one): len(one.ends) + 2 for one in documents}  # the first, every chunk, the last

        reading = set[str]()

        def watch(event: Event) -> None:
            if event["event"] == "read":
                reading.add(event["thread"])
            if event["event"] in ("acknowledged", "entered") and event["thread"] in steps:
                shown.step(event["thread"], event["step"] + 1, done=event.get("done", False))

        crew = Crew(board, places, shown.say, watch)
        reading.clear()  # what an interrupted run has read is known by now
        try:
            await work(chosen, places, crew, sum(steps.values()))
        finally:
            crew.dismiss()
        found = told(await check(board, places), reading)
    if chosen.chaos:
        missed = [name for name in DISTURBANCES if name not in crew.played]
        found.wrong += [f"the disturbance {name!r} did not happen" for name in missed]
        found.wrong += [] if found.refused else ["no stale write was refused"]
        found.wrong += [] if found.resolved else ["no unknown effect was resolved"]
    return found


def told(found: Findings, reading: set[str]) -> Findings:
    """Say how many documents this run has read, whole or in part; the others were known when it began."""
    found.read, found.recalled = len(reading), found.documents - len(reading)
    return found


async def work(chosen: argparse.Namespace, places: Places, crew: Crew, steps: int) -> None:
    """Start the team at once, a start takes longer than the work, and call one role after the other."""
    paths, out = tuple(chosen.path), str(chosen.out)
    crew.enlist(Member(role="planner", name="planner", places=places, paths=paths, limit=chosen.documents))
    crew.hire(chosen.workers, afresh=chosen.afresh or chosen.chaos, chaos=chosen.chaos)
    crew.enlist(Member(role="writer", name="writer", places=places, out=out, model=chosen.model))
    await crew.call("planner")
    await crew.call("worker", restart_after=steps // 2 if chosen.chaos else None)
    await crew.call("writer")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the survey and show what came of it; 0 only if all is as it must be."""
    chosen = arguments(argv)
    began = time.monotonic()
    if chosen.documents is None and not chosen.path:
        chosen.documents = 32
    documents = collect(chosen.path, chosen.documents)
    if len(documents) < (FEWEST if chosen.chaos else 1):
        raise SystemExit(f"{len(documents)} documents were found in {', '.join(chosen.path)}: not enough")
    with data(chosen.directory) as (directory, stays):
        places = Places(directory=directory, survey=name_of(documents))
        kept = places.files if stays else Path(tempfile.gettempdir())
        chosen.out = (chosen.out or kept / f"survey-{places.survey}.md").resolve()
        with screen(len(documents), plain=chosen.json) as shown:
            found = asyncio.run(survey(chosen, documents, places, shown))
    result = asdict(found) | {"seconds": round(time.monotonic() - began, 1)}
    print(json.dumps(result, indent=2) if chosen.json else table(rows(result)))
    for wrong in found.wrong:
        print(f"wrong: {wrong}", file=sys.stderr)
    return 1 if found.wrong or found.lost or found.repeated or found.accepted else 0


def rows(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Lay out what was counted."""
    named = {
        "documents": "documents", "read": "of them read", "recalled": "of them recalled, not read", "steps": "steps committed", "acknowledged": "of them acknowledged, and found",
        "takeovers": "takeovers", "refused": "stale writes refused", "accepted": "stale writes accepted",
        "once": "effects done once", "resolved": "effects unknown and resolved", "lost": "lost", "repeated": "repeated",
        "seconds": "seconds", "report": "report",
    }  # fmt: skip
    return [(said, str(result[name])) for name, said in named.items()]


if __name__ == "__main__":
    try:
        if sys.argv[1:2] == ["member"]:  # the crew starts its members through this file, too
            sys.exit(asyncio.run(serve(Member.model_validate_json(sys.argv[2]))))
        sys.exit(main())
    except BlackboardError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; a survey with a --directory goes on when it is run again")
