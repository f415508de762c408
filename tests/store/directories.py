"""What the tests of data directories share."""

from __future__ import annotations

import shutil
from pathlib import Path

from blackboard.store.directory import DataDirectory
from blackboard.testing.servers import until

__all__ = ["ended", "removed"]


async def ended(directory: Path) -> None:
    """Wait until neither server nor supervisor has the directory."""
    data = DataDirectory(directory)

    async def gone() -> bool:
        return not data.served and not data.supervised

    await until(gone, 20)


async def removed(directory: Path) -> None:
    """Remove a directory whose server may be writing to it: what it adds meanwhile goes as well."""

    async def gone() -> bool:
        shutil.rmtree(directory, ignore_errors=True)
        return not directory.exists()

    await until(gone, 20)
