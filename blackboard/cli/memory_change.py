"""Commands that forget what is remembered, and move it: to a file, from one, into another embedding space."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from blackboard.cli import show
from blackboard.cli.output import opened, whole
from blackboard.cli.recollection import PathArgument, Recollection, Where, condition, show_survivors
from blackboard.cli.session import AsJson
from blackboard.errors import ConfigError
from blackboard.memory.memory import Memory
from blackboard.memory.portable import Existing
from blackboard.memory.receipt import Receipt

__all__ = ["COMMANDS"]

EXISTING: Mapping[str, Existing] = {"refuse": "refuse", "keep": "keep", "replace": "replace"}


def forget(
    context: typer.Context,
    path: PathArgument,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of records.", show_default=False)] = None,
    *,
    where: Where = None,
    subject: Annotated[str | None, typer.Option(help="All that is about this.")] = None,
    everything: Annotated[bool, typer.Option("--everything", help="All of the path.")] = False,
    below: Annotated[bool, typer.Option("--below", help="The same in the paths below.")] = False,
    reason: Annotated[str, typer.Option(help="Why, as the receipt says.")] = "",
    actor: Annotated[str, typer.Option(help="Who asked for it, as the receipt says.")] = "",
    verify: Annotated[bool, typer.Option("--verify", help="Look for survivors; exit code 1 if there are any.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget records for good, by id, by what holds for them, or all; asks first. Prints the receipt."""
    recollection, chosen = Recollection.of(context), condition(where)
    if bool(ids) + (chosen is not None or subject is not None) + everything != 1:
        raise ConfigError("say what is to be forgotten: ids, or --where and --subject, or --everything", value=None)
    if not yes:
        meant = f"{len(ids)} records" if ids else "everything" if everything else "what matches"
        typer.confirm(
            f"forget {meant} of {path}{' and the paths below' if below else ''} for good?", abort=True, err=True
        )

    async def work(memory: Memory) -> Receipt:
        return await memory.forget(
            ids or None, where=chosen, subject=subject, everything=everything, below=below, reason=reason, actor=actor
        )

    receipt = recollection.with_memory(path, work)
    survivors = recollection.survivors(receipt) if verify else None
    if as_json:
        found = {} if survivors is None else {"survivors": {"gone": survivors.gone} | asdict(survivors)}
        show.put_one(asdict(receipt) | found, as_json=True)
    else:
        show.put_one(_summary(receipt), as_json=False)
        if survivors is not None:
            show_survivors(survivors)
    if survivors is not None and not survivors.gone:
        raise typer.Exit(1)


def _summary(receipt: Receipt) -> dict[str, Any]:
    """What a person wants of a receipt: not the digests."""
    return {
        "receipt": receipt.id, "time": receipt.time, "forgotten": receipt.total, "expired": receipt.expired,
        "scrubbed": receipt.scrubbed, "paths below": len(receipt.below), "reason": receipt.reason, "actor": receipt.actor,
        "digest": receipt.digest,
    }  # fmt: skip


def export(
    context: typer.Context,
    path: PathArgument,
    out: Annotated[Path | None, typer.Option(help="File to write; without one, the standard output.")] = None,
    no_vectors: Annotated[bool, typer.Option("--no-vectors", help="Texts alone; vectors are made anew.")] = False,
) -> None:
    """Write the records of a path as JSON lines."""
    recollection = Recollection.of(context)

    async def work(memory: Memory) -> None:
        async for line in memory.export(vectors=not no_vectors):
            file.write(line)

    with whole(out) as file:
        recollection.with_memory(path, work)


def import_command(
    context: typer.Context,
    path: PathArgument,
    file: Annotated[Path, typer.Argument(help="File that `memory export` wrote.", show_default=False)],
    existing: Annotated[str, typer.Option(help="Of ids that are there: refuse, keep, or replace.")] = "refuse",
    as_json: AsJson = False,
) -> None:
    """Store exported records at a path, under their ids. Nothing of a damaged file is stored."""
    choice = EXISTING.get(existing)
    if choice is None:
        raise ConfigError(f"--existing is refuse, keep or replace, got {existing!r}", value=existing)
    recollection = Recollection.of(context)
    with opened(file) as lines:
        done = recollection.with_memory(path, lambda memory: memory.import_(lines, existing=choice))
    show.put_one(asdict(done), as_json=as_json)


def migrate(
    context: typer.Context,
    path: PathArgument,
    *,
    to: Annotated[
        Path | None, typer.Option(help="Profile with the namespace's new embedder; without one, the settings' own.")
    ] = None,
    query: Annotated[list[str] | None, typer.Option(help="Question to compare by; may be given several times.")] = None,
    least_overlap: Annotated[float, typer.Option(help="Share of hits that must be the same, 0 to 1.")] = 0.0,
    rollback: Annotated[bool, typer.Option("--rollback", help="Take the change back.")] = False,
    settle: Annotated[bool, typer.Option("--settle", help="End the change: the other vectors go.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring a path into another embedding space; exit code 1 if both find too little of the same, and nothing changed."""
    recollection = Recollection.of(context)
    if rollback and settle:
        raise ConfigError("say either --rollback or --settle", value=None)
    if rollback or settle:
        show.put_one(recollection.with_memory(path, _taken_back if rollback else _settled), as_json=as_json)
        return
    embedder = None if to is None else recollection.embedder(to)
    done = recollection.with_memory(
        path, lambda memory: memory.migrate(embedder, queries=query or (), least_overlap=least_overlap)
    )
    show.put_one(asdict(done), as_json=as_json)
    if not done.flipped:
        raise typer.Exit(1)


async def _taken_back(memory: Memory) -> dict[str, Any]:
    standing = await memory.rollback()
    return {"status": standing.status, "space": standing.space and standing.space.text(), "pending": standing.pending}


async def _settled(memory: Memory) -> dict[str, Any]:
    return {"settled": await memory.settle()}


COMMANDS: Mapping[str, Callable[..., None]] = {
    "forget": forget, "export": export, "import": import_command, "migrate": migrate,
}  # fmt: skip
