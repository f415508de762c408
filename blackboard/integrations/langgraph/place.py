"""What a LangGraph config says: which checkpoint of which thread, and on whose word."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import get_checkpoint_id

from blackboard.claims.lease import Lease, Token
from blackboard.errors import ConfigError

__all__ = ["LEASE", "Place"]

LEASE = "lease"
"""Key of `configurable` under which a driver shows the lease that it holds."""


@dataclass(frozen=True, slots=True)
class Place:
    """A thread, a lineage of it (LangGraph's checkpoint_ns) and a checkpoint, None for the newest."""

    thread: str
    lineage: str = ""
    checkpoint: str | None = None
    token: Token | None = None

    @classmethod
    def of(cls, config: RunnableConfig) -> Self:
        """Read a config; raises ConfigError if it names no thread, or a lease of another one."""
        configurable: dict[str, Any] = config.get("configurable", {})
        if "thread_id" not in configurable:
            raise ConfigError("the config names no thread: set configurable.thread_id")
        thread = str(configurable["thread_id"])
        lineage = configurable.get("checkpoint_ns") or ""
        return cls(thread, lineage, get_checkpoint_id(config) or None, _token(thread, configurable.get(LEASE)))

    def at(self, checkpoint: str | None) -> Place:
        """Name another checkpoint of the same lineage."""
        return replace(self, checkpoint=checkpoint)

    def config(self) -> RunnableConfig:
        """Spell the config that names this place."""
        named = {"thread_id": self.thread, "checkpoint_ns": self.lineage, "checkpoint_id": self.checkpoint}
        return {"configurable": named}


def _token(thread: str, shown: object) -> Token | None:
    token = shown.token if isinstance(shown, Lease) else shown
    if token is None:
        return None
    if not isinstance(token, Token):
        raise ConfigError(f"configurable.{LEASE} must be a lease or its token, got {type(token).__name__}")
    if token.thread != thread:
        raise ConfigError(f"configurable.{LEASE} is a lease of thread {token.thread!r}, not of {thread!r}")
    return token
