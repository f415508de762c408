"""How to reach the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, field_validator

from blackboard.errors import ConfigError
from blackboard.quantities import Duration, Size
from blackboard.settings.table import LONGEST_VALUE, Count, Table, default, masked

__all__ = ["Backend"]

SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel")
"""Schemes of a backend's URL."""


class Backend(Table):
    """How to reach the server. Without a URL a private durable server is started on this machine."""

    if TYPE_CHECKING:  # text is welcome for durations and sizes, so the annotations are not the parameters

        def __init__(self, **values: Any) -> None: ...

    url: str | None = None
    """Where the server is: `redis://`, `rediss://`, `unix://`, `redis+cluster://` or `redis+sentinel://`; without one, the embedded server."""
    directory: Path | None = None
    """Where the embedded server keeps its data; by default `BLACKBOARD_DIR`, else the nearest `.blackboard` upwards. Unused with a URL."""
    retry_deadline: Duration = default("10s")
    """How long a call is tried again over lost connections before it raises."""
    connect_timeout: Duration = default("2s")
    """How long opening one connection may take."""
    response_timeout: Duration = default("5s")
    """How long one reply may take before its connection is given up."""
    connections: Annotated[Count, Field(le=1024)] = 4
    """Connections per server node for data; all tasks of a process share them."""
    lease_connections: Annotated[Count, Field(le=64)] = 1
    """Connections per server node kept for leases, so that no large commit delays a renewal."""
    batch_bytes: Size = default("1MiB", ge=1024, le=LONGEST_VALUE)
    """Most bytes that are sent in one shared pipeline."""

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str | None) -> str | None:
        if url is None or (url.partition("://")[0].lower() in SCHEMES and url.partition("://")[2]):
            return url
        raise ConfigError(f"unknown kind of URL {masked(url)!r}; begin it with one of {', '.join(SCHEMES)} and ://")

    @field_validator("directory", mode="before")
    @classmethod
    def _some_directory(cls, directory: Any) -> Any:
        if directory == "":
            raise ConfigError("a directory must be a path, got ''; leave it out for the default")
        return directory

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, masked(value) if name == "url" and isinstance(value, str) else value
