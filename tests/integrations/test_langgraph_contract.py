"""The contracts of savers, kept by ours on every backend, and what they find in others."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self, cast

import pytest

from blackboard import Blackboard, Settings, keys
from blackboard.errors import ServerUnavailable
from blackboard.store.client import Store
from blackboard.testing.proxy import FaultProxy

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langgraph.checkpoint.memory import InMemorySaver

from blackboard.integrations.langgraph import BlackboardSaver
from blackboard.testing.contracts.savers import Cut, Hooks, ProxyWire, SaverContract, Wire

CONTRACTS = 31
UNHEEDED = {"nothing_is_resurrected", "late_writes_are_refused"}
"""What every other saver that we know breaks: a late write brings a deleted thread back."""


class RequestWire:
    """A wire inside the client, for a cluster, whose nodes name addresses that no proxy stands in front of."""

    def __init__(self) -> None:
        self._sent = self._at = 0
        self._cut: Cut | None = None
        self._kind = "hold"
        self._once = True

    @classmethod
    def installed(cls, patch: pytest.MonkeyPatch) -> Self:
        wire = cls()
        for name in ("call", "command", "batch"):
            original = getattr(Store, name)

            async def through(store: Store, *args: Any, original: Any = original, **more: Any) -> Any:
                return await wire._through(original(store, *args, **more))

            patch.setattr(Store, name, through)
        return wire

    def cut(self, at: int, *, executed: bool, once: bool) -> Cut:
        return self._begin(at, "reply" if executed else "request", once=once)

    def hold(self, at: int) -> Cut:
        return self._begin(at, "hold", once=True)

    def mend(self) -> None:
        self._cut = None

    def _begin(self, at: int, kind: str, *, once: bool) -> Cut:
        self._sent, self._at, self._kind, self._once, self._cut = 0, at, kind, once, Cut()
        return self._cut

    async def _through(self, request: Any) -> Any:
        cut, index = self._cut, self._sent
        self._sent += 1
        if cut is None or index < self._at:
            return await request
        if index > self._at:
            cut.noticed.set()
            if self._once:
                return await request
            request.close()
            raise ServerUnavailable("lost")
        cut.reached.set()
        if self._kind == "request":
            request.close()
            raise ServerUnavailable("lost")
        if self._kind == "hold":
            await cut.gate.wait()
        reply = await request
        if self._kind == "reply":
            raise ServerUnavailable("lost")
        return reply


@contextlib.asynccontextmanager
async def owned(saver: Any, thread: str) -> AsyncIterator[dict[str, Any]]:
    async with saver.lease(thread, ttl=30) as lease:
        yield {"lease": lease}


def hooks(direct: Blackboard, wire: Wire) -> Hooks:
    async def expire(thread: str) -> None:
        await direct.store.command("HSET", keys.ThreadKeys.of("langgraph", thread).meta, "expires", 1)

    return Hooks(lease=owned, wire=wire, expire=expire)


@pytest.fixture
async def suite(backend: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SaverContract]:
    """The contracts over our savers, all of which reach the backend through the wire."""
    async with contextlib.AsyncExitStack() as stack:
        direct = await stack.enter_async_context(Blackboard.open(backend, settings=Settings(), proof=False))
        if backend.startswith("unix:"):
            proxy = await stack.enter_async_context(await FaultProxy.start(backend))
            url, wire = proxy.url, cast("Wire", ProxyWire(proxy))
        else:
            url, wire = backend, RequestWire.installed(monkeypatch)

        @contextlib.asynccontextmanager
        async def savers() -> AsyncIterator[BlackboardSaver]:
            async with Blackboard.open(url, settings=Settings(), proof=False) as board:
                yield BlackboardSaver(board)

        yield SaverContract(savers, hooks(direct, wire))


def test_the_contracts_are_all_there() -> None:
    assert len(SaverContract.contracts) == CONTRACTS
    assert all(contract.promise.endswith(".") for contract in SaverContract.contracts.values())


@pytest.mark.parametrize("name", SaverContract.contracts)
async def test_is_kept(suite: SaverContract, name: str) -> None:
    report = await suite.run([name])
    assert report.passed == [name], report


async def test_what_the_saver_in_memory_breaks_and_does_not_offer() -> None:
    saver = InMemorySaver()

    @contextlib.asynccontextmanager
    async def savers() -> AsyncIterator[InMemorySaver]:
        yield saver

    report = await SaverContract(savers).run()
    assert set(report.failed) == UNHEEDED, report
    lacking = {name for name, one in SaverContract.contracts.items() if {"lease", "wire", "expire"} & {*one.needs}}
    assert set(report.not_offered) == lacking
    assert len(lacking) == 15
    assert len(report.passed) == CONTRACTS - len(lacking) - len(UNHEEDED)
    assert str(report).endswith(f"{len(report.passed)} passed, 2 failed, 15 not offered")
    wired = await SaverContract(savers, Hooks(wire=RequestWire())).run(["a_crash_in_a_prune", "a_crash_in_a_copy"])
    assert wired.not_offered == {"a_crash_in_a_prune": "no aprune", "a_crash_in_a_copy": "no acopy_thread"}


async def test_what_the_saver_on_sqlite_breaks(tmp_path: Path) -> None:
    aio = pytest.importorskip("langgraph.checkpoint.sqlite.aio", reason="install langgraph-checkpoint-sqlite")

    @contextlib.asynccontextmanager
    async def savers() -> AsyncIterator[Any]:
        async with aio.AsyncSqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as saver:
            await saver.setup()
            yield saver

    report = await SaverContract(savers).run()
    assert set(report.failed) >= UNHEEDED, report
    assert len(report.passed) + len(report.failed) + len(report.not_offered) == CONTRACTS


async def test_a_contract_that_is_none() -> None:
    savers: Any = None
    with pytest.raises(KeyError, match="no_such_promise"):
        await SaverContract(savers).run(["no_such_promise"])


def test_the_reference_names_every_contract() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "langgraph.md").read_text("utf-8")
    for contract in SaverContract.contracts.values():
        needs = ", ".join(f"`{need}`" for need in contract.needs)
        assert f"| `{contract.name}` | {' '.join(contract.promise.split())} | {needs} |" in page
