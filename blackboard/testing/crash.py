"""Processes that die where a test says: forked from one that has imported everything, killed at a named point.

```python
async with await Template.start("tests.chaos.scenes") as template:
    child = await template.fork("play", server.url, "thread-1", "commit.lua:sent#2")
    assert await child.wait() == -signal.SIGKILL
```
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from blackboard.points import Watcher

__all__ = ["Child", "Spot", "Template", "recorder", "strike"]


@dataclass(frozen=True, slots=True, order=True)
class Spot:
    """The n-th time (from 1) that a process reaches a point; spelled `point#n`."""

    point: str
    occurrence: int

    def __str__(self) -> str:
        return f"{self.point}#{self.occurrence}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read one as it is spelled."""
        point, _, occurrence = text.rpartition("#")
        return cls(point, int(occurrence))


def recorder(note: Callable[[Spot], None]) -> Watcher:
    """Make a watcher that notes every spot as it is reached."""
    seen: Counter[str] = Counter()

    def record(point: str) -> None:
        seen[point] += 1
        note(Spot(point, seen[point]))

    return record


def strike(spot: Spot, number: signal.Signals = signal.SIGKILL) -> Watcher:
    """Make a watcher that sends this process a signal at exactly one spot: it dies there, or stops (SIGSTOP)."""

    def at(reached: Spot) -> None:
        if reached == spot:
            os.kill(os.getpid(), number)

    return recorder(at)


@dataclass(eq=False)
class Child:
    """A forked process; its exit code as `wait` gives it is negative for the signal that ended it."""

    pid: int
    _ended: asyncio.Future[int] = field(repr=False)

    async def wait(self) -> int:
        """Wait for its end, however often asked."""
        return await asyncio.shield(self._ended)

    @property
    def running(self) -> bool:
        """Whether it has not ended (stopped counts)."""
        return not self._ended.done()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Template:
    """A process that has imported a module and forks a child for every call of one of its coroutine functions.

    A fork costs milliseconds where a start costs a second, and the process has no event loop, no thread and no
    connection, so that a fork copies nothing that two must not share. Its children end with it, and it ends with us.
    """

    def __init__(self, process: asyncio.subprocess.Process, errors: Any) -> None:
        self._process = process
        self._errors = errors
        self._forked: dict[int, asyncio.Future[Child]] = {}
        self._ended: dict[int, asyncio.Future[int]] = {}
        self._calls = 0
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, module: str) -> Self:
        """Start one that has imported the module (by a name that can be imported from where we are)."""
        errors = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - closed in `close`
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "blackboard.testing.crash", module,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(part or "." for part in sys.path)},
        )  # fmt: skip
        return cls(process, errors)

    async def fork(self, function: str, *args: str) -> Child:
        """Fork a child that runs the coroutine function to its end; exit code 0, or 1 if it raised."""
        self._calls += 1
        waiting: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        self._forked[self._calls] = waiting
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([self._calls, function, *args]).encode() + b"\n")
        return await waiting

    def errors(self) -> str:
        """Return what the children wrote to stderr, the last 4,000 bytes."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 4000))
        return str(self._errors.read().decode(errors="replace"))

    async def close(self) -> None:
        """End it and every child that is left."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._reading
        self._errors.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            call, pid, code = json.loads(line)
            if code is None:
                self._ended[call] = asyncio.get_running_loop().create_future()
                self._forked.pop(call).set_result(Child(pid, self._ended[call]))
            else:
                self._ended.pop(call).set_result(code)
        for waiting in self._forked.values():
            waiting.set_exception(RuntimeError(f"the template ended: {self.errors()}"))


def _woken(number: int, frame: Any) -> None:
    """Handle a signal by doing nothing: the pipe that wakes the loop is written to because there is a handler."""


class _Forks:
    """What runs in the template: one line per call in, one line per birth and per death out."""

    def __init__(self, module: str) -> None:
        self._module = importlib.import_module(module)
        self._calls: dict[int, int] = {}
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, _woken)
        gc.freeze()

    def serve(self) -> None:
        buffer = b""
        while True:
            ready, _, _ = select.select([0, self._woken], [], [])
            if self._woken in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._woken, 4096)
                self._reap()
            if 0 in ready:
                data = os.read(0, 65536)
                if not data:
                    return self._end()
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self._fork(*json.loads(line))

    def _fork(self, call: int, function: str, *args: str) -> None:
        pid = os.fork()
        if pid == 0:
            self._run(function, args)
        self._calls[pid] = call
        self._tell(call, pid, None)

    def _run(self, function: str, args: tuple[str, ...]) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(2, 1)
        os.close(0)
        code = 1
        try:
            asyncio.run(getattr(self._module, function)(*args))
            code = 0
        except BaseException:  # noqa: BLE001 - whatever it was, the process ends here and says so
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        while self._calls:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._tell(self._calls.pop(pid), pid, os.waitstatus_to_exitcode(status))

    def _end(self) -> None:
        for pid in self._calls:
            os.kill(pid, signal.SIGKILL)
        for pid in self._calls:
            os.waitpid(pid, 0)

    @staticmethod
    def _tell(call: int, pid: int, code: int | None) -> None:
        os.write(1, json.dumps([call, pid, code]).encode() + b"\n")


if __name__ == "__main__":
    _Forks(sys.argv[1]).serve()
