"""What the tests of data directories share."""

from __future__ import annotations

from pathlib import Path

from blackboard.store.directory import DataDirectory
from blackboard.testing.servers import until

__all__ = ["ended"]


async def ended(directory: Path) -> None:
    """Wait until neither server nor supervisor has the directory."""
    data = DataDirectory(directory)

    async def gone() -> bool:
        return not data.served and not data.supervised

    await until(gone, 20)
