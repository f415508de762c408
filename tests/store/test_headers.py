"""Every script says with what it is called, and every call of every test is held to it (see the fixture `headers`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from blackboard.errors import BlackboardError
from blackboard.store.client import Store
from blackboard.store.script import Script
from tests.headers import LIBRARY, PRELUDES, SCRIPTS, Count, Header

PREFIXED = {
    "chain.lua",
    "frames.lua",
    "guard.lua",
    "path.lua",
    "records.lua",
    "said.lua",
    "sets.lua",
    "sources.lua",
    "thread.lua",
}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(LIBRARY)))
def test_a_script_says_what_it_is_called_with(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("-- KEYS:"))
    assert [line.split(":")[0] for line in lines[start : start + 3]] == ["-- KEYS", "-- ARGV", "-- Returns"]
    assert all(line.startswith("-- ") for line in lines[: start + 3])
    assert lines[start - 1].endswith(".")
    header = Header.of(path)
    assert header.keys.least >= 1 or path.name == "probe.lua"


def test_only_preludes_have_no_header() -> None:
    assert {path.name for path in PRELUDES} == PREFIXED


@pytest.mark.parametrize(
    ("names", "counted"),
    [
        (" meta, lock", Count(2, more=False)),
        (" meta, victim...", Count(1, more=True)),
        ("", Count(0, more=False)),
        (" a, b, c..., d", Count(2, more=True)),
    ],
)
def test_names_are_counted(names: str, counted: Count) -> None:
    assert Count.of(names) == counted


async def test_a_call_that_does_not_fit_is_caught(store: Store) -> None:
    """The fixture sees the calls of every room: a key too few, an argument too many."""
    release = Script("blackboard.claims", "release.lua", prelude=("guard.lua",))
    wrong: list[tuple[list[str], list[str | int]]] = [(["{t}meta"], ["a", 1]), (["{t}meta", "{t}lock"], ["a", 1, 2])]
    for keys, args in wrong:
        with pytest.raises(AssertionError, match=r"release.lua names"):
            await store.call(release, keys, args)
    with pytest.raises(BlackboardError):
        await store.call(Script("blackboard.claims", "release.lua"), ["{t}meta", "{t}lock"], ["a", 1])


def test_every_script_belongs_to_a_wrapper() -> None:
    """A file that no module loads is called by nobody."""
    modules = [path for path in LIBRARY.rglob("*.py") if path.parent != LIBRARY / "testing"]
    text = "\n".join(path.read_text("utf-8") for path in modules)
    assert [path.name for path in SCRIPTS if f'"{path.name}"' not in text] == []
