"""The survey as a person runs it: a team of processes that may be killed anywhere, and a check that can fail."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from blackboard.store import embedded

ROOT = Path(__file__).parents[2]
SURVEY = ROOT / "agents" / "survey.py"
DOCUMENTS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of several chunks, each with headings, sentences and the name of a licence."""
    directory = tmp_path_factory.mktemp("documents")
    for number in range(DOCUMENTS):
        sections = [
            f"# Part {part} of book {number}\n\nThe keeper of part {part} counts {number * part} ships, and writes every ship down. "
            f"A ship that was counted twice is counted by nobody. It stands under the MIT License.\n\n{'Filler words. ' * 40}\n"
            for part in range(30)
        ]
        (directory / f"book-{number:02}.md").write_text("\n".join(sections), "utf-8")
    return directory


@pytest_asyncio.fixture
async def directory(tmp_path: Path) -> AsyncIterator[Path]:
    yield tmp_path / "data"
    await embedded.down(tmp_path / "data", force=True)


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("BLACKBOARD_", "OPENAI_"))}
    return clean | {"PYTHONPATH": str(ROOT)} | dict(more or {})


def run(*options: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SURVEY, *options]
    return subprocess.run(command, env=environment(env), capture_output=True, text=True, timeout=240, check=False)


def counted(*options: str | Path, code: int = 0, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run it and return what it counted."""
    answer = run(*options, "--json", env=env)
    assert answer.returncode == code, answer.stderr
    assert "\x1b" not in answer.stderr + answer.stdout, "no colours where there is no terminal"
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def events(directory: Path) -> list[dict[str, Any]]:
    return [event for path in directory.glob("survey-*/journals/*.jsonl") for event in lines(path)]


def pick(found: dict[str, Any], *names: str) -> list[Any]:
    return [found[name] for name in names]


def test_undisturbed(folder: Path, directory: Path) -> None:
    """A ledger with a line too many or too few, a report without a document, a step that is gone: all are noticed."""
    options = ("--path", folder, "--directory", directory)
    found = counted(*options, "--workers", "5")
    assert pick(found, "documents", "takeovers", "refused", "resolved", "lost", "repeated") == [
        DOCUMENTS,
        0,
        0,
        0,
        0,
        0,
    ]
    assert found["once"] == 3 * DOCUMENTS + 2
    assert found["acknowledged"] == found["steps"]
    (ledger,) = directory.glob("survey-*/ledger.jsonl")
    assert sorted(line["document"] for line in lines(ledger)) == sorted(path.name for path in folder.iterdir())
    report = Path(found["report"]).read_text("utf-8")
    assert [line for line in report.splitlines() if line.startswith("### ")] == [
        f"### book-{number:02}.md" for number in range(DOCUMENTS)
    ]
    assert f"| MIT License | {DOCUMENTS} | book-00.md |" in report
    notice_what_is_wrong(options, directory, ledger, Path(found["report"]))


def test_a_second_survey_reads_what_has_changed_alone(folder: Path, directory: Path, tmp_path: Path) -> None:
    """What is known by its bytes is recalled and cited; of a changed document what was found before is forgotten."""
    library = tmp_path / "library"
    shutil.copytree(folder, library)
    options = ("--path", library, "--directory", directory)
    assert pick(counted(*options), "read", "recalled", "once") == [DOCUMENTS, 0, 3 * DOCUMENTS + 2]
    assert pick(counted(*options), "read", "recalled") == [0, DOCUMENTS]

    for name in ("book-03.md", "book-07.md"):
        text = f"# A new edition\n\nThe keeper of {name} counts no ships any more, and nobody asks for them.\n"
        (library / name).write_text(text, "utf-8")
    (library / "book-99.md").write_text("# A new book\n\nNobody has read this book before, and somebody does now.\n")
    found = counted(*options)
    assert pick(found, "documents", "read", "recalled", "lost", "repeated") == [DOCUMENTS + 1, 3, DOCUMENTS - 2, 0, 0]
    assert found["once"] == 3 * 3 + 2 * (DOCUMENTS - 2) + 2, "nothing is remembered of what was recalled"
    assert read_in(directory, found) == {"book-03.md", "book-07.md", "book-99.md"}
    report = Path(found["report"]).read_text("utf-8")
    assert report.count("Recalled, not read again.") == DOCUMENTS - 2
    cited = report.partition("## Known before")[2].partition("## Documents")[0]
    assert re.findall(r"> \((book-\d\d\.md), as it was read in an earlier survey\)", cited)
    assert "book-03.md" not in cited, "its findings are of other bytes"

    assert pick(counted(*options, "--afresh", "--documents", "5"), "read", "recalled") == [5, 0]


def read_in(directory: Path, found: dict[str, Any]) -> set[str]:
    """Which documents were read in the survey that this report is of, by the journals of its members."""
    survey = directory / Path(found["report"]).stem
    noted = [event for path in survey.glob("journals/*.jsonl") for event in lines(path) if event["event"] == "read"]
    return {event["thread"].rpartition("/")[2] for event in noted}


def notice_what_is_wrong(options: tuple[str | Path, ...], directory: Path, ledger: Path, report: Path) -> None:
    """The check can fail: each of these is counted, and ends with exit code 1."""
    whole, text = ledger.read_text("utf-8"), report.read_text("utf-8")
    first = whole.splitlines(keepends=True)[0]
    ledger.write_text(whole + first, "utf-8")
    assert pick(counted(*options, code=1), "lost", "repeated") == [0, 1]
    ledger.write_text(whole.removeprefix(first), "utf-8")
    report.write_text(text.replace("### book-03.md\n", ""), "utf-8")
    assert pick(counted(*options, code=1), "lost", "repeated") == [2, 0]
    ledger.write_text(whole, "utf-8")
    report.write_text(text, "utf-8")
    said = next(event for event in events(directory) if event["event"] == "acknowledged")
    (journals,) = directory.glob("survey-*/journals")
    (journals / "liar.jsonl").write_text(json.dumps(said | {"step": said["step"] + 1000}) + "\n", "utf-8")
    assert pick(counted(*options, code=1), "lost", "repeated") == [1, 0]
    (journals / "liar.jsonl").unlink()
    assert pick(counted(*options), "lost", "repeated") == [0, 0]
    command = [sys.executable, "-m", "blackboard", "--directory", str(directory), "memory"]
    forget = ["forget", "survey/findings", "--where", '{"document": "book-05.md"}', "--yes", "--json"]
    done = subprocess.run([*command, *forget], env=environment(), capture_output=True, text=True, check=True)
    assert pick(counted(*options, code=1), "lost", "repeated") == [json.loads(done.stdout)["count"], 0]
    disturbed = run(*options, "--chaos")
    assert disturbed.returncode == 1
    assert "name another --directory" in disturbed.stderr


@pytest.mark.parametrize("workers", ["3", pytest.param("1", marks=pytest.mark.chaos)])
def test_chaos(folder: Path, workers: str) -> None:
    """Two workers and the server are killed, a third is a zombie; afterwards only the report is left."""
    with tempfile.TemporaryDirectory() as temporary:
        found = counted("--path", folder, "--chaos", "--workers", workers, env={"TMPDIR": temporary})
        assert pick(found, "documents", "accepted", "lost", "repeated", "wrong") == [DOCUMENTS, 0, 0, 0, []]
        assert found["once"] == 3 * DOCUMENTS + 2
        assert found["takeovers"] >= 2  # a worker may die when its last commit had closed its document
        assert found["refused"] >= 1
        assert found["resolved"] >= 1
        assert list(Path(temporary).glob("survey-*")) == [Path(found["report"])]


def test_it_goes_on_after_the_foreman_was_killed(folder: Path, directory: Path) -> None:
    options = ("--path", folder, "--directory", directory)
    foreman = subprocess.Popen([sys.executable, SURVEY, *options], env=environment(), stderr=subprocess.PIPE)
    until = time.monotonic() + 60
    while (seen := told(directory)) < 10:
        assert time.monotonic() < until, "nothing was acknowledged"
        assert foreman.poll() is None, "it ended too early"
        time.sleep(0.002)
    foreman.send_signal(signal.SIGKILL)
    assert foreman.stderr is not None
    foreman.stderr.read()  # until its members, who hold the other end, are gone
    foreman.wait()
    foreman.stderr.close()
    finished = [event for event in events(directory) if event.get("done")]
    assert len(finished) < DOCUMENTS + 2, "there must be something left to do"

    found = counted(*options)
    assert pick(found, "documents", "accepted", "lost", "repeated") == [DOCUMENTS, 0, 0, 0]
    assert found["once"] == 3 * DOCUMENTS + 2
    assert found["acknowledged"] >= seen
    again = counted(*options)
    assert pick(again, "steps", "once", "report") == pick(found, "steps", "once", "report")


def test_a_line_that_was_never_entered_is_entered_by_the_next_worker(folder: Path, directory: Path) -> None:
    """A worker dies after its effect was recorded as running and before it acted: unknown, looked for, done."""
    options = ("--path", folder, "--directory", directory)
    script = "import sys; sys.path.insert(0, sys.argv[1]); from survey_documents import *; print(name_of(collect(sys.argv[2:], None)))"
    asked = [sys.executable, "-c", script, str(SURVEY.parent), str(folder)]
    survey = subprocess.run(asked, env=environment(), capture_output=True, text=True, check=True).stdout.strip()
    places = {"directory": str(directory), "survey": survey}
    with member({"role": "planner", "name": "planner", "places": places, "paths": [str(folder)]}) as planner:
        assert planner.wait(60) == 0
    stop = {"role": "worker", "name": "victim", "places": places, "stop_at": ["begin.lua:after", 1]}
    with member(stop):
        until = time.monotonic() + 60
        while not any(b'"stopped"' in path.read_bytes() for path in directory.glob("survey-*/journals/victim*")):
            assert time.monotonic() < until, "it does not get there"
            time.sleep(0.01)
    found = counted(*options)
    assert pick(found, "resolved", "takeovers", "lost", "repeated") == [1, 1, 0, 0]
    assert [event["happened"] for event in events(directory) if event["event"] == "resolved"] == [False]


@contextmanager
def member(told: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Start one member of a team and let it begin; it is killed at the end if it is still there."""
    command = [sys.executable, str(SURVEY), "member", json.dumps(told)]
    with subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        os.write(process.stdin.fileno(), b"go\n")
        try:
            yield process
        finally:
            process.kill()


def told(directory: Path) -> int:
    """How many steps members noted as acknowledged; the line that is being written does not count."""
    return sum(path.read_bytes().count(b'"acknowledged"') for path in directory.glob("survey-*/journals/*.jsonl"))


def test_a_model_writes_the_words_once(folder: Path, directory: Path) -> None:
    with model("Books about ships.") as (url, asked):
        asking = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "key", "OPENAI_MODEL": "small"}
        options = ("--path", folder, "--documents", "3", "--directory", directory, "--model")
        found = counted(*options, env=asking)
        counted(*options, env=asking)
    assert Path(found["report"]).read_text("utf-8").splitlines()[2] == "Books about ships."
    (body,) = asked
    assert body["model"] == "small"
    assert "book-02.md: " in body["messages"][0]["content"]


@contextmanager
def model(words: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Answer as an OpenAI-compatible endpoint does; gives its address and what it is asked."""
    asked: list[dict[str, Any]] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert (self.path, self.headers["Authorization"]) == ("/v1/chat/completions", "Bearer key")
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            body = json.dumps({"choices": [{"message": {"role": "assistant", "content": words}}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_terminal_shows_a_bar(folder: Path, directory: Path) -> None:
    command = [sys.executable, str(SURVEY), "--path", str(folder), "--documents", "3", "--directory", str(directory)]
    script = "import os, pty, sys; code = pty.spawn(sys.argv[1:]); sys.exit(os.waitstatus_to_exitcode(code))"
    answer = subprocess.run(
        [sys.executable, "-c", script, *command],
        env=environment({"TERM": "xterm", "COLUMNS": "100"}), stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout
    assert b"3/3" in answer.stdout
    assert b"lost" in answer.stdout


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--documents", "0"), 2, "--documents"),
        (("--model", "small"), 2, "OPENAI_API_KEY"),
        (("--model",), 2, "OPENAI_MODEL"),
        (("--path", "no-such-folder"), 1, "no-such-folder"),
    ],
)
def test_what_is_asked_wrongly_is_said(options: tuple[str, ...], code: int, said: str) -> None:
    answer = run(*options)
    assert answer.returncode == code
    assert said in answer.stderr
    assert "Traceback" not in answer.stderr


def test_any_machine_has_a_dozen_documents() -> None:
    script = (
        "import sys; sys.path[0:0] = sys.argv[1:]; from survey_documents import collect; print(len(collect((), None)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script, SURVEY.parent], env=environment(), capture_output=True, text=True, check=True
    )
    assert int(answer.stdout) >= 12


def test_the_folder_does_not_shadow_a_package_of_its_name(tmp_path: Path) -> None:
    """The OpenAI SDK is imported as `agents`; it is found although our folder comes first on the path."""
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").write_text("")
    answer = subprocess.run(
        [sys.executable, "-c", "import agents; print(agents.__file__)"], cwd=ROOT,
        env=environment({"PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path)))}), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(answer.stdout.strip()) == tmp_path / "agents" / "__init__.py"
