"""Records as a file: what is exported and imported again is the same, and a damaged file stores nothing."""

from __future__ import annotations

import io
import json
from typing import Any

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
