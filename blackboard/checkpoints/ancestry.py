"""Walking from a checkpoint to its ancestors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import replace

from blackboard import keys
from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.manifest import Manifest
from blackboard.checkpoints.reading import Snapshot
from blackboard.errors import CheckpointMissing, ServerRefused
from blackboard.telemetry import logger

__all__ = ["ancestors", "until_met"]

Place = tuple[str, str, str | None]
"""Thread, lineage, and a checkpoint, None for the newest."""

PAGES = 128, 1024
"""Manifests in the first page of a walk and in those that follow."""

MOST_ANCESTORS = 1000
"""Ancestors that one trip returns, with the writes pending on each."""

log = logger("checkpoints")


async def ancestors(engine: Engine, thread: str, lineage: str, checkpoint: str | None) -> AsyncIterator[Manifest]:
    """Yield a checkpoint (the newest without an id) and then its parent, its parent's parent, and so on, each once."""
    # The page begins with the checkpoint itself: of all ids it alone sorts right before this one.
    before = None if checkpoint is None else f"{checkpoint}\0"
    page = await engine.history(thread, lineage=lineage, before=before, limit=PAGES[0])
    known = {manifest.checkpoint: manifest for manifest in page}
    wanted = checkpoint if checkpoint is not None or not page else page[0].checkpoint
    passed: set[str] = set()
    while wanted is not None and wanted not in passed:
        passed.add(wanted)
        while wanted not in known and page and keys.encode(wanted) < keys.encode(page[-1].checkpoint):
            page = await engine.history(thread, lineage=lineage, before=page[-1].checkpoint, limit=PAGES[1])
            known.update((manifest.checkpoint, manifest) for manifest in page)
        found = known.pop(wanted, None) or await _one(engine, thread, lineage, wanted)
        if found is None:
            return
        yield found
        wanted = found.parent


async def _one(engine: Engine, thread: str, lineage: str, checkpoint: str) -> Manifest | None:
    try:
        snapshot = await engine.at(thread, checkpoint, lineage=lineage)
    except CheckpointMissing:
        return None
    return None if snapshot is None else snapshot.manifest


async def until_met(engine: Engine, place: Place, channels: Collection[str]) -> list[Snapshot]:
    """Read the ancestors of a checkpoint until each of some channels has been met.

    Each comes with the writes pending on it, and with the content of those channels only that no younger one has. One
    round trip for each 1,000 ancestors, one more for a log of over 4,000 items; where the server refuses scripts that
    touch keys which they do not declare, one for the first 128 manifests, one for each further 1,024, and one for the rest.
    """
    if not engine.reader.declares:
        try:
            return await _followed(engine, place, channels)
        except ServerRefused as refused:
            log.debug("a walk that follows references was refused: %s", refused, extra={"thread_id": place[0]})
    return await _paged(engine, place, channels)


async def _followed(engine: Engine, place: Place, channels: Collection[str]) -> list[Snapshot]:
    thread, lineage, checkpoint = place
    found: dict[str, Snapshot] = {}
    wanted, start = set(channels), (checkpoint, False)
    while wanted:
        page, following = await engine.reader.ancestors(thread, lineage, start, MOST_ANCESTORS, sorted(wanted))
        for snapshot in page:
            found.setdefault(snapshot.manifest.checkpoint, snapshot)
        wanted -= {name for snapshot in page for name in snapshot.manifest.refs}
        if following is None or following in found:
            break
        start = (following, True)
    return list(found.values())


async def _paged(engine: Engine, place: Place, channels: Collection[str]) -> list[Snapshot]:
    wanted, chain, inclusive = set(channels), list[Manifest](), False
    async for manifest in ancestors(engine, *place):
        if inclusive:
            here = {name: ref for name, ref in manifest.refs.items() if name in wanted}
            chain.append(replace(manifest, refs=here))
            wanted -= here.keys()
        inclusive = True
        if not wanted:
            break
    return await engine.contents(place[0], chain, lineage=place[1]) if chain else []
