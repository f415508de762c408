"""What a merged record stood for is current again when that ends, in whatever way; nothing stays behind what is gone."""

from __future__ import annotations

import asyncio

import pytest

from blackboard.memory.consolidation import Group, Merged, Plan, Source
from blackboard.memory.memory import Memory
from blackboard.memory.new import New
from blackboard.memory.upkeep import tended
from blackboard.points import watch
from blackboard.store.client import Store
from tests.memory.recalling import Topics, memory_of, texts

KITTEN = "The kitten sleeps in the big red box"


async def filled(store: Store) -> Memory:
    memory = memory_of(store, Topics())
    await memory.remember_all([New(f"kitten {name}", id=name) for name in ("a", "b", "c")])
    return memory


async def together(memory: Memory, *ids: str, text: str = KITTEN) -> Merged:
    """Let one record stand for others as they are now."""
    found = [record for record in [await memory.get(name) for name in ids] if record is not None]
    group = Group(tuple(Source(one.id, one.version, one.text) for one in found), text, 1.0)
    (merged,) = (await memory.apply(Plan(memory.records.path, (group,), len(found)))).merged
    return merged


async def standing(memory: Memory) -> dict[str, tuple[int, str | None]]:
    return {one.id: (one.version, one.superseded_by) for one in await memory.list()}


async def whole(memory: Memory) -> None:
    assert (await memory.verify()).findings == ()


async def test_forgotten(store: Store) -> None:
    """The sources are current again, in every view, and nothing names what is gone."""
    memory = await filled(store)
    other = memory_of(store, Topics(), path="/".join(memory.path))
    merged = await together(memory, "a", "b", "c")
    assert texts(await other.recall("kitten")) == [KITTEN]
    await memory.forget(merged.id)
    assert await standing(memory) == {"a": (3, None), "b": (3, None), "c": (3, None)}
    assert set(texts(await other.recall("kitten"))) == {"kitten a", "kitten b", "kitten c"}
    assert [one.valid_until for one in await memory.list()] == [None] * 3
    assert await memory.undo(merged) == 0
    assert await store.command("EXISTS", memory.records.keys.sources) == 0
    await whole(memory)
    assert (await memory.verify_forgotten((await memory.receipts())[0])).gone


async def test_forgotten_with_its_sources(store: Store) -> None:
    memory = await filled(store)
    merged = await together(memory, "a", "b", "c")
    receipt = await memory.forget([merged.id, *merged.sources])
    assert (receipt.count, await memory.count()) == (4, 0)
    assert await store.command("EXISTS", memory.records.keys.sources) == 0
    assert (await memory.verify_forgotten(receipt)).gone


async def test_only_what_it_still_supersedes(store: Store) -> None:
    """One source is forgotten and remembered again, one is put where it is current; neither is touched."""
    memory = await filled(store)
    merged = await together(memory, "a", "b", "c")
    await memory.forget("a")
    again = await memory.remember("kitten a", id="a")
    moved = await memory.remember("kitten b", id="b", subject="kitten")
    await memory.forget(merged.id)
    assert await standing(memory) == {"b": (moved.version, None), "c": (3, None), "a": (again.version, None)}
    await whole(memory)


async def test_a_source_that_says_the_same_is_found_again(store: Store) -> None:
    memory = await filled(store)
    merged = await together(memory, "a", "b", text="kitten b")
    await memory.forget(merged.id)
    assert (await memory.remember("kitten b")).id == "b"
    await whole(memory)


async def test_merged_again(store: Store) -> None:
    """What stood for some is forgotten while another stands for it: that one stands for them, and gives them back."""
    memory = await filled(store)
    first = await together(memory, "a", "b")
    second = await together(memory, first.id, "c", text="all of them")
    await memory.forget(first.id)
    assert {name: by for name, (_, by) in (await standing(memory)).items()} == {
        "a": second.id, "b": second.id, "c": second.id, second.id: None,
    }  # fmt: skip
    await whole(memory)
    assert await memory.undo(second) == 3
    assert {name: by for name, (_, by) in (await standing(memory)).items()} == {"a": None, "b": None, "c": None}
    await whole(memory)


async def test_updated(store: Store) -> None:
    """It stands for its sources all the same, whatever it says by now."""
    memory = await filled(store)
    merged = await together(memory, "a", "b", "c")
    await memory.update(merged.id, expected=1, what="Something else")
    assert texts(await memory.recall("kitten")) == ["Something else"]
    await memory.remember("And else again", id=merged.id)
    await whole(memory)
    await memory.forget(merged.id)
    assert {by for _, by in (await standing(memory)).values()} == {None}
    assert await memory.count() == 3


async def expired(memory: Memory) -> Merged:
    """A merged record whose time is over; its sources were made to last since, in the way that an update does it."""
    merged = await together(memory, "a", "b", "c")
    await memory.update(merged.id, expected=1, ttl=0.001)
    for _ in range(1000):
        if merged.id in await memory.records.expired() and await memory.get(merged.id) is None:
            return merged
        await asyncio.sleep(0.001)
    raise AssertionError("it does not expire")


@pytest.mark.parametrize("how", ["tended", "forgotten"])
async def test_expired(store: Store, how: str) -> None:
    """Sources that last longer are current again when what is left of it is cleared away."""
    memory = await filled(store)
    merged = await expired(memory)
    await whole(memory)
    if how == "tended":
        await tended(memory.records, None)
    else:
        await memory.forget(merged.id)
    assert await standing(memory) == {"a": (3, None), "b": (3, None), "c": (3, None)}
    await whole(memory)


async def test_remembered_after_it_expired(store: Store) -> None:
    """Another record under its id is no merge: what is left of it ends there."""
    memory = await filled(store)
    merged = await expired(memory)
    await memory.remember("Something else", id=merged.id)
    assert await standing(memory) == {"a": (3, None), "b": (3, None), "c": (3, None), merged.id: (1, None)}
    await whole(memory)


async def test_not_merged_before_what_is_left_is_cleared(store: Store) -> None:
    """A group whose id has rows left of one that expired is skipped, and counted right."""
    memory = await filled(store)
    merged = await expired(memory)
    await memory.forget(["a", "b", "c"])
    await memory.remember_all([New(f"kitten {name}", id=name) for name in ("a", "b", "c")])
    with pytest.raises(ValueError, match="not enough values"):
        await together(memory, "a", "b", "c")
    await tended(memory.records, None)
    assert (await together(memory, "a", "b", "c")).id == merged.id
    assert await memory.count() == 4
    await whole(memory)


async def test_evicted(store: Store) -> None:
    """The budget takes a source and then the merged record; the source that is pinned is current."""
    memory = memory_of(store, None, budget=2)
    for at, name in enumerate("abcd"):
        await memory.remember(f"kitten {name}", id=name, importance=at / 10)
    await together(memory, "a", "b")
    await memory.update("a", expected=2, pinned=True)
    assert (await tended(memory.records, None)).evicted == 2
    assert await standing(memory) == {"a": (4, None), "c": (1, None), "d": (1, None)}
    await whole(memory)


async def test_undone_in_part(store: Store) -> None:
    """All that it superseded is current, named or not."""
    memory = await filled(store)
    merged = await together(memory, "a", "b", "c")
    assert await memory.undo(Merged(merged.id, ("b",))) == 3
    assert await standing(memory) == {"a": (3, None), "b": (3, None), "c": (3, None)}
    await whole(memory)


async def test_forgotten_after_an_undoing_that_was_cut_short(store: Store) -> None:
    memory = await filled(store)
    merged = await together(memory, "a", "b", "c")

    def stop(point: str) -> None:
        if point == "undo:parted":
            raise RuntimeError(point)

    with watch(stop), pytest.raises(RuntimeError, match="parted"):
        await memory.undo(merged)
    await whole(memory)
    await memory.forget("a")
    assert await standing(memory) == {"b": (3, None), "c": (3, None), merged.id: (3, None)}
    await whole(memory)


async def test_more_than_are_asked_for_at_once(store: Store) -> None:
    memory = memory_of(store, None)
    names = [f"n{number}" for number in range(1100)]
    await memory.remember_all([New(f"kitten {name}", id=name) for name in names])
    merged = await together(memory, *names)
    await memory.forget(merged.id)
    assert {
        record.superseded_by async for page in memory.records.walk() for record in [one.record for one in page]
    } == {None}
    assert await memory.count() == 1100
    await whole(memory)


@pytest.mark.parametrize(
    ("damage", "what", "name"),
    [
        (("HSET", "record:a", "superseded_by", "lost"), "superseded orphaned", "a"),
        (("ZREM", "sources", "a"), "sources missing", "a"),
        (("ZADD", "sources", 1, "a"), "sources mismatched", "a"),
        (("ZADD", "sources", 1, "d"), "sources mismatched", "d"),
        (("ZADD", "sources", 1, "nothing"), "sources orphaned", "nothing"),
    ],
)
async def test_verified(store: Store, damage: tuple[str, str, *tuple[str | int, ...]], what: str, name: str) -> None:
    """What is superseded by nothing, and rows that do not fit, are named and mended, and every view follows."""
    memory = await filled(store)
    await memory.remember("kitten d", id="d")
    merged = await together(memory, "a", "b", "c")
    other = memory_of(store, Topics(), path="/".join(memory.path))
    await other.recall("kitten")
    command, key, *rest = damage
    await store.command(command, f"{memory.records.keys.prefix}:{key}", *rest)
    report = await memory.verify(repair=True)
    assert [(f"{one.where} {one.what}", one.name, one.repaired) for one in report.findings] == [(what, name, True)]
    await whole(memory)
    expected = {KITTEN, "kitten d"} | ({"kitten a"} if what.startswith("superseded") else set())
    assert set(texts(await other.recall("kitten"))) == expected
    await memory.forget(merged.id)
    assert {by for _, by in (await standing(memory)).values()} == {None}
    await whole(memory)


async def test_merged_before_sources_were_entered(store: Store) -> None:
    """Of a path written by an earlier version: forgetting and undoing go as they did, and verifying enters or frees them."""
    memory = await filled(store)
    merged = await together(memory, "a", "b", "c")
    where = memory.records.keys
    await store.command("DEL", where.sources)
    report = await memory.verify(repair=True)
    assert sorted((one.where, one.what, one.name, one.repaired) for one in report.findings) == [
        ("sources", "missing", name, True) for name in "abc"
    ]
    await store.command("DEL", where.sources)
    assert await memory.undo(merged) == 3
    await whole(memory)
    merged = await together(memory, "a", "b", "c")
    await store.command("DEL", where.sources)
    await memory.forget(merged.id)
    assert {by for _, by in (await standing(memory)).values()} == {merged.id}
    report = await memory.verify(repair=True)
    assert sorted((one.where, one.what, one.name, one.repaired) for one in report.findings) == [
        ("superseded", "orphaned", name, True) for name in "abc"
    ]
    assert set(texts(await memory.recall("kitten"))) == {"kitten a", "kitten b", "kitten c"}
    await whole(memory)
