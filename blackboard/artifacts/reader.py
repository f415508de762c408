"""Reading an artifact piece by piece, each chunk compared with the digest that it was written under."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Self

from blackboard.artifacts.head import Head
from blackboard.artifacts.ref import ArtifactRef
from blackboard.errors import ConfigError

__all__ = ["ArtifactReader"]

Fetch = Callable[[Head, int], Awaitable[tuple[Head, bytes]]]


class ArtifactReader:
    """A range of an artifact, from its beginning to its end: read it with `read`, or chunk by chunk with `async for`.

    Made by `ArtifactStore.open`; nothing is sent before it is entered or read. Holds one chunk at a time.
    """

    def __init__(self, find: Callable[[], Awaitable[Head]], fetch: Fetch, *, offset: int, length: int | None) -> None:
        if not (_count(offset) and (length is None or _count(length))):
            raise ConfigError(
                f"a range begins at 0 or later and is a whole number of bytes, got {offset!r}, {length!r}", value=offset
            )
        self._find, self._fetch = find, fetch
        self._at, self._length = offset, length
        self._head: Head | None = None
        self._end = 0
        self._number: int = -1
        self._held = b""

    async def __aenter__(self) -> Self:
        await self._opened()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held = b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self._next(None):
            yield data

    @property
    def ref(self) -> ArtifactRef:
        """The artifact, once it was entered."""
        if self._head is None:
            raise ConfigError("an artifact is known after `async with`, or the first read")
        return self._head.ref

    async def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes, or all that is left (-1); empty at the end. Fewer only there."""
        if not (_count(size) or size == -1):
            raise ConfigError(f"size is a whole number of bytes, or -1 for all that is left, got {size!r}", value=size)
        parts: list[bytes] = []
        left = size
        while left and (data := await self._next(left if size >= 0 else None)):
            parts.append(data)
            left -= len(data)
        return b"".join(parts)

    async def _next(self, most: int | None) -> bytes:
        """Return what is left of the chunk where we stand, or at most so many bytes of it."""
        head = await self._opened()
        if self._at >= self._end:
            return b""
        number, start = self._at // head.chunk, self._at % head.chunk
        if number != self._number:
            self._head, self._held = await self._fetch(head, number)
            self._number = number
        stop = min(len(self._held), start + self._end - self._at)
        stop = stop if most is None else min(stop, start + most)
        self._at += stop - start
        return self._held if stop - start == len(self._held) else self._held[start:stop]

    async def _opened(self) -> Head:
        if self._head is None:
            self._head = await self._find()
            whole = self._head.size
            self._end = whole if self._length is None else min(whole, self._at + self._length)
        return self._head


def _count(value: object) -> bool:
    return type(value) is int and value >= 0
