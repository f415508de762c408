"""Commands that write a thread to a file and read it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from blackboard.board import Blackboard
from blackboard.cli.output import opened, whole
from blackboard.cli.session import Session, ThreadId
from blackboard.runs.portable import export_thread, import_thread

__all__ = ["COMMANDS"]


def export_command(
    context: typer.Context,
    thread: ThreadId,
    out: Annotated[Path | None, typer.Option(help="File to write; without one, the standard output.")] = None,
) -> None:
    """Write a thread as JSON lines: its history with all contents, effects, pins and letters."""
    session = Session.of(context)

    async def work(board: Blackboard) -> None:
        async for line in export_thread(board.engine(session.namespace), thread):
            file.write(line)

    with whole(out) as file:
        session.with_board(work)


def import_command(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="File that `export` wrote.", show_default=False)],
    to: Annotated[str | None, typer.Option(help="Id for the thread; without one, its own.")] = None,
) -> None:
    """Store an exported thread under an id that nobody uses; prints the id. Nothing of a damaged file is stored."""
    session = Session.of(context)
    with opened(file) as lines:
        typer.echo(session.with_board(lambda board: import_thread(board.engine(session.namespace), lines, to=to)))


COMMANDS: Mapping[str, Callable[..., None]] = {"export": export_command, "import": import_command}
