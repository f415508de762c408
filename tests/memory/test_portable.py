"""Records as a file: what is exported and imported again is the same, and a damaged file stores nothing."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from blackboard.errors import ConfigError
from blackboard.memory.memory import Memory
from blackboard.memory.new import New
from blackboard.memory.record import Record
from blackboard.store.client import Store
from tests.memory.recalling import Plane, Topics, memory_of, texts


class Visit(BaseModel):
    place: str
    nights: int


async def filled(store: Store) -> Memory:
    memory = memory_of(store, Topics())
    await memory.remember(
        "a kitten, naïve 猫", id="kitten", metadata={"tags": ("a", "b"), "n": 1, "x": None}, pinned=True
    )
    await memory.remember(Visit(place="Oslo", nights=3), id="visit", importance=0.75, ttl=3600)
    await memory.remember("Ann lives in Oslo", subject="ann", id="oslo", valid_from=1_000)
    await memory.remember("Ann lives in Rome", subject="ann", id="rome", valid_from=2_000)
    return memory


async def written(memory: Memory, **options: Any) -> bytes:
    return b"".join([line async for line in memory.export(**options)])


def told(record: Record) -> tuple[object, ...]:
    return (
        record.id, record.text, record.value, record.subject, dict(record.metadata), record.importance, record.created,
        record.valid_from, record.valid_until, record.superseded_by, record.pinned, record.embedded,
        record.expires is None,
    )  # fmt: skip


async def test_there_and_back(store: Store) -> None:
    memory, other = await filled(store), memory_of(store, Topics())
    file = await written(memory)
    done = await other.import_(io.BytesIO(file))
    assert (done.stored, done.kept) == (4, 0)
    assert [told(one) for one in await other.list()] == [told(one) for one in await memory.list()]
    assert await store.command("SCARD", other.records.keys.pending) == 0
    assert texts(await other.recall("cat", lexical=0.0, k=1)) == ["a kitten, naïve 猫"]
    assert [record.id for record in await other.history("ann")] == ["rome", "oslo"]
    visit = await other.get("visit")
    assert visit is not None
    assert visit.value == {"place": "Oslo", "nights": 3}
    lines = [json.loads(line) for line in file.splitlines()]
    assert [line["line"] for line in lines] == ["header", *["record"] * 4, "end"]


async def test_another_space_is_embedded_anew(store: Store) -> None:
    """Vectors of another embedder are left out, and made when the path is tended."""
    memory, other = await filled(store), memory_of(store, Topics())
    other.embedder.name = "topics-2"  # type: ignore[union-attr, misc]
    await other.import_(io.BytesIO(await written(memory)))
    assert await store.command("SCARD", other.records.keys.pending) == 4
    assert (await other.tend()).embedded == 4
    words = memory_of(store, None)
    await words.import_(io.BytesIO(await written(memory)))
    assert await store.command("SCARD", words.records.keys.pending) == 0
    assert texts(await words.recall("kitten", k=1)) == ["a kitten, naïve 猫"]


async def test_without_vectors(store: Store) -> None:
    memory, other = await filled(store), memory_of(store, Plane())
    assert b"vector" not in await written(memory, vectors=False)
    assert (await other.import_(io.BytesIO(await written(memory, vectors=False)))).stored == 4


async def test_what_is_there_already(store: Store) -> None:
    memory, other = await filled(store), memory_of(store, Topics())
    file = await written(memory)
    await other.remember("mine", id="kitten")
    with pytest.raises(ConfigError, match="'kitten' is in path"):
        await other.import_(io.BytesIO(file))
    assert await other.count() == 1
    kept = await other.import_(io.BytesIO(file), existing="keep")
    assert (kept.stored, kept.kept) == (3, 1)
    record = await other.get("kitten")
    assert record is not None
    assert record.text == "mine"
    assert (await other.import_(io.BytesIO(file), existing="replace")).stored == 4
    record = await other.get("kitten")
    assert record is not None
    assert record.text == "a kitten, naïve 猫"
    assert await other.count() == 4


def swapped(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[2], lines[1], *lines[3:]]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda lines: lines[:-1], "is cut"),
        (lambda _: [], "is cut"),
        (lambda lines: lines[1:], "line 1: it is not where"),
        (lambda lines: [*lines, lines[1]], "line 7: it is not where"),
        (lambda lines: [*lines, *lines], "line 7: it is not where"),
        (lambda lines: [lines[0], *lines[2:]], "line 5: the lines before it"),
        (swapped, "line 6: the lines before it"),
        (lambda lines: [lines[0], lines[1].replace(b"kitten", b"kittem"), *lines[2:]], "line 6: the lines before it"),
        (lambda lines: [lines[0].replace(b'"version":1', b'"version":2'), *lines[1:]], "version is 2"),
        (lambda lines: [lines[0].replace(b"blackboard-memory", b"blackboard-thread"), *lines[1:]], "format is"),
        (lambda lines: [lines[0], b'{"line":"record"}\n', *lines[1:]], "line 2"),
        (lambda lines: [lines[0], lines[1][:20] + b"\n", *lines[2:]], "line 2"),
        (lambda lines: [lines[0], lines[1].replace(b'"x":null', b'"x":{}'), *lines[2:]], "line 2"),
    ],
)
async def test_a_damaged_file_stores_nothing(store: Store, damage: Any, said: str) -> None:
    memory, other = await filled(store), memory_of(store, Topics())
    lines = (await written(memory)).splitlines(keepends=True)
    with pytest.raises(ConfigError, match=said):
        await other.import_(io.BytesIO(b"".join(damage(lines))))
    assert await other.count() == 0
    assert await store.command("EXISTS", other.records.keys.head) == 0


def sealed(lines: list[dict[str, Any]]) -> bytes:
    """Spell lines as somebody else's export could: with a count and a digest that fit."""
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    count = sum(line["line"] == "record" for line in lines)
    end = {"line": "end", "count": count, "sha256": hashlib.sha256(body).hexdigest()}
    return body + json.dumps(end).encode() + b"\n"


def packed(values: Any, kind: Any = np.float16) -> str:
    return base64.b64encode(np.asarray(values, kind).tobytes()).decode()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"id": ""}, "record id must have 1 to 1024 bytes"),
        ({"id": "x" * 1025}, "record id must have"),
        ({"text": ""}, "nothing to remember"),
        ({"text": " \n"}, "nothing to remember"),
        ({"text": "x" * (1 << 20)}, "longer than text_limit"),
        ({"text": 5}, "text"),
        ({"subject": ""}, "subject must have"),
        ({"subject": "x" * 1025}, "subject must have"),
        ({"importance": 1.5}, "importance must be a number from 0 to 1"),
        ({"importance": -0.5}, "importance"),
        ({"importance": None}, "importance"),
        ({"ttl": 0}, "ttl"),
        ({"ttl": -5}, "ttl"),
        ({"ttl": 1 << 60}, "ttl"),
        ({"ttl": 10**400}, "ttl"),
        ({"valid_from": 1 << 59}, "a time is"),
        ({"valid_from": 10**30}, "a time is"),
        ({"created": -(1 << 59)}, "a time is"),
        ({"created": "now"}, "created"),
        ({"value": "anVuaw=="}, "not an encoded value"),
        ({"value": "no base 64"}, "value"),
        ({"metadata": {"": 1}}, "a name of metadata"),
        ({"metadata": {"x": [[1]]}}, "metadata 'x'"),
        ({"vector": "YWJj"}, "a vector of topics has 10 bytes, found 3"),
        ({"vector": packed([1, 0, 0, 0])}, "has 10 bytes, found 8"),
        ({"vector": packed([1, 0, 0, 0, float("nan")])}, "has the length nan"),
        ({"vector": packed([0] * 5)}, "has the length 0"),
        ({"vector": packed([7] * 5)}, "instead of 1"),
        ({"pinned": 1}, "pinned"),
        ({"more": 1}, "more"),
    ],
    ids=lambda one: f"{one!r:.40}",
)
@pytest.mark.parametrize("existing", ["refuse", "keep", "replace"])
async def test_a_record_that_could_not_be_remembered_stores_nothing(
    store: Store, changed: dict[str, Any], said: str, existing: Any
) -> None:
    """A file of somebody else's making, whole by its digest: what recall could not read again would make a path useless."""
    memory, other = await filled(store), memory_of(store, Topics())
    lines = [json.loads(line) for line in (await written(memory)).splitlines()[:-1]]
    lines[2] |= changed
    with pytest.raises(ConfigError, match="line 3: .*") as refused:
        await other.import_(io.BytesIO(sealed(lines)), existing=existing)
    assert said in str(refused.value)
    assert await store.command("EXISTS", other.records.keys.head) == 0


@pytest.mark.parametrize("existing", ["Keep", "skip", "", None, True])
async def test_what_becomes_of_records_is_said(store: Store, existing: Any) -> None:
    """A word that is not known does not replace anything."""
    memory = await filled(store)
    file = await written(memory)
    changed = await memory.update("kitten", expected=1, what="mine")
    with pytest.raises(ConfigError, match="existing is refuse, keep or replace, got"):
        await memory.import_(io.BytesIO(file), existing=existing)
    assert await memory.get("kitten") == changed


async def test_what_is_no_file_of_bytes(store: Store) -> None:
    file = await written(await filled(store))
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe, os.fdopen(writing, "wb"):
        for wrong in ("records.jsonl", file, None, 5, io.StringIO(file.decode()), pipe):
            with pytest.raises(ConfigError, match="an import reads a file of bytes twice"):
                await memory_of(store, Topics()).import_(wrong)  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_anything_that_is_remembered(store: Store, data: st.DataObject) -> None:
    text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda one: bool(one.strip()))
    scalar = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
    item = st.builds(
        New,
        text,
        metadata=st.dictionaries(text, scalar | st.lists(scalar, max_size=3).map(tuple), max_size=3),
        importance=st.floats(0, 1),
        pinned=st.booleans(),
    )
    memory, other = memory_of(store, None), memory_of(store, None)
    await memory.remember_all(data.draw(st.lists(item, max_size=4)))
    await other.import_(io.BytesIO(await written(memory)))
    assert [told(one) for one in await other.list()] == [told(one) for one in await memory.list()]
