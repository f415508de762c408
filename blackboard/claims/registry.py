"""The namespace's list of threads: a hint by which they are found again; each thread's meta is the truth."""

from __future__ import annotations

from blackboard import keys
from blackboard.store.client import Store

__all__ = ["NO_DUE_TIME", "enter"]

NO_DUE_TIME = 0
"""Score of a thread that is due at no time."""


async def enter(store: Store, namespace: str, thread: str) -> None:
    """Enter a thread into the list, unless it stands there; to be awaited before its first checkpoint is written.

    The list is in another slot than the thread, so this is a command of its own. Raises as `Store.command` does.
    """
    await store.command("ZADD", keys.threads(namespace, keys.shard(thread)), "NX", NO_DUE_TIME, thread)
