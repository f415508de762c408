"""Files that commands write and read."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from blackboard.errors import BlackboardError, ConfigError

__all__ = ["opened", "whole"]


@contextmanager
def whole(out: Path | None) -> Generator[BinaryIO, None, None]:
    """Give a file that is there under its name when all of it is written, or the standard output."""
    if out is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    unfinished = out.with_name(f"{out.name}.part")
    try:
        with unfinished.open("wb") as file:
            yield file
        unfinished.replace(out)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, BlackboardError):
            raise _unusable(out, "written", error) from error
        raise


def opened(path: Path) -> BinaryIO:
    """Open a file for reading; ConfigError if that cannot be done."""
    try:
        return path.open("rb")
    except OSError as error:
        raise _unusable(path, "opened", error) from error


def _unusable(path: Path, how: str, error: OSError) -> ConfigError:
    return ConfigError(f"file {str(path)!r} cannot be {how}: {error.strerror}; name another", value=str(path))
