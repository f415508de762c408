"""Forgetting: what was forgotten is nowhere, and the receipt says so without saying what it was."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import pytest

from blackboard.errors import ConfigError, CorruptValue
from blackboard.memory import forgetting
from blackboard.memory.memory import Memory
from blackboard.memory.new import New
from blackboard.memory.receipt import Receipt
from blackboard.memory.snapshot import Snapshots
from blackboard.points import watch
from blackboard.store.client import Store
from tests.memory.dump import holding
from tests.memory.recalling import Topics, memory_of, texts

SECRET = "the puppy is called Rumpelstiltskin"


async def filled(store: Store, **policy: Any) -> Memory:
    memory = memory_of(store, Topics(), **policy)
    await memory.remember_all(
        [
            New(SECRET, id="secret", metadata={"who": "ann"}),
            New("a kitten in the rain", id="kitten", metadata={"who": "ann"}),
            New("cash in a box", id="cash", metadata={"who": "bob"}),
        ]
    )
    return memory


async def test_what_was_forgotten_is_nowhere(store: Store) -> None:
    """No key of the path holds its text or its vector, the snapshot's chunks included, and no recall returns it."""
    memory = await filled(store)
    await memory.snapshot()
    (stored,) = await memory.records.fetch(["secret"], vectors=True)
    assert stored is not None
    assert stored.vector is not None
    assert len(await holding(memory.records, SECRET.encode())) == 2, "the record, and a chunk"
    assert len(await holding(memory.records, stored.vector)) == 2
    receipt = await memory.forget("secret", reason="asked to", actor="ann")
    assert (receipt.count, receipt.expired, receipt.scrubbed, receipt.reason, receipt.actor) == (
        1,
        0,
        1,
        "asked to",
        "ann",
    )
    assert await holding(memory.records, SECRET.encode()) == []
    assert await holding(memory.records, stored.vector) == []
    assert await memory.get("secret") is None
    assert SECRET not in texts(await memory.recall("puppy Rumpelstiltskin", k=10))
    survivors = await memory.verify_forgotten(receipt)
    assert (survivors.gone, survivors.again) == (True, ())
    assert any("backups" in limit for limit in survivors.limits)
    assert survivors.keys > 5


async def test_receipt_gives_nothing_away(store: Store) -> None:
    memory = await filled(store)
    (before,) = await memory.records.fetch(["secret"])
    assert before is not None
    receipt = await memory.forget(["secret", "cash", "never"])
    assert receipt.count == 2
    assert receipt.names("secret")
    assert not receipt.names("kitten")
    for told in ("secret", "cash", SECRET, before.content):
        assert told not in receipt.text()


async def test_receipts_are_a_chain(store: Store) -> None:
    memory = await filled(store)
    first = await memory.forget("secret")
    second = await memory.forget(where={"who": "ann"})
    assert (first.previous, second.previous) == ("", first.digest)
    assert await memory.receipts() == [second, first]
    assert Receipt.parse(second.text()) == second
    assert replace(first, count=7).digest != second.previous
    with pytest.raises(CorruptValue, match="not a receipt"):
        Receipt.parse(b"{}")


async def test_nothing_of_others_goes(store: Store) -> None:
    """By filter, by subject, by path: what is not meant stays, whatever its path begins with."""
    memory = await filled(store)
    path = "/".join(memory.path)
    twin, below = memory_of(store, path=path + "0"), memory_of(store, path=path + "/x/y")
    await twin.remember("of another path", metadata={"who": "ann"})
    await below.remember("deeper", metadata={"who": "ann"})
    receipt = await memory.forget(where={"who": "ann"})
    assert (receipt.count, receipt.total) == (2, 2)
    assert texts_of(await memory.list()) == ["cash in a box"]
    receipt = await memory.forget(where={"who": "ann"}, below=True)
    assert (receipt.count, receipt.total, [one.path for one in receipt.below]) == (0, 1, [below.path])
    assert (await memory.verify_forgotten(receipt)).gone
    assert (await twin.count(), await below.count()) == (1, 0)
    assert (await memory.forget(everything=True, below=True)).total == 1
    assert (await memory.count(), await twin.count()) == (0, 1)


def texts_of(page: object) -> list[str]:
    return [record.text for record in page]  # type: ignore[attr-defined]


async def test_subject_goes_with_its_history(store: Store) -> None:
    memory = memory_of(store, Topics())
    for number, town in enumerate(("Oslo", "Rome", "Bern")):
        await memory.remember(f"Ann lives in {town}", subject="ann/town", valid_from=1_000 + number)
    await memory.remember("Bob lives in Rome", subject="bob/town")
    assert (await memory.forget(subject="ann/town")).count == 3
    assert await memory.history("ann/town") == []
    assert texts_of(await memory.list()) == ["Bob lives in Rome"]


async def test_forgetting_the_current_makes_the_one_before_valid(store: Store) -> None:
    memory = memory_of(store, Topics())
    await memory.remember("Ann lives in Oslo", subject="ann", valid_from=1_000)
    newest = await memory.remember("Ann lives in Rome", subject="ann", valid_from=2_000)
    await memory.forget(newest.id)
    assert texts(await memory.recall("Ann lives")) == ["Ann lives in Oslo"]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"where": {}},
        {"ids": ["a"], "where": {"who": "ann"}},
        {"ids": ["a"], "everything": True},
        {"subject": "s", "everything": True},
        {"ids": [""]},
        {"ids": 5},
        {"ids": True},
        {"ids": b"a"},
        {"ids": [5]},
        {"everything": 1},
        {"everything": "yes"},
        {"everything": None},
        {"where": {"who": {"$ne": ""}}},
        {"where": {"who": {"regex": ".*"}}},
    ],
)
async def test_a_selection_is_exactly_one(store: Store, wrong: dict[str, object]) -> None:
    """A call that does not say what is meant removes nothing, an empty filter least of all."""
    memory = await filled(store)
    with pytest.raises(ConfigError):
        await memory.forget(**wrong)  # type: ignore[arg-type]
    assert await memory.count() == 3


async def test_no_ids_are_nothing(store: Store) -> None:
    memory = await filled(store)
    receipt = await memory.forget([])
    assert (receipt.count, await memory.receipts(), await memory.count()) == (0, [], 3)


async def test_remembered_again_is_told_apart(store: Store) -> None:
    """Whoever says the same again is named, but it is no survivor."""
    memory = memory_of(store, Topics())
    await memory.remember(SECRET)
    receipt = await memory.forget(everything=True)
    again = await memory.remember(SECRET)
    assert not again.duplicate
    survivors = await memory.verify_forgotten(receipt)
    assert (survivors.gone, survivors.again) == (True, (again.id,))
    assert texts(await memory.recall("puppy")) == [SECRET]


async def test_an_id_that_is_used_again_is_no_survivor(store: Store) -> None:
    """What stands under the id was written after the removal, and so do its rows, its vector and its row of the snapshot."""
    memory = memory_of(store, Topics())
    await memory.remember_all([New(SECRET, id=name, subject=name, ttl=3600) for name in ("a", "b")])
    receipt = await memory.forget(["a", "b"])
    await memory.remember("a cat", id="a", subject="other", ttl=3600)
    await memory.remember("a dog", id="c")
    await memory.snapshot()
    await memory.recall("cat")
    survivors = await memory.verify_forgotten(receipt)
    assert (survivors.found, survivors.again) == ((), ("a",))
    await memory.update("a", expected=1, what=SECRET)
    assert (await memory.verify_forgotten(receipt)).again == ("a",)


@pytest.mark.parametrize("left", ["record", "row", "subject"])
async def test_an_id_that_is_used_again_hides_no_survivor(store: Store, left: str) -> None:
    memory = memory_of(store, Topics())
    await memory.remember(SECRET, id="a", subject="ann")
    receipt = await memory.forget("a")
    where = memory.records.keys
    if left == "record":  # of a write before the removal
        await store.command("HSET", where.record("a"), "text", SECRET, "seq", "1")
        key = where.record("a")
    elif left == "row":  # of a record that is not there
        await store.command("ZADD", where.order, 1, "a")
        key = where.order
    else:
        await memory.remember("a cat", id="a")
        await store.command("ZADD", where.subject("ann"), 1, "a")
        key = where.subject("ann")
    assert (await memory.verify_forgotten(receipt)).found == (key,)


@pytest.mark.parametrize("left", ["record", "content", "order", "pending", "chunk"])
async def test_survivors_are_found(store: Store, left: str) -> None:
    """Each place where something may be left is looked at: put there by hand, it is named."""
    memory = await filled(store)
    (stored,) = await memory.records.fetch(["secret"])
    assert stored is not None
    where = memory.records.keys
    pointer = await memory.snapshot()
    assert pointer is not None
    name = where.chunk(pointer.names()[0])
    body = await store.command("GET", name)
    receipt = await memory.forget("secret")
    key, *more = {
        "record": (where.record("secret"), "HSET", "text", "x"),
        "content": (where.content(stored.content), "SET", "secret"),
        "order": (where.order, "ZADD", 1, "secret"),
        "pending": (where.pending, "SADD", "secret"),
        "chunk": (name, "SET", body),
    }[left]
    command, *values = more
    await store.command(command, key, *values)
    survivors = await memory.verify_forgotten(receipt)
    assert survivors.found == (key,)


@pytest.mark.parametrize("moment", ["noted", "removed", "scrubbed"])
async def test_cut_short_is_brought_to_its_end(store: Store, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever tends the path next removes what was noted, scrubs the snapshot, and writes the receipt."""
    memory = await filled(store)
    await memory.snapshot()

    def stop(point: str) -> None:
        if point == f"forget:{moment}":
            raise RuntimeError("cut short")

    with watch(stop), pytest.raises(RuntimeError, match="cut short"):
        await memory.forget("secret", reason="asked to")
    assert (await memory.tend()).finished == 0, "it may be under way"
    later = await memory.remember("a storm", id="later")
    real = store.server_time
    monkeypatch.setattr(store, "server_time", lambda: real() + round(2 * forgetting.GRACE * 1_000_000))
    done = await forgetting.finish(memory.records)
    assert [one.reason for one in done] == ["asked to"]
    assert await forgetting.finish(memory.records) == []
    assert await holding(memory.records, SECRET.encode()) == []
    assert await memory.get("secret") is None
    assert await memory.get(later.id) is not None


async def test_what_was_remembered_since_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forgetting that is brought to its end later does not take what has the same id by now."""
    memory = await filled(store)

    def stop(point: str) -> None:
        if point == "forget:noted":
            raise RuntimeError("cut short")

    with watch(stop), pytest.raises(RuntimeError):
        await memory.forget("secret")
    await memory.remember("something else", id="secret")
    await forgetting.finish(memory.records, grace=-1)
    record = await memory.get("secret")
    assert record is not None
    assert record.text == "something else"


async def test_while_others_remember(store: Store) -> None:
    """What comes to match while a filter is being worked off goes too, as far as it was there when it was looked for."""
    memory = await filled(store)
    added: list[Awaitable[object]] = []

    def more(point: str) -> None:
        if point == "forget:removed" and not added:
            added.append(memory.remember("a late puppy", metadata={"who": "ann"}))

    with watch(more):
        work = memory.forget(where={"who": "ann"})
        receipt = await work
    await added[0]
    assert receipt.count == 2
    assert (await memory.forget(where={"who": "ann"})).count == 1


async def test_scrub_finds_every_generation(store: Store) -> None:
    memory = await filled(store)
    await Snapshots(memory.records).build()
    await memory.remember("more", id="more")
    await Snapshots(memory.records).build()
    receipt = await memory.forget(everything=True)
    assert receipt.count == 4
    assert await holding(memory.records, b"kitten in the rain") == []
