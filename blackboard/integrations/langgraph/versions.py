"""The versions of a checkpoint with the name of each channel spelled once: most are named three times or more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["named", "numbered"]


def numbered(versions: Mapping[str, Any], seen: Mapping[str, Mapping[str, Any]], updated: Sequence[str] | None) -> Any:
    """Name channels by their place among `versions`, those that are not there by their names."""
    places = {name: place for place, name in enumerate(versions)}
    nodes: dict[str, list[Any]] = {}
    for node, channels in seen.items():
        nodes[node] = [part for name, version in channels.items() for part in (places.get(name, name), version)]
    changed = None if updated is None else [places.get(name, name) for name in updated]
    return [list(versions), list(versions.values()), nodes, changed]


def named(spelled: Sequence[Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]], list[str] | None]:
    """Undo `numbered`."""
    names, versions, nodes, changed = spelled

    def name(place: int | str) -> str:
        return names[place] if isinstance(place, int) else place

    seen = {node: {name(one[at]): one[at + 1] for at in range(0, len(one), 2)} for node, one in nodes.items()}
    return dict(zip(names, versions, strict=True)), seen, None if changed is None else [name(one) for one in changed]
