"""Artifacts whose bytes stand on a file system that fsspec knows; the heads stay in the backend."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from blackboard.artifacts.head import Head
from blackboard.artifacts.source import Source
from blackboard.errors import ConfigError, CorruptValue, ServerUnavailable
from blackboard.points import reach

__all__ = ["Files"]

T = TypeVar("T")

UPLOADS = "uploads"
"""Folder of what is being written; a file is moved out of it when all of it is there."""


class Files:
    """Writes, reads and removes files below one URL; needs the extra `files`.

    A file is named by its digest and its upload, so that no two uploads share one and a file that is removed is nobody
    else's. Work that waits for the file system is done in threads; what fails there is ServerUnavailable.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._fs, base = _file_system(url)
        self._base = str(base).rstrip("/")

    async def write(self, source: Source, upload: str) -> str:
        """Write a temporary file, then move it to its name, which is returned; CorruptValue if it is shorter than it was."""
        temporary, name = f"{UPLOADS}/{upload}", f"{source.digest[:2]}/{source.digest}.{upload}"
        async with self._opened(temporary) as file:
            async for _, data in source.chunks():
                reach("artifact", "chunk")
                await self._aside(lambda data=data: file.write(data))  # type: ignore[misc]
        await self._aside(lambda: self._move(temporary, name))
        stored = await self._aside(lambda: self._fs.info(self._path(name))["size"])
        if stored != source.size:
            raise CorruptValue(f"{self._path(name)} has {stored} bytes, {source.size} were written", key=name)
        reach("artifact", "moved")
        return name

    async def read(self, head: Head, number: int) -> bytes | None:
        """Read one chunk; None if the file is not there."""
        start = number * head.chunk
        try:
            return await self._aside(
                lambda: bytes(self._fs.cat_file(self._path(head.file), start=start, end=start + head.length(number)))
            )
        except FileNotFoundError:
            return None

    async def whole(self, head: Head) -> bool:
        """Tell whether the file is there and as long as it should be."""
        try:
            size = await self._aside(lambda: self._fs.info(self._path(head.file))["size"])
        except FileNotFoundError:
            return False
        return bool(size == head.size)

    async def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            await self._aside(lambda: self._fs.rm_file(self._path(name)))

    async def names(self) -> AsyncIterator[tuple[str, str, str]]:
        """Yield every file that is ours: its name, its digest (empty for a temporary one) and its upload."""
        found: list[str] = await self._aside(lambda: sorted(self._fs.find(self._base, withdirs=False, refresh=True)))
        for path in found:
            folder, _, file = path.rpartition("/")
            digest, _, upload = file.rpartition(".")
            parent = folder.rpartition("/")[2]
            if parent == UPLOADS or (len(digest) == 64 and parent == digest[:2]):
                yield f"{parent}/{file}", digest, upload

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}"

    @asynccontextmanager
    async def _opened(self, name: str) -> AsyncGenerator[Any]:
        def opened() -> Any:
            self._fs.makedirs(f"{self._base}/{UPLOADS}", exist_ok=True)
            return self._fs.open(self._path(name), "wb")

        file = await self._aside(opened)
        try:
            yield file
        finally:
            await self._aside(lambda: _close(file))

    def _move(self, temporary: str, name: str) -> None:
        folder = self._path(name).rpartition("/")[0]
        self._fs.makedirs(folder, exist_ok=True)
        self._fs.mv(self._path(temporary), self._path(name))
        if Path(folder).is_dir():  # of this machine: the name is on disk too
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    async def _aside(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ServerUnavailable(f"{self._url} does not take or give an artifact: {error}") from error


def _close(file: Any) -> None:
    """Close a file; one of this machine is on disk then."""
    with suppress(AttributeError, OSError):
        file.flush()
        os.fsync(file.fileno())
    file.close()


def _file_system(url: str) -> tuple[Any, Any]:
    try:
        core: Any = import_module("fsspec.core")
    except ImportError as missing:
        raise ConfigError(
            "artifacts.url needs the package fsspec: pip install 'agent-blackboard[files]'", value="fsspec"
        ) from missing
    try:
        found: tuple[Any, Any] = core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"artifacts.url {url!r} cannot be used: {error}", value=url) from error
    return found
