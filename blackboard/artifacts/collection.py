"""Collecting artifacts that nobody refers to: looked at twice, a grace apart, and removed only if nothing moved between."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from blackboard import keys
from blackboard.artifacts.files import Files
from blackboard.artifacts.head import Head
from blackboard.artifacts.owner import PIN, Owner, Referrer
from blackboard.artifacts.ref import ArtifactRef
from blackboard.artifacts.rows import Row, listed
from blackboard.points import reach
from blackboard.store.client import Store
from blackboard.store.script import Script

__all__ = ["Collected", "Collection"]


def _script(name: str) -> Script:
    return Script("blackboard.artifacts", name, prelude=("blackboard.claims:guard.lua",))


_JUDGE, _RECLAIM, _UNLIST = map(_script, ("judge.lua", "reclaim.lua", "unlist.lua"))


AT_ONCE = 16
"""Artifacts that are looked at at the same time; each asks its owners in turn."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection found and did, in artifacts.

    How many stand, are held by somebody, were marked by it, and wait for the end of their grace; which ones it removed, with
    their `bytes`; and how many files of broken-off puts went (`debris`). A dry one counts what it would have done.
    """

    standing: int = 0
    held: int = 0
    marked: int = 0
    waiting: int = 0
    removed: tuple[ArtifactRef, ...] = ()
    bytes: int = 0
    debris: int = 0


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Whether somebody refers to an artifact; the owners that certainly do no more, and since when they did, in turn."""

    held: bool
    dead: Sequence[bytes]


class Collection:
    """One pass over the artifacts of a backend."""

    def __init__(self, store: Store, referrers: Mapping[str, Referrer], files: Files | None, upload_ttl: float) -> None:
        self._store, self._referrers, self._files = store, referrers, files
        self._upload_us = int(upload_ttl * 1e6)
        self._standing = self._held = self._marked = self._waiting = 0
        self._removed: list[ArtifactRef] = []

    async def run(self, grace: float, *, dry_run: bool) -> Collected:
        """Look at every artifact; see `ArtifactStore.gc`."""
        grace_us = int(grace * 1e6)
        for number in range(keys.SHARDS):
            async for page in listed(self._store, number):
                for start in range(0, len(page), AT_ONCE):
                    some = [self._look(row, grace_us, dry_run=dry_run) for row in page[start : start + AT_ONCE]]
                    for failed in await asyncio.gather(*some, return_exceptions=True):
                        if failed is not None:
                            raise failed
        debris = await self._debris(grace_us, dry_run=dry_run)
        freed = sum(one.size for one in self._removed)
        counts = (self._standing, self._held, self._marked, self._waiting)
        return Collected(*counts, tuple(self._removed), freed, debris)

    async def _look(self, row: Row, grace_us: int, *, dry_run: bool) -> None:
        digest, head, refs = row
        if head is None:
            if not dry_run:
                await self._store.call(_UNLIST, [keys.ArtifactKeys(digest).shard], [digest])
            return
        self._standing += 1
        now, verdict = self._store.server_time(), await self._judged(head, refs, grace_us)
        self._held += verdict.held
        due = not verdict.held and head.marked and now - head.marked >= grace_us
        if due:
            if dry_run or await self._reclaim(head, grace_us):
                self._removed.append(head.ref)
            return
        self._waiting += bool(head.marked and not verdict.held)
        fresh = not verdict.held and not head.marked
        if not dry_run and (fresh or verdict.dead or (verdict.held and head.marked)):
            where = keys.ArtifactKeys(head.digest)
            args: list[bytes | str | int] = [head.revision, int(not verdict.held), *verdict.dead]
            fresh = (await self._store.call(_JUDGE, [where.head, where.refs], args))[0] == b"OK" and fresh
        self._marked += fresh

    async def _judged(self, head: Head, refs: Sequence[bytes], grace_us: int) -> _Verdict:
        """Ask every owner. One that has entered its reference but not yet committed says no, and is given the grace.

        Owners that were entered after the head was read are not among them, but they have changed its revision.
        """
        held, dead, now = False, list[bytes](), self._store.server_time()
        for spelled, since in zip(refs[::2], refs[1::2], strict=True):
            owner = Owner.parse(spelled.decode())
            if await self._refers(owner, head.digest):
                held = True
            elif now - int(since) >= grace_us:
                dead += [spelled, since]
        return _Verdict(held, dead)

    async def _refers(self, owner: Owner, digest: str) -> bool:
        referrer = self._referrers.get(owner.kind)
        return owner.kind == PIN or referrer is None or await referrer.refers(owner, digest)

    async def _reclaim(self, head: Head, grace_us: int) -> bool:
        where = keys.ArtifactKeys(head.digest)
        reach("artifact", "judged")
        reply = await self._store.call(_RECLAIM, [where.head, where.refs, *head.chunks], [head.revision, grace_us])
        if reply[0] != b"OK":
            return False
        reach("artifact", "reclaimed")
        if head.file and self._files is not None:
            await self._files.remove(head.file)
        await self._store.call(_UNLIST, [where.shard], [head.digest])
        return True

    async def _debris(self, grace_us: int, *, dry_run: bool) -> int:
        """Remove files of uploads that can complete no more and that no head names."""
        found = 0
        if self._files is None:
            return found
        before = self._store.server_time() - self._upload_us - grace_us
        async for name, digest, upload in self._files.names():
            began = upload.partition("-")[0]
            if not began.isdigit() or int(began) >= before:
                continue
            stored = await self._store.command("HGET", keys.ArtifactKeys(digest).head, "file") if digest else None
            if stored != name.encode():
                found += 1
                if not dry_run:
                    await self._files.remove(name)
        return found
