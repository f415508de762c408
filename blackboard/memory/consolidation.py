"""Consolidation: first a plan that changes nothing, then its groups put together one by one, each as a whole or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from blackboard import codec
from blackboard.errors import ConfigError, EmbedderFailed
from blackboard.memory.embedder import Embedder, Space, embedded, pack
from blackboard.memory.filters import Where, parse
from blackboard.memory.lease import PathLease, Place, tend
from blackboard.memory.likeness import Alike, alike
from blackboard.memory.new import Body, said
from blackboard.memory.record import Record
from blackboard.memory.records import Records
from blackboard.memory.stored import Stored
from blackboard.memory.writing import ROUNDS, refusal
from blackboard.points import reach
from blackboard.store.script import Script

__all__ = ["Applied", "Group", "Merge", "Merged", "Plan", "Source", "apply", "plan", "undo"]

_PRELUDE = ("blackboard.claims:guard.lua", "path.lua", "chain.lua", "said.lua", "sources.lua", "sets.lua")
MERGE, PART = (Script("blackboard.memory", name, prelude=_PRELUDE) for name in ("merge.lua", "part.lua"))

VECTORS = 0.92
"""How alike two vectors are, as a cosine, for their records to be near-duplicates."""

WORDS = 0.6
"""Share of all words of two near-duplicates that both have."""

Merge = Callable[[Sequence[Record]], Awaitable[str]]
"""Makes one text of several; the records are as they stand."""


@dataclass(frozen=True, slots=True)
class Source:
    """A record that would be superseded, as it was when the plan was made."""

    id: str
    version: int
    text: str


@dataclass(frozen=True, slots=True)
class Group:
    """Records that say nearly the same. `text` is what would stand for them: the one that says most."""

    sources: tuple[Source, ...]
    text: str
    likeness: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be put together at a path, to be looked at, cut down, and applied. `looked` is how many records were compared."""

    path: str
    groups: tuple[Group, ...]
    looked: int


@dataclass(frozen=True, slots=True)
class Merged:
    """A record that stands for several: `id`, and the ids of what it superseded. `undo` takes it apart again."""

    id: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a plan. `skipped` groups had changed since it was made: nothing of them was written."""

    merged: tuple[Merged, ...]
    skipped: tuple[Group, ...]


async def plan(
    records: Records, embedder: Embedder | None, where: Where | None, *, vectors: float = VECTORS, shared: float = WORDS
) -> Plan:
    """Find near-duplicates among the current records without a subject that a filter holds for; nothing is written."""
    for name, value in (("vectors", vectors), ("words", shared)):
        if type(value) not in (int, float) or not 0 < value <= 1:
            raise ConfigError(f"{name} is a share above 0 and up to 1, got {value!r}", value=value)
    chosen = parse(where)
    space = None if embedder is None else Space.of(embedder)
    rows: list[Stored] = []
    async for page in records.walk(space=None if space is None else space.text()):
        for one in page:
            record = one.record
            stands = record.superseded_by is None and record.subject is None
            if stands and (chosen is None or chosen.matches(record.metadata)):
                rows.append(one)
    if space is not None and (await records.tail(0, 1)).space not in (None, space.text()):
        space = None
    found = await alike(rows, space, vectors, shared)
    return Plan(records.path, tuple(_group(one) for one in found), len(rows))


def _group(found: Alike) -> Group:
    most = max(found.members, key=lambda one: (len(one.record.text), one.record.updated, one.record.id))
    sources = tuple(Source(one.record.id, one.record.version, one.record.text) for one in found.members)
    return Group(sources, most.record.text, found.likeness)


async def apply(records: Records, embedder: Embedder | None, made: Plan, merge: Merge | None = None) -> Applied:
    """Put the groups of a plan together under the lease of the path.

    Each is one script: the new record and what it supersedes change together, and only if every source has the version
    that it had in the plan. `merge` may make the text; while it runs others may write, and then its group is skipped.
    """
    if not isinstance(made, Plan):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not be typed
        raise ConfigError(f"apply takes a plan that consolidate has made, got {made!r:.80}", value=made)
    if made.path != records.path:
        raise ConfigError(f"the plan is of path {made.path!r}, not of {records.path!r}; plan here", value=made.path)
    merged: list[Merged] = []
    skipped: list[Group] = []
    async with tend(Place(records.store, records.namespace, records.path)) as lease:
        for group in made.groups:
            done = await _put_together(records, embedder, lease, group, merge)
            reach("consolidate", "merged")
            if done is None:
                skipped.append(group)
            else:
                merged.append(done)
    return Applied(tuple(merged), tuple(skipped))


async def undo(records: Records, merged: Merged) -> int:
    """Make current again what a merged record superseded, and forget that; returns how many are current again.

    So is what came to be superseded by it since. A source that was changed or forgotten since is left alone; with none left,
    the merged record stays.
    """
    if not isinstance(merged, Merged):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not be typed
        raise ConfigError(f"undo takes what apply has told of one group, got {merged!r:.80}", value=merged)
    where, store = records.keys, records.store
    (stands,) = await records.fetch([merged.id])
    if stands is None:
        return 0
    fixed = [where.head, where.log, where.order, where.expiring, where.ops, where.record(merged.id)]
    fixed += [where.content(stands.content), where.same(stands.content), where.contents, where.sources]
    sources = [*merged.sources]
    reply: Sequence[Any] = (b"MORE", ())
    async with tend(Place(store, records.namespace, records.path)) as lease:
        for _ in range(ROUNDS):
            sources += [one.decode() for one in reply[1]]
            names = [*fixed, *(where.record(one) for one in sources)]
            args = [*records.shown(), lease.fence, merged.id, stands.content, *sources]
            reply = await store.call(PART, names, args)
            if reply[0] != b"MORE":
                break
        if reply[0] == b"CHANGED":
            return await _parted(records, merged)
        if reply[0] != b"OK":
            raise _refused(records, lease, merged.id, reply)
        reach("undo", "parted")
        restored = int(reply[1].split(b" ")[2])
        if restored:
            await records.forget([merged.id])
        return restored


async def _parted(records: Records, merged: Merged) -> int:
    """Finish what was cut short after the sources had become current again; 0 if there is nothing to finish."""
    (stands,) = await records.fetch([merged.id])
    if stands is None or stands.record.superseded_by not in merged.sources:
        return 0
    await records.forget([merged.id], versions={merged.id: stands.record.version})
    sources = await records.fetch(merged.sources)
    return sum(one is not None and one.record.superseded_by is None for one in sources)


async def _put_together(
    records: Records, embedder: Embedder | None, lease: PathLease, group: Group, merge: Merge | None
) -> Merged | None:
    found = await records.fetch([source.id for source in group.sources])
    standing = [one for one in found if one is not None]
    if [(one.record.id, one.record.version) for one in standing] != [(one.id, one.version) for one in group.sources]:
        return None
    text = group.text if merge is None else await _merged(merge, [one.record for one in standing])
    body = await _body(embedder, standing, said(text, records.policy)[0])
    reach("consolidate", "made")
    where = records.keys
    name = _name(group)
    if records.mentions is not None:
        await records.mentions.enter(name, body)
    fixed = [where.head, where.log, where.order, where.expiring, where.pending, where.ops]
    names = [
        *fixed,
        where.record(name),
        where.content(body.digest),
        where.same(body.digest),
        where.contents,
        where.vectors,
        where.sources,
    ]
    names += [where.record(one.id) for one in group.sources]
    told: list[Any] = [part for source in group.sources for part in (source.id, source.version)]
    pend = "1" if embedder is not None and body.vector is None else ""
    ttl = "" if body.ttl is None else body.ttl
    args = [*records.shown(), lease.fence, name, ttl, pend, body.space, len(group.sources), *told, *_fields(body)]
    reply = await records.store.call(MERGE, names, args)
    if reply[0] == b"CHANGED":
        return None
    if reply[0] != b"OK":
        raise _refused(records, lease, name, reply, body.space)
    return Merged(name, tuple(source.id for source in group.sources))


async def _merged(merge: Merge, standing: Sequence[Record]) -> str:
    made = merge(standing)
    if not isinstance(made, Awaitable):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not be typed
        raise ConfigError(
            f"merge is an async function of records that returns a text, got {made!r:.80} of it", value=made
        )
    return await made


def _name(group: Group) -> str:
    """The id of what stands for a group: the same for the same sources at the same versions."""
    told = codec.encode([[source.id, source.version] for source in group.sources])
    return f"merged-{hashlib.blake2b(told, digest_size=12).hexdigest()}"


async def _body(embedder: Embedder | None, standing: Sequence[Stored], text: str) -> Body:
    """What stands for several: the oldest creation, the greatest importance, the longest life, pinned if one is."""
    lives = [one.ttl for one in standing]
    kept = [life for life in lives if life is not None]
    ttl = max(kept) if len(kept) == len(lives) else None
    vector = space = None
    if embedder is not None:
        space = Space.of(embedder)
        try:
            (vector,) = pack(await embedded(embedder, [text]), space)
        except EmbedderFailed:
            vector = None
    members = [one.record for one in standing]
    return Body(
        text, metadata=members[0].metadata, importance=max(one.importance for one in members), ttl=ttl,
        pinned=any(one.pinned for one in members), created=min(one.created for one in members),
        vector=vector, space=space.text() if space is not None and vector is not None else "",
    )  # fmt: skip


def _fields(body: Body) -> list[Any]:
    fields: dict[str, Any] = {
        "text": body.text, "metadata": body.labels, "importance": repr(body.importance), "created": body.created,
        "content": body.digest,
    }  # fmt: skip
    if body.pinned:
        fields["pinned"] = "1"
    if body.vector is not None:
        fields["vector"] = body.vector
    return [part for pair in fields.items() for part in pair]


def _refused(records: Records, lease: PathLease, name: str, reply: Sequence[Any], space: str = "") -> Exception:
    if reply[0] == b"LOST":
        Place(records.store, records.namespace, records.path).judge(reply, fence=lease.fence, owner=lease.owner)
    return refusal(records.namespace, records.path, name, reply, space)
