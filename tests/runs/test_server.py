"""What becomes of runs when the server is full, was emptied, or lets its user do too little."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from blackboard import Blackboard, Run
from blackboard.errors import NotDurable, ServerRefused, StoreRegressed
from blackboard.store.durability import forget
from blackboard.testing.servers import binaries, start_server

from .conftest import Review

each = pytest.mark.parametrize("name", sorted(binaries()))


@each
async def test_threads_are_deleted_on_a_full_server(tmp_path: Path, name: str) -> None:
    """It is what makes room again."""
    async with await start_server(binaries()[name], tmp_path) as server, Blackboard.open(server.url) as board:
        for thread in ("a", "b"):
            async with board.run(thread, Review, start=Review) as run:
                run.state.notes = ["x" * 100_000]
                await run.commit()
        await server.configure(maxmemory="1mb")
        with pytest.raises(ServerRefused) as full:
            async with board.run("c", Review, start=Review):
                pass
        assert full.value.ids["code"] == "OOM"
        assert await board.thread("a").delete()
        await server.configure(maxmemory=0)
        assert (await board.thread("a").status(), await board.thread("b").status()) == ("deleted", "running")
        assert await server.ask("KEYS", "bb:checkpoint:thread:{a}:*") == [b"bb:checkpoint:thread:{a}:meta"]


async def begin(run: Run[Review]) -> object:
    return await run.effect("again", int, semantics="at-most-once").call(lambda: 1)


async def complete(run: Run[Review]) -> object:
    await run.commit(next="x")
    return None


async def wait(run: Run[Review]) -> object:
    return await run.wait("answer")


@pytest.mark.parametrize("work", [begin, complete, wait])
async def test_an_emptied_server_is_noticed_by_whatever_comes_next(
    tmp_path: Path, work: Callable[[Run[Review]], Awaitable[object]]
) -> None:
    ran: list[int] = []
    async with (
        await start_server(next(iter(binaries().values())), tmp_path) as server,
        Blackboard.open(server.url) as board,
    ):
        with pytest.raises(StoreRegressed) as lost:
            async with board.run("a", Review, start=Review) as run:
                await server.ask("FLUSHALL")
                await work(run)
                ran.append(1)
        assert (lost.value.ids["thread"], ran) == ("a", [])
    forget()


async def test_an_effect_that_ends_on_an_emptied_server(tmp_path: Path) -> None:
    async with (
        await start_server(next(iter(binaries().values())), tmp_path) as server,
        Blackboard.open(server.url) as board,
    ):

        async def flush() -> int:
            await server.ask("FLUSHALL")
            return 1

        with pytest.raises(StoreRegressed, match="never deleted"):
            async with board.run("a", Review, start=Review) as run:
                await run.effect("e", int, semantics="at-least-once").call(flush)
    forget()


async def test_a_user_without_permission_has_lost_nothing(tmp_path: Path) -> None:
    """Also where this process has seen the server's epoch as another user."""
    async with await start_server(next(iter(binaries().values())), tmp_path) as server:
        async with Blackboard.open(server.url):
            pass
        await server.ask("ACL", "SETUSER", "u", "on", ">p", "+@all", "~other:*", "&*")
        with pytest.raises(NotDurable, match="NOPERM") as caught:
            async with Blackboard.open(f"{server.url}?username=u&password=p"):
                pass
        verdicts = {check.name: check.verdict for check in caught.value.ids["report"].checks}
        assert (verdicts["scripts"], verdicts["epoch"]) == ("VIOLATED", "UNKNOWN")
    forget()


@pytest.mark.parametrize("lost", ["latest", "checkpoint:000000000001"])
async def test_a_thread_without_its_newest_checkpoint_is_not_copied(tmp_path: Path, lost: str) -> None:
    async with (
        await start_server(next(iter(binaries().values())), tmp_path) as server,
        Blackboard.open(server.url) as board,
    ):
        async with board.run("a", Review, start=Review):
            pass
        assert await server.ask("DEL", f"bb:checkpoint:thread:{{a}}:{lost}") == 1
        for copied in (board.thread("a").fork("b"), board.thread("a").copy("b")):
            with pytest.raises(StoreRegressed, match="newest checkpoint of thread 'a'"):
                await copied
        assert await board.thread("b").status() == "none"
