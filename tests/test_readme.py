"""The front page as a newcomer meets it: its program, killed and started again, prints what the page says."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from blackboard.distribution import rivals

from .test_docs import place

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text("utf-8")
Start = Callable[..., subprocess.CompletedProcess[str]]


def blocks(kind: str) -> list[str]:
    return re.findall(rf"(?ms)^```{kind}\n(.*?)^```$", TEXT)


@pytest.fixture
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    """Start a program of the page, the first one or another, with arguments, in a folder of its own."""
    environment = place(tmp_path)
    program = tmp_path / "program.py"
    program.write_text(blocks("python")[getattr(request, "param", 0)], "utf-8")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, program, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_killed_and_started_again(start: Start) -> None:
    killed, resumed, finished = start("crash"), start(), start()
    assert [killed.returncode, resumed.returncode, finished.returncode] == [-signal.SIGKILL, 0, 0], resumed.stderr
    assert [killed.stdout, resumed.stdout, finished.stdout] == blocks("text")[:3]


@pytest.mark.parametrize("start", [1], indirect=True)
def test_it_remembers(start: Start) -> None:
    pytest.importorskip("faiss", reason="install agent-blackboard[memory]")
    done = start()
    assert (done.returncode, [done.stdout]) == (0, blocks("text")[3:]), done.stderr


def test_rivals_are_named_and_not_here() -> None:
    assert "`blackboardx`" in TEXT
    assert "`blackboard-core`" in TEXT
    assert rivals() == []


def test_every_extra_is_mentioned() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    table = project.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = set(re.findall(r"(?m)^(\w+) = \[", table)) - {"all", "dev"}
    assert {extra for extra in extras if f"[{extra}]'" not in TEXT and f"`{extra}`" not in TEXT} == set()
