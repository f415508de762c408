"""A fault proxy: stands between client and server, counts what passes, and breaks what it is told to break.

```python
async with await FaultProxy.start(server.url) as proxy:
    store = await Store.connect(proxy.url)
    proxy.reset()
    proxy.fault(drop_reply(), at=0)          # the next command is executed, and its reply is lost
    await store.command("SET", "a", 1)
    assert proxy.names == ["SET", "SET"]     # it was sent again
    assert proxy.round_trips == 2
```

Commands and replies are told apart by their frames, not by what one read happened to return, so that the k-th command is
the k-th command however the bytes were cut.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

from blackboard.errors import ConfigError
from blackboard.store.protocol import reader
from blackboard.store.wire import close
from blackboard.testing.frames import Frames

__all__ = [
    "Command",
    "Fault",
    "FaultProxy",
    "blackhole",
    "cut_reply",
    "cut_request",
    "delay_reply",
    "delay_request",
    "drop_reply",
    "drop_request",
    "hold_request",
]

_CHUNK = 1 << 20
_PUSH = b">"

Kind = Literal[
    "none",
    "drop_request",
    "cut_request",
    "delay_request",
    "hold_request",
    "drop_reply",
    "cut_reply",
    "delay_reply",
    "blackhole",
]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class Command:
    """A command as it was seen: its number since the last reset, its connection's number, its name and arguments."""

    index: int
    connection: int
    name: str
    args: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a command; made by the functions of this module."""

    kind: Kind
    bytes: int = 0
    seconds: float = 0.0
    gate: asyncio.Event | None = None


_NONE = Fault("none")


def drop_request() -> Fault:
    """The command never reaches the server: it is not executed, and the connection closes."""
    return Fault("drop_request")


def cut_request(size: int) -> Fault:
    """The server gets the first bytes of the command and then the end of the connection: it is not executed."""
    return Fault("cut_request", bytes=size)


def delay_request(seconds: float) -> Fault:
    """The command, and what follows it on the connection, reaches the server later."""
    return Fault("delay_request", seconds=seconds)


def hold_request(gate: asyncio.Event) -> Fault:
    """The command, and what follows it on the connection, reaches the server when the event is set."""
    return Fault("hold_request", gate=gate)


def drop_reply() -> Fault:
    """The command is executed, its reply is lost and the connection closes. What was sent after it is not executed."""
    return Fault("drop_reply")


def cut_reply(size: int) -> Fault:
    """As `drop_reply`, but the client gets the first bytes of the reply."""
    return Fault("cut_reply", bytes=size)


def delay_reply(seconds: float) -> Fault:
    """The command is executed at once; its reply, and what follows it, comes later."""
    return Fault("delay_reply", seconds=seconds)


def blackhole() -> Fault:
    """The command and all that follows on the connection vanishes, in both directions; nothing closes."""
    return Fault("blackhole")


@dataclass(slots=True)
class _Plan:
    fault: Fault
    at: int | None
    when: Callable[[Command], bool] | None
    times: int

    def takes(self, command: Command) -> bool:
        chosen = (self.at is None or self.at == command.index) and (self.when is None or self.when(command))
        self.times -= chosen
        return chosen


class FaultProxy:
    """Listens on a socket of its own (or a loopback port) and passes everything to the server, but for the faults.

    Counts since the last `reset`: `commands` (the transcript), `replies`, and `round_trips`, the number of times that a
    client sent something while it waited for nothing. A pipeline is one round trip, unless it is so long that the server
    has answered its beginning before the client sent the end. Limits: pushes of RESP 3 pass uncounted, and RESP 2
    subscriptions, whose replies do not match commands one to one, are passed on but must not be counted on.

    `refusing` says whether new connections are closed at once; `sever` ends those that stand.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.url = ""
        self.commands: list[Command] = []
        self.replies = 0
        self.round_trips = 0
        self.connections = 0
        self.refusing = False
        self._plans: list[_Plan] = []
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self._runtime: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    async def start(cls, upstream: str, *, tcp: bool = False) -> Self:
        """Start in front of `unix://path` or `redis://host:port`; `url` is the address that clients are given."""
        proxy = cls(upstream)
        _address(upstream)
        if tcp:
            proxy._server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
            proxy.url = f"redis://127.0.0.1:{proxy._server.sockets[0].getsockname()[1]}"
        else:
            proxy._runtime = tempfile.TemporaryDirectory(prefix="bb", ignore_cleanup_errors=True)
            path = Path(proxy._runtime.name, "p")
            proxy._server = await asyncio.start_unix_server(proxy._serve, str(path))
            proxy.url = f"unix://{path}"
        return proxy

    @property
    def names(self) -> list[str]:
        """The names of the commands since the last reset, in the order in which they arrived."""
        return [command.name for command in self.commands]

    def fault(
        self, fault: Fault, *, at: int | None = None, when: Callable[[Command], bool] | None = None, times: int = 1
    ) -> None:
        """Do this to the command with this number since the last reset, or to the next ones for which `when` holds.

        With neither it is the next command. Of several plans the first made that fits is taken.
        """
        self._plans.append(_Plan(fault, at, when, times))

    def reset(self) -> None:
        """Forget the counts and the plans; connections stay."""
        self.commands.clear()
        self._plans.clear()
        self.replies = self.round_trips = self.connections = 0

    def sever(self) -> None:
        """Close every connection that stands, as a network that fails does."""
        for link in list(self._links):
            link.end()

    async def close(self) -> None:
        """Stop listening and end every connection; idempotent."""
        if self._server is not None:
            self._server.close()
            tasks = [link.task for link in self._links]
            self.sever()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._server = None
        if self._runtime is not None:
            self._runtime.cleanup()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            server = None if self.refusing else await _connect(self.upstream)
        except OSError:
            server = None
        if server is None:
            await close(writer)
            return
        link = _Link(self, self.connections, (reader, writer), server)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    def seen(self, connection: int, frame: bytes) -> Fault:
        """Take a command down and choose what happens to it; called by the connections."""
        command = _command(len(self.commands), connection, frame)
        self.commands.append(command)
        for plan in self._plans:
            if plan.takes(command):
                if not plan.times:
                    self._plans.remove(plan)
                return plan.fault
        return _NONE


class _Link:
    """One client connection and the connection to the server that belongs to it."""

    def __init__(self, proxy: FaultProxy, number: int, client: Stream, server: Stream) -> None:
        self._proxy = proxy
        self._number = number
        self._client = client
        self._server = server
        self._waiting: deque[Fault] = deque()
        self._settled = asyncio.Event()
        self._silent = False
        self.task = asyncio.ensure_future(self._both())

    async def run(self) -> None:
        """Pass both directions on until one ends."""
        await asyncio.wait([self.task])

    def end(self) -> None:
        """Close both connections, even if the task has not begun yet or is closing them already."""
        self.task.cancel()
        for _, writer in (self._client, self._server):
            writer.close()

    async def _both(self) -> None:
        ways = [asyncio.create_task(self._requests()), asyncio.create_task(self._replies())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for _, writer in (self._client, self._server):
                await close(writer)

    async def _requests(self) -> None:
        frames, writer = Frames(), self._server[1]
        while data := await self._client[0].read(_CHUNK):
            for frame in frames.feed(data):
                if self._silent:
                    continue
                self._proxy.round_trips += not self._waiting
                fault = self._proxy.seen(self._number, frame)
                if not await self._forward(frame, fault):
                    return
            await writer.drain()

    async def _forward(self, frame: bytes, fault: Fault) -> bool:
        """Send a command on, as its fault says; answer whether the connection goes on."""
        writer = self._server[1]
        match fault.kind:
            case "blackhole":
                self._silent = True
                return True
            case "drop_request" | "cut_request":
                await self._answered()
                writer.write(frame[: min(fault.bytes, len(frame) - 1)])
                await writer.drain()
                return False
            case "delay_request":
                await asyncio.sleep(fault.seconds)
            case "hold_request":
                await (fault.gate or asyncio.Event()).wait()
            case _:
                pass
        self._waiting.append(fault)
        self._settled.clear()
        writer.write(frame)
        if fault.kind in ("drop_reply", "cut_reply"):
            await writer.drain()
            await asyncio.Event().wait()
        return True

    async def _answered(self) -> None:
        """Wait until the commands before this one have had their replies, so that only this one is hit."""
        if self._waiting:
            await self._settled.wait()

    async def _replies(self) -> None:
        frames, writer = Frames(), self._client[1]
        while data := await self._server[0].read(_CHUNK):
            for frame in frames.feed(data):
                if self._silent:
                    continue
                if frame[:1] == _PUSH:
                    writer.write(frame)
                elif not await self._answer(frame):
                    return
            await writer.drain()

    async def _answer(self, frame: bytes) -> bool:
        """Pass a reply on, as the fault of its command says; answer whether the connection goes on."""
        fault = self._waiting.popleft() if self._waiting else _NONE
        match fault.kind:
            case "drop_reply":
                return False
            case "cut_reply":
                self._client[1].write(frame[: min(fault.bytes, len(frame) - 1)])
                await self._client[1].drain()
                return False
            case "delay_reply":
                await asyncio.sleep(fault.seconds)
            case _:
                pass
        self._client[1].write(frame)
        self._proxy.replies += 1
        if not self._waiting:
            self._settled.set()
        return True


def _command(index: int, connection: int, frame: bytes) -> Command:
    words: list[bytes] = frame.split()
    if frame[:1] == b"*":
        parser = reader()
        parser.feed(frame)
        words = parser.gets()
    return Command(index, connection, words[0].decode(errors="replace").upper() if words else "", tuple(words[1:]))


def _address(url: str) -> str | tuple[str, int]:
    parts = urlsplit(url)
    if parts.scheme == "unix" and parts.path:
        return parts.path
    if parts.scheme == "redis" and parts.hostname:
        return parts.hostname, parts.port or 6379
    raise ConfigError(f"the proxy stands in front of unix://path or redis://host:port, not {url!r}", url=url)


async def _connect(url: str) -> Stream:
    address = _address(url)
    if isinstance(address, str):
        return await asyncio.open_unix_connection(address)
    return await asyncio.open_connection(*address)
