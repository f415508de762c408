"""RESP in as few lines as possible: split a byte stream into frames, decode one, and ask a server one question.

The client proper is redis-py's; this is for what must work before there is a client (is the server up?) and for what
looks at the wire from outside (the fault proxy).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from blackboard.errors import ConfigError

__all__ = ["Frames", "Reply", "ServerError", "Wire", "ask", "decode", "pack"]

Part = bytes | str | int
Reply = Any
Address = Path | tuple[str, int]

_CHUNK = 1 << 18
_BULK = b"$!="
_AGGREGATE = {ord("*"): (1, 0), ord("~"): (1, 0), ord(">"): (1, 0), ord("%"): (2, 0), ord("|"): (2, 1)}
"""Elements per announced item, and elements that follow besides: an attribute stands before the reply it describes."""


class ServerError(Exception):
    """An error reply, as a value in a decoded reply or raised by `Wire.ask`."""


def pack(*parts: Part) -> bytes:
    """Spell a command as RESP."""
    items = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"*%d\r\n" % len(items) + b"".join(b"$%d\r\n%b\r\n" % (len(item), item) for item in items)


class Frames:
    """Split a stream of RESP 2 or 3 into whole frames, byte for byte; every byte is looked at once.

    A frame is a command (an array, or an inline line) or a whole reply with all that is nested in it. Streamed RESP 3
    types, which no server sends, are not known.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._missing = 1

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes, and yield every frame that is now whole."""
        self._buffer += data
        while (end := self._element()) >= 0:
            self._scanned = end
            if not self._missing:
                frame = bytes(self._buffer[:end])
                del self._buffer[:end]
                self._scanned, self._missing = 0, 1
                yield frame

    def _element(self) -> int:
        """Return where the next element ends and count what it announces, or -1 if it is not whole yet."""
        line = self._buffer.find(b"\r\n", self._scanned)
        if line < 0:
            return -1
        kind, end = self._buffer[self._scanned], line + 2
        if kind in _BULK:
            size = int(self._buffer[self._scanned + 1 : line])
            end += size + 2 if size >= 0 else 0
            if len(self._buffer) < end:
                return -1
        self._missing -= 1
        if kind in _AGGREGATE:
            each, besides = _AGGREGATE[kind]
            self._missing += each * max(0, int(self._buffer[self._scanned + 1 : line])) + besides
        return end


def decode(frame: bytes) -> Reply:
    """Decode one whole frame: bytes, int, float, bool, None, list, dict; an error is a ServerError, not raised."""
    return _decode(frame, 0)[0]


def _decode(frame: bytes, at: int) -> tuple[Reply, int]:
    line = frame.index(b"\r\n", at)
    kind, text, end = frame[at : at + 1], frame[at + 1 : line], line + 2
    if kind == b"|":
        for _ in range(2 * int(text)):
            end = _decode(frame, end)[1]
        return _decode(frame, end)
    if kind in b"$!=":
        size = int(text)
        body = frame[end : end + size] if size >= 0 else None
        value = ServerError(_text(body or b"")) if kind == b"!" else body
        return value, end + (size + 2 if size >= 0 else 0)
    if kind in b"*~>%":
        return _aggregate(frame, kind, int(text), end)
    return _simple(kind, text), end


def _aggregate(frame: bytes, kind: bytes, count: int, at: int) -> tuple[Reply, int]:
    if count < 0:
        return None, at
    items: list[Reply] = []
    for _ in range(2 * count if kind == b"%" else count):
        item, at = _decode(frame, at)
        items.append(item)
    return (dict(zip(items[::2], items[1::2], strict=True)) if kind == b"%" else items), at


def _simple(kind: bytes, text: bytes) -> Reply:
    match kind:
        case b":" | b"(":
            return int(text)
        case b"-":
            return ServerError(_text(text))
        case b",":
            return float(text)
        case b"#":
            return text == b"t"
        case b"_":
            return None
        case _:
            return text


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


class Wire:
    """One plain connection, one question at a time; an async context manager."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = Frames()

    @classmethod
    async def open(cls, address: Address) -> Wire:
        """Connect to a unix socket or (host, port); raises OSError."""
        if isinstance(address, Path):
            return cls(*await asyncio.open_unix_connection(str(address)))
        return cls(*await asyncio.open_connection(*address))

    async def ask(self, *parts: Part) -> Reply:
        """Send a command and return its reply; an error reply raises ServerError, a lost connection EOFError."""
        if not parts:
            raise ConfigError("a command needs at least its name")
        self._writer.write(pack(*parts))
        await self._writer.drain()
        while data := await self._reader.read(_CHUNK):
            for frame in self._frames.feed(data):
                reply = decode(frame)
                if isinstance(reply, ServerError):
                    raise reply
                return reply
        raise EOFError("the server closed the connection")

    async def __aenter__(self) -> Wire:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._writer.close()


async def ask(address: Address, *parts: Part, timeout: float = 5.0) -> Reply:
    """Connect, ask one question, leave; raises OSError (a TimeoutError too), EOFError or ServerError."""
    async with asyncio.timeout(timeout), await Wire.open(address) as wire:
        return await wire.ask(*parts)


def fields(reply: bytes) -> dict[str, str]:
    """Read the `name:value` lines of INFO."""
    lines: Sequence[str] = reply.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
