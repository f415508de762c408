"""Every memory profile in namespaces/ is loaded and a memory is used on it: what it says is what happens."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from blackboard import Blackboard, Settings
from blackboard.errors import ConfigError, NotDurable
from blackboard.memory.memory import Memory
from blackboard.memory.new import New
from blackboard.settings import MemoryNamespace
from blackboard.testing.servers import Server, binaries, start_server

FOLDER = Path(__file__).parents[2] / "namespaces" / "memory"
PROFILES = sorted(path.stem for path in FOLDER.glob("*.toml"))
BINARY = next(iter(binaries().values()), None)

pytestmark = pytest.mark.skipif(BINARY is None, reason="no server binary: install agent-blackboard[embedded]")
each_profile = pytest.mark.parametrize("memory", PROFILES, indirect=True)


def settings(profile: str, **changed: object) -> Settings:
    """The profile as it stands, but for what is changed."""
    return Settings.load(FOLDER / f"{profile}.toml", namespaces={"memory": changed})


@pytest_asyncio.fixture
async def memory(request: pytest.FixtureRequest, solo: Server) -> AsyncIterator[Memory]:
    """A memory of its own over the single server, with the profile."""
    async with Blackboard.open(solo.url, settings=settings(request.param)) as board:
        yield board.memory(f"tests/{uuid.uuid4().hex}")


def policy(memory: Memory) -> MemoryNamespace:
    return memory.records.policy


def test_there_are_profiles() -> None:
    assert PROFILES == ["documents", "episodes", "facts", "tenants"]


@each_profile
async def test_a_record_is_kept_as_long_as_the_profile_says(memory: Memory) -> None:
    record = await memory.remember("a text")
    kept = policy(memory).ttl
    life = await memory.records.store.command("PTTL", memory.records.keys.record(record.id))
    if kept is None:
        assert (record.expires, life) == (None, -1)
    else:
        assert record.expires == record.updated // 1000 + int(kept * 1000)
        assert (kept - 60) * 1000 <= life <= kept * 1000


@each_profile
async def test_a_text_may_be_as_long_as_the_profile_says(memory: Memory) -> None:
    limit = policy(memory).text_limit
    assert len((await memory.remember("x" * limit)).text) == limit
    with pytest.raises(ConfigError, match="text_limit"):
        await memory.remember("x" * (limit + 1))
    assert await memory.count() == 1


@each_profile
async def test_a_hit_is_read_with_what_the_profile_says(memory: Memory) -> None:
    """The one before it among those with the same value, where the profile asks for context."""
    by = policy(memory).context_by or "session"
    await memory.remember_all(
        [
            New("where are the pebbles", id="asked", metadata={by: "one"}),
            New("something else altogether", id="between", metadata={by: "two"}),
            New("on the windowsill", id="answered", metadata={by: "one"}),
        ]
    )
    (hit,) = await memory.recall("windowsill", k=1, explain=True)
    assert hit.record.id == "answered"
    assert [record.id for record in hit.before] == (["asked"] if policy(memory).context else [])
    found = {one.record.id for one in await memory.recall("pebbles", k=3, lexical=1.0)}
    assert ("answered" in found) == bool(policy(memory).context), "a neighbour's words count, or do not"


@each_profile
async def test_a_score_is_made_of_what_the_profile_says(memory: Memory) -> None:
    await memory.remember("green tea", importance=1.0)
    (hit,) = await memory.recall("green tea", explain=True)
    said, parts = policy(memory), hit.parts
    assert parts is not None
    assert parts.recency == pytest.approx(said.recency_weight, abs=0.001), "it was remembered just now"
    assert parts.importance == pytest.approx(said.importance_weight)
    relevance = 1 - said.recency_weight - said.importance_weight
    assert parts.lexical == pytest.approx(said.lexical_weight * relevance, rel=0.01)
    assert hit.score == pytest.approx(
        parts.dense + parts.lexical + parts.recency + parts.importance + parts.context, abs=1e-6
    )


@each_profile
async def test_receipts_are_kept_as_long_as_the_profile_says(memory: Memory) -> None:
    await memory.remember("a text", id="gone")
    receipt = await memory.forget("gone")
    assert [one.id for one in await memory.receipts()] == [receipt.id]
    life = await memory.records.store.command("PTTL", memory.records.keys.receipts)
    kept = policy(memory).receipts_ttl
    assert life == -1 if kept is None else (kept - 60) * 1000 <= life <= kept * 1000


@pytest.mark.parametrize("profile", PROFILES)
async def test_a_path_holds_what_the_profile_says(profile: str, solo: Server) -> None:
    """With a budget of three where the profile has one; pinned records are not counted, the least important go."""
    said = settings(profile).memory_namespace()
    small = settings(profile, budget=3) if said.budget else settings(profile)
    async with Blackboard.open(solo.url, settings=small) as board:
        memory = board.memory(f"tests/{uuid.uuid4().hex}")
        await memory.remember("pinned", id="pinned", importance=0.0, pinned=True)
        await memory.remember_all([New(f"number {n}", id=f"n{n}", importance=n / 10) for n in range(5)])
        tended = await memory.tend()
        left = [record.id for record in await memory.list()]
    assert (tended.evicted, left) == (
        (2, ["pinned", "n2", "n3", "n4"]) if said.budget else (0, ["pinned", "n0", "n1", "n2", "n3", "n4"])
    )


@pytest.mark.parametrize("memory", ["tenants"], indirect=True)
async def test_a_snapshot_is_due_after_as_many_writes_as_the_profile_says(memory: Memory) -> None:
    every = policy(memory).snapshot_every
    assert every == 500
    await memory.remember_all([f"number {number}" for number in range(every - 10)])
    assert not (await memory.tend()).snapshot
    await memory.remember_all([f"another {number}" for number in range(10)])
    assert (await memory.tend()).snapshot


@pytest.mark.parametrize("profile", PROFILES)
async def test_durability_is_asked_for_as_the_profile_says(profile: str, tmp_path: Path) -> None:
    """A server that writes nothing to disk is refused for the memory's sake alone: threads do not ask here."""
    assert BINARY is not None
    off = {"checkpoint": {"kind": "checkpoint", "durability": "off"}}
    asks = Settings.load(FOLDER / f"{profile}.toml", namespaces=off)
    silent = Settings.load(FOLDER / f"{profile}.toml", namespaces=off | {"memory": {"durability": "off"}})
    assert asks.memory_namespace().durability == "require"
    async with await start_server(BINARY, tmp_path, appendonly=False) as server:
        with pytest.raises(NotDurable):
            await Blackboard.open(server.url, settings=asks)
        async with Blackboard.open(server.url, settings=silent) as board:
            assert (await board.memory("tests").remember("a text")).version == 1
