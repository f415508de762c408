from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from blackboard.errors import ConfigError
from blackboard.store.script import Script


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    room = tmp_path / "scripts_of_a_room"
    room.mkdir()
    (room / "__init__.py").touch()
    (room / "shared.lua").write_text("local function one() return 1 end")
    (room / "commit.lua").write_text("return one()")
    monkeypatch.syspath_prepend(tmp_path)
    return room.name


def test_prelude_comes_first(package: str) -> None:
    script = Script(package, "commit.lua", prelude=("shared.lua",), read_only=True)
    assert script.source == b"local function one() return 1 end\nreturn one()"
    assert script.sha == hashlib.sha1(script.source).hexdigest()
    assert script.read_only
    assert Script(package, "commit.lua", prelude=(f"{package}:shared.lua",)).sha == script.sha


def test_missing_file_is_named(package: str) -> None:
    with pytest.raises(ConfigError, match=r"script 'absent.lua' is not in package 'scripts_of_a_room'"):
        Script(package, "absent.lua")
    with pytest.raises(ConfigError, match="package 'no_such_package'"):
        Script("no_such_package", "commit.lua")
