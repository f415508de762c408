"""The versions of channels: what comes after one, and those of a checkpoint with each name spelled once, which most have three times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from blackboard.errors import ConfigError

__all__ = ["following", "named", "numbered"]


def following(version: Any) -> Any:
    """Return the version that comes after one: 1 after None, a text of the same form after a text.

    ConfigError for what does not begin with a number, or is none.
    """
    try:
        if isinstance(version, str):
            number, _, rest = version.partition(".")
            return f"{int(number) + 1:0{len(number)}}{'.' + '0' * len(rest) if rest else ''}"
        return 1 if version is None else int(version) + 1
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"a channel's version is a number, or a text that begins with one; got {version!r}") from None


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
