"""What recall finds: the turns of long conversations that hold the answers to questions about them (LoCoMo).

Each conversation is a path, each turn a record `speaker: text` of its session, remembered and recalled through the whole
library. No language model takes part. The data is not ours to ship (CC BY-NC 4.0): LOCOMO_FOLDER names its folder.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.measure.bench import Bench, Effort, main
from benchmarks.measure.figures import Figure
from blackboard import Blackboard
from blackboard.memory.embedder import Embedder
from blackboard.memory.embedders.hashing import HashingEmbedder
from blackboard.memory.embedders.minilm import MiniLMEmbedder
from blackboard.memory.memory import Memory
from blackboard.memory.new import New
from blackboard.settings import Settings

ROOT = Path(__file__).parents[1]
PROFILE = ROOT / "namespaces" / "memory" / "episodes.toml"
"""The policy that is measured: how a turn is judged is set there, not here."""
DATA = Path(os.environ.get("LOCOMO_FOLDER", ROOT.parent / "shared" / "data" / "locomo")) / "locomo10.json"
CUTS = (5, 10, 20)
TARGET = 0.67
SIZES: dict[Effort, tuple[int, int | None]] = {"full": (10, None), "quick": (2, None), "least": (1, 20)}
"""How many conversations are remembered, and how many questions are asked about each."""
FIXED = "hybrid, as the profile episodes says"
TRIED: dict[str, dict[str, Any]] = {
    "vectors": {"lexical": 0.0, "context": 0},
    "vectors, with the turn before": {"lexical": 0.0},
    "hybrid, each turn alone": {"context": 0},
    FIXED: {},
    "hybrid, with the two turns before": {"context": 2},
    "hybrid, 0.3 words": {"lexical": 0.3},
    "hybrid, 0.7 words": {"lexical": 0.7},
    "hybrid, 0.8 words": {"lexical": 0.8},
}
"""What is asked of vectors and words; whatever is not said is as in the profile."""
WITHOUT_MODEL = ("vectors", "hybrid, each turn alone", FIXED, "hybrid, 0.8 words")
"""What of it is asked of vectors that no model made."""
WORDS: dict[str, dict[str, Any]] = {
    "words": {"lexical": 1.0, "context": 0},
    "words, with the turn before": {"lexical": 1.0},
    "words, with the two turns before": {"lexical": 1.0, "context": 2},
}


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns in their order, and questions with the ids of the turns that hold the evidence."""

    turns: Sequence[New]
    questions: Sequence[tuple[str, frozenset[str]]]


class Kept:
    """An embedder that asks another one once for each text."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.name, self.dimension, self.metric = embedder.name, embedder.dimension, embedder.metric
        self._made: dict[str, Any] = {}

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        missing = [text for text in dict.fromkeys(texts) if text not in self._made]
        if missing:
            self._made.update(zip(missing, await self._embedder.embed(missing, query=query), strict=True))
        return np.stack([self._made[text] for text in texts])


@dataclass
class Found:
    """How much of the evidence stood where, over all questions."""

    recalls: dict[int, list[float]] = field(default_factory=lambda: {cut: [] for cut in CUTS})
    ranks: list[float] = field(default_factory=list[float])

    def add(self, ids: Sequence[str], evidence: frozenset[str]) -> None:
        for cut, shares in self.recalls.items():
            shares.append(len(evidence.intersection(ids[:cut])) / len(evidence))
        self.ranks.append(next((1 / rank for rank, turn in enumerate(ids, 1) if turn in evidence), 0.0))

    def figures(self, name: str, target: float | None) -> list[Figure]:
        bounds = {10: target}
        better = {10: "higher" if target else None}
        return [
            *(
                Figure(f"{name}: recall@{cut}", fmean(shares), "", bounds.get(cut), better.get(cut))  # type: ignore[arg-type]
                for cut, shares in self.recalls.items()
            ),
            Figure(f"{name}: MRR@{CUTS[-1]}", fmean(self.ranks), ""),
        ]


def conversations(path: Path, count: int, most: int | None) -> list[Conversation]:
    """Read the first conversations; evidence that names no turn is left out, and questions without any."""
    found: list[Conversation] = []
    for entry in json.loads(path.read_text("utf-8"))[:count]:
        turns = _turns(entry["conversation"])
        ids = {str(turn.id) for turn in turns}
        questions = [
            (asked["question"], evidence)
            for asked in entry["qa"]
            if (evidence := frozenset(ids.intersection(re.split(r"[;\s]+", " ".join(asked["evidence"])))))
        ]
        found.append(Conversation(turns, questions[:most]))
    return found


def _turns(conversation: dict[str, Any]) -> list[New]:
    sessions = sorted(int(name[8:]) for name in conversation if re.fullmatch(r"session_\d+", name))
    turns: list[New] = []
    for session in sessions:
        said = datetime.strptime(conversation[f"session_{session}_date_time"], "%I:%M %p on %d %B, %Y").replace(
            tzinfo=UTC
        )
        turns += [
            New(f"{turn['speaker']}: {turn['text']}", turn["dia_id"], metadata={"session": session}, valid_from=said)
            for turn in conversation[f"session_{session}"]
        ]
    return turns


async def ask(memories: Sequence[Memory], held: Sequence[Conversation], how: dict[str, Any]) -> Found:
    """Ask every question of its conversation."""
    found = Found()
    for memory, conversation in zip(memories, held, strict=True):
        for question, evidence in conversation.questions:
            hits = await memory.recall(question, k=CUTS[-1], **how)
            found.add([hit.record.id for hit in hits], evidence)
    return found


async def measure(bench: Bench) -> Sequence[Figure]:
    """Remember the conversations once for each embedder, and ask in every way."""
    if not DATA.is_file():
        print(f"skipped: no {DATA.name} in {DATA.parent}; set LOCOMO_FOLDER to its folder", file=sys.stderr)
        return []
    held = conversations(DATA, *SIZES[bench.effort])
    embedders: dict[str, Embedder] = {"hashing": Kept(HashingEmbedder())}
    if bench.effort != "least" and find_spec("onnxruntime"):
        embedders["MiniLM"] = Kept(MiniLMEmbedder())
    figures = [Figure("questions", sum(len(each.questions) for each in held), "")]
    async with (
        bench.server("everysec") as server,
        await Blackboard.open(server.url, settings=Settings.load(PROFILE)) as board,
    ):
        for name, embedder in embedders.items():
            memories = [board.memory(("locomo", name, f"{at}"), embedder=embedder) for at in range(len(held))]
            for memory, conversation in zip(memories, held, strict=True):
                await memory.remember_all(conversation.turns)
            if name == "hashing":  # words are the same whatever made the vectors
                for way, how in WORDS.items():
                    figures += (await ask(memories, held, how)).figures(way, None)
            for way in TRIED if name == "MiniLM" else WITHOUT_MODEL:
                how = TRIED[way]
                reached = (name, way, bench.effort) == ("MiniLM", FIXED, "full")
                figures += (await ask(memories, held, how)).figures(f"{name}, {way}", TARGET if reached else None)
    return figures


if __name__ == "__main__":
    sys.exit(main("What recall finds in long conversations (LoCoMo)", measure))
