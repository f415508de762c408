"""The process between an embedded server and its users: starts it, and ends it when nobody uses it any more.

Run as a script of its own, beside no client: `python -I -S supervisor.py start|adopt <directory> <grace> <socket>
<binary>`; hence only the standard library. The locks of the data directory say who is there, and the kernel drops them
however a process ends:

| lock | held by | how |
|---|---|---|
| `starting.lock` | who starts or stops the server | exclusive |
| `users.lock` | every client | shared |
| `supervisor.lock` | the supervisor | exclusive |
| `server.lock` | the server process itself, which inherits it | exclusive |
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["BUSY", "Lock"]

BUSY = 3
"""Exit status: another supervisor, or another server, is there."""

TICK = 0.5
PATIENCE = 20.0


class Lock:
    """An advisory lock of a file, held by a descriptor of its own: two in one process exclude each other, too."""

    descriptor = -1

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self, *, shared: bool = False) -> bool:
        """Take the lock unless somebody else's stands against it; never waits."""
        try:
            fcntl.flock(self.descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Let go, unless a process that inherited the descriptor holds on; idempotent."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __del__(self) -> None:
        self.close()


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock, told by taking it for a moment."""
    lock = Lock(path)
    free = lock.take()
    lock.close()
    return free


class Supervisor:
    """Watches one server: the child that it started, or one whose supervisor was killed, by the lock that it holds."""

    def __init__(self, grace: float, address: str, server: subprocess.Popen[bytes] | Lock) -> None:
        self._grace = grace
        self._address = address
        self._server = server
        self._asked_to_end = False
        self._reached = False
        self._begun = self._used = time.monotonic()

    def watch(self) -> int:
        """Stay until the server has ended; return its exit status, 0 for an adopted one."""
        awake, wake = os.pipe()
        for end in (awake, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, self._wake)
        signal.signal(signal.SIGTERM, self._end)
        while not self._ended():
            if select.select([awake], [], [], TICK if self._reached else TICK / 20)[0]:
                os.read(awake, 512)
            try:
                self._attend()
            except OSError as error:
                say(f"the directory cannot be used any more ({error}): the server ends")
                self._stop()
        return 0 if isinstance(self._server, Lock) else self._server.returncode

    def _wake(self, *_: object) -> None:
        """Do nothing: that there is a handler makes the signal end the wait."""

    def _end(self, *_: object) -> None:
        self._asked_to_end = True

    def _ended(self) -> bool:
        return self._server.take() if isinstance(self._server, Lock) else self._server.poll() is not None

    def _attend(self) -> None:
        """End the server if it should: told so, not reachable any more, or unused for the grace."""
        if self._asked_to_end or self._out_of_reach():
            self._stop()
        elif Path("keep").exists() or not is_free(Path("users.lock")):
            self._used = time.monotonic()
        elif time.monotonic() - self._used > self._grace:
            self._stop_unused()

    def _out_of_reach(self) -> bool:
        """Whether the directory or the socket was deleted; keeps the socket young for those who clean by age."""
        try:
            os.utime(self._address)
        except FileNotFoundError:
            return self._reached or time.monotonic() - self._begun > PATIENCE or Path().stat().st_nlink == 0
        self._reached = True
        return False

    def _stop_unused(self) -> None:
        """Stop the server, unless somebody comes in this very moment; newcomers wait until it has ended."""
        starting, users = Lock(Path("starting.lock")), Lock(Path("users.lock"))
        if starting.take() and users.take():
            say("nobody uses the server: it ends")
            self._stop()
        users.close()
        starting.close()

    def _stop(self) -> None:
        """End the server in an orderly way and wait for it; killed if it does not."""
        until = time.monotonic() + PATIENCE
        if isinstance(self._server, Lock):
            shut_down(self._address)
        else:
            self._server.terminate()
        while not self._ended() and time.monotonic() < until:
            time.sleep(0.01)
        if not isinstance(self._server, Lock) and self._server.poll() is None:
            self._server.kill()
            self._server.wait()


def say(text: str) -> None:
    """Write a line to the server's log."""
    sys.stderr.write(f"supervisor: {text}\n")


def shut_down(address: str) -> None:
    """Ask the server at a socket to end; it flushes its append-only file first."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        try:
            connection.connect(address)
            connection.sendall(b"SHUTDOWN NOSAVE\r\n")
            connection.recv(512)
        except OSError:
            return


def main(mode: str, directory: str, grace: str, address: str, binary: str) -> int:
    """Take the locks, go into the background, start or adopt the server, and watch it."""
    os.umask(0o077)
    os.chdir(directory)
    supervising, serving = Lock(Path("supervisor.lock")), Lock(Path("server.lock"))
    if not supervising.take() or (mode == "start" and not serving.take()):
        return BUSY
    if os.fork():
        return 0
    if mode == "adopt":
        return Supervisor(float(grace), address, serving).watch()
    server = subprocess.Popen(  # noqa: S603 - the server that the user's client chose
        [binary, "server.conf"], stdin=subprocess.DEVNULL, pass_fds=[serving.descriptor]
    )
    serving.close()
    return Supervisor(float(grace), address, server).watch()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
