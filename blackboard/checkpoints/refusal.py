"""From what a script answered to the error that the caller sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blackboard.errors import (
    AlreadyFinished,
    BlackboardError,
    CheckpointConflict,
    LeaseHeld,
    LeaseLost,
    OutcomeUnknown,
    StoreRegressed,
    ThreadGone,
    ThreadQuarantined,
    UnreadSignals,
    UnresolvedEffects,
)

__all__ = ["Asked", "refusal", "still_standing"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the caller believed when it asked: the thread, its last acknowledged checkpoint and the fence it showed."""

    namespace: str
    thread: str
    parent: str | None = None
    fence: int | None = None


def refusal(asked: Asked, reply: Sequence[bytes | int]) -> BlackboardError:
    """Turn a script's refusal into an error; the reply is the whole answer, the outcome first."""
    outcome = _text(reply[0])
    rest = [part if isinstance(part, int) else _text(part) for part in reply[1:]]
    make = _ERRORS[outcome]
    return make(asked, rest)


def still_standing(thread: str) -> OutcomeUnknown:
    """Say that the parts of an old thread stood in the way of a new one for longer than anything explains."""
    return OutcomeUnknown(f"the parts of thread {thread!r} come back while they are removed", thread=thread)


def _text(part: bytes | int) -> str:
    return part.decode() if isinstance(part, bytes) else str(part)


def _ids(asked: Asked) -> dict[str, object]:
    return {"namespace": asked.namespace, "thread": asked.thread}


def _gone(asked: Asked, rest: list[str | int]) -> BlackboardError:
    return ThreadGone(f"thread {asked.thread!r} is gone ({rest[0]}): nothing was written", why=rest[0], **_ids(asked))


def _removing(asked: Asked, rest: list[str | int]) -> BlackboardError:
    return ThreadGone(
        f"thread {asked.thread!r} has expired: nothing was written", why="expired", removing=rest[0], **_ids(asked)
    )


def _status(asked: Asked, rest: list[str | int]) -> BlackboardError:
    if rest[0] == "quarantined":
        return ThreadQuarantined(
            f"thread {asked.thread!r} is quarantined: nothing was written; look at it, then readmit it",
            reason="",
            **_ids(asked),
        )
    return AlreadyFinished(f"thread {asked.thread!r} is {rest[0]}: nothing was written", status=rest[0], **_ids(asked))


def _regressed(asked: Asked, rest: list[str | int]) -> BlackboardError:
    return StoreRegressed(
        f"the store has lost the {rest[0]} of thread {asked.thread!r}, which it had acknowledged: restore it, or delete the thread",
        lost=rest[0],
        **_ids(asked),
    )


def _lost_parent(asked: Asked, exists: str | int, pruned: str | int) -> bool:
    return asked.parent is not None and not int(exists) and not (pruned and asked.parent <= str(pruned))


def _fenced(asked: Asked, rest: list[str | int]) -> BlackboardError:
    if _lost_parent(asked, rest[1], rest[2]):
        return _regressed(asked, [f"checkpoint {asked.parent}"])
    return LeaseLost(
        f"thread {asked.thread!r} was taken over: fence {asked.fence} is older than {rest[0]}; nothing was written",
        fence=asked.fence, newest=int(rest[0]), **_ids(asked),
    )  # fmt: skip


def _conflict(asked: Asked, rest: list[str | int]) -> BlackboardError:
    if _lost_parent(asked, rest[1], rest[2]):
        return _regressed(asked, [f"checkpoint {asked.parent}"])
    if asked.parent is not None and str(rest[0]) < asked.parent:
        return _regressed(asked, [f"latest, which stands before checkpoint {asked.parent},"])
    return CheckpointConflict(
        f"thread {asked.thread!r} stands at checkpoint {rest[0]!r}, not at {asked.parent!r}: nothing was written",
        expected=asked.parent, found=rest[0] or None, **_ids(asked),
    )  # fmt: skip


def _held(asked: Asked, rest: list[str | int]) -> BlackboardError:
    _, _, holder = str(rest[0]).partition(":")
    remaining = max(0, int(rest[1])) / 1000
    return LeaseHeld(
        f"thread {asked.thread!r} is driven by {holder!r} for {remaining:.1f} s more: a write without its fence was refused",
        holder=holder, remaining=remaining, **_ids(asked),
    )  # fmt: skip


def _too_late(asked: Asked, _: list[str | int]) -> BlackboardError:
    return OutcomeUnknown(
        f"a write to thread {asked.thread!r} came after its deadline: read before going on", **_ids(asked)
    )


def _unresolved(asked: Asked, rest: list[str | int]) -> BlackboardError:
    effects = tuple(str(key) for key in rest)
    return UnresolvedEffects(
        f"thread {asked.thread!r} has effects that are running or unknown: {', '.join(effects)}; resolve or abandon them",
        effects=effects, **_ids(asked),
    )  # fmt: skip


def _unread(asked: Asked, rest: list[str | int]) -> BlackboardError:
    return UnreadSignals(
        f"thread {asked.thread!r} has {rest[0]} unread letters: read them, or say drop_unread=True",
        unread=int(rest[0]), **_ids(asked),
    )  # fmt: skip


def _effect(asked: Asked, rest: list[str | int]) -> BlackboardError:
    return LeaseLost(
        f"effect {rest[0]!r} of thread {asked.thread!r} is not open under this lease: nothing was written",
        effect=rest[0], fence=asked.fence, **_ids(asked),
    )  # fmt: skip


_ERRORS = {
    "GONE": _gone,
    "REMOVING": _removing,
    "STATUS": _status,
    "REGRESSED": _regressed,
    "FENCED": _fenced,
    "CONFLICT": _conflict,
    "HELD": _held,
    "TOOLATE": _too_late,
    "UNREAD": _unread,
    "UNRESOLVED": _unresolved,
    "EFFECT": _effect,
}
