"""One plain question to one server, for what must work before there is a client."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from blackboard.store.protocol import INCOMPLETE, ErrorReply, Part, pack, reader

__all__ = ["Place", "Wire", "ask", "close"]

Place: TypeAlias = Path | tuple[str, int]

_CHUNK = 1 << 18


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a connection and wait until it is closed, however it ended."""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


class Wire:
    """One plain connection, one question at a time; an async context manager."""

    def __init__(self, reading: asyncio.StreamReader, writing: asyncio.StreamWriter) -> None:
        self._reading = reading
        self._writing = writing
        self._replies = reader()

    @classmethod
    async def open(cls, place: Place) -> Self:
        """Connect to a unix socket or (host, port); raises OSError."""
        if isinstance(place, Path):
            return cls(*await asyncio.open_unix_connection(str(place)))
        return cls(*await asyncio.open_connection(*place))

    async def ask(self, *parts: Part) -> Any:
        """Send a command and return its reply; an error reply is raised (ErrorReply), a lost connection is EOFError."""
        self._writing.write(pack(parts))
        await self._writing.drain()
        while (reply := self._replies.gets()) is INCOMPLETE:
            if not (data := await self._reading.read(_CHUNK)):
                raise EOFError("the server closed the connection")
            self._replies.feed(data)
        if isinstance(reply, ErrorReply):
            raise reply
        return reply

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await close(self._writing)


async def ask(place: Place, *parts: Part, within: float = 5.0) -> Any:
    """Connect, ask one question, leave; raises OSError (a TimeoutError too), EOFError or ErrorReply."""
    async with asyncio.timeout(within), await Wire.open(place) as wire:
        return await wire.ask(*parts)
