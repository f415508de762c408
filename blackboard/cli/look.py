"""Commands that look at threads; they take no lease and change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any

import typer

from blackboard.board import LISTED, Blackboard
from blackboard.cli import show
from blackboard.cli.follow import Follower
from blackboard.cli.session import AsJson, Session, ThreadId
from blackboard.errors import CheckpointMissing
from blackboard.quantities import seconds

__all__ = ["COMMANDS"]


def list_threads(
    context: typer.Context,
    status: Annotated[str | None, typer.Option(help=f"Only threads of this status: {', '.join(LISTED)}.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """List the threads of the namespace."""
    session = Session.of(context)

    async def work(board: Blackboard) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        async for listed in board.threads(status=status, namespace=session.namespace):
            rows.append(show.meta(listed.thread, listed.meta))
            if len(rows) == limit:
                break
        return sorted(rows, key=lambda row: row["thread"])

    columns = ["thread", "status", "holder", "updated", "expires"]
    show.put(session.with_board(work), columns, as_json=as_json, empty="no threads")


def show_thread(
    context: typer.Context,
    thread: ThreadId,
    at: Annotated[str | None, typer.Option(help="Id of the checkpoint; without one, the newest.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a thread and its newest checkpoint, or another one."""
    session = Session.of(context)

    async def work(board: Blackboard) -> dict[str, Any]:
        handle = board.thread(thread, namespace=session.namespace)
        facts = show.meta(thread, await handle.meta()) | {"status": await handle.status()}
        found = await (handle.latest() if at is None else handle.at(at))
        if found is None and facts["status"] == "none":
            raise CheckpointMissing(
                f"there is no thread {thread!r} in namespace {session.namespace!r}; `ls` lists those that there are",
                thread=thread,
            )
        return facts if found is None else facts | show.checkpoint(found)

    show.put_one(session.with_board(work), as_json=as_json)


def history(
    context: typer.Context,
    thread: ThreadId,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, newest first.")] = 20,
    before: Annotated[str | None, typer.Option(help="Only checkpoints older than this id.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the checkpoints of a thread, newest first."""
    session = Session.of(context)

    async def work(board: Blackboard) -> list[dict[str, Any]]:
        handle = board.thread(thread, namespace=session.namespace)
        return [show.manifest(found) for found in await handle.history(limit=limit, before=before)]

    columns = ["checkpoint", "step", "time", "next", "fence", "cursors"]
    show.put(session.with_board(work), columns, as_json=as_json, empty="no checkpoints, or no such thread")


def effects(context: typer.Context, thread: ThreadId, as_json: AsJson = False) -> None:
    """List the effects of a thread: what happened, and what nobody knows."""
    session = Session.of(context)

    async def work(board: Blackboard) -> list[dict[str, Any]]:
        found = await board.thread(thread, namespace=session.namespace).effects()
        return [show.effect(one) for one in found]

    columns = ["effect", "state", "attempt", "owner", "time", "external_ref", "result"]
    show.put(session.with_board(work), columns, as_json=as_json, empty="no effects, or no such thread")


def diff(
    context: typer.Context,
    thread: ThreadId,
    before: Annotated[str, typer.Argument(help="Id of a checkpoint.", show_default=False)],
    after: Annotated[str, typer.Argument(help="Id of the one to compare it with.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Tell what differs between two checkpoints of a thread, channel by channel."""
    found = Session.of(context).with_thread(thread, lambda handle: handle.diff(before, after))
    columns = ["channel", "kind", "kept", "before", "after"]
    show.put([show.change(one) for one in found], columns, as_json=as_json, empty="no channel differs")


def locks(context: typer.Context, as_json: AsJson = False) -> None:
    """List who drives which thread, and for how much longer."""
    session = Session.of(context)

    async def work(board: Blackboard) -> list[dict[str, Any]]:
        held = [row.thread async for row in board.threads(namespace=session.namespace) if row.meta.holder is not None]
        holders = await asyncio.gather(*(board.thread(name, namespace=session.namespace).holder() for name in held))
        return [
            show.lock(name, holder) for name, holder in sorted(zip(held, holders, strict=True)) if holder is not None
        ]

    columns = ["thread", "holder", "fence", "remaining", "live"]
    show.put(session.with_board(work), columns, as_json=as_json, empty="nobody drives a thread")


def inbox(context: typer.Context, thread: ThreadId, as_json: AsJson = False) -> None:
    """List the signals and notes that a thread has not taken, oldest first."""
    letters = Session.of(context).with_thread(thread, lambda handle: handle.unread())
    columns = ["letter", "kind", "name", "value"]
    show.put([show.letter(one) for one in letters], columns, as_json=as_json, empty="no letters, or no such thread")


def runnable(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the parked threads that can go on: their signal is there, or their time has come."""
    session = Session.of(context)
    found = session.with_board(lambda board: board.runnable(limit, namespace=session.namespace))
    show.put([{"thread": name} for name in found], ["thread"], as_json=as_json, empty="no thread can go on")


def wait(
    context: typer.Context,
    thread: ThreadId,
    within: Annotated[str, typer.Option(help="How long to wait, such as 30s or 1h.")] = "1h",
    as_json: AsJson = False,
) -> None:
    """Wait until a thread is closed and print its result; exit code 1 if it failed, 3 if it is not closed in time."""
    limit, session = seconds(within, what="--within"), Session.of(context)

    async def work(board: Blackboard) -> dict[str, Any]:
        handle = board.thread(thread, namespace=session.namespace)
        result = await handle.result(wait=limit)
        return {"thread": thread, "status": await handle.status(), "result": show.plain(result)}

    try:
        closed = session.with_board(work)
    except TimeoutError as late:
        typer.echo(str(late), err=True)
        raise typer.Exit(3) from late
    show.put_one(closed, as_json=as_json)
    if closed["status"] == "failed":
        raise typer.Exit(1)


def tail(
    context: typer.Context,
    thread: Annotated[
        str | None, typer.Argument(help="Id of the thread; without one, all.", show_default=False)
    ] = None,
    lasting: Annotated[
        str | None, typer.Option("--for", help="End after so long, such as 10s; else on Ctrl-C.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Print checkpoints as they are made."""
    limit, session = None if lasting is None else seconds(lasting, what="--for"), Session.of(context)

    async def work(board: Blackboard) -> None:
        follower = Follower(board, session.namespace, thread)
        async for name, made in follower.checkpoints(limit):
            show.follow(name, made, as_json=as_json)

    with suppress(KeyboardInterrupt):
        session.with_board(work)


COMMANDS: Mapping[str, Callable[..., None]] = {
    "ls": list_threads, "show": show_thread, "history": history, "diff": diff, "effects": effects, "locks": locks,
    "inbox": inbox, "runnable": runnable, "wait": wait, "tail": tail,
}  # fmt: skip
