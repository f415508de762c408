"""An effect of a run: recorded before it starts, recorded when it ended, never silently repeated."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from blackboard.checkpoints.channels import digest
from blackboard.claims.effect import Busy, Done, Effects, Failed, Mismatch, Start, Unknown, downstream_key
from blackboard.claims.keeper import shielded
from blackboard.claims.outcome import check_text
from blackboard.claims.record import Semantics
from blackboard.codec import decode, encode
from blackboard.codec.limit import within
from blackboard.errors import (
    BlackboardError,
    ConfigError,
    CorruptValue,
    EffectBusy,
    EffectFailed,
    EffectMismatch,
    EffectUnknown,
    EncodeError,
    UncommittedChanges,
)
from blackboard.points import reach
from blackboard.runs.declared import Declared, Misfit
from blackboard.telemetry import logger, span

if TYPE_CHECKING:
    from blackboard.runs.run import Run

__all__ = ["Asked", "RunEffect"]

T = TypeVar("T")

log = logger("runs")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run asked for: the effect's name in its thread, the type of its result, and how it is recorded.

    `limit` is how many bytes its result, the reason why it is given up and its reference may have each.
    """

    name: str
    result: Any
    semantics: Semantics
    fingerprint: Any
    record: str
    limit: int


class RunEffect(Generic[T]):
    """One effect of a run, asked for once: `await effect.call(function, ...)`, or entered to look before acting.

    Entered with `async with`, `standing` says what is known: "run" (go on; then `complete`, or an exception is recorded),
    "done" (`result` holds what was recorded), "unknown" (it may have happened: look outside by `key` or `external_ref`,
    then `complete`, `abandon` or `retry` it), "failed" or "abandoned" (`error`). The library cannot close the window
    between what happens outside and its record: pass `key` to whoever carries it out, and `attach` what they call it.
    """

    def __init__(self, run: Run[Any], effects: Effects, asked: Asked) -> None:
        self.run, self.name = run, asked.name
        self.semantics: Semantics = asked.semantics
        self.standing = "new"
        self.result: T
        self.error: Any = None
        self.attempt = 0
        self.external_ref: str | None = None
        self.started_at: int | None = None
        self._effects, self._fingerprint, self._record = effects, asked.fingerprint, asked.record
        self._limit = asked.limit
        self._what = f"the result of effect {asked.name!r}"
        self._declared, self._types = Declared(asked.result, self._what), run.types_of(asked.result)
        self._start: Start | None = None
        self._unknown: Unknown | Start | None = None
        self._settled = False

    def __repr__(self) -> str:
        return f"<RunEffect {self.name!r} {self.standing}>"

    @property
    def key(self) -> str:
        """What to pass downstream: the same for every attempt, another for another thread, incarnation or step."""
        incarnation = self.run.lease.incarnation or ""
        return downstream_key(self.run.namespace, self.run.thread, incarnation, self.name)

    async def call(self, function: Callable[..., Awaitable[T]] | Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Run the function once and record what it returns; or return what is recorded already.

        What is returned is what was recorded, read back: the first call gives what every later one will. A result that
        cannot be stored, or is not of the declared type, raises EncodeError and is not recorded: the effect has happened
        all the same, so the attempt counts as one whose function failed. A class that nobody declared is an Opaque.
        The arguments are the effect's fingerprint, unless one was given. Raises EffectUnknown (at-most-once, begun by a
        driver who is gone), EffectBusy, EffectMismatch, EffectFailed: nothing was run. An exception of the function
        passes unchanged and is recorded as a failed attempt (at-least-once) or as unknown (at-most-once); after a
        cancellation the outcome is unknown. Whoever goes on after that `complete`s, `abandon`s or `retry`s it.
        """
        if not callable(function):  # pyright: ignore[reportUnnecessaryComparison] - callers may not be typed
            raise ConfigError(
                f"effect {self.name!r} calls a function, not {function!r}: give the function, then its arguments",
                value=function,
            )
        if self._fingerprint is None:
            self._fingerprint = [list(args), dict(sorted(kwargs.items()))]
        await self._begin()
        if self.standing == "done":
            return self.result
        self._refuse()
        with span("effect", thread=self.run.thread, effect=self.name, attempt=self.attempt):
            body, made = await self._perform(function, args, kwargs)
        await self._keep(body, made)
        return made

    async def __aenter__(self) -> RunEffect[T]:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._start is None or self._settled:
            return
        if error is not None:
            await self._record_error(error)
            return
        await self._effects.interrupt(self._start)
        raise UncommittedChanges(
            f"effect {self.name!r} was left without complete(): it is recorded as unknown",
            effect=self.name,
            changed=("effect",),
        )

    async def complete(self, result: T) -> None:
        """Record the result of an effect that ran, or that turned out to have happened; `result` is then as recorded.

        Raises EncodeError if it cannot be stored or is not of the declared type: nothing was recorded.
        """
        await self._keep(*self._spell(result))

    async def _keep(self, body: bytes, result: T) -> None:
        await self.run.hold(body)
        if self._unknown is not None:
            await self._effects.resolve(self.run.lease.token, self._unknown, "done", body)
        elif self._record == "commit":
            self.run.settle(self._effects.settlement(self._started(), body))
        else:
            await self._effects.complete(self._started(), body)
        self._settle("done")
        self.result = result

    async def abandon(self, reason: str) -> None:
        """Give the effect up: it will not be run again, and every later ask answers EffectFailed with the reason."""
        body = within(self._limit, encode(reason, path="reason"), f"the reason for effect {self.name!r}", path="reason")
        if self._unknown is not None:
            await self._effects.resolve(self.run.lease.token, self._unknown, "abandoned", body)
        else:
            await self._effects.fail(self._started(), body, final=True)
        self._settle("abandoned")
        self.error = reason

    async def retry(self) -> None:
        """Decide that an unknown effect did not happen, and begin it again: `standing` is "run" afterwards."""
        if self._unknown is None:
            raise ConfigError(
                f"effect {self.name!r} is {self.standing}; only an unknown one can be retried", value=self.standing
            )
        await self._effects.resolve(self.run.lease.token, self._unknown, "retry")
        self._unknown, self._settled = None, False
        await self._begin()

    async def attach(self, external_ref: str) -> None:
        """Note how the outside world calls the effect, as soon as it is known: it narrows the window after a crash."""
        ref = check_text(external_ref, "external_ref")
        within(self._limit, ref.encode(), f"the external_ref of effect {self.name!r}", path="external_ref")
        await self._effects.attach(self._started(), ref)
        self.external_ref = external_ref

    async def _begin(self) -> None:
        self.run.check()
        fingerprint = digest(encode(self._fingerprint, path=f"arguments of effect {self.name!r}"))
        answer = await self._effects.begin(
            self.run.lease.token, self.name, semantics=self.semantics, fingerprint=fingerprint
        )
        match answer:
            case Start():
                self._start, self.attempt, self.standing = answer, answer.attempt, "run"
                self.run.check()  # the process may have been stopped until long after the answer was given
            case Done():
                self.attempt, self.standing = answer.attempt, "done"
                self.result = self._open(answer.result)
            case Unknown():
                self._unknown, self.attempt, self.standing = answer, answer.attempt, "unknown"
                self.external_ref, self.started_at = answer.external_ref, answer.started_at
            case Failed():
                self.attempt, self.standing, self.error = (
                    answer.attempt,
                    answer.state,
                    decode(answer.error) if answer.error else None,
                )
            case Busy():
                raise EffectBusy(
                    f"effect {self.name!r} is being run by {answer.holder!r}",
                    effect=self.name, holder=answer.holder, retry_after=answer.retry_after,
                )  # fmt: skip
            case Mismatch():
                raise EffectMismatch(
                    f"effect {self.name!r} was begun with other arguments; use another key, or the same arguments",
                    effect=self.name, fingerprint=answer.fingerprint,
                )  # fmt: skip

    def _refuse(self) -> None:
        if self.standing == "unknown":
            raise EffectUnknown(
                f"effect {self.name!r} was started (attempt {self.attempt}) and its outcome is unknown: it was not run again. "
                "Look outside, then complete, abandon or retry it",
                effect=self.name, attempt=self.attempt, started_at=self.started_at, external_ref=self.external_ref,
            )  # fmt: skip
        if self.standing in ("failed", "abandoned"):
            raise EffectFailed(
                f"effect {self.name!r} is recorded as {self.standing}: {self.error}", effect=self.name, error=self.error
            )

    async def _perform(self, function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[bytes, T]:
        try:
            reach("effect", "before")
            made = function(*args, **kwargs)
            result = await made if inspect.isawaitable(made) else made
            reach("effect", "after")
            return self._spell(result)
        except BaseException as error:
            await self._record_error(error)
            raise

    async def _record_error(self, error: BaseException) -> None:
        """Note how the attempt ended; the error itself is what the caller gets, whatever becomes of the note."""
        start = self._started()
        failed = isinstance(error, Exception) and not isinstance(error, asyncio.CancelledError)
        if failed:
            note = self._effects.fail(start, encode(_told(error)[:2000], path="error"))
        else:
            note = self._effects.interrupt(start)
        try:
            await shielded(note)
        except (BlackboardError, TimeoutError) as unknown:
            log.warning("how effect %s ended was not recorded: %s", self.name, unknown)
        self._settle("unknown")
        if not failed or self.semantics == "at-most-once":
            self._unknown = start

    def _started(self) -> Start:
        if self._start is None or self._settled:
            raise ConfigError(f"effect {self.name!r} is {self.standing}, not running", value=self.standing)
        return self._start

    def _settle(self, standing: str) -> None:
        self._settled, self._unknown, self.standing = True, None, standing

    def _spell(self, result: Any) -> tuple[bytes, T]:
        """Spell a result, and read it as whoever asks again will."""
        path = f"result of effect {self.name!r}"
        body = within(self._limit, encode(result, path=path), self._what, path=path)
        try:
            return body, self._read(body)
        except Misfit as misfit:
            raise EncodeError(
                f"{misfit}: it was not recorded. Declare the type that the effect returns, or return what is declared",
                path=path, effect=self.name,
            ) from misfit  # fmt: skip

    def _open(self, body: bytes) -> T:
        try:
            return self._read(body)
        except Misfit as misfit:
            raise CorruptValue(
                f"{misfit}, as it was recorded: declare the type that it has, or ask under another key",
                effect=self.name,
            ) from misfit

    def _read(self, body: bytes) -> T:
        return cast("T", self._declared.checked(decode(body, types=self._types)))


def _told(error: BaseException) -> str:
    """Spell an error for people; one that cannot be spelled is told by its class."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:  # noqa: BLE001 - whatever its class has made of str()
        return name
