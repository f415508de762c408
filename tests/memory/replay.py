"""Readers that load and follow the log, writers by hand, and others who act in the middle of a walk."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from blackboard.memory.lease import Place
from blackboard.memory.new import Body
from blackboard.memory.records import Records
from blackboard.memory.snapshot import Loaded, Snapshots
from blackboard.memory.stored import Stored

SPACE = '{"dimension":4,"metric":"cosine","model":"made-up"}'
OTHER = '{"dimension":4,"metric":"cosine","model":"another"}'


def place_of(records: Records) -> Place:
    return Place(records.store, records.namespace, records.path)


def vector_of(name: str) -> bytes:
    return f"v-{name:<6}"[:8].encode()


async def put(records: Records, *names: str, **more: object) -> None:
    """Remember a record under each name, with a text and a vector of its own."""
    for name in names:
        body = Body(f"text of {name}", id=name, vector=vector_of(name), space=SPACE, metadata={"name": name})
        await records.put(replace(body, **more))  # type: ignore[arg-type]


async def written(records: Records, count: int) -> list[str]:
    names = [f"r{number}" for number in range(count)]
    await put(records, *names)
    return names


async def forget(records: Records, snapshots: Snapshots, *names: str) -> int:
    """Forget as memory does: the records, then every chunk."""
    await records.forget(names)
    return await snapshots.scrub(names)


def bare(row: Stored) -> Stored:
    """A row as a chunk keeps it."""
    return replace(row, content="", ttl=None, record=replace(row.record, value=None))


async def stored(records: Records) -> list[Stored]:
    return [bare(row) async for page in records.walk() for row in page]


async def replayed(records: Records, loaded: Loaded | None) -> dict[str, Stored]:
    """What a reader knows who loads and then follows the log; entries that are in already are taken as they come."""
    assert loaded is not None
    known = {row.record.id: row for row in loaded.rows}
    assert len(known) == len(loaded.rows), "a record stands in it twice"
    after, more = loaded.token.seq, True
    while more:
        tail = await records.tail(after)
        assert not tail.gap
        for change in tail.changes:
            after = change.seq
            (now,) = await records.fetch([change.id], vectors=True) if change.id else (None,)
            if now is not None:
                known[change.id] = now
            else:
                known.pop(change.id, None)
        more = tail.more
    return {name: bare(row) for name, row in known.items()}


async def agrees(records: Records, loaded: Loaded | None) -> None:
    assert await replayed(records, loaded) == {row.record.id: row for row in await stored(records)}


class Meddled(Records):
    """Records that somebody else changes between two pages of a walk."""

    def between(self, *acts: Callable[[], Awaitable[object]]) -> None:
        self._acts = list(acts)

    async def walk(
        self, size: int = 3, *, vectors: bool = True, space: str | None = None
    ) -> AsyncIterator[list[Stored]]:
        async for page in super().walk(3, vectors=vectors, space=space):
            yield page
            if self._acts:
                await self._acts.pop(0)()


def meddled(records: Records, *acts: Callable[[], Awaitable[object]]) -> Snapshots:
    """Snapshots that are built while others act, once after each page of three records."""
    other = Meddled(records.store, records.namespace, records.path, records.policy)
    other.between(*acts)
    return Snapshots(other)
