"""The namespace's list of threads: a hint by which they are found again; each thread's meta is the truth."""

from __future__ import annotations

from blackboard import keys
from blackboard.store.client import Store

__all__ = ["enter", "next_look"]

LOOK_MS = 7 * 24 * 3600 * 1000
"""When a row is looked at by a sweep: a new one, whose thread has begun by then or is forgotten, and again one of a thread that
lives, in case that whoever ended it died before it moved the row."""


async def enter(store: Store, namespace: str, thread: str) -> None:
    """Enter a thread into the list, unless it stands there; to be awaited before its first checkpoint is written.

    The list is in another slot than the thread, so this is a command of its own. Raises as `Store.command` does.
    """
    await store.command("ZADD", keys.threads(namespace, keys.shard(thread)), "NX", next_look(store), thread)


def next_look(store: Store) -> int:
    """Tell when a sweep looks at a thread that lives, in ms of the server's time."""
    return store.server_time() // 1000 + LOOK_MS
