"""A driver that dies in this process, at a named point: nothing that it would have sent afterwards is sent.

```python
with mortal():
    async with Crash(server, "commit.lua:sent"):
        await review(board)      # as if its process were killed when the first commit was on its way
    await review(board)          # the next driver
```

For the store this is a SIGKILL: no release, no record, no commit after it. What a SIGKILL does to files and to other
services of the driver it does not show; for that, kill a process (`blackboard.testing.crash`).
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from blackboard import keys
from blackboard.board import Blackboard
from blackboard.points import watch
from blackboard.settings import Settings
from blackboard.testing.crash import Spot, recorder
from blackboard.testing.servers import Server, binaries, start_server

__all__ = ["Crash", "Crashed", "empty", "mortal", "spots_of"]

_life: ContextVar[Crash | None] = ContextVar("life", default=None)


class Crashed(BaseException):
    """The driver is dead. No Exception, so that nothing of the driver's handles it; every later point raises it again."""


class Crash:
    """Lets what runs in its `async with`, and the tasks that begin there, die at one spot (`point`, or `point#n`).

    The spot has to be reached: else AssertionError, with the points that were. Whatever the dead driver raised is dropped,
    and the leases that were taken meanwhile have lapsed, as if the next driver had waited for that. Works inside
    `mortal()` only.
    """

    def __init__(self, server: Server, spot: Spot | str) -> None:
        if isinstance(spot, str):
            spot = Spot.parse(spot) if "#" in spot else Spot(spot, 1)
        self.spot = spot
        self.happened = False
        self.reached: list[Spot] = []
        self._server = server
        self._told = recorder(self._reach)
        self._cut = False

    async def __aenter__(self) -> Self:
        body = asyncio.current_task()
        assert body is not None, "a coroutine runs in a task"
        self._body = body
        self._locks = await _locks(self._server)
        self._before = _life.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        _life.reset(self._before)
        if self._cut:
            self._body.uncancel()
        if not self.happened:
            if kind is None:
                points = sorted({str(spot) for spot in self.reached})
                raise AssertionError(f"{self.spot} was never reached; reached were {', '.join(points) or 'no points'}")
            return False
        taken = {key: owner for key, owner in (await _locks(self._server)).items() if self._locks.get(key) != owner}
        if taken:
            await self._server.ask("DEL", *taken)
        return not isinstance(error, (KeyboardInterrupt, SystemExit))

    def tell(self, point: str) -> None:
        """Take a point down, and die there or, once dead, again; raises Crashed."""
        if self.happened:
            self._die(point)
        self._told(point)

    def _reach(self, spot: Spot) -> None:
        self.reached.append(spot)
        if spot == self.spot:
            self.happened = True
            if asyncio.current_task() is not self._body:  # a task of the driver's: the driver dies with it
                self._cut = self._body.cancel()
            self._die(str(spot))

    def _die(self, where: str) -> NoReturn:
        task = asyncio.current_task()
        if task is not None and task is not self._body:
            task.add_done_callback(_unheard)
        raise Crashed(where)


def mortal() -> AbstractContextManager[None]:
    """Let every `Crash` meanwhile be told the points of its driver; a dead driver's tasks stay dead until the end."""
    return watch(_tell)


def spots_of(agent: Callable[[Blackboard], Awaitable[Any]], settings: Settings | None = None) -> list[Spot]:
    """Play an agent to its end on a server of its own, and list every spot that it reaches, in order.

    Made for `pytest.mark.parametrize`: takes no loop, and a second at most for a quick agent. The agent is played three
    times, on nothing each time: the first time also loads the scripts, and a spot that only one of the others reaches
    cannot be relied on and is left out.
    """
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(_recorded(agent, settings or Settings.load()))


async def empty(server: Server) -> None:
    """Delete every key, but not what the server is recognised by."""
    names = [name for name in await server.ask("KEYS", "*") if name != keys.EPOCH.encode()]
    for start in range(0, len(names), 1000):
        await server.ask("DEL", *names[start : start + 1000])


def _tell(point: str) -> None:
    life = _life.get()
    if life is not None:
        life.tell(point)


def _unheard(task: asyncio.Task[Any]) -> None:
    """Let asyncio not complain of a dead driver's task that nobody awaits."""
    if not task.cancelled():
        task.exception()


async def _recorded(agent: Callable[[Blackboard], Awaitable[Any]], settings: Settings) -> list[Spot]:
    rounds: list[list[Spot]] = []
    with tempfile.TemporaryDirectory(prefix="bb", ignore_cleanup_errors=True) as directory:
        async with await start_server(next(iter(binaries().values())), Path(directory)) as server:
            for _ in range(3):
                found: list[Spot] = []
                async with Blackboard.open(server.url, settings=settings) as board:
                    with watch(recorder(found.append)):
                        await agent(board)
                await empty(server)
                rounds.append(found)
    again = set(rounds[2])
    return [spot for spot in rounds[1] if spot in again]


async def _locks(server: Server) -> dict[bytes, bytes]:
    """Every lease of a thread that is held now, and by whom."""
    names: list[bytes] = await server.ask("KEYS", "bb:*:thread:*:lock")
    owners: list[bytes | None] = await server.ask("MGET", *names) if names else []
    return {name: owner for name, owner in zip(names, owners, strict=True) if owner is not None}
