"""Records that say the same: a duplicate is recognised as long as one of them stands, and each row goes with its record."""

from __future__ import annotations

import asyncio

import pytest

from blackboard.memory.memory import Memory
from blackboard.memory.upkeep import tended
from blackboard.store.client import Store
from tests.memory.recalling import memory_of


async def whole(memory: Memory) -> None:
    assert (await memory.verify()).findings == ()


async def keys(memory: Memory, kind: str) -> int:
    found = await memory.records.store.command("KEYS", f"{memory.records.keys.prefix}:{kind}*")
    return len(found)


@pytest.mark.parametrize("how", ["id", "update"])
@pytest.mark.parametrize("gone", ["first", "second"])
async def test_one_of_two_is_forgotten(store: Store, how: str, gone: str) -> None:
    memory = memory_of(store)
    first = await memory.remember("the same", id="z")
    if how == "id":
        await memory.remember("the same", id="b")
    else:
        await memory.remember("other", id="b")
        await memory.update("b", expected=1, what="the same")
    assert (await memory.remember("the same")).id == first.id
    await whole(memory)
    await memory.forget("z" if gone == "first" else "b")
    found = await memory.remember("the same")
    assert (found.duplicate, found.id) == (True, "b" if gone == "first" else "z")
    await whole(memory)
    await memory.forget(everything=True)
    assert (await keys(memory, "content"), await keys(memory, "same")) == (0, 0)


async def test_one_says_something_else(store: Store) -> None:
    memory = memory_of(store)
    await memory.remember("the same", id="a")
    await memory.remember("the same", id="b")
    await memory.update("a", expected=1, what="something else")
    assert (await memory.remember("the same")).id == "b"
    assert (await memory.remember("something else")).id == "a"
    await whole(memory)


@pytest.mark.parametrize("clear", ["sweep", "forget", "again"])
async def test_one_expires(store: Store, clear: str) -> None:
    """Before and after what is left of it is cleared away; nothing names it then."""
    memory = memory_of(store)
    await memory.remember("the same", id="a", ttl=0.001)
    await memory.remember("the same", id="b")
    await memory.remember("the same", id="c", ttl=0.001)
    for _ in range(1000):
        if {"a", "c"} == {*await memory.records.expired()} and await memory.get("c") is None:
            break
        await asyncio.sleep(0.001)
    assert (await memory.remember("the same")).id == "b"
    await whole(memory)
    if clear == "sweep":
        await tended(memory.records, None)
    elif clear == "forget":
        receipt = await memory.forget(["a", "c"])
        assert (await memory.verify_forgotten(receipt)).gone
    else:
        await memory.remember("something else", id="c")
        assert (await memory.remember("something else")).id == "c"
    assert (await memory.remember("the same")).id == "b"
    if clear == "again":
        await memory.forget("a")
    assert await keys(memory, "contents") == 0
    await whole(memory)


async def test_a_merged_record_says_what_others_say(store: Store) -> None:
    from tests.memory.test_sources import together

    memory = memory_of(store)
    for name in "ab":
        await memory.remember(f"says {name}", id=name)
    merged = await together(memory, "a", "b", text="says a")
    assert (await memory.remember("says a")).id == merged.id
    await memory.forget(merged.id)
    assert [(await memory.remember(f"says {name}")).id for name in "ab"] == ["a", "b"]
    await whole(memory)


async def test_about_a_subject_the_current_one_counts(store: Store) -> None:
    """However often it was said before; one that is superseded is no duplicate, and current again it is."""
    memory = memory_of(store)
    await memory.remember("on", id="a", subject="s", valid_from=1)
    await memory.remember("off", id="b", subject="s", valid_from=2)
    last = await memory.remember("on", subject="s", valid_from=3)
    assert not last.duplicate
    assert (await memory.remember("on", subject="s", valid_from=1)).id == last.id
    await memory.forget([last.id, "b"])
    assert (await memory.remember("on", subject="s")).id == "a"
    assert await keys(memory, "content") == 0
    await whole(memory)


async def test_many_that_say_the_same(store: Store) -> None:
    memory = memory_of(store)
    for number in range(120):
        await memory.remember("the same", id=f"n{number}")
    await memory.forget([f"n{number}" for number in range(119)])
    assert (await memory.remember("the same")).id == "n119"
    await whole(memory)


@pytest.mark.parametrize(
    ("command", "kind", "rest", "what"),
    [
        ("ZREM", "same", ("a",), "content missing"),
        ("ZADD", "same", (1, "nothing"), "same orphaned"),
        ("ZADD", "same", (1, "other"), "same mismatched"),
        ("HDEL", "contents", ("b",), "contents missing"),
        ("HSET", "contents", ("nothing", "ab"), "contents orphaned"),
        ("HSET", "contents", ("other", "ab"), "contents mismatched"),
    ],
)
async def test_verified(store: Store, command: str, kind: str, rest: tuple[str | int, ...], what: str) -> None:
    memory = memory_of(store)
    await memory.remember("the same", id="a")
    await memory.remember("the same", id="b", ttl="1h")
    await memory.remember("other", id="other")
    (stored,) = await memory.records.fetch(["a"])
    assert stored is not None
    where = memory.records.keys
    await store.command(command, where.same(stored.content) if kind == "same" else where.contents, *rest)
    report = await memory.verify(repair=True)
    assert [(f"{one.where} {one.what}", one.repaired) for one in report.findings] == [(what, True)]
    await whole(memory)
    await memory.forget("a")
    assert (await memory.remember("the same")).id == "b"


async def test_a_path_of_before(store: Store) -> None:
    """One string names who said it last; that goes on, and verifying enters the other."""
    memory = memory_of(store)
    await memory.remember("the same", id="a")
    await memory.remember("the same", id="b")
    (stored,) = await memory.records.fetch(["b"])
    assert stored is not None
    where = memory.records.keys
    await store.command("DEL", where.same(stored.content))
    await store.command("SET", where.content(stored.content), "b")
    assert (await memory.remember("the same")).id == "b"
    report = await memory.verify(repair=True)
    assert [(one.where, one.what, one.name, one.repaired) for one in report.findings] == [
        ("content", "missing", "a", True)
    ]
    assert (await memory.remember("the same")).id == "a"
    await whole(memory)
