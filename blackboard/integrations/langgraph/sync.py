"""The sync half of the saver: each method is its async twin, run on the board's loop from another thread."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Self, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from blackboard.integrations.langgraph.loop import drained, wait_for
from blackboard.integrations.langgraph.serializer import BlackboardSerializer

__all__ = ["SyncSaver"]


class SyncSaver(BaseCheckpointSaver[Any]):
    """A saver whose sync methods may be called from any thread but the one of `loop`: there they raise ConfigError."""

    loop: asyncio.AbstractEventLoop

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read a checkpoint; see `aget_tuple`."""
        return wait_for(self.loop, self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """List checkpoints; see `alist`."""
        return drained(self.loop, self.alist(config, filter=filter, before=before, limit=limit))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; see `aput`."""
        return wait_for(self.loop, self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store pending writes; see `aput_writes`."""
        wait_for(self.loop, self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread; see `adelete_thread`."""
        wait_for(self.loop, self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs; see `adelete_for_runs`."""
        wait_for(self.loop, self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread; see `acopy_thread`."""
        wait_for(self.loop, self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prune threads; see `aprune`."""
        wait_for(self.loop, self.aprune(thread_ids, strategy=strategy))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Collect the writes of delta channels; see `aget_delta_channel_history`."""
        return wait_for(self.loop, self.aget_delta_channel_history(config=config, channels=channels))

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """Return a saver whose serializer knows the classes of these (module, name) as well; LangGraph's strict mode asks."""
        if not isinstance(self.serde, BlackboardSerializer):
            return cast("Self", super().with_allowlist(extra_allowlist))
        clone = copy.copy(self)
        clone.serde = self.serde.with_allowlist(extra_allowlist)
        return clone
