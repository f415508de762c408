"""Which installed distribution the import name `blackboard` belongs to."""

from __future__ import annotations

import re
from importlib import metadata

__all__ = ["NAME", "rivals"]

NAME = "agent-blackboard"


def rivals() -> list[str]:
    """Name the other installed distributions that put files under the import name `blackboard`, sorted.

    Two distributions that install the same package overwrite each other's files, whichever came last; uninstall the
    rival and install this one again. Reads the metadata of what is installed, imports nothing.
    """
    owners = {re.sub(r"[-_.]+", "-", name).lower() for name in metadata.packages_distributions().get("blackboard", [])}
    return sorted(owners - {NAME})
