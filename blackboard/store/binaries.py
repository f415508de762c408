"""Server binaries: where they are and what they are, told without starting them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from blackboard.errors import ConfigError

__all__ = ["Binary", "Family", "in_wheel", "on_path"]

Family = Literal["redis", "valkey"]

_BANNER = re.compile(r"(?P<redis>redis )?(?:valkey )?server v=(?P<version>\d+(?:\.\d+)*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Binary:
    """A server binary that was asked what it is."""

    path: Path
    family: Family
    version: str

    @property
    def release(self) -> tuple[int, ...]:
        """The version as numbers that order."""
        return tuple(int(part) for part in self.version.split("."))

    @classmethod
    def inspect(cls, path: Path) -> Binary:
        """Run `<path> --version`; raises ConfigError if it does not run or is neither Redis nor Valkey."""
        try:
            shown = subprocess.run(  # noqa: S603 - the binary is what is asked about
                [path, "--version"], capture_output=True, text=True, timeout=10, check=True
            ).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigError(f"the server binary {path} does not run here: {error}", path=path) from error
        if not (found := _BANNER.search(shown)):
            raise ConfigError(f"{path} is neither a Redis nor a Valkey server; it says {shown[:80]!r}", path=path)
        return cls(path, "redis" if found["redis"] else "valkey", found["version"])


def on_path(name: str) -> Path | None:
    """Find an executable on PATH."""
    found = shutil.which(name)
    return Path(found) if found else None


def in_wheel(distribution: str, name: str) -> Path | None:
    """Find an executable file inside an installed distribution, without importing it."""
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        path = Path(str(file.locate()))
        if file.name == name and path.is_file() and os.access(path, os.X_OK):
            return path
    return None
