"""Where a scene plays: one thread on one server, with a journal of what was acknowledged and a ledger of what happened."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.reading import Snapshot
from blackboard.claims.lease import Leases
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store

NAMESPACE = "chaos"
TTL = 3.0
"""Lease of a scene: longer than a scene takes undisturbed, so that it is never renewed in the background."""


def append(path: Path, line: str) -> None:
    """Append a line in one write; it survives the process, though not the machine."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode() + b"\n")
    finally:
        os.close(descriptor)


def say(text: str) -> None:
    """Tell the counts; pytest shows them with -s."""
    sys.stdout.write(f"\n{text}\n")


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def whole(path: Path) -> list[str]:
    """The lines of a file that is being written, but for one that has no end yet."""
    text = path.read_text() if path.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def items_of(snapshot: Snapshot, channel: str) -> list[bytes]:
    """The items of a log."""
    content = snapshot.contents[channel]
    assert not isinstance(content, bytes)
    return list(content)


@dataclass(frozen=True)
class Stage:
    """One thread, its store, and the two files outside the store."""

    store: Store
    thread: str
    directory: Path

    @property
    def engine(self) -> Engine:
        return Engine(self.store, NAMESPACE, CheckpointNamespace())

    @property
    def leases(self) -> Leases:
        return Leases(self.store, NAMESPACE)

    @property
    def journal(self) -> Path:
        return self.directory / f"{self.thread}.journal"

    @property
    def ledger(self) -> Path:
        return self.directory / f"{self.thread}.ledger"

    def ack(self, what: str, **facts: Any) -> None:
        """Note outside the store that the store acknowledged something."""
        append(self.journal, json.dumps({"what": what, **facts}))

    def acknowledged(self, what: str) -> list[dict[str, Any]]:
        return [fact for line in lines(self.journal) if (fact := json.loads(line))["what"] == what]

    def happen(self, effect: str, key: str) -> str:
        """Let an effect happen in the outside world."""
        append(self.ledger, f"{effect} {key}")
        return f"did {effect}"

    def happened(self) -> dict[str, Counter[str]]:
        """Tell how often each effect happened, by the key that was passed downstream."""
        found: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for line in lines(self.ledger):
            effect, key = line.split(" ")
            found[effect][key] += 1
        return found


@asynccontextmanager
async def stage(url: str, thread: str, directory: str | Path) -> AsyncIterator[Stage]:
    store = await Store.connect(url)
    try:
        yield Stage(store, thread, Path(directory))
    finally:
        await store.close()
