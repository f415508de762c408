"""The report of a survey: what was found in every document, in words that are its own or those of a model."""

from __future__ import annotations

import json
import os
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from survey_documents import Document, Finding
from survey_memory import Cited

__all__ = ["Survey", "compose", "heading", "missing_for_model", "words_of_model"]

SENTENCES, HEADINGS, TERMS = 3, 8, 12
"""How many of them the report shows: per document, per document, in all."""

MODEL_SECONDS = 120.0
ENDPOINT = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Survey:
    """Everything that the workers found: by name, the document, its findings and how often it uses which term.

    `recalled` are the names of documents that were known already and not read again.
    """

    found: Mapping[str, tuple[Document, Sequence[Finding], Mapping[str, int]]]
    recalled: AbstractSet[str]

    def words(self) -> str:
        """Say what it is about without a model: the sentences that weigh most, one of each document, in their order."""
        best = {name: _best(findings, 1) for name, (_, findings, _) in self.found.items()}
        heaviest = sorted((name for name, found in best.items() if found), key=lambda name: -best[name][0].weight)[:5]
        return " ".join(best[name][0].text for name in best if name in heaviest)

    def terms(self) -> list[tuple[str, int, int]]:
        """List the terms that most documents use: term, how often, in how many documents."""
        times: Counter[str] = Counter()
        spread: Counter[str] = Counter()
        for _, _, used in self.found.values():
            times.update(used)
            spread.update(used.keys())
        ranked = sorted(times, key=lambda term: (-spread[term], -times[term], term))
        return [(term, times[term], spread[term]) for term in ranked[:TERMS]]

    def licences(self) -> dict[str, list[str]]:
        """List which documents name which licence."""
        naming: dict[str, list[str]] = {}
        for name, (_, findings, _) in self.found.items():
            for licence in sorted({finding.text for finding in findings if finding.kind == "licence"}):
                naming.setdefault(licence, []).append(name)
        return dict(sorted(naming.items()))


def heading(document: Document) -> str:
    """Spell the line under which a document stands in the report."""
    return f"### {document.name}"


def compose(survey: Survey, words: str, cited: Sequence[Cited]) -> str:
    """Write the report as Markdown; what earlier surveys have found is cited with its document."""
    lines = [f"# Survey of {len(survey.found)} documents", "", words or "Nothing in them reads like prose.", ""]
    lines += ["## Terms", "", "| term | times | documents |", "|---|---:|---:|"]
    lines += [f"| {term} | {times} | {spread} |" for term, times, spread in survey.terms()]
    lines += ["", "## Licences that are named", "", "| licence | documents | for instance |", "|---|---:|---|"]
    lines += [f"| {licence} | {len(names)} | {names[0]} |" for licence, names in survey.licences().items()]
    if cited:
        lines += ["", "## Known before", ""]
        lines += [f"> {one.text}\n>\n> ({one.document}, as it was read in an earlier survey)\n" for one in cited]
    lines += ["", "## Documents", ""]
    for document, findings, _ in survey.found.values():
        again = " Recalled, not read again." if document.name in survey.recalled else ""
        lines += [heading(document), "", f"{document.size} bytes, {len(findings)} findings.{again}", ""]
        headings = [finding.text for finding in findings if finding.kind == "heading"]
        if headings:
            more = f" · and {len(headings) - HEADINGS} more" if len(headings) > HEADINGS else ""
            lines += [f"Headings: {' · '.join(headings[:HEADINGS])}{more}", ""]
        lines += [f"> {finding.text}\n" for finding in _best(findings, SENTENCES)]
    return "\n".join(lines).rstrip() + "\n"


def missing_for_model() -> str | None:
    """Say what the environment lacks for a model to be asked; None if nothing."""
    return None if os.environ.get("OPENAI_API_KEY") else "OPENAI_API_KEY"


def words_of_model(model: str, survey: Survey) -> str:
    """Have a model sum the findings up; any OpenAI-compatible endpoint (OPENAI_BASE_URL, OPENAI_API_KEY)."""
    notes = "\n".join(
        f"{name}: {' '.join(finding.text for finding in _best(findings, 2))}"
        for name, (_, findings, _) in survey.found.items()
    )
    ask = f"Sum up in one paragraph what these documents are and what they ask of a reader.\n\n{notes}"
    body = {"model": model, "messages": [{"role": "user", "content": ask}], "temperature": 0}
    request = urllib.request.Request(
        os.environ.get("OPENAI_BASE_URL", ENDPOINT).rstrip("/") + "/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"},
    )
    with urllib.request.urlopen(request, timeout=MODEL_SECONDS) as answer:
        said: str = json.load(answer)["choices"][0]["message"]["content"]
    return said.strip()


def _best(findings: Sequence[Finding], count: int) -> list[Finding]:
    sentences = [finding for finding in findings if finding.kind == "sentence"]
    chosen = sorted(sentences, key=lambda finding: (-finding.weight, finding.offset))[:count]
    return sorted(chosen, key=lambda finding: finding.offset)
