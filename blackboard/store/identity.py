"""Which server run answers: remembered, so that one that may have lost history is noticed before it is used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Acquaintance", "Identity", "NewServer", "Welcome", "info"]

_log = logging.getLogger("blackboard.store")


@dataclass(frozen=True, slots=True)
class Identity:
    """One run of one server process, and the history (replication id) that it stands on."""

    run_id: str
    replication_id: str


@dataclass(frozen=True, slots=True)
class NewServer:
    """A primary was met that was not known before: a restart, a failover, another machine."""

    server: str
    identity: Identity


Welcome: TypeAlias = Callable[[NewServer], Awaitable[None]]

_welcoming: ContextVar[bool] = ContextVar("blackboard_store_welcoming", default=False)


def info(text: bytes) -> dict[str, str]:
    """Read an answer of INFO."""
    lines = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines() if ":" in line)
    return {name: value.strip() for name, _, value in lines}


class Acquaintance:
    """The server runs that may be used.

    What is met while the store connects is accepted. Later, an unknown one is shown to every callback first; while
    they run, only their own calls pass, everybody else's wait. If one raises, the caller gets its error, and the
    next call shows the server again.
    """

    def __init__(self) -> None:
        self.open = True
        """Whether whatever is met is accepted."""
        self.callbacks: list[Welcome] = []
        self._known: set[Identity] = set()
        self._meeting: dict[Identity, asyncio.Task[None]] = {}

    def accepts(self, identity: Identity | None) -> bool:
        """Whether commands may be sent to this server right away. One that hides its identity always passes."""
        if self.open and identity is not None:
            self._known.add(identity)
        return identity is None or identity in self._known

    async def meet(self, server: str, identity: Identity) -> bool:
        """Wait until the callbacks have accepted the server; False to their own calls, which need not wait."""
        if _welcoming.get():
            return False
        task = self._meeting.get(identity)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._introduce(NewServer(server, identity)))
            self._meeting[identity] = task
            task.add_done_callback(lambda done: self._forget(identity, done))
        await asyncio.wait([task])
        task.result()
        return True

    async def _introduce(self, new: NewServer) -> None:
        _welcoming.set(True)
        _log.warning("a new server run answers at %s", new.server, extra={"run_id": new.identity.run_id})
        for callback in tuple(self.callbacks):
            await callback(new)
        self._known.add(new.identity)

    def _forget(self, identity: Identity, done: asyncio.Task[None]) -> None:
        del self._meeting[identity]
        if not done.cancelled():
            done.exception()
