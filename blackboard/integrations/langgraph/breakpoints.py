"""Which nodes of a graph come next, as its checkpoint says: whether a thread stands in the middle of its work."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from langgraph.checkpoint.base import Checkpoint
from langgraph.constants import START

from blackboard.integrations.langgraph.tuples import TASKS

__all__ = ["waits"]

BRANCH, JOIN = "branch:to:", "join:"
"""How LangGraph names the channels that start a node: an edge to it, and the end of several nodes before it."""


def waits(checkpoint: Checkpoint, breakpoints: Collection[str] | None) -> bool:
    """Tell whether a node comes next before which the graph may stop: one of `breakpoints`, or (None) any.

    LangGraph tells a saver nothing of `interrupt_before` and `interrupt_after`: what it stores there is what it stores in
    the middle of a run.
    """
    coming = _coming(checkpoint["channel_values"])
    if breakpoints is None:
        return any(True for _ in coming)
    return any(node in breakpoints for node in coming)


def _coming(values: dict[str, Any]) -> Iterator[str]:
    for channel, value in values.items():
        if channel == START:
            yield START
        elif channel == TASKS:
            yield from (getattr(task, "node", "") for task in value)
        elif channel.startswith(BRANCH):
            yield channel.removeprefix(BRANCH)
        elif channel.startswith(JOIN):
            awaited, _, node = channel.removeprefix(JOIN).rpartition(":")
            # The names that have come; of a deferred node a pair of them and whether everything else has ended.
            seen: Collection[str] = value[0] if hasattr(value, "__getitem__") else value
            if len("+".join(seen)) == len(awaited):
                yield node
