"""What differs between two checkpoints, channel by channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from blackboard.checkpoints.reading import Snapshot
from blackboard.runs.view import plain

__all__ = ["Change", "changes"]


@dataclass(frozen=True, slots=True)
class Change:
    """One channel that differs.

    For a list, `kept` is how many items at its front are the same, and `before` and `after` are what follows them; for a
    dict they are the entries that differ; else the values. None stands for what is not there.
    """

    channel: str
    kind: Literal["added", "removed", "changed"]
    before: Any
    after: Any
    kept: int = 0


def changes(older: Snapshot, newer: Snapshot) -> list[Change]:
    """Compare two checkpoints; channels with equal references are not even decoded."""
    refs = older.manifest.refs, newer.manifest.refs
    names = [name for name in dict.fromkeys([*refs[0], *refs[1]]) if refs[0].get(name) != refs[1].get(name)]
    before, after = plain(_only(older, names)), plain(_only(newer, names))
    found = (_change(name, before, after) for name in names)
    return [change for change in found if change is not None]


def _only(snapshot: Snapshot, names: Sequence[str]) -> Snapshot:
    contents = {name: content for name, content in snapshot.contents.items() if name in names}
    return Snapshot(snapshot.manifest, contents)


def _change(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Change | None:
    if name not in before:
        return Change(name, "added", None, after[name])
    if name not in after:
        return Change(name, "removed", before[name], None)
    old: Any = before[name]
    new: Any = after[name]
    both: set[type[Any]] = {old.__class__, new.__class__}
    if both == {list}:
        return _lists(name, old, new)
    if both == {dict}:
        return _dicts(name, old, new)
    return None if _same(old, new) else Change(name, "changed", old, new)


def _lists(name: str, old: list[Any], new: list[Any]) -> Change | None:
    kept = 0
    while kept < min(len(old), len(new)) and _same(old[kept], new[kept]):
        kept += 1
    if kept == len(old) == len(new):
        return None
    return Change(name, "changed", old[kept:], new[kept:], kept)


def _dicts(name: str, old: dict[Any, Any], new: dict[Any, Any]) -> Change | None:
    gone = {key: value for key, value in old.items() if key not in new or not _same(value, new[key])}
    come = {key: value for key, value in new.items() if key not in old or not _same(value, old[key])}
    return Change(name, "changed", gone, come) if gone or come else None


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)
