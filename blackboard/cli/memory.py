"""The commands about memory: which namespace they mean; what they do is told in `memory_look` and `memory_change`."""

from __future__ import annotations

from typing import Annotated

import typer

from blackboard.cli import memory_change, memory_look
from blackboard.cli.recollection import Recollection
from blackboard.cli.session import Session

__all__ = ["GROUPS"]

group = typer.Typer(
    name="memory", no_args_is_help=True, help="Look at what is remembered, compare it, forget it, move it."
)


@group.callback()
def options(
    context: typer.Context,
    namespace: Annotated[str, typer.Option(help="Memory namespace.")] = "memory",
) -> None:
    """Say which memories the command means."""
    context.obj = Recollection(Session.of(context), namespace)


for commands in (memory_look.COMMANDS, memory_change.COMMANDS):
    for name, command in commands.items():
        group.command(name)(command)

GROUPS = (group,)
