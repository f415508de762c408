"""LangGraph's persistence on a board: needs the extra `langgraph`."""

from __future__ import annotations

from blackboard.integrations.langgraph.cache import BlackboardCache
from blackboard.integrations.langgraph.migrate import Copied, Difference, copy_threads
from blackboard.integrations.langgraph.saver import BlackboardSaver
from blackboard.integrations.langgraph.serializer import BlackboardSerializer
from blackboard.integrations.langgraph.store import BlackboardStore

__all__ = [
    "BlackboardCache",
    "BlackboardSaver",
    "BlackboardSerializer",
    "BlackboardStore",
    "Copied",
    "Difference",
    "copy_threads",
]
