"""What is to be stored, read twice in chunks: once for its digest, once to be sent."""

from __future__ import annotations

import asyncio
import hashlib
import io
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from blackboard.artifacts.head import CHECK, check_of
from blackboard.errors import ConfigError

__all__ = ["Content", "Source", "measured"]

Content = bytes | bytearray | memoryview | str | Path | AsyncIterable[bytes]
"""Bytes, the path of a file, or bytes as they come."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Source:
    """Content whose digest is known; `checks` are the digests of its chunks, joined."""

    file: BinaryIO
    what: str
    chunk: int
    digest: str
    size: int
    checks: bytes

    async def chunks(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield (number, chunk); ConfigError if the content is not what was measured."""
        number = 0
        await _aside(self.file, lambda: self.file.seek(0))
        while data := await _aside(self.file, lambda: self.file.read(self.chunk)):
            if check_of(data) != self.checks[number * CHECK : (number + 1) * CHECK]:
                break
            yield number, data
            number += 1
        if number * CHECK != len(self.checks):
            raise ConfigError(f"{self.what} was changed while it was stored; put it when nobody writes it")


@asynccontextmanager
async def measured(content: Content, chunk: int, spool: Path | None) -> AsyncGenerator[Source]:
    """Read the content once, a chunk at a time, and keep it open to be read again.

    A file is read twice; a stream goes to a temporary file (in memory up to one chunk), for where an artifact stands
    depends on its digest.
    """
    file, what = await _opened(content, chunk, spool)
    try:
        digest, checks, size = hashlib.sha256(), bytearray(), 0
        while data := await _aside(file, lambda: file.read(chunk)):
            await asyncio.to_thread(digest.update, data)
            checks += check_of(data)
            size += len(data)
        yield Source(file, what, chunk, digest.hexdigest(), size, bytes(checks))
    finally:
        file.close()


async def _opened(content: Content, chunk: int, spool: Path | None) -> tuple[BinaryIO, str]:
    if isinstance(content, (bytes, bytearray, memoryview)):
        return io.BytesIO(content if isinstance(content, bytes) else bytes(content)), "the content"
    if isinstance(content, (str, Path)):
        path = Path(content)
        try:
            return await asyncio.to_thread(path.open, "rb"), f"file {str(path)!r}"
        except (OSError, ValueError) as error:  # ValueError: no name of a file, such as one with a zero byte
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(
                f"file {str(path)!r:.300} cannot be read ({why}); name another, or give the content as bytes",
                value=str(path),
            ) from error
    if not isinstance(content, AsyncIterable):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not be typed
        raise ConfigError(
            f"an artifact is made of bytes, a path or an async iterator of bytes, not {type(content).__name__}",
            value=type(content).__name__,
        )
    return await _spooled(content, chunk, spool), "the stream"


async def _spooled(stream: AsyncIterable[bytes], chunk: int, spool: Path | None) -> BinaryIO:
    file = cast("BinaryIO", tempfile.SpooledTemporaryFile(chunk, dir=None if spool is None else str(spool)))  # noqa: SIM115 - closed by who measures it
    try:
        async for data in stream:
            await asyncio.to_thread(file.write, _bytes(data))
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def _bytes(data: Any) -> bytes:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise ConfigError(f"a stream gives bytes, not {type(data).__name__}", value=type(data).__name__)
    return bytes(cast("bytes", data))


async def _aside(file: Any, work: Callable[[], T]) -> T:
    """Do what may wait for a disk in a thread."""
    return work() if isinstance(file, io.BytesIO) else await asyncio.to_thread(work)
