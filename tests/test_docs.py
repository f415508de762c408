"""The documentation is true: its code runs, its links lead somewhere, its tables are those of the code."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [path for folder in ("docs", "namespaces", "agents", "benchmarks") for path in (ROOT / folder).rglob("*.md")]
    + [*ROOT.glob("*.md")]
)
CODE = re.compile(
    r"(?ms)^(?P<mark> *<!-- (?:not run|run with (?P<server>\w+)): [^\n]+ -->\n)?"
    r" *```(?P<kind>python|sh|toml)\n(?P<code>.*?)^ *```$"
)
NEEDS = re.compile(r"(?m)^<!-- needs: (\w+) -->$")
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
FENCED = re.compile(r"(?ms)^ *```.*?^ *```$")
TOOLS = """\
import subprocess as _subprocess


def _shell(text):
    _subprocess.run(["sh", "-e", "-c", text], check=True)


def _profile(text):
    from pathlib import Path
    from blackboard import Settings

    first = text.partition("\\n")[0].removeprefix("# ")
    file = first if first.endswith(".toml") else "_page.toml"
    Path(file).write_text(text)
    return Settings.load(file)

"""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def is_ours(code: str) -> bool:
    """Tell whether a shell block uses nothing but our own command; others change the machine or take minutes."""
    return all(line.startswith(("blackboard ", "export ", "#")) for line in code.splitlines() if line)


def script(page: Path, server: str | None = None) -> str:
    """Make one program of a page: its Python, our own command, its settings, in their order.

    The excused are left out, and so are those that run with another server than the one that is there.
    """
    parts: list[str] = []
    for found in CODE.finditer(page.read_text("utf-8")):
        code = textwrap.dedent(found["code"])
        excused = found["mark"] and (server is None or found["server"] != server)
        if excused or (found["kind"] == "sh" and not is_ours(code)):
            continue
        parts.append({"python": code, "sh": f"_shell({code!r})", "toml": f"_profile({code!r})"}[found["kind"]])
    return "\n".join(parts)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"(?m)^#+ (.+)$", FENCED.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def place(tmp_path: Path) -> dict[str, str]:
    """Make an empty folder with the repository's profiles, and an environment with our command on its path."""
    (tmp_path / "namespaces").symlink_to(ROOT / "namespaces")
    tools = tmp_path / "bin"
    tools.mkdir()
    command = tools / "blackboard"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m blackboard "$@"\n')
    command.chmod(0o755)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("BLACKBOARD_")}
    return clean | {
        "PYTHONPATH": str(ROOT),
        "BLACKBOARD_DIR": str(tmp_path / "board"),
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
    }


def played(code: str, tmp_path: Path, **variables: str) -> str:
    """Run the code of a page in a new process and an empty folder, and return what it printed."""
    program = tmp_path / "page.py"
    program.write_text(TOOLS + code, "utf-8")
    answer = subprocess.run(
        [sys.executable, program],
        cwd=tmp_path,
        env=place(tmp_path) | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


@pytest.mark.parametrize("page", [page for page in PAGES if script(page)], ids=name)
def test_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """All blocks of a page together, in a new process and an empty folder; what a page is about has to be installed."""
    for module in NEEDS.findall(page.read_text("utf-8")):
        pytest.importorskip(module, reason=f"the page is about {module}: install agent-blackboard[{module}]")
    played(script(page), tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_block_says_what_it_is(page: Path) -> None:
    """So that no block escapes the tests by having no language."""
    opened = re.findall(r"(?m)^ *```(.*)$", page.read_text("utf-8"))[::2]
    assert set(opened) <= {"python", "sh", "toml", "text", "lua", "json"}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for found in LINK.finditer(FENCED.sub("", page.read_text("utf-8"))):
        target, _, anchor = found["target"].partition("#")
        if "://" in target:
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(found["target"])
    assert broken == []


@pytest.mark.parametrize("folder", ["tutorial", "how-to", "reference", "explanation"])
def test_every_page_stands_in_its_index(folder: str) -> None:
    index = (ROOT / "docs" / folder / "README.md").read_text("utf-8")
    missing = [page.name for page in (ROOT / "docs" / folder).glob("*.md") if f"]({page.name})" not in index]
    assert missing == ["README.md"]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_page_is_for_one_machine_only(page: Path) -> None:
    """No path of somebody's machine, no date."""
    text = page.read_text("utf-8")
    assert re.findall(r"(?:/home/|/root|/tmp/|/work/|/Users/)\S*|\b20\d\d-\d\d-\d\d\b", text) == []
