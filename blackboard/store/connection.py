"""One connection that many tasks share: writes are coalesced, replies are matched to their callers in order.

There is no task per call and none per connection. A lone caller's command is written at once; what comes while others
are in flight is gathered until the loop's next tick and goes out in one write. A caller that is cancelled cancels its
own future only: the reply that nobody waits for is read and dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from blackboard.store.protocol import INCOMPLETE, ProtocolBroken, reader

__all__ = ["Connection", "Lost", "forget"]


class Lost(Exception):
    """No reply came. `written` says whether the command may have reached the server."""

    def __init__(self, reason: str, *, written: bool) -> None:
        super().__init__(reason)
        self.written = written


def forget(future: asyncio.Future[Any]) -> None:
    """Nobody waits for this reply any more, whatever it is."""
    if not future.cancel() and not future.cancelled():
        future.exception()


class Connection(asyncio.Protocol):
    """A pipelined connection of the Redis protocol (RESP2; replies are bytes, int, list, None or ErrorReply)."""

    def __init__(self, *, response_timeout: float, batch_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = response_timeout
        self._batch_bytes = batch_bytes
        self._reader = reader()
        self._waiting: deque[tuple[asyncio.Future[Any], int]] = deque()
        self._queue: deque[tuple[asyncio.Future[Any], bytes]] = deque()
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._flushing = False
        self._progress = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._reason = "the connection was closed"
        self.accepted = False
        self.on_lost: Callable[[Connection], None] | None = None
        self.load = 0
        """Bytes that were sent here and not answered yet."""

    @property
    def is_open(self) -> bool:
        """Whether commands can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, packed: bytes) -> asyncio.Future[Any]:
        """Send one packed command; the future gives its reply, or raises Lost."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._transport is None:
            future.set_exception(Lost(self._reason, written=False))
            return future
        self.load += len(packed)
        if self._waiting or self._queue or self._paused:
            self._queue.append((future, packed))
            if not self._flushing and not self._paused:
                self._flushing = True
                self._loop.call_soon(self._flush)
        else:
            self._waiting.append((future, len(packed)))
            self._write(packed)
        return future

    async def exchange(self, *packed: bytes) -> list[Any]:
        """Send commands together; their replies in order. Lost if one does not come."""
        futures = [self.send(one) for one in packed]
        try:
            return [await future for future in futures]
        finally:
            for future in futures:
                forget(future)

    def withdraw(self, future: asyncio.Future[Any], reason: str) -> None:
        """Give up waiting for a reply: the future raises Lost, what was not written will not be."""
        if not future.done():
            queued = any(future is other for other, _ in self._queue)
            future.set_exception(Lost(reason, written=not queued))

    def close(self, reason: str = "the connection was closed") -> None:
        """Close at once; whoever waits gets Lost."""
        self._reason = reason
        if self._transport is not None:
            self._transport.abort()
            self._fail()

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        if self._watch is None:
            self._progress = self._loop.time()
            self._watch = self._loop.call_later(self._timeout, self._check)
        elif len(self._waiting) == 1:
            self._progress = self._loop.time()
        self._transport.write(data)

    def _flush(self) -> None:
        self._flushing = False
        while self._queue and not self._paused and self._transport is not None:
            chunk: list[bytes] = []
            idle = not self._waiting
            size = 0
            while self._queue and (not chunk or size + len(self._queue[0][1]) <= self._batch_bytes):
                future, packed = self._queue.popleft()
                if future.done():
                    self.load -= len(packed)
                    continue
                chunk.append(packed)
                size += len(packed)
                self._waiting.append((future, len(packed)))
            if idle:
                self._progress = self._loop.time()
            if chunk:
                self._write(b"".join(chunk))

    def _check(self) -> None:
        self._watch = None
        if not self._waiting:
            return
        left = self._progress + self._timeout - self._loop.time()
        if left <= 0:
            self.close(f"no reply within {self._timeout:g} s")
        else:
            self._watch = self._loop.call_later(left, self._check)

    def _fail(self) -> None:
        self._transport = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        lost = [(future, True) for future, _ in self._waiting] + [(future, False) for future, _ in self._queue]
        self._waiting.clear()
        self._queue.clear()
        self.load = 0
        for future, written in lost:
            if not future.done():
                future.set_exception(Lost(self._reason, written=written))
        if self.on_lost is not None:
            self.on_lost(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Protocol callback."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Protocol callback: give every complete reply to its caller."""
        self._progress = self._loop.time()
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not INCOMPLETE:
                future, size = self._waiting.popleft()
                self.load -= size
                if not future.done():
                    future.set_result(reply)
        except (ProtocolBroken, IndexError) as broken:
            self.close(f"the server broke the protocol: {broken}")

    def pause_writing(self) -> None:
        """Protocol callback: the socket takes no more for now."""
        self._paused = True

    def resume_writing(self) -> None:
        """Protocol callback."""
        self._paused = False
        self._flush()

    def eof_received(self) -> None:
        """Protocol callback: the server closed; what is sent from now on would be lost, so nothing is."""
        self.close("the server closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        """Protocol callback."""
        if self._transport is not None:
            if exc is not None:
                self._reason = f"the connection broke: {exc}"
            self._fail()
