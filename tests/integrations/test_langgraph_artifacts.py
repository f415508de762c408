"""A saver's long channel values stand in artifacts, and nothing else about it changes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from blackboard import Blackboard, Settings, keys
from blackboard.artifacts.owner import Owner
from blackboard.testing.servers import Server

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langgraph.checkpoint.base import empty_checkpoint

from blackboard.integrations.langgraph import BlackboardSaver

NAMESPACE = "langgraph"


@pytest_asyncio.fixture
async def saver(solo: Server) -> AsyncIterator[BlackboardSaver]:
    policy = {"kind": "checkpoint", "oversize": "artifact", "artifact_limit": 1000, "durability": "off"}
    settings = Settings.load(namespaces={NAMESPACE: policy}, backend={"url": solo.url})
    async with Blackboard.open(settings=settings, proof=False) as board:
        yield BlackboardSaver(board)


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


async def put(saver: BlackboardSaver, where: Any, name: str, versions: dict[str, Any], **values: Any) -> Any:
    made: Any = {**empty_checkpoint(), "v": 4, "id": name, "channel_values": values, "channel_versions": versions}
    return await saver.aput(where, made, {"source": "loop", "step": 1}, versions)


async def held(saver: BlackboardSaver, thread: str) -> dict[str, bytes]:
    flat = await saver.board.store.command("HGETALL", keys.ThreadKeys.of(NAMESPACE, thread).artifacts)
    return {flat[at].decode(): flat[at + 1] for at in range(0, len(flat), 2)}


async def test_a_long_value_is_moved_out(saver: BlackboardSaver, thread: str) -> None:
    page = os.urandom(4000)
    where = await put(saver, config(thread), "1", {"page": 1, "n": 1}, page=page, n=1)
    assert list((await held(saver, thread)).values()) == [b"moved"]
    where = await put(saver, where, "2", {"page": 1, "n": 2}, page=page, n=2)
    assert len(await held(saver, thread)) == 1
    found = [one.checkpoint["channel_values"] async for one in saver.alist(config(thread))]
    assert found == [{"page": page, "n": 2}, {"page": page, "n": 1}]
    newest = await saver.aget_tuple(config(thread))
    assert newest is not None
    assert newest.checkpoint["channel_values"]["page"] == page


async def test_a_copy_keeps_it_and_a_deleted_thread_does_not(saver: BlackboardSaver, thread: str) -> None:
    page, other = os.urandom(4000), f"{thread} copy"
    await put(saver, config(thread), "1", {"page": 1}, page=page)
    await saver.acopy_thread(thread, other)
    await saver.adelete_thread(thread)
    assert await held(saver, thread) == {}
    (digest,) = await held(saver, other)
    stat = await saver.board.artifacts.stat(f"artifact:sha256:{digest}")
    assert stat is not None
    assert Owner("thread", NAMESPACE, other) in stat.owners
    found = await saver.aget_tuple(config(other))
    assert found is not None
    assert found.checkpoint["channel_values"]["page"] == page


async def test_a_message_that_mentions_an_artifact_keeps_it(saver: BlackboardSaver, thread: str) -> None:
    ref = await saver.board.artifacts.put(os.urandom(20), name="page.html")
    where = await put(saver, config(thread), "1", {"messages": 1}, messages=["read this", f"see {ref}"])
    other = await saver.board.artifacts.put(os.urandom(20))
    await saver.aput_writes(where, [("page", other)], "task")
    assert await held(saver, thread) == {ref.digest: b"mentioned", other.digest: b"mentioned"}
