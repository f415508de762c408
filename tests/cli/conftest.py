"""The command line over a data directory of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from blackboard.cli.app import app


class Command:
    """The command line over one data directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, *words: str, expect: int = 0) -> str:
        done = CliRunner().invoke(app, ["--directory", str(self.directory), *words])
        assert done.exit_code == expect, done.output
        return done.stdout if expect == 0 else done.stderr

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """A server that stands while the tests of one module run."""
    command = Command(tmp_path_factory.mktemp("data") / "board")
    command("up")
    yield command
    command("down", "--force")
