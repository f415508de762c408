"""The commands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from blackboard.board import Blackboard
from blackboard.claims.lease import Holder
from blackboard.cli import show
from blackboard.cli.session import Session, complain, run
from blackboard.distribution import rivals
from blackboard.errors import BlackboardError, CheckpointMissing, ConfigError
from blackboard.store import embedded
from blackboard.store.durability import Report, prove

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
    help="Look at the threads of a blackboard, and at the server that holds them.",
)  # fmt: skip

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
ThreadId = Annotated[str, typer.Argument(help="Id of the thread.", show_default=False)]


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


@app.command()
def up(context: typer.Context, as_json: AsJson = False) -> None:
    """Start the embedded server and let it stay until `down`."""
    status = run(embedded.up(Session.of(context).directory))
    show.put_one(_plain(asdict(status)), as_json=as_json)


@app.command()
def down(
    context: typer.Context, force: Annotated[bool, typer.Option(help="End it although clients use it.")] = False
) -> None:
    """End the embedded server in an orderly way."""
    ended = run(embedded.down(Session.of(context).directory, force=force))
    if ended == "USED":
        raise ConfigError("the server is in use; end its clients first, or use --force", value=ended)
    typer.echo({"STOPPED": "stopped", "ABSENT": "no server was running"}[ended])


@app.command()
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


@app.command("ls")
def list_threads(
    context: typer.Context,
    status: Annotated[str | None, typer.Option(help="Only threads of this status.")] = None,
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


@app.command("show")
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
            raise CheckpointMissing(f"there is no thread {thread!r} in namespace {session.namespace!r}", thread=thread)
        return facts if found is None else facts | show.checkpoint(found)

    show.put_one(session.with_board(work), as_json=as_json)


@app.command()
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
    show.put(session.with_board(work), columns, as_json=as_json, empty="no checkpoints")


@app.command()
def effects(context: typer.Context, thread: ThreadId, as_json: AsJson = False) -> None:
    """List the effects of a thread: what happened, and what nobody knows."""
    session = Session.of(context)

    async def work(board: Blackboard) -> list[dict[str, Any]]:
        found = await board.thread(thread, namespace=session.namespace).effects()
        return [show.effect(one) for one in found]

    columns = ["effect", "state", "attempt", "owner", "time", "external_ref", "result"]
    show.put(session.with_board(work), columns, as_json=as_json, empty="no effects")


@app.command()
def resolve(
    context: typer.Context,
    thread: ThreadId,
    effect: Annotated[str, typer.Argument(help="Key of the open effect, as `effects` lists it.", show_default=False)],
    abandon: Annotated[str | None, typer.Option(help="Give it up, for this reason.")] = None,
    result: Annotated[str | None, typer.Option(help="It happened, with this result (JSON).")] = None,
) -> None:
    """Decide about an effect whose outcome nobody knows: it happened, or it is given up."""
    if (abandon is None) == (result is None):
        raise ConfigError("say either --result JSON or --abandon REASON", value=None)
    made = None if result is None else _json(result)
    session = Session.of(context)

    async def work(board: Blackboard) -> None:
        handle = board.thread(thread, namespace=session.namespace)
        await (handle.resolve(effect, made) if abandon is None else handle.abandon(effect, abandon))

    session.with_board(work)
    typer.echo(f"{effect}: {'abandoned' if abandon is not None else 'done'}")


@app.command()
def locks(context: typer.Context, as_json: AsJson = False) -> None:
    """List who drives which thread, and for how much longer."""
    session = Session.of(context)

    async def work(board: Blackboard) -> list[dict[str, Any]]:
        held = [row.thread async for row in board.threads(namespace=session.namespace) if row.meta.holder is not None]
        holders = await asyncio.gather(*(board.thread(name, namespace=session.namespace).holder() for name in held))
        return [_lock(name, holder) for name, holder in sorted(zip(held, holders, strict=True)) if holder is not None]

    columns = ["thread", "holder", "fence", "remaining", "live"]
    show.put(session.with_board(work), columns, as_json=as_json, empty="nobody drives a thread")


@app.command("break-lock")
def break_lock(context: typer.Context, thread: ThreadId, as_json: AsJson = False) -> None:
    """End the lease of a thread: its holder can neither write nor renew from then on."""
    session = Session.of(context)
    held = session.with_board(lambda board: board.thread(thread, namespace=session.namespace).break_lock())
    if as_json:
        typer.echo(json.dumps(None if held is None else _lock(thread, held)))
    else:
        typer.echo(f"nobody drives {thread}" if held is None else f"{held.owner} does not drive {thread} any more")


def _lock(thread: str, holder: Holder) -> dict[str, Any]:
    return {
        "thread": thread, "holder": holder.owner, "fence": holder.fence, "remaining": holder.remaining,
        "live": holder.remaining > 0,
    }  # fmt: skip


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--result is not JSON: {error}: {text!r}", value=text) from error


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    convert: Callable[[Any], Any] = lambda value: str(value) if isinstance(value, Path) else value  # noqa: E731
    return {name: convert(value) for name, value in facts.items()}
