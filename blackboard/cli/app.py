"""The command and its options; what it does is told by subject: server, look, change, files, artifacts, memory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from blackboard.cli import artifacts, change, files, look, memory, server
from blackboard.cli.session import Session, complain
from blackboard.errors import BlackboardError, ConfigError

__all__ = ["app"]


class Complaining(TyperGroup):
    """Our own errors are answers for people: no traceback, exit code 2 for a wrong argument, else 1."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BlackboardError as error:
            complain(error)
            raise typer.Exit(2 if isinstance(error, ConfigError) else 1) from error


app = typer.Typer(
    name="blackboard", cls=Complaining, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="Look at the threads and memories of a blackboard, mend them, and look after the server that holds them.",
)  # fmt: skip


@app.callback()
def options(
    context: typer.Context,
    url: Annotated[str | None, typer.Option(help="Server to use; without one, the embedded server.")] = None,
    directory: Annotated[Path | None, typer.Option(help="Data directory of the embedded server.")] = None,
    profile: Annotated[
        list[Path] | None, typer.Option(help="TOML profile of settings; may be given several times.")
    ] = None,
    namespace: Annotated[str, typer.Option(help="Checkpoint namespace.")] = "checkpoint",
) -> None:
    """Say which backend the command means."""
    context.obj = Session(url, directory, tuple(profile or ()), namespace)


for commands in (server.COMMANDS, look.COMMANDS, change.COMMANDS, files.COMMANDS):
    for name, command in commands.items():
        app.command(name)(command)
for group in (*artifacts.GROUPS, *memory.GROUPS):
    app.add_typer(group)
