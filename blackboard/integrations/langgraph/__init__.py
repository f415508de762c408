"""LangGraph's persistence on a board: needs the extra `langgraph`."""

from __future__ import annotations

from blackboard.integrations.langgraph.saver import BlackboardSaver

__all__ = ["BlackboardSaver"]
