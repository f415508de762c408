"""Bytes, files and streams are stored once, in chunks, whole or not at all; every backend."""

from __future__ import annotations

import asyncio
import hashlib
import os
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blackboard import keys
from blackboard.artifacts.chunks import Chunks
from blackboard.artifacts.head import Head
from blackboard.artifacts.ref import ArtifactRef
from blackboard.artifacts.source import measured
from blackboard.artifacts.store import ArtifactStore
from blackboard.errors import ArtifactMissing, ConfigError, CorruptValue, ServerUnavailable, StoreRegressed
from blackboard.settings import Artifacts
from blackboard.store.client import Store

from .conftest import CHUNK, stream

Standing = Callable[[str], Awaitable[dict[str, int]]]


async def written(store: Store) -> int:
    """Bytes that stand in strings below `bb:artifact:`."""
    total = 0
    for primary in await store.primaries():
        for key in await primary.command("KEYS", "bb:artifact:*:chunk:*"):
            total += await store.command("STRLEN", key)
    return total


async def test_all_three_kinds_are_one_artifact(artifacts: ArtifactStore, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "content"
    file.write_bytes(content)
    refs = [await artifacts.put(one) for one in (content, bytearray(content), file, str(file), stream(content, 100))]
    assert set(refs) == {ArtifactRef(f"artifact:sha256:{hashlib.sha256(content).hexdigest()}", len(content))}
    named = await artifacts.put(content, media_type="text/plain", name="a")
    assert (named.uri, named.media_type, named.name) == (refs[0].uri, "text/plain", "a")
    assert await artifacts.read(named) == content


async def test_a_second_put_writes_nothing(
    store: Store, artifacts: ArtifactStore, content: bytes, standing: Standing
) -> None:
    ref = await artifacts.put(content)
    keys_before, bytes_before = await standing(ref.digest), await written(store)
    assert set(keys_before.values()) == {-1}
    assert len(keys_before) == 1 + 4
    await artifacts.put(content)
    await artifacts.put(stream(content, 1000))
    assert (await standing(ref.digest), await written(store)) == (keys_before, bytes_before)


async def test_many_at_once_leave_one(artifacts: ArtifactStore, content: bytes, standing: Standing) -> None:
    refs = await asyncio.gather(*(artifacts.put(content) for _ in range(8)))
    assert len(set(refs)) == 1
    found = await standing(refs[0].digest)
    assert (len(found), set(found.values())) == (1 + 4, {-1})
    assert await artifacts.read(refs[0]) == content


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK])
async def test_sizes(artifacts: ArtifactStore, size: int) -> None:
    content = os.urandom(size)
    ref = await artifacts.put(content)
    found = await artifacts.stat(ref)
    assert found is not None
    assert (found.ref, found.chunks, found.place, found.owners) == (ref, -(-size // CHUNK), "backend", ())
    assert await artifacts.read(ref) == content


@given(data=st.data())
@settings(max_examples=60, deadline=None)
async def test_ranges_are_those_of_the_bytes(solo_artifacts: ArtifactStore, data: st.DataObject) -> None:
    content = data.draw(st.binary(max_size=70))
    chunk = data.draw(st.integers(1, 20))
    artifacts = ArtifactStore(solo_artifacts._store, Artifacts(chunk_size=chunk))
    ref = await artifacts.put(stream(content, data.draw(st.integers(1, 30))))
    offset, length = data.draw(st.integers(0, 80)), data.draw(st.none() | st.integers(0, 80))
    expected = content[offset:] if length is None else content[offset : offset + length]
    async with artifacts.open(ref, offset=offset, length=length) as opened:
        assert await opened.read() == expected
        assert await opened.read() == await opened.read(5) == b""
    pieces = [piece async for piece in artifacts.open(ref, offset=offset, length=length)]
    assert b"".join(pieces) == expected
    assert all(len(piece) > 0 for piece in pieces)
    step, taken = data.draw(st.integers(1, 30)), list[bytes]()
    async with artifacts.open(ref, offset=offset, length=length) as opened:
        while piece := await opened.read(step):
            taken.append(piece)
    assert b"".join(taken) == expected
    assert [len(piece) for piece in taken[:-1]] == [step] * (len(taken) - 1)


async def test_a_torn_or_altered_chunk_is_noticed(store: Store, artifacts: ArtifactStore, content: bytes) -> None:
    ref = await artifacts.put(content)
    chunk = await _chunk(store, ref, 1)
    whole = await store.command("GET", chunk)
    for wrong in (whole[:-1], whole + b"x", b"x" + whole[1:], b""):
        await store.command("SET", chunk, wrong)
        with pytest.raises(CorruptValue, match="chunk 1 of artifact"):
            await artifacts.read(ref)
        async with artifacts.open(ref, length=CHUNK) as opened:
            assert await opened.read() == content[:CHUNK]
    await store.command("SET", chunk, whole)
    assert await artifacts.read(ref) == content


async def test_a_lost_chunk_is_noticed_and_put_again(
    store: Store, artifacts: ArtifactStore, content: bytes, standing: Standing
) -> None:
    ref = await artifacts.put(content)
    await store.command("DEL", await _chunk(store, ref, 2))
    with pytest.raises(StoreRegressed, match="lost chunk 2"):
        await artifacts.read(ref)
    assert await artifacts.put(content) == ref
    assert await artifacts.read(ref) == content
    found = await standing(ref.digest)
    assert (len(found), set(found.values())) == (1 + 4, {-1})


async def test_a_head_that_makes_no_sense(store: Store, artifacts: ArtifactStore, content: bytes) -> None:
    ref = await artifacts.put(content)
    head = keys.ArtifactKeys(ref.digest).head
    await store.command("HSET", head, "checks", b"short")
    with pytest.raises(CorruptValue, match="other chunks"):
        await artifacts.read(ref)
    await store.command("HDEL", head, "size")
    with pytest.raises(CorruptValue, match="not readable"):
        await artifacts.stat(ref)
    other = await artifacts.put(b"beside it")
    listed = {one.ref.digest async for one in artifacts.all()}
    assert other.digest in listed and ref.digest not in listed
    await store.command("DEL", head)


async def test_what_is_not_stored(artifacts: ArtifactStore) -> None:
    nothing = f"artifact:sha256:{'0' * 64}"
    assert await artifacts.stat(nothing) is None
    with pytest.raises(ArtifactMissing, match="no artifact 0000"):
        await artifacts.read(nothing)
    with pytest.raises(ArtifactMissing):
        await artifacts.pin(nothing, "somebody")
    assert not await artifacts.unpin(nothing, "somebody")


async def test_read_refuses_what_is_too_long(artifacts: ArtifactStore, content: bytes) -> None:
    ref = await artifacts.put(content)
    assert await artifacts.read(ref, limit=len(content)) == content
    with pytest.raises(ConfigError, match=f"more than the limit of {len(content) - 1}: open it"):
        await artifacts.read(ref, limit=len(content) - 1)
    small = ArtifactStore(artifacts._store, Artifacts(read_limit=10))
    with pytest.raises(ConfigError, match="more than the limit of 10"):
        await small.read(ref)


@pytest.mark.parametrize(
    ("offset", "length"),
    [(-1, None), (0, -1), (True, None), (1.0, None), ("1", None), (None, None), (0, 1.5), (0, "x"), (0, False)],
)
async def test_a_range_that_is_none(artifacts: ArtifactStore, offset: Any, length: Any) -> None:
    with pytest.raises(ConfigError, match="a range begins at 0"):
        artifacts.open(f"artifact:sha256:{'0' * 64}", offset=offset, length=length)


async def test_numbers_of_bytes_that_are_none(artifacts: ArtifactStore, content: bytes) -> None:
    ref = await artifacts.put(content)
    async with artifacts.open(ref) as opened:
        for wrong in (-2, True, 1.5, "1", None):
            with pytest.raises(ConfigError, match="size is a whole number of bytes, or -1"):
                await opened.read(wrong)  # type: ignore[arg-type]
        assert await opened.read(0) == b""
        assert await opened.read() == content
    for wrong in (-1, True, 1.5, "x"):
        with pytest.raises(ConfigError, match="limit"):
            await artifacts.read(ref, limit=wrong)  # type: ignore[arg-type]


async def test_bytes_of_every_shape(artifacts: ArtifactStore) -> None:
    for content, meant in (
        (memoryview(b"abcdef")[::2], b"ace"),
        (memoryview(b"abcdef")[::-1], b"fedcba"),
        (memoryview(b"abcdef").cast("B", (2, 3)), b"abcdef"),
        (memoryview(array("H", [1, 2])), array("H", [1, 2]).tobytes()),
        (bytearray(b"abc"), b"abc"),
    ):
        assert await artifacts.read(await artifacts.put(content)) == meant


@pytest.mark.parametrize("said", [5, b"x", "\ud800", "x" * 1025])
@pytest.mark.parametrize("what", ["name", "media_type"])
async def test_a_name_that_is_none_stores_nothing(
    artifacts: ArtifactStore, content: bytes, what: str, said: Any
) -> None:
    with pytest.raises(ConfigError, match=what):
        await artifacts.put(content, **{what: said})
    ref = await artifacts.put(content, **{what: ""})
    assert (ref.name, ref.media_type) == (None, None)
    found = await artifacts.stat(ref)
    assert found is not None
    assert found.ref == ref


@pytest.mark.parametrize(
    ("content", "message"),
    [("a\0b", "null byte"), (Path("a\0b"), "null byte"), ("\ud800", "surrogates"), ("x" * 5000, "name too long"),
     ("", "directory"), (".", "directory"), (7, "bytes, a path or an async iterator"), ("no such file", "No such file"), ([b"1"], "not list")],
)  # fmt: skip
async def test_what_cannot_be_put(artifacts: ArtifactStore, content: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        await artifacts.put(content)


async def test_a_stream_of_anything_else(artifacts: ArtifactStore) -> None:
    async def texts() -> AsyncIterator[Any]:
        yield b"1"
        yield "2"

    with pytest.raises(ConfigError, match="a stream gives bytes, not str"):
        await artifacts.put(texts())


async def test_what_a_stream_raises_passes(artifacts: ArtifactStore) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"1"
        raise ArithmeticError("of the caller")

    with pytest.raises(ArithmeticError, match="of the caller"):
        await artifacts.put(broken())


async def test_a_file_that_changes_meanwhile_is_not_stored(
    artifacts: ArtifactStore, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standing: Standing
) -> None:
    file = tmp_path / "content"
    file.write_bytes(content)
    touched = artifacts._touched

    async def changed(digest: str) -> Head | None:
        file.write_bytes(content[:CHUNK] + os.urandom(len(content) - CHUNK))
        return await touched(digest)

    monkeypatch.setattr(artifacts, "_touched", changed)
    with pytest.raises(ConfigError, match="was changed while it was stored"):
        await artifacts.put(file)
    found = await standing(hashlib.sha256(content).hexdigest())
    assert set(found) & {"head"} == set()
    assert all(life > 0 for life in found.values())


async def test_a_put_that_broke_off_ends_by_itself(
    artifacts: ArtifactStore, content: bytes, monkeypatch: pytest.MonkeyPatch, standing: Standing
) -> None:
    """Whatever a put had written has an expiry, and nothing of it is read as an artifact."""
    write, digest = Chunks.write, hashlib.sha256(content).hexdigest()

    async def cut(self: Chunks, source: Any, upload: str) -> str:
        await write(self, source, upload)
        raise KeyboardInterrupt

    monkeypatch.setattr(Chunks, "write", cut)
    with pytest.raises(KeyboardInterrupt):
        await artifacts.put(content)
    found = await standing(digest)
    assert len(found) == 4
    assert all(0 < life <= 3_600_000 for life in found.values())
    assert await artifacts.stat(f"artifact:sha256:{digest}") is None
    monkeypatch.undo()
    assert await artifacts.read(await artifacts.put(content)) == content


async def test_chunks_that_end_before_they_are_complete(
    artifacts: ArtifactStore, store: Store, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not there is sent again; for ever is an error, and nothing is stored."""
    write, lose = Chunks.write, [True, False]

    async def lossy(self: Chunks, source: Any, upload: str) -> str:
        await write(self, source, upload)
        if lose and lose.pop(0):
            await store.command("DEL", keys.ArtifactKeys(source.digest).chunk(upload, 3))
        return ""

    monkeypatch.setattr(Chunks, "write", lossy)
    ref = await artifacts.put(content)
    assert await artifacts.read(ref) == content
    lose[:] = [True] * 10
    other = os.urandom(4 * CHUNK)
    with pytest.raises(ServerUnavailable, match="raise it"):
        await artifacts.put(other)
    assert await artifacts.stat(f"artifact:sha256:{hashlib.sha256(other).hexdigest()}") is None


async def test_an_upload_that_takes_too_long(store: Store, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    artifacts = ArtifactStore(store, Artifacts(chunk_size=CHUNK, upload_ttl=1))
    write = Chunks.write

    async def slow(self: Chunks, source: Any, upload: str) -> str:
        self._px = 60_000
        await write(self, source, upload)
        await asyncio.sleep(1.2)
        return ""

    monkeypatch.setattr(Chunks, "write", slow)
    with pytest.raises(ServerUnavailable, match=r"longer than artifacts.upload_ttl \(1 s\)"):
        await artifacts.put(content)


async def test_a_late_repetition_of_a_chunk_changes_nothing(
    store: Store, artifacts: ArtifactStore, content: bytes
) -> None:
    """A write that was lost on its way and arrives after the artifact is complete gives no chunk an expiry."""
    ref = await artifacts.put(content)
    head = Head.of(ref.digest, await store.command("HGETALL", keys.ArtifactKeys(ref.digest).head))
    assert head is not None
    async with measured(content, CHUNK, None) as source:
        await Chunks(store, 1.0).write(source, head.upload)
    assert {await store.command("PTTL", key) for key in head.chunks} == {-1}


async def test_all_lists_what_stands(artifacts: ArtifactStore, content: bytes) -> None:
    ref = await artifacts.put(content, name="listed", media_type="a/b")
    found = {one.ref.uri: one async for one in artifacts.all()}
    assert found[ref.uri].ref == ref
    assert found[ref.uri].marked is None


async def _chunk(store: Store, ref: ArtifactRef, number: int) -> str:
    head = Head.of(ref.digest, await store.command("HGETALL", keys.ArtifactKeys(ref.digest).head))
    assert head is not None
    return head.chunks[number]
