"""The documentation is true: its code runs, its links lead somewhere, its tables are those of the code."""

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

import blackboard

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [path for folder in ("docs", "namespaces", "agents", "benchmarks") for path in (ROOT / folder).rglob("*.md")]
    + [*ROOT.glob("*.md")]
)
CODE = re.compile(r"(?ms)^(?P<mark> *<!-- not run: [^\n]+ -->\n)? *```python\n(?P<code>.*?)^ *```$")
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
FENCED = re.compile(r"(?ms)^ *```.*?^ *```$")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(page: Path) -> list[str]:
    """The Python blocks of a page, but for those that a comment above them excuses with a reason."""
    return [textwrap.dedent(found["code"]) for found in CODE.finditer(page.read_text("utf-8")) if not found["mark"]]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"(?m)^#+ (.+)$", FENCED.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name)
def test_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """All blocks of a page together, in a new process and an empty folder that sees the repository's profiles."""
    (tmp_path / "namespaces").symlink_to(ROOT / "namespaces")
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(page)), "utf-8")
    clean = {key: value for key, value in os.environ.items() if not key.startswith("BLACKBOARD_")}
    environment = clean | {"PYTHONPATH": str(ROOT), "BLACKBOARD_DIR": str(tmp_path / "board")}
    answer = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr


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


def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_settings", ROOT / "docs" / "write_settings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_settings_reference_is_that_of_the_code() -> None:
    """`make docs` writes the tables anew."""
    module = writer()
    text = module.PAGE.read_text("utf-8")
    assert module.page(text) == text
    for table in module.TABLES.values():
        assert all(field.description for field in table.model_fields.values())


@pytest.mark.parametrize("public", [known for known in blackboard.__all__ if known != "__version__"])
def test_public_names_are_in_the_glossary_or_the_errors(public: str) -> None:
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text("utf-8")
    assert f"`{public}`" in text
