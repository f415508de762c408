"""Named points of the code, where a test may watch, stop or die; without a watcher each costs one comparison."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

__all__ = ["Watcher", "reach", "watch"]

Watcher = Callable[[str], None]

_watcher: Watcher | None = None


def reach(what: str, moment: str) -> None:
    """Tell the watcher, if there is one, that the point `what:moment` is reached; what it raises passes."""
    if _watcher is not None:
        _watcher(f"{what}:{moment}")


@contextmanager
def watch(watcher: Watcher) -> Generator[None]:
    """Have every point of this process told to `watcher` meanwhile; the one before comes back afterwards."""
    global _watcher  # noqa: PLW0603 - one per process, so that a point costs nothing else
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before
