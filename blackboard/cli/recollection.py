"""What the commands about memory share: which memory they mean, and how what is remembered is spelled."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, TypeVar

import typer

from blackboard import keys
from blackboard.board import Blackboard
from blackboard.cli import show
from blackboard.cli.output import opened
from blackboard.cli.session import Session
from blackboard.errors import ConfigError, CorruptValue
from blackboard.memory.embedder import Embedder, for_settings
from blackboard.memory.finding import Finding
from blackboard.memory.memory import Memory
from blackboard.memory.paths import Paths
from blackboard.memory.receipt import Receipt
from blackboard.memory.record import Record
from blackboard.memory.survivors import Survivors
from blackboard.settings import Settings

__all__ = [
    "PathArgument", "Recollection", "Where", "condition", "finding", "hit", "path_of", "put", "receipt_in", "record", "show_survivors",
    "spelled",
]  # fmt: skip

T = TypeVar("T")

PACKAGES = {"Stemmer", "bm25s", "faiss", "numpy"}
"""What the extra `memory` installs, by import name."""

WIDEST = 100
"""Characters of a text that a table shows."""

PathArgument = Annotated[
    str,
    typer.Argument(help="Path, as acme/users/42; a JSON list of segments where one holds a /.", show_default=False),
]
Where = Annotated[str | None, typer.Option(help="Filter (JSON), as in recall.")]


@dataclass(frozen=True, slots=True)
class Recollection:
    """The options that stand before a command about memory."""

    session: Session
    namespace: str

    @classmethod
    def of(cls, context: typer.Context) -> Recollection:
        """Return the options of a command's context."""
        found = context.find_object(cls)
        assert found is not None, "the callback of the group has set it"
        return found

    def memory(self, board: Blackboard, path: str) -> Memory:
        """Return the memory of a path that `path_of` has spelled."""
        return board.memory(keys.path_segments(path), namespace=self.namespace)

    def paths(self, board: Blackboard) -> Paths:
        """Return the list of paths of the namespace."""
        board.settings.memory_namespace(self.namespace)
        return Paths(board.store, self.namespace)

    def with_memory(self, path: str | None, work: Callable[[Memory], Awaitable[T]]) -> T:
        """Open the board and do the work on the memory of a path; ConfigError if the extra `memory` is not installed."""
        if path is None:
            raise ConfigError("name a path, such as acme/users/42", value=path)
        place = path_of(path)
        try:
            return self.session.with_board(lambda board: work(self.memory(board, place)))
        except ModuleNotFoundError as missing:
            if missing.name not in PACKAGES:
                raise
            raise ConfigError(
                f"{missing.name} is not installed; run: pip install 'agent-blackboard[memory]'", value=missing.name
            ) from missing

    def embedder(self, profile: Path) -> Embedder | None:
        """Make the embedder that the namespace has with one more profile."""
        settings = Settings.load(*self.session.profiles, profile)
        return for_settings(settings.memory_namespace(self.namespace).embedding)

    def survivors(self, receipt: Receipt) -> Survivors:
        """Look for what a receipt names, where it was forgotten."""
        there = replace(self, namespace=receipt.namespace)
        return there.with_memory(json.dumps(receipt.path), lambda memory: memory.verify_forgotten(receipt))


def path_of(text: str) -> str:
    """Read a path as it is given: segments joined by `/`, or a JSON list of them."""
    if not text.startswith("["):
        return keys.path_text(text)
    try:
        return keys.path_text([str(segment) for segment in json.loads(text)])
    except ValueError as error:
        raise ConfigError(f"a path is acme/users/42 or a JSON list of segments, got {text!r}", value=text) from error


def spelled(path: str) -> str:
    """Spell a path so that `path_of` reads it."""
    segments = keys.path_segments(path)
    plain = "/".join(segments)
    return json.dumps(segments, ensure_ascii=False) if plain.count("/") >= len(segments) or plain[0] == "[" else plain


def condition(text: str | None) -> Any:
    """Read a filter; ConfigError if it is not JSON."""
    if text is None:
        return None
    try:
        return json.loads(text, object_pairs_hook=_once)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"--where is not JSON: {error}: {text!r}", value=text) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a name that stands twice: JSON's reader would leave out the first, and with it a condition."""
    names = [name for name, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f'--where names {twice!r} twice; put both in {{"all": [...]}}', value=twice)
    return dict(pairs)


def record(found: Record) -> dict[str, Any]:
    """Spell a record; times in µs, `expires` in ms."""
    told = {name: value for name, value in asdict(found).items() if name not in ("token", "value", "duplicate")}
    return told | {
        "path": spelled(keys.path_text(found.path)), "token": str(found.token), "value": show.plain(found.value),
    }  # fmt: skip


def hit(found: Any) -> dict[str, Any]:
    """Spell a record that was found, with what its score is made of if that was asked for."""
    told = {"score": round(found.score, 4)} | record(found.record) | {"before": [one.id for one in found.before]}
    return told if found.parts is None else told | {"parts": {k: round(v, 4) for k, v in asdict(found.parts).items()}}


def put(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool, empty: str) -> None:
    """Print records: whole as JSON, or the beginnings of their texts as a table."""
    shown = rows if as_json else [{**row, "text": shorten(row["text"], WIDEST, placeholder=" …")} for row in rows]
    show.put(shown, columns, as_json=as_json, empty=empty)


def finding(found: Finding) -> dict[str, Any]:
    """Spell what did not fit."""
    return asdict(found)


def show_survivors(found: Survivors) -> None:
    """Print what a search for the forgotten has found, a line for each thing."""
    show.put_one({"gone": found.gone, "keys": found.keys}, as_json=False)
    for name in ("found", "again", "limits"):
        for line in getattr(found, name):
            typer.echo(f"{name}: {line}")


def receipt_in(file: Path) -> Receipt:
    """Read a receipt as `forget --json` prints it; ConfigError for anything else."""
    with opened(file) as lines:
        try:
            return _receipt(json.load(lines))
        except (AttributeError, CorruptValue, TypeError, ValueError) as error:
            raise ConfigError(f"file {str(file)!r} holds no receipt: {error}", value=str(file)) from error


def _receipt(told: dict[str, Any]) -> Receipt:
    told.pop("survivors", None)
    below = tuple(_receipt(one) for one in told.pop("below", ()))
    return replace(Receipt.parse(json.dumps(told)), below=below)
