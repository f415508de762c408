"""Work under something that ends by itself: it is renewed meanwhile, and the work is cancelled when it is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from blackboard.errors import BlackboardError, LeaseLost, StoreRegressed, ThreadGone
from blackboard.telemetry import logger

__all__ = ["LONGEST_FAREWELL", "Keeper", "Renewable", "shielded"]

LONGEST_FAREWELL = 5.0
"""Seconds for which a release or an undo may hold up whoever leaves or was cancelled."""

LOST = (LeaseLost, ThreadGone, StoreRegressed)
"""What says for certain that the lease is not ours any more; any other error leaves it unknown."""

log = logger("claims")
Farewell = Coroutine[Any, Any, None]


class Renewable(Protocol):
    """What a Keeper keeps: a lease of `ttl` seconds that is lost unless it is renewed."""

    @property
    def ttl(self) -> float:
        """Seconds for which a renewal lasts."""
        ...

    @property
    def remaining(self) -> float:
        """Seconds until it is lost."""
        ...

    @property
    def given_back(self) -> bool:
        """Whether it was ended on purpose."""
        ...

    async def renew(self) -> None:
        """Extend it; LeaseLost, ThreadGone or StoreRegressed say for certain that it is lost."""

    def overdue(self) -> LeaseLost:
        """Return the error for a deadline that has passed."""
        ...


T = TypeVar("T", bound=Renewable)


class Keeper(Generic[T]):
    """An async context that holds a lease while its body runs; entered and left in one task, once.

    It renews after every third of the TTL. A renewal that failed leaves the lease unknown and is tried again until the
    deadline; at the deadline, or when the server says that the lease is gone, the body is cancelled and leaving
    raises LeaseLost (ThreadGone, StoreRegressed if that was the answer), also if the body swallowed the cancellation
    or the loop was blocked beyond the deadline. Other exceptions of the body and cancellation from outside pass
    unchanged. What was lost is not given back: it counts as taken over. Giving back is shielded, takes 5 seconds at most, and raises only if the body did not.
    """

    def __init__(self, take: Callable[[], Awaitable[T]], give: Callable[[T], Farewell] | None = None) -> None:
        self._take = take
        self._give = give
        self._lost: BlackboardError | None = None
        self._left = False
        self._cut = False

    async def __aenter__(self) -> T:
        body = asyncio.current_task()
        assert body is not None, "a coroutine runs in a task"
        self._body = body
        self._cancelling = body.cancelling()
        self._kept = await self._take()
        self._alarm = asyncio.get_running_loop().call_later(self._kept.remaining, self._ring)
        self._renewal = asyncio.create_task(self._renew())
        return self._kept

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left = True
        self._alarm.cancel()
        self._renewal.cancel()
        if self._lost is None and self._kept.remaining <= 0 and not self._kept.given_back:
            self._lost = self._kept.overdue()
        ours = self._cut and self._body.uncancel() <= self._cancelling and kind is asyncio.CancelledError
        refused = await self._part()
        if ours or kind is None:
            lost = self._lost or refused
            if lost is not None:
                raise lost from error

    async def _part(self) -> BlackboardError | None:
        """Give back, and return what the server said against it."""
        if self._give is None or self._kept.given_back or self._lost is not None:
            return None
        try:
            await shielded(self._give(self._kept))
        except LOST as refused:
            return refused
        except (BlackboardError, TimeoutError) as unknown:
            log.warning("a lease was not given back (%s); it ends with its TTL", unknown)
        return None

    async def _renew(self) -> None:
        pause = self._kept.ttl / 3
        while True:
            await asyncio.sleep(pause)
            if self._kept.given_back:
                return
            try:
                await self._kept.renew()
                pause = self._kept.ttl / 3
            except LOST as lost:
                self._lose(lost)
                return
            except BlackboardError as unknown:
                log.warning("a renewal failed (%s); trying until the deadline", unknown)
                pause = self._kept.ttl / 10

    def _ring(self) -> None:
        left = self._kept.remaining
        if left > 0:
            self._alarm = asyncio.get_running_loop().call_later(left, self._ring)
        else:
            self._lose(self._kept.overdue())

    def _lose(self, lost: BlackboardError) -> None:
        if self._left or self._lost is not None or self._kept.given_back:
            return
        self._lost = lost
        self._cut = True
        self._body.cancel()


async def shielded(work: Farewell, longest: float = LONGEST_FAREWELL) -> None:
    """Run `work` to its end although the caller is cancelled, for at most `longest` seconds (then TimeoutError).

    A cancellation that came meanwhile is raised afterwards, whatever became of the work.
    """
    task = asyncio.ensure_future(work)
    until = time.monotonic() + longest
    cancelled: asyncio.CancelledError | None = None
    while not task.done() and (left := until - time.monotonic()) > 0:
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError as error:
            cancelled = error
    late = not task.done()
    if late:
        task.cancel()
    failure = None if late or task.cancelled() else task.exception()
    if cancelled is not None:
        raise cancelled
    if late:
        raise TimeoutError(f"not done after {longest} s")
    if failure is not None:
        raise failure
