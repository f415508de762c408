"""The agent of the tutorial is killed at every line that it prints, and does its work once."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .test_docs import place

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "tutorial" / "first-agent.md").read_text("utf-8")
AGENT = next(code for code in re.findall(r"(?ms)^```python\n(.*?)^```$", TEXT) if "outbox" in code)
CHAPTERS = ["leases", "fences", "effects"]
RESULT = str([f"{chapter} in one sentence" for chapter in CHAPTERS])


class Agent:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = place(folder)
        (folder / "agent.py").write_text(AGENT, "utf-8")

    def until(self, line: str) -> list[str]:
        """Start it, kill it when it has printed the line, and return what it printed; or all, if it ended before."""
        process = subprocess.Popen(
            [sys.executable, "agent.py"], cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        printed: list[str] = []
        for text in process.stdout:
            printed.append(text.rstrip("\n"))
            if printed[-1] == line:
                process.send_signal(signal.SIGKILL)
        process.stdout.close()
        assert process.wait(60) == (-signal.SIGKILL if line in printed else 0)
        return printed


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def test_killed_while_it_reads_and_while_it_sends(agent: Agent) -> None:
    assert agent.until("reading fences") == ["reading leases", "reading fences"]
    assert agent.until("sending") == ["reading fences", "reading effects", "sending"]
    last = agent.until("")
    assert last[0] == "did it go out?"
    assert last[-1] == RESULT
    assert [line.partition(" ")[2] for line in (agent.folder / "outbox.txt").read_text().splitlines()] == [
        "; ".join(f"{chapter} in one sentence" for chapter in CHAPTERS)
    ]
    assert agent.until("") == [RESULT]
