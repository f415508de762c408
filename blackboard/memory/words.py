"""Text to words: what the lexicon counts and what a query is made of."""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from threading import local
from typing import Any

__all__ = ["words"]

_APOSTROPHES = str.maketrans({"\u2019": "'", "\u02bc": "'", "\u2018": "'"})
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # Japanese, with the next two
    (0x3040, 0x30FF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han, with the next three
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x323AF),
    (0xAC00, 0xD7AF),  # Hangul, whose particles are written to the word
)
"""Scripts that write words without spaces between them."""


def words(text: str) -> list[str]:
    """Split a text into words, in order, the same way everywhere and always.

    Compatibility forms and case are folded (NFKC, casefold) and English words stemmed (Snowball). Numbers stay. What is
    joined by ``. - _ @ : /`` and holds a digit, ``_``, ``@`` or ``.`` (`3.14`, `2026-05-07`, `user_id`, `a@b.org`) counts
    as a whole besides its parts. Scripts written without spaces give single characters and pairs of neighbours. No word
    is left out: how often it occurs decides what it is worth.
    """
    found: list[str] = []
    if text.isascii():
        pieces = _ascii().findall(text.lower())
    else:
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        pieces = _unicode().findall(folded.translate(_APOSTROPHES))
    for piece in pieces:
        if piece.isalnum() and piece.isascii():
            found.append(_stem(piece))
        else:
            found += _several(piece)
    return found


def _several(piece: str) -> list[str]:
    """Split what is no plain word: joined words, words with marks, and runs without spaces."""
    if any(first <= ord(piece[0]) <= last for first, last in _UNSPACED):
        return [*piece, *(piece[at : at + 2] for at in range(len(piece) - 1))]
    parts = [_stem(part) for part in re.split(r"[-._@:/]+", piece)]
    whole = len(parts) > 1 and any(mark in "_@." or mark.isdigit() for mark in piece)
    return [piece, *parts] if whole else parts


def _compiled(letter: str, pairs: str) -> re.Pattern[str]:
    word = f"{letter}+(?:'{letter}+)*"
    return re.compile(f"{word}(?:[-._@:/]+{word})*(?:\\+\\+|#)?{pairs}")


@cache
def _ascii() -> re.Pattern[str]:
    return _compiled("[a-z0-9]", "")


@cache
def _unicode() -> re.Pattern[str]:
    """Letters, digits and the marks that stand on them, which are no word characters to `re`."""
    unspaced = "".join(f"{chr(first)}-{chr(last)}" for first, last in _UNSPACED)
    taken = [code for first, last in _UNSPACED for code in range(first, last + 1)]
    codes = sorted({code for code in range(0x20000) if unicodedata.category(chr(code))[0] in "LNM"}.difference(taken))
    starts = [code for code, before in zip(codes, [-1, *codes], strict=False) if code != before + 1]
    ends = [code for code, after in zip(codes, [*codes[1:], -1], strict=True) if code != after - 1]
    letters = "".join(f"{chr(first)}-{chr(last)}" for first, last in zip(starts, ends, strict=True))
    return _compiled(f"[{letters}]", f"|[{unspaced}]+")


_stemmers = local()
"""A stemmer keeps state while it works, so each thread has its own."""


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    if not word.isascii() or word.isdigit():
        return word
    stemmer: Any = getattr(_stemmers, "english", None)
    if stemmer is None:
        stemmer = _stemmers.english = _english()
    return str(stemmer.stemWord(word))


def _english() -> Any:
    import Stemmer

    module: Any = Stemmer  # it carries no types
    return module.Stemmer("english", 0)  # its own cache is off: `lru_cache` is one for all threads
