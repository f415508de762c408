"""Commands that write a thread to a file and read it back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import typer

from blackboard.board import Blackboard
from blackboard.cli.session import Session, ThreadId
from blackboard.errors import ConfigError
from blackboard.runs.portable import export_thread, import_thread

__all__ = ["COMMANDS"]


def export_command(
    context: typer.Context,
    thread: ThreadId,
    out: Annotated[Path | None, typer.Option(help="File to write; without one, the standard output.")] = None,
) -> None:
    """Write a thread as JSON lines: its history with all contents, effects, pins and letters."""
    session = Session.of(context)
    if out is None:
        _write(session, thread, sys.stdout.buffer)
        return
    unfinished = out.with_name(f"{out.name}.part")
    try:
        with _opened(unfinished, "wb") as file:
            _write(session, thread, file)
        unfinished.replace(out)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _write(session: Session, thread: str, file: BinaryIO) -> None:
    async def work(board: Blackboard) -> None:
        async for line in export_thread(board.engine(session.namespace), thread):
            file.write(line)

    session.with_board(work)
    file.flush()


def import_command(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="File that `export` wrote.", show_default=False)],
    to: Annotated[str | None, typer.Option(help="Id for the thread; without one, its own.")] = None,
) -> None:
    """Store an exported thread under an id that nobody uses; prints the id. Nothing of a damaged file is stored."""
    session = Session.of(context)
    with _opened(file, "rb") as opened:
        typer.echo(session.with_board(lambda board: import_thread(board.engine(session.namespace), opened, to=to)))


def _opened(path: Path, mode: Literal["rb", "wb"]) -> BinaryIO:
    try:
        return path.open(mode)
    except OSError as error:
        raise ConfigError(
            f"file {str(path)!r} cannot be opened: {error.strerror}; name another", value=str(path)
        ) from error


COMMANDS: Mapping[str, Callable[..., None]] = {"export": export_command, "import": import_command}
