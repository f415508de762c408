"""A thread as a small Python model: what the engine should hold after what it acknowledged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from blackboard.checkpoints.channels import Channel, Items, Keep, Ref, Segments, Value
from blackboard.claims.lease import Token
from blackboard.errors import AlreadyFinished, BlackboardError, LeaseHeld, LeaseLost, ThreadGone

__all__ = ["CLOSED", "Contents", "Lineage", "Model", "Stored", "changed", "channel", "cut"]

Contents = Mapping[str, bytes | list[bytes]]
CLOSED = ("finished", "failed")


@dataclass(frozen=True, slots=True)
class Stored:
    """One acknowledged checkpoint; `refs` is where the engine said that its channels stand."""

    contents: Contents
    refs: Mapping[str, Ref]
    parent: str | None
    step: int


@dataclass(slots=True)
class Lineage:
    """The checkpoints of one lineage, the newest one's id, and the pending writes by checkpoint."""

    stored: dict[str, Stored] = field(default_factory=dict[str, Stored])
    latest: str | None = None
    writes: dict[str, dict[str, bytes]] = field(default_factory=dict[str, dict[str, bytes]])


@dataclass(slots=True)
class Model:
    """What is true of the thread.

    `standing` says that parts of an expired or deleted thread are not removed yet, `raised` that the fence is higher than
    what was last seen.
    """

    status: str = "none"
    incarnation: str | None = None
    expired: bool = False
    standing: bool = False
    keeps: bool = True
    sequence: int = 0
    fence: int = 0
    raised: bool = False
    holder: str | None = None
    live: bool = False
    lineages: dict[str, Lineage] = field(default_factory=dict[str, Lineage])

    @property
    def readable(self) -> bool:
        """Whether readers find the thread."""
        return self.incarnation is not None and not self.expired

    def lineage(self, name: str) -> Lineage:
        """The lineage of a name, empty at first."""
        return self.lineages.setdefault(name, Lineage())

    def forget(self, *, standing: bool = False) -> None:
        """Become a tombstone, which raises the fence: nobody holds it, nothing is readable."""
        self.raised = self.raised or self.status != "deleted"
        self.status, self.incarnation, self.expired, self.standing = "deleted", None, False, standing
        self.sequence, self.holder, self.live = 0, None, False
        self.lineages.clear()

    def refusal(self, token: Token | None, *, first: bool) -> type[BlackboardError] | None:
        """Tell how a write is refused, in the order of the engine's checks; None if it is not.

        `first` is a checkpoint without parent in the root lineage. What is in the way of a writer who knows no
        incarnation is removed, as the engine does.
        """
        if token is not None and token.incarnation is not None:
            if token.incarnation != self.incarnation or self.expired:
                return ThreadGone
        elif self.expired or self.standing:
            self.forget()
        if self.status == "deleted" and not first:
            return ThreadGone
        if self.status in CLOSED:
            return AlreadyFinished
        return self._unfenced() if token is None else self._fenced(token)

    def _unfenced(self) -> type[BlackboardError] | None:
        return LeaseHeld if self.live else None

    def _fenced(self, token: Token) -> type[BlackboardError] | None:
        return None if token.fence == self.fence else LeaseLost

    def wrote(self, token: Token | None) -> bool:
        """Note an accepted write; True if it raises the fence over a lapsed lease or sets the first one."""
        raises = token is None and (self.holder is not None or self.fence == 0)
        if token is None:
            self.holder = None
        return raises

    def committed(self, token: Token | None, incarnation: str, status: str, *, keeps: bool) -> bool:
        """Note an accepted checkpoint, see `wrote`; nobody holds a thread that is parked or closed."""
        self.status, self.incarnation, self.keeps = status, incarnation, keeps
        raises = self.wrote(token)
        if status != "running":
            self.holder, self.live = None, False
        return raises


def cut(segments: Segments, items: int) -> Segments:
    """The prefixes that hold the first items."""
    kept: list[tuple[str, int]] = []
    for segment, count in segments:
        if items <= 0:
            break
        kept.append((segment, min(count, items)))
        items -= count
    return tuple(kept)


def changed(contents: Contents, changes: Sequence[str], step: int) -> dict[str, bytes | list[bytes]]:
    """Contents after a driver's changes, each marked with its step."""
    new = dict(contents)
    items = new.get("log", [])
    assert isinstance(items, list)
    for number, change in enumerate(changes):
        mark = b"%d.%d" % (step + 1, number)
        match change:
            case "small" | "large":
                new["value"] = mark * (1 if change == "small" else 200)
            case "push":
                items = [*items, mark, mark]
            case "insert":
                items = [*items[:1], mark, *items[1:]]
            case "cut":
                items = items[: len(items) // 2]
            case "put":
                new[f"c{number}"] = mark * 100
            case _:
                new.pop(f"c{number}", None)
    return {**new, "log": items}


def channel(content: bytes | list[bytes], before: bytes | list[bytes] | None, ref: Ref | None) -> Channel:
    """Give the engine a channel as a driver does who knows where it stood before."""
    if ref is not None and content == before:
        return Keep(ref)
    if isinstance(content, bytes):
        return Value(content)
    old = before if isinstance(before, list) else []
    same = next((i for i, (a, b) in enumerate(zip(old, content, strict=False)) if a != b), min(len(old), len(content)))
    base = cut(ref.segments, same) if ref else ()
    return Items("log", base, content[same:] if base else content, lambda: content)
