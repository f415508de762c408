"""Commands that look at what is remembered, compare it, and tend it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from blackboard.board import Blackboard
from blackboard.cli import show
from blackboard.cli.recollection import (
    PathArgument,
    Recollection,
    Where,
    condition,
    finding,
    hit,
    path_of,
    put,
    receipt_in,
    record,
    show_survivors,
    spelled,
)
from blackboard.cli.session import AsJson
from blackboard.errors import ConfigError, RecordMissing
from blackboard.memory.memory import Memory

__all__ = ["COMMANDS"]


def list_memories(
    context: typer.Context,
    path: Annotated[str | None, typer.Argument(help="A path; without one, the first segments.")] = None,
    *,
    records: Annotated[bool, typer.Option("--records", help="List the records of the path instead.")] = False,
    where: Where = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """List the paths that are in use, or the records of one in order of first write."""
    recollection = Recollection.of(context)
    if records or where is not None:
        _list_records(recollection, path, where, limit, as_json=as_json)
        return

    async def tops(board: Blackboard) -> list[dict[str, Any]]:
        paths = recollection.paths(board)
        return [{"path": spelled(top), "paths": await paths.count(top)} for top in await paths.tops(limit)]

    async def below(board: Blackboard) -> list[dict[str, Any]]:
        start = path_of(path or "")
        found = [start, *await recollection.paths(board).below(start, limit)]
        rows = [{"path": spelled(one), "records": await recollection.memory(board, one).count()} for one in found]
        return rows if rows[0]["records"] else rows[1:]

    found = recollection.session.with_board(tops if path is None else below)
    show.put(found, ["path", "paths" if path is None else "records"], as_json=as_json, empty="nothing is remembered")


def _list_records(
    recollection: Recollection, path: str | None, where: str | None, limit: int, *, as_json: bool
) -> None:
    chosen = condition(where)

    async def work(memory: Memory) -> list[dict[str, Any]]:
        return [record(one) for one in await memory.list(chosen, limit=limit)]

    columns = ["id", "text", "subject", "metadata", "updated", "expires"]
    put(recollection.with_memory(path, work), columns, as_json=as_json, empty="no records")


def search(
    context: typer.Context,
    path: PathArgument,
    query: Annotated[str, typer.Argument(help="What to look for.", show_default=False)],
    *,
    where: Where = None,
    k: Annotated[int, typer.Option("--k", help="At most so many.")] = 10,
    subject: Annotated[str | None, typer.Option(help="Only what is about this.")] = None,
    below: Annotated[bool, typer.Option("--below", help="Also in the paths below, 64 in all.")] = False,
    words: Annotated[bool, typer.Option("--words", help="Compare words alone, without an embedder.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show what each score is made of.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find the records that are most relevant to a question, the best first."""
    chosen = condition(where)

    async def work(memory: Memory) -> list[dict[str, Any]]:
        found = await memory.recall(
            query, k=k, where=chosen, subject=subject, below=below, lexical=1.0 if words else None, explain=explain
        )
        return [hit(one) for one in found]

    columns = ["score", *(["parts"] if explain else []), *(["path"] if below else []), "id", "text", "metadata"]
    put(Recollection.of(context).with_memory(path, work), columns, as_json=as_json, empty="nothing is found")


def show_record(
    context: typer.Context,
    path: PathArgument,
    id: Annotated[str, typer.Argument(help="Id of the record.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show a record, and the records about its subject, the current one first."""

    async def work(memory: Memory) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        found = await memory.get(id)
        if found is None:
            raise RecordMissing(
                f"there is no record {id!r} in path {path!r}", namespace=memory.records.namespace, path=path, record=id
            )
        about = [] if found.subject is None else await memory.history(found.subject)
        return record(found), [record(one) for one in about]

    facts, history = Recollection.of(context).with_memory(path, work)
    if as_json:
        show.put_one(facts | {"history": history}, as_json=True)
        return
    show.put_one(facts, as_json=False)
    if history:
        typer.echo("")
        put(history, ["id", "version", "valid_from", "valid_until", "text"], as_json=False, empty="")


def verify(
    context: typer.Context,
    path: Annotated[str | None, typer.Argument(help="A path; not needed with --receipt.", show_default=False)] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Derive anew what can be derived.")] = False,
    receipt: Annotated[
        Path | None, typer.Option(help="File with a receipt, as `forget --json` prints it: look for survivors of it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the records with all that is derived from them, or look for what was forgotten; exit code 1 if it is found."""
    recollection = Recollection.of(context)
    if receipt is not None:
        survivors = recollection.survivors(receipt_in(receipt))
        if as_json:
            show.put_one({"gone": survivors.gone} | asdict(survivors), as_json=True)
        else:
            show_survivors(survivors)
        if not survivors.gone:
            raise typer.Exit(1)
        return
    _compare(recollection, path, repair=repair, as_json=as_json)


def _compare(recollection: Recollection, path: str | None, *, repair: bool, as_json: bool) -> None:
    if path is None:
        raise ConfigError("name a path, such as acme/users/42, or a file with --receipt", value=path)
    report = recollection.with_memory(path, lambda memory: memory.verify(repair=repair))
    facts = {
        "ok": report.ok, "token": None if report.token is None else str(report.token), "compared": dict(report.compared),
        "changed": report.changed,
    }  # fmt: skip
    rows = [finding(one) for one in report.findings]
    if as_json:
        show.put_one(facts | {"findings": rows}, as_json=True)
    else:
        show.put_one(facts, as_json=False)
        show.put(rows, ["where", "what", "name", "detail", "repaired"], as_json=False, empty="everything fits")
    if not report.ok:
        raise typer.Exit(1)


def tend(context: typer.Context, path: PathArgument, as_json: AsJson = False) -> None:
    """Clear away what has run out, make missing vectors, keep the budget, renew the snapshot if it is due."""
    done = Recollection.of(context).with_memory(path, lambda memory: memory.tend())
    show.put_one(asdict(done), as_json=as_json)


COMMANDS: Mapping[str, Callable[..., None]] = {
    "ls": list_memories, "search": search, "show": show_record, "verify": verify, "tend": tend,
}  # fmt: skip
