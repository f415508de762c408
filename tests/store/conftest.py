"""A script that counts operations, once each, as every script of the library does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blackboard.store.script import Script

INCREMENT = """
local seen = redis.call("ZSCORE", KEYS[2], ARGV[1])
if seen then return {"DUP", tonumber(seen)} end
local count = redis.call("INCR", KEYS[1])
redis.call("ZADD", KEYS[2], count, ARGV[1])
return {"OK", count}
"""

READ = 'return {redis.call("GET", KEYS[1]), redis.call("ZCARD", KEYS[2])}'


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A package of scripts."""
    package: Path = tmp_path_factory.mktemp("scripts") / "counting_scripts"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "increment.lua").write_text(INCREMENT)
    (package / "read.lua").write_text(READ)
    sys.path.insert(0, str(package.parent))
    yield "counting_scripts"
    sys.path.remove(str(package.parent))


@pytest.fixture(scope="session")
def increment(scripts: str) -> Script:
    """KEYS: count, ops. ARGV: op id. Returns OK or DUP, and the count after it."""
    return Script(scripts, "increment.lua")


@pytest.fixture(scope="session")
def read(scripts: str) -> Script:
    """KEYS: count, ops. Returns the count and the number of operations."""
    return Script(scripts, "read.lua", read_only=True)
