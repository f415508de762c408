"""One saver for callers with a loop and without: sync calls run on the board's loop from any other thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from blackboard.board import Blackboard
from blackboard.errors import ConfigError

__all__ = ["drained", "entered", "on_board", "wait_for"]

T = TypeVar("T")


def on_board(board: Blackboard, what: str) -> Blackboard:
    """Return the board that something is made on; ConfigError for what is none, such as a URL."""
    given: Any = board  # callers may not be typed
    if not isinstance(given, Blackboard):
        raise ConfigError(
            f"{what} is made on an open board, got {given!r}: async with Blackboard.open(url) as board", value=given
        )
    return board


def wait_for(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of another thread and return what it returns.

    Raises ConfigError on that loop's own thread, which would wait for itself, and where the loop has ended, stands still, or ends
    meanwhile: nobody would ever answer.
    """
    if refusal := _refusal(loop):
        work.close()
        raise ConfigError(refusal)
    try:
        return asyncio.run_coroutine_threadsafe(work, loop).result()
    except concurrent.futures.CancelledError:
        raise ConfigError("the call was cut off: the event loop that serves it ended; open another one") from None


def _refusal(loop: asyncio.AbstractEventLoop) -> str | None:
    """Say why a loop cannot serve a sync call of this thread; None if it can."""
    if loop.is_closed():
        return (
            "the event loop that served these calls has ended, and what was opened with it is closed; open another one"
        )
    with contextlib.suppress(RuntimeError):
        if asyncio.get_running_loop() is loop:
            return "a sync method was called on the event loop that serves it; await its async twin"
    if not loop.is_running():
        return "the event loop that serves these calls stands still; let it run, or use open(url), which has one of its own"
    return None


def drained(loop: asyncio.AbstractEventLoop, source: AsyncIterator[T]) -> Iterator[T]:
    """Iterate over an async iterator of another thread's loop."""

    async def step() -> tuple[T, ...]:
        async for item in source:
            return (item,)
        return ()

    while found := wait_for(loop, step()):
        yield found[0]


@contextlib.contextmanager
def entered(work: AbstractAsyncContextManager[T]) -> Generator[T]:
    """Enter an async context on a loop in a thread of its own, for callers without one, until the block ends."""
    opened = contextlib.AsyncExitStack()
    with _loop_thread() as loop:
        try:
            yield wait_for(loop, opened.enter_async_context(work))
        finally:
            wait_for(loop, opened.aclose())


@contextlib.contextmanager
def _loop_thread() -> Generator[asyncio.AbstractEventLoop]:
    """Run an event loop in a thread of its own until the block ends; what is still under way then is cancelled."""
    started = concurrent.futures.Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]()

    async def serve() -> None:
        ended = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), ended))
        await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="blackboard-langgraph", daemon=True)
    thread.start()
    loop, ended = started.result()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
