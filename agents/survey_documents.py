"""What a survey reads and what it finds there: documents, their chunks, and an extraction that anybody can repeat."""

from __future__ import annotations

import hashlib
import re
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

__all__ = ["EXTRACTION", "Document", "Finding", "collect", "extract", "name_of", "read", "terms"]

ROOT = Path(__file__).resolve().parents[1]
USUAL = (
    (ROOT, ("*.md", "LICENSE", "docs/**/*.md", "namespaces/**/*.md")),
    (Path("/usr/share/common-licenses"), ("*",)),
    (Path(sysconfig.get_path("purelib")), ("*.dist-info/**/LICEN[CS]E*", "*.dist-info/**/COPYING*")),
)
"""Where documents are found on any machine: this project's own, and the licences of what is installed on it."""

READABLE = {"", ".md", ".txt", ".rst", ".text", ".markdown", ".adoc", ".org"}
LARGEST = 4 << 20
CHUNK = 4096
"""Bytes of a document that are read in one step; a chunk ends with a line."""

SENTENCES = 2
"""Key sentences per chunk."""

EXTRACTION = 1
"""Version of what is extracted: what was found by another one is not compared with it."""

LICENCES = (
    "Apache License",
    "Artistic License",
    "BSD License",
    "Creative Commons",
    "GNU Affero General Public License",
    "GNU Free Documentation License",
    "GNU General Public License",
    "GNU Lesser General Public License",
    "GNU Library General Public License",
    "ISC License",
    "MIT License",
    "Mozilla Public License",
    "Python Software Foundation License",
)
COMMON = frozenset(
    """about above after all also and any are because been before but can could did does each either else for from had
    has have her here him his how into its itself may more most must not nor now off one only other our out over own
    per shall she should some such than that the their them then there these they this those through too under until
    upon use used using very was were what when where which while who whom whose why will with within without would
    you your""".split()  # noqa: SIM905 - a text is read more easily than its list
)
WORD = re.compile(r"[a-z][a-z-]{2,}")
NAMED = re.compile("|".join(name.replace(" ", r"\s+") for name in LICENCES), re.IGNORECASE)
HEADING = re.compile(r"(?m)^(?:#{1,6} +(?P<marked>\S.*?)|(?P<shouted>[ \t]*[A-Z][A-Z ,.'()-]{7,70}))[ #\t]*$")
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"“(])")
ITEM = re.compile(r"\s*(?:[-*+•]|\(?[0-9a-z]{1,2}[.)])\s+")
NO_PROSE = re.compile(r"^\s*(?:[|#>`~]|[-*=_]{3}|<!--)")


class Document(BaseModel, frozen=True):
    """One document as it was planned: where it is, what it held, and at which byte each of its chunks ends."""

    name: str
    path: str
    size: int
    digest: str
    ends: tuple[int, ...]


class Finding(BaseModel, frozen=True):
    """One thing found in a document, and the byte of the document near which it stands."""

    kind: Literal["heading", "licence", "sentence"]
    text: str
    offset: int
    weight: int = 0

    def memory_text(self) -> str:
        """Say what it is found by when it is remembered."""
        return self.text


def collect(paths: Sequence[str], limit: int | None) -> list[Document]:
    """List the documents below some paths (or the usual places), each text once, in an order that does not change."""
    found: dict[str, Document] = {}
    names: set[str] = set()
    for name, path in _named(paths):
        if limit is not None and len(found) >= limit:
            break
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if content.strip() and b"\0" not in content and digest not in found:
            unique = name if name not in names else f"{name} ({digest[:8]})"
            names.add(unique)
            ends = tuple(_ends(content))
            found[digest] = Document(name=unique, path=str(path), size=len(content), digest=digest, ends=ends)
    return list(found.values())


def name_of(documents: Iterable[Document]) -> str:
    """Name a survey by what it reads: the same documents are the same survey, begun or finished."""
    whole = hashlib.sha256()
    for document in documents:
        whole.update(f"{document.name}\n{document.digest}\n".encode())
    return whole.hexdigest()[:12]


def read(document: Document, start: int, end: int) -> str:
    """Read some bytes of a document as text."""
    with Path(document.path).open("rb") as file:
        file.seek(start)
        return file.read(end - start).decode("utf-8", "replace")


def extract(text: str, offset: int) -> list[Finding]:
    """Find headings, names of licences and the key sentences of a chunk that begins at `offset`."""
    found = [_at(text, offset, match, "heading", _heading(match)) for match in HEADING.finditer(text)]
    licences = {_title(match[0]): match for match in NAMED.finditer(text)}
    found += [_at(text, offset, match, "licence", name) for name, match in licences.items()]
    weights = terms(text)
    ranked = sorted(_sentences(text), key=lambda one: (-_weight(one[1], weights), one[0]))[:SENTENCES]
    for place, sentence in sorted(ranked):
        at = offset + len(text[:place].encode())
        found.append(Finding(kind="sentence", text=sentence, offset=at, weight=_weight(sentence, weights)))
    return found


def terms(text: str) -> Counter[str]:
    """Count the words that say something."""
    return Counter(word for word in WORD.findall(text.lower()) if word not in COMMON)


def _named(paths: Sequence[str]) -> Iterator[tuple[str, Path]]:
    if not paths:
        for root, patterns in USUAL:
            prefix = "" if root == ROOT else f"{root.name}/"
            for path in sorted({path for pattern in patterns for path in root.glob(pattern)}):
                if _is_text(path) and not path.is_symlink():
                    yield f"{prefix}{path.relative_to(root)}", path
    for given in (Path(path).resolve() for path in paths):
        below = sorted(given.rglob("*")) if given.is_dir() else [given]
        for path in below:
            inside = path.relative_to(given) if given.is_dir() else Path(path.name)
            if _is_text(path) and not any(part.startswith(".") for part in inside.parts):
                yield str(inside), path


def _is_text(path: Path) -> bool:
    suffix = path.suffix.lower()
    known = suffix in READABLE or not suffix.isalpha() or path.name.upper().startswith(("LICEN", "COPYING"))
    return known and path.is_file() and path.stat().st_size <= LARGEST


def _ends(content: bytes) -> Iterator[int]:
    """Split at the last line end of every chunk; a line that is longer than a chunk is cut."""
    start = 0
    while start < len(content):
        end = start + CHUNK
        if end < len(content):
            end = content.rfind(b"\n", start, end) + 1 or end
        start = min(end, len(content))
        yield start


def _at(text: str, offset: int, match: re.Match[str], kind: Literal["heading", "licence"], said: str) -> Finding:
    return Finding(kind=kind, text=said, offset=offset + len(text[: match.start()].encode()))


def _heading(match: re.Match[str]) -> str:
    return (match["marked"] or match["shouted"]).strip()


def _title(name: str) -> str:
    spelled = " ".join(name.split()).lower()
    return next(known for known in LICENCES if known.lower() == spelled)


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    """Give the sentences of running text with their places; an item of a list is a paragraph of its own."""
    for place, paragraph in _paragraphs(text):
        at = place
        for sentence in SENTENCE.split(paragraph):
            if 40 <= len(sentence) <= 320 and sentence[-1] in ".!?" and not sentence[0].islower():
                yield at, sentence
            at += len(sentence) + 1


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    place = start = 0
    lines: list[str] = []
    for line in [*text.splitlines(keepends=True), ""]:
        item = ITEM.match(line)
        if item or not line.strip() or NO_PROSE.match(line):
            yield start, " ".join(lines)
            start, lines = place, []
        if not NO_PROSE.match(line):
            lines += line[item.end() if item else 0 :].split()
        place += len(line)


def _weight(sentence: str, weights: Counter[str]) -> int:
    """Weigh a sentence by how often its words are used around it, long ones held back; in thousandths."""
    words = set(terms(sentence))
    return round(1000 * sum(weights[word] for word in words) / (len(words) + 4))
