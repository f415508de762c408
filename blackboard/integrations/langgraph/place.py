"""What a LangGraph config says: which checkpoint of which thread, and on whose word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeGuard
from uuid import UUID

from langchain_core.runnables import RunnableConfig

from blackboard.claims.lease import Lease, Token
from blackboard.errors import ConfigError

__all__ = ["LEASE", "Place", "checkpoint_of", "configured", "several", "thread_named"]

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
        configurable = configured(config)
        thread = thread_named(configurable.get("thread_id"), "configurable.thread_id")
        lineage = configurable.get("checkpoint_ns")
        if not isinstance(lineage, (str, type(None))):
            raise ConfigError(f"configurable.checkpoint_ns must be a str, got {lineage!r}", value=lineage)
        return cls(thread, lineage or "", checkpoint_of(config), _token(thread, configurable.get(LEASE)))

    def at(self, checkpoint: str | None) -> Place:
        """Name another checkpoint of the same lineage."""
        return replace(self, checkpoint=checkpoint)

    def config(self) -> RunnableConfig:
        """Spell the config that names this place."""
        named = {"thread_id": self.thread, "checkpoint_ns": self.lineage, "checkpoint_id": self.checkpoint}
        return {"configurable": named}


def configured(config: RunnableConfig) -> Mapping[str, Any]:
    """Return what a config says under `configurable`, nothing if that is missing; ConfigError for what is no config."""
    given: Any = config  # callers may not be typed
    found: object = given.get("configurable") or {} if _is_dict(given) else None
    if not _is_dict(found):
        raise ConfigError(f"a config is a dict with a dict under 'configurable', got {given!r}", value=given)
    return found


def checkpoint_of(config: RunnableConfig) -> str | None:
    """Return the id of the checkpoint that a config names; None if it names none."""
    return configured(config).get("checkpoint_id") or None


def thread_named(thread: object, what: str = "thread_id") -> str:
    """Return a thread's id as text, as which a number or a UUID is taken too.

    ConfigError for anything else: what every value has for a text, as None, would be one thread for all who forgot the id.
    """
    if thread is None:
        raise ConfigError(f"no thread is named: set {what}")
    if isinstance(thread, str):
        return str.__str__(thread)  # of an enum's member the text, not its name
    if isinstance(thread, bool) or not isinstance(thread, (int, float, UUID)):
        raise ConfigError(f"{what} must be a str, a number or a UUID, got {thread!r}", value=thread)
    return str(thread)


def several(ids: Iterable[str], what: str) -> Iterable[str]:
    """Return ids or names that were given together; ConfigError for a single text, whose characters would be taken for them."""
    if isinstance(ids, (str, bytes)):
        raise ConfigError(f"{what} must be a list, got {ids!r}; give [{ids!r}]", value=ids)
    return ids


def _token(thread: str, shown: object) -> Token | None:
    token = shown.token if isinstance(shown, Lease) else shown
    if token is None:
        return None
    if not isinstance(token, Token):
        raise ConfigError(f"configurable.{LEASE} must be a lease or its token, got {type(token).__name__}")
    if token.thread != thread:
        raise ConfigError(f"configurable.{LEASE} is a lease of thread {token.thread!r}, not of {thread!r}")
    return token


def _is_dict(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)
