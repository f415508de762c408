"""Settings: frozen values from defaults, TOML files, environment variables and arguments.

Nothing is global and nothing is read at import. A name that nobody knows is an error wherever it stands, and every
error names the value, where it was written and how to mend it.
"""

from __future__ import annotations

from blackboard.settings.artifacts import Artifacts
from blackboard.settings.backend import Backend
from blackboard.settings.checkpoint import CheckpointNamespace
from blackboard.settings.encryption import Encryption
from blackboard.settings.load import Namespace, Settings
from blackboard.settings.memory import Embedding, MemoryNamespace
from blackboard.settings.table import Durability

__all__ = [
    "Artifacts",
    "Backend",
    "CheckpointNamespace",
    "Durability",
    "Embedding",
    "Encryption",
    "MemoryNamespace",
    "Namespace",
    "Settings",
]
