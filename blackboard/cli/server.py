"""Commands about the server: start it, end it, prove it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from blackboard.cli import show
from blackboard.cli.session import AsJson, Session, run
from blackboard.distribution import rivals
from blackboard.errors import ConfigError
from blackboard.store import embedded
from blackboard.store.durability import Report, prove

__all__ = ["COMMANDS"]


def up(context: typer.Context, as_json: AsJson = False) -> None:
    """Start the embedded server and let it stay until `down`."""
    status = run(embedded.up(Session.of(context).directory))
    show.put_one(_plain(asdict(status)), as_json=as_json)


def down(
    context: typer.Context, force: Annotated[bool, typer.Option(help="End it although clients use it.")] = False
) -> None:
    """End the embedded server in an orderly way."""
    ended = run(embedded.down(Session.of(context).directory, force=force))
    if ended == "USED":
        raise ConfigError("the server is in use; end its clients first, or use --force", value=ended)
    typer.echo({"STOPPED": "stopped", "ABSENT": "no server was running"}[ended])


def doctor(context: typer.Context, as_json: AsJson = False) -> None:
    """Prove that the backend keeps what it acknowledges; exit code 1 if it does not."""
    report = Session.of(context).with_board(lambda board: prove(board.store))
    others = rivals()
    _report(report, others, as_json)
    if report.violations or others:
        raise typer.Exit(1)


def _report(report: Report, others: list[str], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(report.to_dict() | {"rivals": others}, indent=2))
        return
    rows = [asdict(check) for check in report.checks]
    servers = {row["server"] for row in rows}
    columns = ["verdict", "name", "detail", "mend"] + (["server"] if len(servers) > 1 else [])
    show.put(rows, columns, as_json=False, empty="")
    typer.echo(f"\n{report.verdict}")
    for other in others:
        typer.echo(
            f"VIOLATED: the distribution {other} installs the import name `blackboard` too; uninstall it: pip uninstall {other}"
        )


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    convert: Callable[[Any], Any] = lambda value: str(value) if isinstance(value, Path) else value  # noqa: E731
    return {name: convert(value) for name, value in facts.items()}


COMMANDS: Mapping[str, Callable[..., None]] = {"up": up, "down": down, "doctor": doctor}
