"""The checkpoint saver: LangGraph's threads, checkpoints and pending writes on the engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Generator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from blackboard.board import Blackboard
from blackboard.checkpoints.commit import Commit, Committed
from blackboard.claims.keeper import Keeper
from blackboard.claims.lease import Lease
from blackboard.errors import BlackboardError, ConfigError, StoreRegressed
from blackboard.integrations.langgraph.ancestry import delta_history
from blackboard.integrations.langgraph.breakpoints import waits
from blackboard.integrations.langgraph.copying import copy
from blackboard.integrations.langgraph.kept import Shelf
from blackboard.integrations.langgraph.listing import Asked, listed
from blackboard.integrations.langgraph.loop import entered, on_board, wait_for
from blackboard.integrations.langgraph.originals import Lately
from blackboard.integrations.langgraph.place import Place, checkpoint_of, configured, several, thread_named
from blackboard.integrations.langgraph.removal import delete_runs, keep_latest, keep_newest
from blackboard.integrations.langgraph.spelling import Mark, Spelling, Stored, check_whole, step_of
from blackboard.integrations.langgraph.sync import SyncSaver
from blackboard.integrations.langgraph.tuples import find, tuple_of
from blackboard.integrations.langgraph.versions import following
from blackboard.quantities import seconds
from blackboard.runs.run import PRUNE_EVERY
from blackboard.settings import CheckpointNamespace, Settings
from blackboard.telemetry import logger

__all__ = ["BlackboardSaver"]

log = logger("langgraph")

INTERRUPT = "__interrupt__"
"""LangGraph's channel of the questions that a thread waits with."""

MOST_STORED = 1024
"""Checkpoints of which it is remembered where their channels stand; forgetting one costs that its child is sent whole."""


class BlackboardSaver(SyncSaver):
    """A LangGraph checkpoint saver on a board: `graph.compile(checkpointer=BlackboardSaver(board))`.

    A put, its pending writes and a read of the newest checkpoint are one round trip each. Lists and dicts that grow are
    stored as logs and maps, so that the bytes written per step are those of what is new; an unchanged channel costs a
    reference. With a lease under `configurable` (key `lease`) every write is fenced: a superseded driver is refused with
    LeaseLost, and while a lease is live a write without it with LeaseHeld. Writes to a deleted thread raise ThreadGone.
    Errors are those of the library; an outage is never "no checkpoint". Made on the board's event loop; its sync
    methods serve every other thread.

    A namespace's `keep_last` holds for each lineage, but for what the delta channels of a checkpoint that stays are read
    from. Its `idle_ttl` holds while nothing is to be done: LangGraph does not tell a saver that a graph stopped at
    `interrupt_before` or `interrupt_after`, so a thread of which a node is to come stays. `breakpoints` names the nodes for
    which this is meant, so that runs that died before others expire; by default it is every node.
    """

    def __init__(
        self,
        board: Blackboard,
        *,
        namespace: str = "langgraph",
        serde: SerializerProtocol | None = None,
        breakpoints: Collection[str] | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self.board = on_board(board, "a BlackboardSaver")
        try:
            self.loop = asyncio.get_running_loop()
        except RuntimeError:
            raise ConfigError("make the saver on the board's event loop, or use BlackboardSaver.open(url)") from None
        self.engine = board.engine(namespace, default=CheckpointNamespace())
        if isinstance(breakpoints, str):  # whose parts would count as names of nodes
            raise ConfigError(
                f"breakpoints are a list of nodes, got {breakpoints!r}; give [{breakpoints!r}]", value=breakpoints
            )
        self.breakpoints = breakpoints
        self._stored: OrderedDict[Place, Stored] = OrderedDict()
        self._shelf, self._lately = Shelf(), Lately()
        self._opening: dict[str, asyncio.Future[None]] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def aopen(
        cls,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        namespace: str = "langgraph",
        serde: SerializerProtocol | None = None,
        breakpoints: Collection[str] | None = None,
    ) -> AsyncGenerator[BlackboardSaver]:
        """Open a board for the saver alone; without a URL the embedded server. Raises as `Blackboard.open` does."""
        async with Blackboard.open(url, settings=settings) as board:
            yield cls(board, namespace=namespace, serde=serde, breakpoints=breakpoints)

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        namespace: str = "langgraph",
        serde: SerializerProtocol | None = None,
        breakpoints: Collection[str] | None = None,
    ) -> Generator[BlackboardSaver]:
        """Open a board on a loop in a thread of its own, for callers without one: every sync method works."""
        with entered(
            cls.aopen(url, settings=settings, namespace=namespace, serde=serde, breakpoints=breakpoints)
        ) as saver:
            yield saver

    def lease(
        self, thread_id: str, *, owner: str | None = None, ttl: float | None = None, wait: float | None = None
    ) -> Keeper[Lease]:
        """Hold a thread's lease while the body runs; show it as `configurable["lease"]`. See `Blackboard.lease`."""
        return self.board.lease(
            thread_named(thread_id), namespace=self.engine.namespace, owner=owner, ttl=ttl, wait=wait
        )

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint whose parent is the one that the config names; the same id again replaces it.

        Raises EncodeError, naming the channel, for a value that the serializer does not know: nothing was written.
        """
        place = Place.of(config)
        check_whole(checkpoint, metadata)
        merged = get_checkpoint_metadata(config, metadata)
        with self._opened_by(place):
            await self._until_open(place)
            try:
                await self._put(place, checkpoint, merged, (new_versions, self._stored.get(_key(place))))
            except StoreRegressed:
                # What the parent referred to may be gone: pruned by somebody else, or with a thread that had its id before.
                await self._put(place, checkpoint, merged, (new_versions, None))
        await self._prune(place, step_of(merged))
        return place.at(checkpoint["id"]).config()

    async def _put(
        self,
        place: Place,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        since: tuple[ChannelVersions, Stored | None],
    ) -> None:
        spelling, (new_versions, parent) = Spelling(self.serde), since
        channels, marks = spelling.channels(checkpoint, new_versions, parent)
        commit = Commit(
            step_of(metadata),
            channels,
            base={} if parent is None else parent.refs,
            parent=place.checkpoint,
            extra=spelling.about(checkpoint, metadata),
            waits=self._waits(place, checkpoint),
        )
        done = await self.engine.put(place.thread, checkpoint["id"], commit, lineage=place.lineage, token=place.token)
        self._remember(place.at(checkpoint["id"]), _kept(done, checkpoint, marks))

    def _waits(self, place: Place, checkpoint: Checkpoint) -> bool:
        """Tell whether the thread must not expire for being idle: its root stands in the middle of its work."""
        return self.engine.policy.idle_ttl is not None and not place.lineage and waits(checkpoint, self.breakpoints)

    async def _prune(self, place: Place, step: int) -> None:
        """Keep a lineage as short as the namespace wants it, now and then; the put stands whatever becomes of this."""
        keep_last = self.engine.policy.keep_last
        if keep_last is None or step < 1 or step % max(keep_last, PRUNE_EVERY):
            return
        try:
            await keep_newest(self.engine, Spelling(self.serde), (place.thread, place.lineage), keep_last)
        except BlackboardError as failed:
            log.warning("a thread was not pruned: %s", failed, extra={"thread_id": place.thread})

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote, also before its checkpoint has arrived; each (task, index) once, but for LangGraph's own."""
        place, spelling = Place.of(config), Spelling(self.serde)
        if place.checkpoint is None:
            raise ConfigError("pending writes belong to a checkpoint: set configurable.checkpoint_id")
        spelled = spelling.pending(writes, task_id, task_path)
        await self._until_open(place)
        if spelled:
            # What interrupts a subgraph interrupts its parents too, so that the root hears of it.
            asks = not place.lineage and any(name == INTERRUPT for name, _ in writes)
            await self.engine.put_writes(
                place.thread, place.checkpoint, spelled, lineage=place.lineage, token=place.token, interrupts=asks
            )

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read the checkpoint that the config names, or the one with the largest id; None only if there is none."""
        place, spelling = Place.of(config), Spelling(self.serde)
        snapshot = await find(self.engine, place)
        if snapshot is None:
            return None
        found = await tuple_of(self.engine, spelling, place, snapshot, self._lately.of(spelling, place))
        at = place.at(snapshot.manifest.checkpoint)
        known = self._stored.get(_key(at))
        self._remember(at, spelling.stored(snapshot, found.checkpoint["channel_versions"], known))
        return found

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, newest id first: of one lineage, of a thread, or without a config of every thread in turn.

        `before` compares ids, whether or not there is such a checkpoint; `filter` compares any keys of the metadata.
        """
        spelling = Spelling(self.serde)
        older = None if before is None else checkpoint_of(before)
        async for place, lineage in self._places(config):
            asked = Asked(place.thread, lineage, place.checkpoint, older, filter, limit)
            async for found in listed(self.engine, spelling, asked):
                yield found
                limit = None if limit is None else limit - 1
            if limit is not None and limit <= 0:
                return

    async def _places(self, config: RunnableConfig | None) -> AsyncIterator[tuple[Place, str | None]]:
        if config is not None:
            place = Place.of(config)
            yield place, None if configured(config).get("checkpoint_ns") is None else place.lineage
            return
        async for row in self.board.threads(namespace=self.engine.namespace):
            yield Place(row.thread), None

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its lineages; late writes to it are refused for 7 days.

        Raises UnresolvedEffects while an effect of the thread is running or unknown.
        """
        await self.engine.retention.delete(thread_named(thread_id), drop_unread=True)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints whose metadata names one of the runs, but for what a delta channel still needs.

        Looks at the manifests of every thread of the namespace.
        """
        runs = frozenset(map(str, several(run_ids, "run_ids")))
        if not runs:
            return
        threads = [row.thread async for row in self.board.threads(namespace=self.engine.namespace)]
        for thread in threads:
            await delete_runs(self.engine, Spelling(self.serde), thread, runs)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread, every lineage with its history and pending writes, to an unused id.

        Raises ThreadGone if there is no such thread, ThreadExists if the target is used. A copy that broke off leaves nothing
        to be seen, and can be made again.
        """
        source, target = (
            thread_named(source_thread_id, "source_thread_id"),
            thread_named(target_thread_id, "target_thread_id"),
        )
        await copy(self.engine, source, target)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each lineage and what its delta channels need, or (`delete`) nothing at all."""
        if strategy not in {"keep_latest", "delete"}:
            raise ConfigError(f"strategy must be keep_latest or delete, got {strategy!r}", value=strategy)
        for thread in [thread_named(each, "thread_ids") for each in several(thread_ids, "thread_ids")]:
            if strategy == "delete":
                await self.adelete_thread(thread)
            else:
                await keep_latest(self.engine, Spelling(self.serde), thread)

    async def afinish(self, thread_id: str, *, ttl: float | None = None) -> None:
        """Say that a thread has come to its end: it is kept for `ttl` seconds, else as the namespace says, and then goes.

        Later writes raise AlreadyFinished. Raises UnresolvedEffects while an effect is open.
        """
        keep = self.engine.policy.ttl if ttl is None else seconds(ttl, what="ttl")
        await self.engine.retention.close(thread_named(thread_id), status="finished", ttl=keep, drop_unread=True)

    def finish(self, thread_id: str, *, ttl: float | None = None) -> None:
        """Say that a thread has come to its end; see `afinish`."""
        wait_for(self.loop, self.afinish(thread_id, ttl=ttl))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Collect the writes of delta channels on the way back to their nearest snapshot, oldest first."""
        place, names = Place.of(config), list(dict.fromkeys(several(channels, "channels")))
        if not names:
            return {}
        asked = (place.thread, place.lineage, place.checkpoint)
        return await delta_history(self.engine, Spelling(self.serde), asked, names)

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Count on: whole numbers, or for a thread that came from a saver with texts (`00…07.31`) such texts."""
        return following(current)

    @contextlib.contextmanager
    def _opened_by(self, place: Place) -> Generator[None]:
        """Let other writers of this process wait while the first checkpoint of a thread is on its way."""
        if place.checkpoint is not None or place.lineage or place.thread in self._opening:
            yield
            return
        self._opening[place.thread] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self._opening.pop(place.thread).set_result(None)

    async def _until_open(self, place: Place) -> None:
        """Wait until the thread's first checkpoint has come: on a deleted id nothing else may come before it."""
        opening = self._opening.get(place.thread)
        if opening is not None and (place.checkpoint is not None or place.lineage):
            await asyncio.wait([opening])

    def _remember(self, place: Place, stored: Stored) -> None:
        self._stored[_key(place)] = stored
        self._stored.move_to_end(_key(place))
        for mark in stored.marks.values():
            if mark.kept is not None:
                self._shelf.use(mark.kept)
        if len(self._stored) > MOST_STORED:
            self._stored.popitem(last=False)


def _key(place: Place) -> Place:
    return Place(place.thread, place.lineage, place.checkpoint)


def _kept(done: Committed, checkpoint: Checkpoint, marks: Mapping[str, Mark]) -> Stored:
    return Stored(done.refs, checkpoint["channel_versions"], marks)
