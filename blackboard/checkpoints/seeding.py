"""Writing a whole thread to an unused id: in slices, invisible until it is complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from blackboard import keys
from blackboard.checkpoints.refusal import still_standing
from blackboard.checkpoints.retention import Retention
from blackboard.claims import registry
from blackboard.errors import BlackboardError, ThreadExists, ThreadGone
from blackboard.store.client import Store
from blackboard.store.script import Script
from blackboard.telemetry import logger

__all__ = ["SLICE_BYTES", "SLICE_ITEMS", "Kind", "Seeding"]

_SEED = Script("blackboard.checkpoints", "seed.lua", prelude=("thread.lua",))
_OPEN = Script("blackboard.checkpoints", "open.lua", prelude=("thread.lua",))

log = logger("checkpoints")

SLICE_ITEMS, SLICE_BYTES = 500, 1 << 18
"""A slice ends at so many items or bytes: less than a few ms of the server's time."""

UNFINISHED_MS = 3_600_000
"""When what nobody completed is swept away."""

Kind = Literal["string", "list", "hash", "set", "history", "letters"]
_STEPS: Mapping[Kind, int] = {"hash": 2, "letters": 4}
"""Items that belong together: field and value; id, kind, name and value."""


@dataclass(frozen=True, slots=True)
class Seeding:
    """The new thread while it is written: what names a key comes before the key, so that a sweep finds all of it."""

    store: Store
    namespace: str
    thread: str
    copy: str

    @classmethod
    async def begin(cls, store: Store, namespace: str, thread: str) -> Self:
        """Take the id, or raise ThreadExists; what is not opened within an hour goes with a sweep."""
        seeding = cls(store, namespace, thread, store.op_id())
        await registry.enter(store, namespace, thread)
        try:
            await seeding._slice("hash", seeding.where.effects, "", 0, [])
        except ThreadGone as taken:
            raise ThreadExists(
                f"thread {thread!r} is being written by somebody else; use another id, or sweep an hour after that broke off",
                thread=thread,
            ) from taken
        shard = keys.threads(namespace, keys.shard(thread))
        await store.command("ZADD", shard, store.server_time() // 1000 + UNFINISHED_MS, thread)
        return seeding

    @property
    def where(self) -> keys.ThreadKeys:
        """The keys of the new thread."""
        return keys.ThreadKeys.of(self.namespace, self.thread)

    async def string(self, key: str, data: bytes) -> None:
        """Write a string."""
        await self._slice("string", key, "", 0, [data])

    async def items(
        self, kind: Kind, key: str, items: Sequence[bytes | str], *, part: str = "", offset: int = 0
    ) -> None:
        """Write items in slices; `offset` is how many a list holds already, `part` what names the key."""
        batch: list[bytes | str] = []
        size, start = 0, offset
        step = _STEPS.get(kind, 1)
        for at in range(0, len(items), step):
            batch += items[at : at + step]
            size += sum(len(one) for one in items[at : at + step])
            if len(batch) >= SLICE_ITEMS or size >= SLICE_BYTES:
                await self._slice(kind, key, part, start, batch)
                start, batch, size = start + len(batch), [], 0
        if batch or part:
            await self._slice(kind, key, part, start, batch)

    async def open(self, latest: str, facts: Mapping[str, str | int]) -> str:
        """Let the thread be seen, all at once; returns its incarnation.

        `latest` is the id of its newest checkpoint, empty if only its lineages have some; `facts` go into its meta.
        """
        newest = keys.encode(latest) if latest else ""
        flat = [one for pair in facts.items() for one in pair]
        reply = await self.store.call(_OPEN, [self.where.meta, self.where.latest()], [self.copy, newest, *flat])
        if reply[0] != b"OK":
            raise still_standing(self.thread)
        shard, look = keys.threads(self.namespace, keys.shard(self.thread)), registry.next_look(self.store)
        await self.store.command("ZADD", shard, look, self.thread)
        incarnation: str = reply[1].decode()
        return incarnation

    async def give_up(self) -> None:
        """Remove what was written so far; if that fails too, a sweep does it later."""
        try:
            await Retention(self.store, self.namespace).remove_copy(self.thread, self.copy)
        except BlackboardError as failed:
            log.warning("a copy that broke off was not removed: %s", failed, extra={"thread_id": self.thread})

    async def _slice(self, kind: Kind, key: str, part: str, offset: int, items: Sequence[bytes | str]) -> None:
        names = [self.where.meta, self.where.latest(), self.where.parts, key]
        for _ in range(8):
            reply = await self.store.call(_SEED, names, [self.copy, kind, part, offset, *items])
            if reply[0] == b"OK":
                return
            if reply[0] != b"REMOVING":
                break
            await Retention(self.store, self.namespace).remove(self.thread, reply[1].decode())
        else:
            raise still_standing(self.thread)
        if reply[0] == b"MOVED":
            raise ThreadGone(
                f"thread {self.thread!r} was taken while it was copied to", thread=self.thread, why="reused"
            )
        status = reply[1].decode()
        raise ThreadExists(
            f"thread {self.thread!r} exists already ({status}): copy to an unused id", thread=self.thread
        )
