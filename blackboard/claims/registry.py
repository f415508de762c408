"""The namespace's list of threads: a hint by which they are found again; each thread's meta is the truth."""

from __future__ import annotations

from blackboard import keys
from blackboard.store.client import Store

__all__ = ["enter"]

LOOK_MS = 7 * 24 * 3600 * 1000
"""When a new row is looked at by a sweep: by then its thread has begun, or is forgotten, and the row goes with it."""


async def enter(store: Store, namespace: str, thread: str) -> None:
    """Enter a thread into the list, unless it stands there; to be awaited before its first checkpoint is written.

    The list is in another slot than the thread, so this is a command of its own. Raises as `Store.command` does.
    """
    due = store.server_time() // 1000 + LOOK_MS
    await store.command("ZADD", keys.threads(namespace, keys.shard(thread)), "NX", due, thread)
