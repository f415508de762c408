"""Texts of several languages, numbers and identifiers, split into words."""

import hashlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blackboard.memory.words import words

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("— … !?", []),
        ("Running in Cities, runs in a city.", ["run", "in", "citi", "run", "in", "a", "citi"]),
        ("Anna’s dog isn't O'Brien's", ["anna", "dog", "isn't", "o'brien"]),
        ("Straße STRASSE ﬁnal ＡＢＣ", ["strass", "strass", "final", "abc"]),
        ("Café cafe\u0301", ["café", "café"]),
        ("Łódź, Þórr; Ναὶ ΣΊΣΥΦΟΣ", ["łódź", "þórr", "ναὶ", "σίσυφοσ"]),
        ("Данные и Йод", ["данные", "и", "йод"]),
        ("हिन्दी में लिखा", ["हिन्दी", "में", "लिखा"]),
        ("السلام عليكم", ["السلام", "عليكم"]),
        ("東京都", ["東", "京", "都", "東京", "京都"]),
        ("猫", ["猫"]),
        ("ﾈｺ とネコ", ["ネ", "コ", "ネコ", "と", "ネ", "コ", "とネ", "ネコ"]),
        ("한국어 책", ["한", "국", "어", "한국", "국어", "책"]),
        ("iPhone15を買う", ["iphone15", "を", "買", "う", "を買", "買う"]),
        ("π is 3.14, not 22/7", ["π", "is", "3.14", "3", "14", "not", "22/7", "22", "7"]),
        ("2026-05-07 at 10:30", ["2026-05-07", "2026", "05", "07", "at", "10:30", "10", "30"]),
        ("state-of-the-art", ["state", "of", "the", "art"]),
        ("user_id=a.b@example.org", ["user_id", "user", "id", "a.b@example.org", "a", "b", "exampl", "org"]),
        ("C++ and C# are not c", ["c++", "and", "c#", "are", "not", "c"]),
        ("__init__ 007 1e9", ["init", "007", "1e9"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    """No text is refused, no word is empty, and case makes no difference."""
    found = words(text)
    assert all(found)
    assert words(text) == found
    assert words(text + " end")[-1] == "end"


def test_the_same_in_every_process_and_thread() -> None:
    text = "Organisations running 3.14 東京タワー हिन्दी " * 20
    here = hashlib.sha256("\n".join(words(text)).encode()).hexdigest()
    script = (
        "import hashlib; from blackboard.memory.words import words;"
        f"print(hashlib.sha256('\\n'.join(words({text!r})).encode()).hexdigest())"
    )
    answer = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True, text=True)
    assert answer.stdout.strip() == here
    found: list[list[str]] = []

    def split(number: int) -> None:
        found.extend(words(f"running{number}x{turn} organisations nationalities") for turn in range(50))

    threads = [threading.Thread(target=split, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {tuple(row[1:]) for row in found} == {("organis", "nation")}
    assert len(found) == 200
