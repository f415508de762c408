"""Reading items by key, and keeping alive those that are read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from blackboard.integrations.langgraph.items import touch
from blackboard.memory.records import Records
from blackboard.memory.stored import Stored

__all__ = ["read"]


async def read(records: Records, ids: Sequence[str], *, refresh: bool, together: bool) -> list[Stored | None]:
    """Read items in one round trip; None for one that is not there. With `refresh` the time of those that have one begins anew.

    That is done in the same trip where `together` says that items have a time as a rule, else in a second one, for those
    that turn out to have one.
    """
    if refresh and together:
        stored, _ = await asyncio.gather(records.fetch(ids), touch(records, ids))
        return stored
    stored = await records.fetch(ids)
    if refresh and (lapsing := [one.record.id for one in stored if one is not None and one.record.expires is not None]):
        await touch(records, lapsing)
    return stored
