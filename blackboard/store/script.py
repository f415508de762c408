"""Lua scripts as values: loaded once from the package that owns them, called by their digest."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources

from blackboard.errors import ConfigError

__all__ = ["Script"]


class Script:
    """One atomic operation of the server: a `.lua` file, with shared Lua functions put in front of it.

    `package` is the package that owns the file, `name` the file, `prelude` files of the same package (or
    `package:file` for another one) whose text comes first, in order. `read_only` says that the script never writes,
    so that a lost reply is an outage and not an unknown outcome. Raises ConfigError if a file is not there.
    """

    __slots__ = ("name", "package", "read_only", "sha", "source")

    def __init__(self, package: str, name: str, *, prelude: Sequence[str] = (), read_only: bool = False) -> None:
        self.package = package
        self.name = name
        self.read_only = read_only
        self.source = "\n".join(_text(package, part) for part in (*prelude, name)).encode()
        self.sha = hashlib.sha1(self.source, usedforsecurity=False).hexdigest()

    def __repr__(self) -> str:
        return f"Script({self.package!r}, {self.name!r})"


def _text(package: str, name: str) -> str:
    owner, _, file = name.rpartition(":")
    try:
        return resources.files(owner or package).joinpath(file).read_text(encoding="utf-8")
    except (FileNotFoundError, ModuleNotFoundError) as missing:
        raise ConfigError(f"script {file!r} is not in package {owner or package!r}", value=name) from missing
