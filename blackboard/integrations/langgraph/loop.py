"""One saver for callers with a loop and without: sync calls run on the board's loop from any other thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from blackboard.errors import ConfigError

__all__ = ["drained", "entered", "wait_for"]

T = TypeVar("T")


def wait_for(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of another thread and return what it returns.

    Raises ConfigError on that loop's own thread, which would wait for itself.
    """
    with contextlib.suppress(RuntimeError):
        if asyncio.get_running_loop() is loop:
            work.close()
            raise ConfigError("a sync method was called on the event loop that serves it; await its async twin")
    return asyncio.run_coroutine_threadsafe(work, loop).result()


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
    """Run an event loop in a thread of its own until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="blackboard-langgraph", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
