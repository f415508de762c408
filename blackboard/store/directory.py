"""The data directory of an embedded server: where it is, who holds it, and which server wrote it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from blackboard.errors import ConfigError, ServerUnavailable
from blackboard.store.binaries import Binary, Family
from blackboard.store.supervisor import Lock, is_free

__all__ = ["DataDirectory", "Record", "locate", "release"]

NAME = ".blackboard"
VARIABLE = "BLACKBOARD_DIR"
LONGEST_SOCKET = 103
"""Longest path of a unix socket in bytes that both Linux (107) and macOS (103) take."""

_POLL = 0.005


@dataclass(frozen=True, slots=True)
class Record:
    """What the directory remembers: the family and newest version of the servers that wrote it, and their socket."""

    family: Family
    version: str
    socket: str


def locate(directory: Path | None = None) -> Path:
    """Tell where the data is: the argument, BLACKBOARD_DIR, the nearest `.blackboard` upwards, else one here.

    A `.blackboard` of another user is passed over. Nothing is created.
    """
    chosen = directory or os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser().resolve()
    here = Path.cwd()
    return next(_ours(here), here / NAME)


def _ours(here: Path) -> Iterator[Path]:
    for parent in (here, *here.parents):
        found = parent / NAME
        try:
            if found.is_dir() and found.stat().st_uid == os.getuid():
                yield found
        except OSError:
            continue


class DataDirectory:
    """A directory that one server at a time writes and every process of the user shares."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> Self:
        """Open the directory, made for the user alone if it is not there; raises ConfigError if it cannot be used."""
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            ignore = path / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")
        except OSError as error:
            raise ConfigError(
                f"the data directory {path} cannot be used ({error}); name another one in {VARIABLE}", value=str(path)
            ) from error
        return cls(path)

    @property
    def log(self) -> Path:
        """The log of server and supervisor."""
        return self.path / "server.log"

    @property
    def keep(self) -> Path:
        """A file that is there while the server is to stay although nobody uses it."""
        return self.path / "keep"

    @property
    def served(self) -> bool:
        """Whether a server process has the directory."""
        return not is_free(self.path / "server.lock")

    @property
    def supervised(self) -> bool:
        """Whether a supervisor is there."""
        return not is_free(self.path / "supervisor.lock")

    @property
    def used(self) -> bool:
        """Whether a client is there."""
        return not is_free(self.path / "users.lock")

    @property
    def written(self) -> bool:
        """Whether a server has ever written data here."""
        return any(self.path.glob("appendonly*"))

    @asynccontextmanager
    async def starting(self, within: float) -> AsyncGenerator[None]:
        """Be the only one that starts or stops the server; raises ServerUnavailable after `within` seconds."""
        lock = await self._taken("starting.lock", within, shared=False)
        try:
            yield
        finally:
            lock.close()

    async def use(self, within: float) -> Lock:
        """Be one of the users until the lock is closed, or the process ends in whatever way."""
        return await self._taken("users.lock", within, shared=True)

    async def _taken(self, name: str, within: float, *, shared: bool) -> Lock:
        lock = Lock(self.path / name)
        try:
            async with asyncio.timeout(within):
                while not lock.take(shared=shared):  # noqa: ASYNC110 - a lock of a file has no event
                    await asyncio.sleep(_POLL)
        except BaseException as error:
            lock.close()
            if isinstance(error, TimeoutError):
                raise ServerUnavailable(f"{self.path / name} is held by another process for {within:g} s") from None
            raise
        return lock

    def record(self) -> Record | None:
        """Read what is remembered, None if nothing is; raises ConfigError if it cannot be read."""
        path = self.path / "server.json"
        try:
            return Record(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"{path} cannot be read ({error}); restore it or name another directory") from error

    def remember(self, binary: Binary) -> Record:
        """Record that a binary is about to write here; raises ConfigError if what is here is not for it."""
        known = self.record()
        version = binary.version
        if known and self.written:
            self._check(known, binary)
            version = max(known.version, version, key=release)
        record = Record(binary.family, version, known.socket if known else "")
        if not record.socket or not _private(Path(record.socket).parent):
            record = Record(binary.family, version, str(self._socket()))
        draft = self.path / "server.json.new"
        draft.write_text(json.dumps(asdict(record)))
        draft.replace(self.path / "server.json")
        return record

    def _check(self, known: Record, binary: Binary) -> None:
        if known.family != binary.family:
            raise ConfigError(
                f"{self.path} was written by {known.family} {known.version} and is not for {binary.family} "
                f"({binary.path}); install a {known.family}-server or name another directory in {VARIABLE}",
                value=str(binary.path),
            )
        if release(known.version)[0] > release(binary.version)[0]:
            raise ConfigError(
                f"{self.path} was written by {known.family} {known.version} and is too new for {binary.version} "
                f"({binary.path}); install {known.family} {release(known.version)[0]} or newer",
                value=str(binary.path),
            )

    def _socket(self) -> Path:
        """Choose a short path for the socket: this directory's own, also if another one takes its name later."""
        here = f"{self.path.resolve()}:{self.path.stat().st_ino}"
        name = hashlib.sha256(here.encode()).hexdigest()[:16] + ".sock"
        for runtime in _runtimes():
            path = runtime / name
            if len(os.fsencode(path)) <= LONGEST_SOCKET:
                return path
        raise ConfigError(
            "no private directory with a short path for the server's socket; set XDG_RUNTIME_DIR to one", value=name
        )


def release(version: str) -> tuple[int, ...]:
    """Read a version as numbers that order."""
    return tuple(int(part) for part in version.split("."))


def _runtimes() -> Iterator[Path]:
    """Give the runtime directories that are the user's alone: XDG_RUNTIME_DIR's, then the temporary one."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and _private(Path(runtime, "blackboard")):
        yield Path(runtime, "blackboard")
    temporary = Path(tempfile.gettempdir(), f"blackboard-{os.getuid()}")
    if _private(temporary):
        yield temporary


def _private(path: Path) -> bool:
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
