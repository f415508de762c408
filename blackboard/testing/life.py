"""The life of a thread as a small Python model: what stands of it after what was acknowledged."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field

from blackboard import keys
from blackboard.checkpoints.commit import Commit, Committed
from blackboard.runs.inbox import Answer
from blackboard.testing.model import CLOSED, Contents, Lineage, Stored

__all__ = ["Life"]


@dataclass(slots=True)
class Life:
    """One id and the thread that stands under it, if any.

    `letters` are the unread ones, id and signal's name (a note has none); `names` are the signals that were answered, and
    whether the answer was taken; `commits` counts what was ever tried, so that no two contents are the same.
    """

    status: str = "none"
    incarnation: str | None = None
    keeps: bool = True
    sequence: int = 0
    commits: int = 0
    awaits: str | None = None
    lineages: dict[str, Lineage] = field(default_factory=dict[str, Lineage])
    pins: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    letters: dict[str, str] = field(default_factory=dict[str, str])
    names: dict[str, str] = field(default_factory=dict[str, str])
    keys: set[str] = field(default_factory=set[str])

    @property
    def stands(self) -> bool:
        """Whether readers find a thread."""
        return self.incarnation is not None

    @property
    def closed(self) -> bool:
        """Whether it takes no more checkpoints."""
        return self.status in CLOSED

    @property
    def writable(self) -> bool:
        """Whether it stands and goes on."""
        return self.stands and not self.closed

    @property
    def root(self) -> Lineage:
        """The lineage that is driven."""
        return self.lineage("")

    def lineage(self, name: str) -> Lineage:
        """The lineage of a name, empty at first."""
        return self.lineages.setdefault(name, Lineage())

    def wrote(self, done: Committed, commit: Commit, contents: Contents) -> None:
        """Note an acknowledged checkpoint of the driver's."""
        self._stored(done, commit.status, Stored(contents, done.refs, commit.parent, commit.step))

    def rewound(self, done: Committed, stored: Stored) -> None:
        """Note that an earlier checkpoint is the newest again."""
        self._stored(done, "running", stored)

    def parked(self, done: Committed, commit: Commit, contents: Contents, name: str) -> None:
        """Note that the thread waits: the name is open for an answer."""
        self.wrote(done, commit, contents)
        self.names.pop(name, None)
        self.awaits = name

    def put(self, lineage: str, done: Committed, commit: Commit, contents: Contents) -> None:
        """Note a checkpoint under an id of its own: it replaces, and the largest id is the newest."""
        of = self.lineage(lineage)
        of.stored[done.checkpoint] = Stored(contents, done.refs, commit.parent, commit.step)
        of.latest = max(of.latest or done.checkpoint, done.checkpoint, key=keys.encode)
        self.status, self.awaits = "running", None

    def answer(self, name: str, key: str | None) -> Answer:
        """Tell what a signal (or a note, without a name) is answered."""
        if not self.writable:
            return "GONE"
        return "ALREADY" if key in self.keys or name in self.names else "ACCEPTED"

    def arrived(self, letter: str, name: str, key: str | None) -> None:
        """Note an accepted letter."""
        self.letters[letter] = name
        if name:
            self.names[name] = "there"
        if key is not None:
            self.keys.add(key)

    def took(self, letters: Iterable[tuple[str, str]]) -> None:
        """Note the letters that a commit took."""
        for letter, name in letters:
            del self.letters[letter]
            if name:
                self.names[name] = "taken"

    def answered(self, name: str) -> bool:
        """Tell whether an answer waits to be taken."""
        return self.names.get(name) == "there"

    def forked(self, incarnation: str, at: str | None) -> Life:
        """Return the thread that a fork makes: one checkpoint, and no memory of the rest."""
        name = at or self.root.latest or ""
        origin = self.root.stored[name]
        alone = Lineage({name: Stored(origin.contents, origin.refs, None, origin.step)}, name)
        return Life("running", incarnation, sequence=self.sequence, commits=self.commits, lineages={"": alone})

    def copied(self, incarnation: str) -> Life:
        """Return the thread that a copy makes: all of it but the letters."""
        lineages, pins = copy.deepcopy(self.lineages), set(self.pins)
        return Life(
            "running", incarnation, sequence=self.sequence, commits=self.commits, lineages=lineages, pins=pins
        )  # fmt: skip

    def pruned(self, lineage: str, keep_last: int) -> int:
        """Drop what a prune drops; returns how many checkpoints."""
        of = self.lineage(lineage)
        old = sorted(of.stored, key=keys.encode)[:-keep_last]
        dropped = [name for name in old if (lineage, name) not in self.pins]
        for name in dropped:
            del of.stored[name]
            of.writes.pop(name, None)
        return len(dropped)

    def end(self) -> None:
        """Become a tombstone."""
        if self.status != "none":
            self.status = "deleted"
        self.incarnation, self.keeps, self.sequence, self.awaits = None, True, 0, None
        for memory in (self.lineages, self.pins, self.letters, self.names, self.keys):
            memory.clear()

    def _stored(self, done: Committed, status: str, stored: Stored) -> None:
        self.status, self.awaits = status, None
        self.incarnation, self.sequence = done.incarnation, done.sequence
        self.root.stored[done.checkpoint], self.root.latest = stored, done.checkpoint
