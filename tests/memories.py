"""What the tests of the reference remember, so that every key of memory stands and every script of it has run."""

from __future__ import annotations

from uuid import uuid4

from blackboard import Blackboard
from blackboard.memory.lease import Place, claim, tend
from blackboard.memory.memory import Memory
from blackboard.memory.new import Body, New
from blackboard.memory.snapshot import Snapshots

__all__ = ["remembered", "reread"]

PATH = "acme/users/42"


async def remembered(board: Blackboard) -> None:
    """Remember in every way, so that a key of every kind is written."""
    memory = board.memory(PATH)
    await memory.remember_all(
        ["a text", New("for a day", subject="day", ttl="1d"), New("a fact", subject="s"), New("newer", subject="s")]
    )
    assert (await memory.forget((await memory.remember("to be forgotten")).id)).count == 1
    assert not (await memory.records.put(Body("without a vector", id=uuid4().hex))).embedded
    assert await memory.snapshot() is not None
    notes = board.memory("acme/notes")
    await notes.remember_all([New("for a day", id="brief", ttl="1d"), New("for a day", id="lasting")])
    await notes.remember_all(["The invoice of May is due", "The invoice of May is due."])
    assert len((await notes.apply(await notes.consolidate())).merged) == 2
    await claim(Place(board.store, memory.records.namespace, memory.records.path))


async def reread(board: Blackboard) -> None:
    """Read, change and forget, so that every script has run."""
    memory = board.memory(PATH)
    page = await memory.list({"missing": {"exists": False}})
    assert len(page) == await memory.count() == len((await memory.changes()).changes) - 4
    await tended(memory)
    for record in page:
        if not record.embedded:
            space = (await memory.records.tail(0)).space
            assert space is not None
            assert await memory.records.set_vector(record.id, record.version, b"\0" * 1024, space)
    assert [record.text for record in await memory.history("s")] == ["newer", "a fact"]
    assert (await memory.update(page[0].id, expected=1, what="another text")).version == 2
    assert (await memory.remember("another text")).duplicate
    assert len(await memory.records.forget([record.id for record in page])) == len(page)
    assert await memory.records.expired() == []


async def tended(memory: Memory) -> None:
    """Break everything that is mended by a script of its own, mend it, and scrub a chunk."""
    records, store = memory.records, memory.records.store
    await store.command("DEL", records.keys.lock)
    await store.command("HSET", records.keys.head, "count", 99)
    await store.command("SADD", records.keys.pending, "nothing")
    await store.command("DEL", records.keys.expiring)
    assert len((await memory.verify(repair=True)).findings) == 3
    assert (await memory.verify()).findings == ()
    async with tend(Place(store, records.namespace, records.path), ttl=30) as lease:
        await lease.renew()
        assert await Snapshots(records).build(lease) is not None
    assert await Snapshots(records).scrub(["nothing"]) == 0
