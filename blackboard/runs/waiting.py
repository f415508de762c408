"""Waiting without a worker: for a signal, for a time, and reading what others noted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from blackboard import keys
from blackboard.codec import Types
from blackboard.errors import ConfigError, CorruptValue, Parked
from blackboard.quantities import seconds
from blackboard.runs.declared import Declared, Misfit
from blackboard.runs.inbox import Inbox, Letter

__all__ = ["Taken", "Waiting"]

Taken = tuple[str, str]
"""A letter that the next commit takes out of the inbox: its id, and the signal's name or nothing."""

Park = Callable[[str, int | None], Awaitable[bool]]
"""Park the run until a signal of that name, or a time in µs; False if the signal came meanwhile."""


class Waiting:
    """What one run waits for and has taken.

    Parking keeps the step, so on entering again the body comes to the same wait, and the effects before it are the same
    ones. Letters that were read leave the inbox with the next commit, and not before: whoever crashes reads them again.
    """

    def __init__(self, inbox: Inbox, thread: str, park: Park, clock: Callable[[], int]) -> None:
        self._inbox, self._thread, self._park, self._clock = inbox, thread, park, clock
        self._awaits = ""
        self._wake: int | None = None
        self._slept = 0
        self.taken: dict[str, Taken] = {}

    def stand(self, awaits: str | None, wake: int | None) -> None:
        """Take down what the run was parked for."""
        self._awaits, self._wake = awaits or "", wake

    def committed(self, taken: Iterable[Taken]) -> None:
        """Forget what a commit has taken; the next step sleeps anew."""
        for letter, _ in taken:
            self.taken.pop(letter, None)
        self._slept = 0
        self.stand(None, None)

    async def signal(self, name: str, declared: Declared, types: Types, within: Any) -> Any:
        """Return the value of a signal, or park until there is one: Parked; TimeoutError once `within` has passed.

        CorruptValue if it is not of the declared type; the next commit does not take it then.
        """
        keys.check_id(name, "name of a signal")
        parked = self._awaits == f"signal:{name}"
        wake = self._wake if parked else self._until(within)
        while True:
            letter = await self._find(name)
            if letter is not None:
                answer = self._answer(letter, declared, types)
                self.taken[letter.id] = (letter.id, name)
                return answer
            if wake is not None and self._clock() >= wake:
                raise TimeoutError(f"no signal {name!r} came to thread {self._thread!r} in time")
            if await self._park(f"signal:{name}", wake):
                raise Parked(
                    f"thread {self._thread!r} waits for the signal {name!r}", thread=self._thread, name=name, wake=wake
                )

    async def sleep(self, until: Any) -> None:
        """Return once the time has come, or park until then: Parked."""
        number, self._slept = self._slept, self._slept + 1
        kind, _, told = self._awaits.partition(":")
        if kind == "sleep" and number < int(told):
            return
        wake = self._wake if kind == "sleep" and number == int(told) else self._until(until)
        if wake is None:
            raise ConfigError(
                "sleep needs a time: a datetime with a zone, a timedelta, seconds or text like '5m'", value=until
            )
        if self._clock() >= wake:
            return
        await self._park(f"sleep:{number}", wake)
        raise Parked(f"thread {self._thread!r} sleeps", thread=self._thread, name=None, wake=wake)

    async def notes(self, types: Types) -> list[Any]:
        """Return the notes that were not taken yet, oldest first; the next commit takes them."""
        found = [letter for letter in await self._inbox.unread(self._thread) if letter.kind == "note"]
        fresh = [letter for letter in found if letter.id not in self.taken]
        self.taken |= {letter.id: (letter.id, "") for letter in fresh}
        return [letter.open(types) for letter in fresh]

    async def _find(self, name: str) -> Letter | None:
        letters = await self._inbox.unread(self._thread)
        return next((one for one in letters if one.kind == "signal" and one.name == name), None)

    def _answer(self, letter: Letter, declared: Declared, types: Types) -> Any:
        try:
            return declared.checked(letter.open(types))
        except Misfit as misfit:
            raise CorruptValue(
                f"{misfit}, and it stands until a commit takes it. run.wait({letter.name!r}) without a type returns it; "
                "commit, then wait again for another answer",
                thread=self._thread, signal=letter.name,
            ) from misfit  # fmt: skip

    def _until(self, when: Any) -> int | None:
        """Spell a time in µs of the server: a moment, or how long from now."""
        if when is None:
            return None
        if isinstance(when, datetime):
            if when.tzinfo is None:
                raise ConfigError(f"{when!r} has no time zone; use datetime.now(UTC) and the like", value=when)
            return int(when.astimezone(UTC).timestamp() * 1_000_000)
        if isinstance(when, timedelta) and when <= timedelta(0):
            return self._clock()
        return self._clock() + int(seconds(when, what="time to wait") * 1_000_000)
