"""How things are shown: as tables for people, as JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from blackboard.checkpoints.manifest import Manifest, Meta
from blackboard.claims.effect import OpenEffect, SettledEffect
from blackboard.claims.lease import Holder
from blackboard.codec import decode, encode
from blackboard.runs.compare import Change
from blackboard.runs.inbox import Letter
from blackboard.runs.view import Checkpoint, cursors

__all__ = [
    "change", "checkpoint", "effect", "follow", "letter", "lock", "manifest", "meta", "plain", "put", "put_one",
]  # fmt: skip

Row = Mapping[str, Any]

WIDE = 1000
"""Columns of a table that no terminal shows."""


def put(rows: Sequence[Row], columns: Iterable[str], *, as_json: bool, empty: str) -> None:
    """Print rows: all of them as one JSON list, or the columns as a table."""
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    if not rows:
        typer.echo(empty)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(column, row.get(column)) for column in columns))
    _console().print(table)


def put_one(facts: Row, *, as_json: bool) -> None:
    """Print one thing: as a JSON object, or a line for each fact that is there."""
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        if value not in (None, "", [], {}):
            table.add_row(name, _cell(name, value))
    _console().print(table)


def meta(thread: str, found: Meta) -> dict[str, Any]:
    """Spell what is true of a whole thread; times in µs, `expires` in ms."""
    said = {name: value for name, value in asdict(found).items() if value not in (None, "")}
    if not found.created:
        del said["created"]  # a tombstone does not tell
    return {"thread": thread, **said}


def manifest(found: Manifest) -> dict[str, Any]:
    """Spell one line of a history."""
    return {
        "checkpoint": found.checkpoint, "step": found.step, "time": found.time, "parent": found.parent, "next": found.next,
        "fence": found.fence, "cursors": plain(cursors(found)), "channels": {name: ref.kind for name, ref in found.refs.items()},
    }  # fmt: skip


def checkpoint(found: Checkpoint[Any]) -> dict[str, Any]:
    """Spell a checkpoint with its state."""
    return {
        "checkpoint": found.id, "step": found.step, "time": found.time, "next": found.next, "parent": found.parent,
        "cursors": plain(found.cursors), "pending": [asdict(call) | {"args": plain(call.args)} for call in found.pending],
        "state": plain(found.state),
    }  # fmt: skip


def effect(found: OpenEffect | SettledEffect) -> dict[str, Any]:
    """Spell an effect; `result` is what it recorded."""
    common = {
        "effect": found.key,
        "state": found.state,
        "attempt": found.attempt,
        "owner": found.owner,
        "fence": found.fence,
    }
    if isinstance(found, OpenEffect):
        return common | {
            "semantics": found.semantics, "time": found.started_at, "external_ref": found.external_ref, "result": None,
        }  # fmt: skip
    result = plain(decode(found.result)) if found.result else None
    return common | {"time": found.settled_at, "checkpoint": found.checkpoint, "result": result}


def lock(thread: str, holder: Holder) -> dict[str, Any]:
    """Spell who drives a thread."""
    return {
        "thread": thread, "holder": holder.owner, "fence": holder.fence, "remaining": holder.remaining,
        "live": holder.remaining > 0,
    }  # fmt: skip


def change(found: Change) -> dict[str, Any]:
    """Spell what differs in one channel."""
    return {
        "channel": found.channel, "kind": found.kind, "kept": found.kept, "before": plain(found.before),
        "after": plain(found.after),
    }  # fmt: skip


def letter(found: Letter) -> dict[str, Any]:
    """Spell a signal or note."""
    return {"letter": found.id, "kind": found.kind, "name": found.name, "value": plain(found.open())}


def follow(thread: str, made: Manifest, *, as_json: bool) -> None:
    """Print a checkpoint that was just made, on a line of its own."""
    if as_json:
        typer.echo(json.dumps({"thread": thread} | manifest(made), ensure_ascii=False))
    else:
        typer.echo(
            f"{_cell('time', made.time)}  {thread}  {made.checkpoint}  step {made.step}  {made.next or ''}".rstrip()
        )


def plain(value: Any) -> Any:
    """Turn any stored value into JSON: as the codec spells it, classes and all."""
    return json.loads(encode(value))


def _console() -> Console:
    """A terminal folds what is too wide for it; whoever reads a pipe wants whole lines."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)


def _cell(column: str, value: Any) -> str:
    if value is None:
        return ""
    if column in ("time", "created", "updated", "started", "valid_from", "valid_until", "wake"):
        return datetime.fromtimestamp(value / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
    if column == "expires":
        return datetime.fromtimestamp(value / 1e3, UTC).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
