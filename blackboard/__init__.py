"""One durable keyspace for long-running agents: checkpoints, leases with fencing, effects.

The public names are resolved on first use, so that importing the package loads nothing but the standard library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blackboard.board import Blackboard as Blackboard
    from blackboard.checkpoints.log import Log as Log
    from blackboard.errors import AlreadyFinished as AlreadyFinished
    from blackboard.errors import BlackboardError as BlackboardError
    from blackboard.errors import CheckpointMissing as CheckpointMissing
    from blackboard.errors import ConfigError as ConfigError
    from blackboard.errors import EffectBusy as EffectBusy
    from blackboard.errors import EffectUnknown as EffectUnknown
    from blackboard.errors import LeaseHeld as LeaseHeld
    from blackboard.errors import LeaseLost as LeaseLost
    from blackboard.errors import NotDurable as NotDurable
    from blackboard.errors import OutcomeUnknown as OutcomeUnknown
    from blackboard.errors import Parked as Parked
    from blackboard.errors import ServerUnavailable as ServerUnavailable
    from blackboard.errors import StoreRegressed as StoreRegressed
    from blackboard.errors import ThreadGone as ThreadGone
    from blackboard.errors import UnresolvedEffects as UnresolvedEffects
    from blackboard.runs.run import Call as Call
    from blackboard.runs.run import Run as Run
    from blackboard.settings import CheckpointNamespace as CheckpointNamespace
    from blackboard.settings import MemoryNamespace as MemoryNamespace
    from blackboard.settings import Settings as Settings

__version__ = "0.1.0"

_HOMES = {
    "AlreadyFinished": "blackboard.errors",
    "Blackboard": "blackboard.board",
    "BlackboardError": "blackboard.errors",
    "Call": "blackboard.runs.run",
    "CheckpointMissing": "blackboard.errors",
    "CheckpointNamespace": "blackboard.settings",
    "ConfigError": "blackboard.errors",
    "EffectBusy": "blackboard.errors",
    "EffectUnknown": "blackboard.errors",
    "LeaseHeld": "blackboard.errors",
    "LeaseLost": "blackboard.errors",
    "Log": "blackboard.checkpoints.log",
    "MemoryNamespace": "blackboard.settings",
    "NotDurable": "blackboard.errors",
    "OutcomeUnknown": "blackboard.errors",
    "Parked": "blackboard.errors",
    "Run": "blackboard.runs.run",
    "ServerUnavailable": "blackboard.errors",
    "Settings": "blackboard.settings",
    "StoreRegressed": "blackboard.errors",
    "ThreadGone": "blackboard.errors",
    "UnresolvedEffects": "blackboard.errors",
}

__all__ = [
    "AlreadyFinished",
    "Blackboard",
    "BlackboardError",
    "Call",
    "CheckpointMissing",
    "CheckpointNamespace",
    "ConfigError",
    "EffectBusy",
    "EffectUnknown",
    "LeaseHeld",
    "LeaseLost",
    "Log",
    "MemoryNamespace",
    "NotDurable",
    "OutcomeUnknown",
    "Parked",
    "Run",
    "ServerUnavailable",
    "Settings",
    "StoreRegressed",
    "ThreadGone",
    "UnresolvedEffects",
    "__version__",
]


if not TYPE_CHECKING:  # a type checker knows the names from the imports above and should miss any other

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
