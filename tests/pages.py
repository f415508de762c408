"""What the tests of the reference share: its pages, a state, and actions that end as they should."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from blackboard import Log

__all__ = ["REFERENCE", "ROOT", "State", "broken", "nothing", "table"]

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"


def table(page: Path, mark: str) -> list[list[str]]:
    """Read the rows of a marked table, its cells without backquotes around them."""
    text = page.read_text("utf-8")
    body = text.partition(f"<!-- table {mark} -->")[2].partition(f"<!-- end {mark} -->")[0]
    lines = [line for line in body.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


class State(BaseModel):
    lines: Log[str] = Log()
    text: str = "x" * 1000


def nothing() -> None:
    return None


def broken() -> None:
    raise ConnectionError("lost")
