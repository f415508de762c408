"""From what a claims script answered to the error that the caller sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from blackboard.errors import (
    AlreadyFinished,
    BlackboardError,
    CorruptValue,
    EffectBusy,
    LeaseHeld,
    LeaseLost,
    StoreRegressed,
    ThreadGone,
)

if TYPE_CHECKING:
    from blackboard.claims.lease import Token

__all__ = ["About", "Reply", "expect", "number", "text"]

Reply = Sequence[Any]


def text(part: bytes | int) -> str:
    """Read one part of a reply as text."""
    return part.decode() if isinstance(part, bytes) else str(part)


def number(part: bytes | int) -> int:
    """Read one part of a reply as a whole number."""
    return int(part)


@dataclass(frozen=True, slots=True)
class About:
    """What a call was about: the ids that an error carries."""

    namespace: str
    thread: str | None = None
    owner: str | None = None
    fence: int | None = None
    effect: str | None = None

    @classmethod
    def of(cls, token: Token, effect: str | None = None) -> About:
        """Describe a call that showed a token."""
        return cls(token.namespace, token.thread, token.owner, token.fence, effect)

    def __str__(self) -> str:
        if self.effect is None:
            return f"thread {self.thread!r}"
        return f"effect {self.effect!r}" + (f" of thread {self.thread!r}" if self.thread is not None else "")

    @property
    def ids(self) -> dict[str, Any]:
        """The ids that are known, by name."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}

    def lost(self, message: str, **ids: Any) -> LeaseLost:
        """Make a LeaseLost that carries the ids."""
        return LeaseLost(message, **{**self.ids, **ids})

    def held(self, what: str, holder: str, remaining_ms: int) -> LeaseHeld:
        """Make a LeaseHeld; a lock about to end may report less than nothing."""
        remaining = max(0, remaining_ms) / 1000
        return LeaseHeld(
            f"{what} is held by {holder!r} for {remaining:.3f} s more", holder=holder, remaining=remaining, **self.ids
        )

    def busy(self, holder: str, remaining_ms: int) -> EffectBusy:
        """Make an EffectBusy."""
        after = max(0, remaining_ms) / 1000
        return EffectBusy(f"{self} is being run by {holder!r}", holder=holder, retry_after=after, **self.ids)


def expect(about: About, reply: Reply, *outcomes: str) -> str:
    """Return the outcome if it is one of these, else raise the error that it stands for."""
    outcome = text(reply[0])
    if outcome in outcomes:
        return outcome
    raise _ERRORS[outcome](about, reply)


def _lost(about: About, reply: Reply) -> BlackboardError:
    holder, newest = text(reply[1]) or None, number(reply[2])
    if newest == about.fence:
        return about.lost(f"the lease of {about} has lapsed", newest=newest)
    state = text(reply[3]) if len(reply) > 3 else ""
    who = f"; the newest holder is {holder!r}" if holder else ""
    return about.lost(
        f"{about} was taken over: fence {about.fence} is older than {newest}{who}; nothing was written",
        holder=holder, newest=newest, state=state or None,
    )  # fmt: skip


def _over(about: About, reply: Reply) -> BlackboardError:
    owner, fence, attempt, state = text(reply[1]), number(reply[2]), number(reply[3]), text(reply[4])
    return about.lost(
        f"{about} is {state} already: attempt {attempt} of {owner!r} won; nothing was written",
        holder=owner, newest=fence, attempt=attempt, state=state,
    )  # fmt: skip


def _regressed(about: About, _: Reply) -> BlackboardError:
    mend = "restore it" if about.thread is None else "restore it, or delete the thread"
    return StoreRegressed(f"the store has lost what it had acknowledged about {about}: {mend}", **about.ids)


def _gone(about: About, reply: Reply) -> BlackboardError:
    why = text(reply[1]) if len(reply) > 1 else ""  # `missing`: something was there, and no tombstone says that it went
    return ThreadGone(
        f"thread {about.thread!r} holds nothing: deleted, expired or not begun", why=why or None, **about.ids
    )


def _closed(about: About, reply: Reply) -> BlackboardError:
    status = text(reply[1])
    return AlreadyFinished(f"thread {about.thread!r} is {status}: {about} was not begun", status=status, **about.ids)


def _corrupt(about: About, _: Reply) -> BlackboardError:
    return CorruptValue(f"the record of {about} is not what was written; nothing was changed", **about.ids)


def _absent(about: About, _: Reply) -> BlackboardError:
    return about.lost(f"{about} is not recorded any more")


def _busy(about: About, reply: Reply) -> BlackboardError:
    return about.busy(text(reply[1]), number(reply[2]))


_ERRORS = {
    "LOST": _lost,
    "OVER": _over,
    "REGRESSED": _regressed,
    "GONE": _gone,
    "CLOSED": _closed,
    "CORRUPT": _corrupt,
    "ABSENT": _absent,
    "BUSY": _busy,
}
