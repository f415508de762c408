"""Commands that change threads."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from blackboard.board import Blackboard
from blackboard.cli import show
from blackboard.cli.session import AsJson, Session, ThreadId
from blackboard.errors import ConfigError, ThreadGone
from blackboard.runs.inbox import Answer

__all__ = ["COMMANDS"]

CheckpointId = Annotated[str, typer.Argument(help="Id of the checkpoint.", show_default=False)]
NewId = Annotated[str, typer.Argument(help="Id that no thread has.", show_default=False)]
Said = Annotated[str, typer.Argument(help="What to say (JSON).", show_default=False)]
Key = Annotated[str | None, typer.Option(help="What makes a repetition recognisable.")]


def fork(
    context: typer.Context,
    thread: ThreadId,
    to: NewId,
    at: Annotated[str | None, typer.Option(help="Id of the checkpoint; without one, the newest.")] = None,
) -> None:
    """Make a new thread that stands where another one stands, or stood at a checkpoint."""
    Session.of(context).with_thread(thread, lambda handle: handle.fork(to, at=at))
    typer.echo(to)


def copy(context: typer.Context, thread: ThreadId, to: NewId) -> None:
    """Copy a whole thread, its history with it."""
    Session.of(context).with_thread(thread, lambda handle: handle.copy(to))
    typer.echo(to)


def rewind(
    context: typer.Context,
    thread: ThreadId,
    checkpoint: CheckpointId,
    reason: Annotated[str, typer.Option(help="Why; it stands in the new checkpoint.", show_default=False)],
) -> None:
    """Let a thread go on from an earlier checkpoint; prints the id of the new one."""
    typer.echo(Session.of(context).with_thread(thread, lambda handle: handle.rewind(checkpoint, reason=reason)))


def pin(
    context: typer.Context,
    thread: ThreadId,
    checkpoint: CheckpointId,
    off: Annotated[bool, typer.Option("--off", help="Let it be pruned again.")] = False,
) -> None:
    """Keep a checkpoint whatever is pruned, until the thread ends."""
    session = Session.of(context)
    if not off:
        session.with_thread(thread, lambda handle: handle.pin(checkpoint))
        typer.echo(f"{checkpoint} is pinned")
    elif session.with_thread(thread, lambda handle: handle.unpin(checkpoint)):
        typer.echo(f"{checkpoint} is not pinned any more")
    else:
        raise ConfigError(f"checkpoint {checkpoint!r} of thread {thread!r} is not pinned", value=checkpoint)


def prune(
    context: typer.Context,
    thread: ThreadId,
    keep_last: Annotated[int, typer.Option(min=1, help="How many of the newest stay.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Drop all but the newest and the pinned checkpoints, and what only the dropped ones held."""
    pruned = Session.of(context).with_thread(thread, lambda handle: handle.prune(keep_last=keep_last))
    show.put_one(asdict(pruned), as_json=as_json)


def remove(
    context: typer.Context,
    thread: ThreadId,
    drop_unread: Annotated[bool, typer.Option("--drop-unread", help="Also if its inbox holds letters.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a thread and all of it, whoever drives it; asks first on a terminal."""
    if not yes and on_terminal():
        typer.confirm(f"delete thread {thread} and all of it?", abort=True)
    if not Session.of(context).with_thread(thread, lambda handle: handle.delete(drop_unread=drop_unread)):
        raise ThreadGone(f"there is no thread {thread!r}", thread=thread, why="missing")
    typer.echo(f"{thread} is deleted")


def on_terminal() -> bool:
    """Tell whether somebody is there to answer."""
    return sys.stdin.isatty()


def signal(
    context: typer.Context,
    thread: ThreadId,
    name: Annotated[str, typer.Argument(help="What the thread waits for.", show_default=False)],
    value: Said,
    key: Key = None,
) -> None:
    """Answer what a thread waits for: ACCEPTED, ALREADY (an answer came before), or GONE with exit code 1."""
    said, session = _json(value, "the value"), Session.of(context)
    _answered(session.with_board(lambda board: board.signal(thread, name, said, key=key, namespace=session.namespace)))


def note(context: typer.Context, thread: ThreadId, value: Said, key: Key = None) -> None:
    """Tell a thread something; its driver reads it with its notes. Answers as `signal` does."""
    said, session = _json(value, "the value"), Session.of(context)
    _answered(session.with_board(lambda board: board.note(thread, said, key=key, namespace=session.namespace)))


def _answered(answer: Answer) -> None:
    typer.echo(answer)
    if answer == "GONE":
        raise typer.Exit(1)


def sweep(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
) -> None:
    """Remove threads that are overdue, and what broken-off copies left; prints how many went."""
    session = Session.of(context)
    typer.echo(session.with_board(lambda board: board.sweep(limit, namespace=session.namespace)))


def readmit(context: typer.Context, thread: ThreadId) -> None:
    """Let a quarantined thread be driven again."""
    Session.of(context).with_thread(thread, lambda handle: handle.readmit())
    typer.echo(f"{thread} can be driven again")


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
    made = None if result is None else _json(result, "--result")
    session = Session.of(context)

    async def work(board: Blackboard) -> None:
        handle = board.thread(thread, namespace=session.namespace)
        await (handle.resolve(effect, made) if abandon is None else handle.abandon(effect, abandon))

    session.with_board(work)
    typer.echo(f"{effect}: {'abandoned' if abandon is not None else 'done'}")


def break_lock(context: typer.Context, thread: ThreadId, as_json: AsJson = False) -> None:
    """End the lease of a thread: its holder can neither write nor renew from then on."""
    session = Session.of(context)
    held = session.with_board(lambda board: board.thread(thread, namespace=session.namespace).break_lock())
    if as_json:
        typer.echo(json.dumps(None if held is None else show.lock(thread, held)))
    else:
        typer.echo(f"nobody drives {thread}" if held is None else f"{held.owner} does not drive {thread} any more")


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise ConfigError(f"{what} is not JSON: {error}: {text!r}; text needs quotes of its own", value=text) from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")


COMMANDS: Mapping[str, Callable[..., None]] = {
    "fork": fork, "copy": copy, "rewind": rewind, "pin": pin, "prune": prune, "rm": remove, "signal": signal,
    "note": note, "sweep": sweep, "readmit": readmit, "resolve": resolve, "break-lock": break_lock,
}  # fmt: skip
