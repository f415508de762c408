"""What the contracts of savers share: how a saver is made, what is asked of it, and what stands in it."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, cast

from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from blackboard.testing.contracts.savers.wire import Wire

__all__ = [
    "Case",
    "Contract",
    "Hooks",
    "Saver",
    "Savers",
    "State",
    "at",
    "checkpoint",
    "config",
    "ids",
    "latest",
    "names",
    "promise",
    "put",
    "refused",
    "seen",
]

Saver = BaseCheckpointSaver[Any]

Savers = Callable[[], AbstractAsyncContextManager[Saver]]
"""Makes savers of one store: what one of them has acknowledged, every other finds."""

Lease = Callable[[Saver, str], AbstractAsyncContextManager[Mapping[str, Any]]]
"""Makes a driver the owner of a thread while the block runs, and says what its `configurable` has to show."""

_versions = itertools.count(1)

State = dict[str, list[tuple[Any, ...]]]
"""What stands of a thread, by namespace: (id, values, parent, pending writes), newest id first."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a saver has beyond LangGraph's interface, and how to get at it; what is None it does not offer.

    `lease` makes somebody the owner of a thread. `wire` breaks the connection of every saver of the factory. `expire` lets the
    time of a thread run out now, past the wire. `sync` says that the sync methods answer from another thread.
    """

    lease: Lease | None = None
    wire: Wire | None = None
    expire: Callable[[str], Awaitable[None]] | None = None
    sync: bool = True


@dataclass(slots=True)
class Case:
    """One contract on its way: `saver()` opens a saver, `thread()` names a thread that nobody used."""

    saver: Savers
    hooks: Hooks
    _threads: list[str] = field(default_factory=list[str])

    def thread(self) -> str:
        """Name a thread that nobody used."""
        self._threads.append(f"contract-{uuid.uuid4().hex}")
        return self._threads[-1]

    @property
    def wire(self) -> Wire:
        """The wire, where the contract needs one."""
        assert self.hooks.wire is not None, "the contract says that it needs a wire"
        return self.hooks.wire

    def owned(self, saver: Saver, thread: str) -> AbstractAsyncContextManager[Mapping[str, Any]]:
        """Own a thread while the block runs, where the contract needs that."""
        assert self.hooks.lease is not None, "the contract says that it needs leases"
        return self.hooks.lease(saver, thread)

    async def expire(self, thread: str) -> None:
        """Let the time of a thread run out now."""
        assert self.hooks.expire is not None, "the contract says that it needs expiry"
        await self.hooks.expire(thread)


@dataclass(frozen=True, slots=True)
class Contract:
    """A promise, how it is checked, and what a saver has to offer for it: hooks, or methods of its own."""

    check: Callable[[Case], Awaitable[None]]
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in a report."""
        return self.check.__name__

    @property
    def promise(self) -> str:
        """What a saver promises that keeps it."""
        return (self.check.__doc__ or "").strip()

    def lacking(self, saver: Saver, hooks: Hooks) -> str | None:
        """Name the first thing that the saver does not offer; None if it offers all."""
        for need in self.needs:
            if hasattr(hooks, need):
                if not getattr(hooks, need):
                    return f"no hook {need!r}"
            elif getattr(type(saver), need) is getattr(BaseCheckpointSaver, need):
                return f"no {need}"
        return None


def promise(*needs: str) -> Callable[[Callable[[Case], Awaitable[None]]], Contract]:
    """Make a contract of a check."""
    return lambda check: Contract(check, needs)


def config(thread: str, checkpoint: str | None = None, ns: str = "", **more: Any) -> Any:
    """Spell a config."""
    named = {} if checkpoint is None else {"checkpoint_id": checkpoint}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, **named, **more}}


def at(where: Any) -> dict[str, Any]:
    """Read what a config names."""
    named: dict[str, Any] = where["configurable"]
    return named


def names(count: int) -> list[str]:
    """Make checkpoint ids that grow."""
    return [str(uuid6(clock_seq=at)) for at in range(count)]


def checkpoint(name: str | None = None, **values: Any) -> Checkpoint:
    """Make a checkpoint; a version stands for one value of a channel, so each checkpoint has a version of its own."""
    made = {**empty_checkpoint(), "v": 4, "id": name or names(1)[0]}
    versions = dict.fromkeys(values, next(_versions))
    return cast("Checkpoint", {**made, "channel_values": values, "channel_versions": versions})


async def put(saver: Saver, where: Any, made: Checkpoint, **metadata: Any) -> Any:
    """Store a checkpoint, all of its channels as new; returns the config that names it."""
    told: Any = {"source": "loop", "step": 1, "parents": {}, **metadata}
    return await saver.aput(where, made, told, made["channel_versions"])


async def latest(saver: Saver, where: Any) -> CheckpointTuple:
    """Read a checkpoint that has to be there."""
    found = await saver.aget_tuple(where)
    assert found is not None, f"nothing is stored under {where['configurable']}"
    return found


async def ids(saver: Saver, where: Any, **asked: Any) -> list[str]:
    """List the ids of checkpoints."""
    return [found.checkpoint["id"] async for found in saver.alist(where, **asked)]


async def seen(saver: Saver, thread: str, spaces: Iterable[str] = ("",)) -> State:
    """Tell all that stands of a thread; fails if what is listed and what is read do not agree in one of the namespaces."""
    state: State = {}
    async for found in saver.alist({"configurable": {"thread_id": thread}}):
        state.setdefault(at(found.config).get("checkpoint_ns", ""), []).append(_told(found))
    for space in {*spaces, *state}:
        newest = await saver.aget_tuple(config(thread, ns=space))
        listed = state.get(space, [None])[0]
        read = None if newest is None else _told(newest)
        assert read == listed, f"namespace {space!r}: listed is {listed}, read is {read}"
    return state


def _told(found: CheckpointTuple) -> tuple[Any, ...]:
    parent = None if found.parent_config is None else at(found.parent_config)["checkpoint_id"]
    writes = [tuple(write) for write in found.pending_writes or ()]
    return found.checkpoint["id"], found.checkpoint["channel_values"], parent, sorted(writes, key=repr)


async def refused(writes: Sequence[Coroutine[Any, Any, Any]]) -> None:
    """Hold every one of some writes to raising an error; a write that is dropped in silence is none that was refused."""
    accepted: list[int] = []
    for number, write in enumerate(writes, 1):
        try:
            await write
            accepted.append(number)
        except Exception:  # noqa: BLE001 - which error a saver raises is its own affair
            continue
    assert accepted == [], f"of {len(writes)} writes these were not refused: {accepted}"
