"""Commands that look at artifacts, copy them out, and collect those that nobody refers to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from blackboard.artifacts.collection import Collected
from blackboard.artifacts.ref import SPELLED
from blackboard.artifacts.store import Stored
from blackboard.board import Blackboard
from blackboard.cli import show
from blackboard.cli.output import whole
from blackboard.cli.session import AsJson, Session

__all__ = ["GROUPS"]

group = typer.Typer(
    name="artifacts", no_args_is_help=True, help="Look at artifacts, copy them out, collect what nobody refers to."
)


@group.command("ls")
def list_artifacts(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """List the artifacts of the backend, of every namespace."""

    async def work(board: Blackboard) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        async for found in board.artifacts.all():
            rows.append(_row(found))
            if len(rows) == limit:
                break
        return sorted(rows, key=lambda row: row["artifact"])

    columns = ["artifact", "size", "name", "media_type", "time", "owners"]
    show.put(Session.of(context).with_board(work), columns, as_json=as_json, empty="no artifacts")


@group.command("get")
def get(
    context: typer.Context,
    artifact: Annotated[str, typer.Argument(help="Its text, or the digest alone.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="File to write; without one, the standard output.")] = None,
) -> None:
    """Copy an artifact out, chunk by chunk; each is compared with its digest."""
    uri, session = artifact if artifact.startswith(SPELLED) else f"{SPELLED}{artifact}", Session.of(context)

    async def work(board: Blackboard) -> None:
        async with board.artifacts.open(uri) as opened:
            async for chunk in opened:
                file.write(chunk)

    with whole(out) as file:
        session.with_board(work)


@group.command("gc")
def collect(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, say what would go.")] = False,
    grace: Annotated[str | None, typer.Option(help="How long ago it must have been marked, such as 1h.")] = None,
    as_json: AsJson = False,
) -> None:
    """Mark the artifacts that nobody refers to, and remove those that were marked a grace ago and still are."""
    done = Session.of(context).with_board(lambda board: board.artifacts.gc(dry_run=dry_run, grace=grace))
    show.put_one(_collected(done), as_json=as_json)


def _row(found: Stored) -> dict[str, Any]:
    return {
        "artifact": found.ref.uri, "size": found.ref.size, "name": found.ref.name, "media_type": found.ref.media_type,
        "place": found.place, "chunks": found.chunks, "time": found.stored, "touched": found.touched,
        "marked": found.marked, "owners": [f"{one.kind} {one.namespace} {one.id}" for one in found.owners],
    }  # fmt: skip


def _collected(done: Collected) -> dict[str, Any]:
    return {
        "standing": done.standing, "held": done.held, "marked": done.marked, "waiting": done.waiting,
        "removed": [ref.uri for ref in done.removed], "bytes": done.bytes, "debris": done.debris,
    }  # fmt: skip


GROUPS = (group,)
