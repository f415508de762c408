"""Artifacts that records mention are kept as long as the records, and no longer."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from pydantic import BaseModel

from blackboard import Blackboard
from blackboard.artifacts.ref import ArtifactRef
from blackboard.errors import ConfigError
from blackboard.memory.consolidation import Group, Plan, Source


class Report(BaseModel):
    title: str
    file: ArtifactRef


@pytest_asyncio.fixture
async def board(backend: str) -> AsyncIterator[Blackboard]:
    async with await Blackboard.open(backend) as opened:
        yield opened


async def collected(board: Blackboard, ref: ArtifactRef) -> bool:
    """Collect twice without a grace, as a mark and a removal, and tell whether the artifact went."""
    for _ in range(2):
        await board.artifacts.gc(grace=0.001)
    return await board.artifacts.stat(ref) is None


@pytest.mark.parametrize("where", ["text", "metadata", "model"])
async def test_kept_as_long_as_the_record(board: Blackboard, thread: str, where: str) -> None:
    memory = board.memory(("mentions", thread))
    ref = await board.artifacts.put(f"the report of {thread}".encode())
    what: Any = Report(title="r", file=ref) if where == "model" else f"see {ref}" if where == "text" else "see there"
    record = await memory.remember(what, metadata={"file": str(ref)} if where == "metadata" else None)
    assert not await collected(board, ref)
    await memory.forget(record.id)
    assert await collected(board, ref)


async def test_a_later_version_that_does_not_mention_it_lets_go(board: Blackboard, thread: str) -> None:
    memory = board.memory(("mentions", thread))
    ref = await board.artifacts.put(f"the draft of {thread}".encode())
    record = await memory.remember("nothing yet", id="x")
    record = await memory.update("x", expected=record.version, what=f"see {ref}")
    assert not await collected(board, ref)
    await memory.update("x", expected=record.version, what="withdrawn")
    assert await collected(board, ref)


async def test_imported_and_merged_records_count(board: Blackboard, thread: str) -> None:
    memory, other = board.memory(("mentions", thread)), board.memory(("mentions", thread, "other"))
    ref = await board.artifacts.put(f"the file of {thread}".encode())
    first = await memory.remember(f"the plan is in {ref}")
    second = await memory.remember(f"the plan is in {ref}.")
    await other.import_(io.BytesIO(b"".join([line async for line in memory.export()])))
    await memory.forget(everything=True)
    assert not await collected(board, ref)
    sources = tuple(Source(one.id, 1, one.text) for one in (first, second))
    done = await other.apply(Plan(other.records.path, (Group(sources, first.text, 1.0),), 2))
    await other.forget([first.id, second.id])
    assert not await collected(board, ref)
    await other.forget(done.merged[0].id)
    assert await collected(board, ref)


async def test_what_is_not_stored_may_be_mentioned(board: Blackboard, thread: str) -> None:
    memory = board.memory(("mentions", thread))
    await memory.remember(f"somebody wrote artifact:sha256:{'0' * 64}")
    assert await memory.count() == 1


async def test_a_name_that_is_too_long_is_refused(board: Blackboard, thread: str) -> None:
    memory = board.memory(("mentions", thread, "x" * 900))
    ref = await board.artifacts.put(f"long {thread}".encode())
    with pytest.raises(ConfigError, match="pin the artifact"):
        await memory.remember(f"see {ref}", id="y" * 900)
    assert await memory.count() == 0
