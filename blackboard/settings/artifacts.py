"""Where artifacts are kept, and for how long if nobody refers to them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import field_validator

from blackboard.errors import ConfigError
from blackboard.quantities import Duration, Size
from blackboard.settings.table import LONGEST_VALUE, Table, default, masked

__all__ = ["Artifacts"]


class Artifacts(Table):
    """Where artifacts are kept. Without a URL their chunks stand in the backend, beside what refers to them."""

    if TYPE_CHECKING:  # text is welcome for durations and sizes, so the annotations are not the parameters

        def __init__(self, **values: Any) -> None: ...

    url: str | None = None
    """Folder of any file system that fsspec knows, such as `file:///srv/artifacts` or `s3://bucket/prefix`; without one, the backend."""
    chunk_size: Size = default("1MiB", ge=1, le=LONGEST_VALUE)
    """Bytes per chunk: what is held in memory at a time, and the least that is read."""
    read_limit: Size = default("64MiB")
    """Longest artifact, in bytes, that `read` returns at once; a longer one is opened and read in pieces."""
    upload_ttl: Duration = default("1h", ge=1)
    """How long storing one artifact may take; what is left of one that broke off is gone after that."""
    grace: Duration = default("1d")
    """How long an artifact stays after it was found that nobody refers to it: the longest time from a put to what refers to it."""
    spool: Path | None = None
    """Folder for the temporary file in which a stream waits until its digest is known; by default the system's."""

    @field_validator("url")
    @classmethod
    def _url(cls, url: str | None) -> str | None:
        if url is None or all(url.partition("://")):
            return url
        raise ConfigError(f"the URL of a folder begins with the name of its file system and ://, got {masked(url)!r}")
