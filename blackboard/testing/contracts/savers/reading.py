"""Contracts of reading: what is newest, what a list holds and in which order, what a filter lets pass, which ids there are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from blackboard.testing.contracts.savers.case import (
    Case,
    Saver,
    at,
    checkpoint,
    config,
    ids,
    latest,
    names,
    promise,
    put,
    seen,
)

__all__ = ["CONTRACTS", "TROUBLE"]

TROUBLE: Sequence[str] = (
    "user1", "user2", "user[12]", "user*", "user?", "user[^1]", "my-doc.md#0", "a b", "a:b", "a.b", "a|b", "a\\b", "{a}b",
    "u@example.com", "%2A", "ключ", "日本", "-dash", "(x)", "$x", "a'b", 'a"b', "a/../b", "a\nb", "\ttab", "é", "e\u0301",
    "\u202egnp", "\U0001f600", "__no__", "~x", "*", "?", "a" * 1024, "й" * 512,
)  # fmt: skip
"""Ids that some store or other takes for a pattern, a separator, or an id that is spelled alike."""


@promise()
async def what_is_not_there_is_nothing(case: Case) -> None:
    """An unknown thread, namespace or checkpoint reads as None and lists as empty; deleting it does nothing."""
    async with case.saver() as saver:
        thread, (known, unknown) = case.thread(), names(2)
        await saver.adelete_thread(thread)
        for where in (config(thread), config(thread, unknown), config(thread, ns="child:1")):
            assert await saver.aget_tuple(where) is None
            assert await ids(saver, where) == []
        await put(saver, config(thread), checkpoint(known, n=1))
        for where in (config(thread, unknown), config(thread, ns="child:1"), config(thread, known, ns="child:1")):
            assert await saver.aget_tuple(where) is None
            assert await ids(saver, where) == []
        assert await ids(saver, config(thread), filter={"step": 99}) == []


@promise()
async def the_newest_is_the_largest_id(case: Case) -> None:
    """Whatever the order of the puts: forks and background writes come late."""
    async with case.saver() as saver:
        thread, (first, second, third) = case.thread(), names(3)
        for name in (second, third, first):
            await put(saver, config(thread), checkpoint(name, n=name))
            expected = third if name != second else second
            assert (await latest(saver, config(thread))).checkpoint["channel_values"] == {"n": expected}


@promise()
async def lists_are_ordered_and_cut_by_ids(case: Case) -> None:
    """Newest id first; `before` compares with ids that are not there as well, and `limit` counts what is listed."""
    async with case.saver() as saver:
        thread, made = case.thread(), names(7)
        stored, gaps = made[0::2], made[1::2]
        for at in (2, 0, 3, 1):
            await put(saver, config(thread), checkpoint(stored[at]))
        down = stored[::-1]
        assert await ids(saver, config(thread)) == down
        assert await ids(saver, config(thread), limit=2) == down[:2]
        assert await ids(saver, config(thread), limit=9) == down
        for at, gap in enumerate(gaps):
            assert await ids(saver, config(thread), before=config("another", gap)) == stored[at::-1]
        assert await ids(saver, config(thread), before=config(thread, stored[2])) == [stored[1], stored[0]]
        assert await ids(saver, config(thread), before=config(thread, stored[2]), limit=1) == [stored[1]]
        assert await ids(saver, config(thread), before=config(thread, stored[0])) == []
        assert await ids(saver, config(thread, stored[1])) == [stored[1]]


@promise()
async def namespaces_are_apart(case: Case) -> None:
    """A config that names a namespace means this one alone, also the root; one that names none means all."""
    async with case.saver() as saver:
        thread, made = case.thread(), names(4)
        spaces = ("", "child:1", "child:1|x:2", "child:10")
        for name, space in zip(made, spaces, strict=True):
            await put(saver, config(thread, ns=space), checkpoint(name, n=space))
        for name, space in zip(made, spaces, strict=True):
            assert await ids(saver, config(thread, ns=space)) == [name]
            assert (await latest(saver, config(thread, ns=space))).checkpoint["channel_values"] == {"n": space}
        everywhere: Any = {"configurable": {"thread_id": thread}}
        assert sorted(await ids(saver, everywhere)) == sorted(made)
        listed = [at(found.config)["thread_id"] async for found in saver.alist(None)]
        assert listed.count(thread) == 4


FILTERED: Sequence[dict[str, Any]] = (
    {"user": "alice", "n": 9, "tags": ["a", "b"], "deep": {"x": {"y": 1}}},
    {"user": "bob", "n": "9", "tags": ["a"], "deep": {"x": {"y": 2}}},
    {"user": "alice*", "n": 10, "tags": [], "deep": {}},
    {"user": "", "n": 9.5, "a.b": 1, "with space": "x", "quote'\"": "x"},
)

ASKED: Sequence[tuple[dict[str, Any], list[int]]] = (
    ({"user": "alice"}, [0]), ({"user": "alice*"}, [2]), ({"user": "*"}, []), ({"user": ""}, [3]), ({"user": "ali"}, []),
    ({"n": 9}, [0]), ({"n": "9"}, [1]), ({"n": 9.5}, [3]), ({"n": 10}, [2]), ({"n": 1}, []),
    ({"tags": ["a"]}, [1]), ({"tags": ["a", "b"]}, [0]), ({"tags": ["b", "a"]}, []), ({"tags": "a"}, []), ({"tags": []}, [2]),
    ({"deep": {"x": {"y": 1}}}, [0]), ({"deep": {"x": {}}}, []), ({"a.b": 1}, [3]), ({"with space": "x"}, [3]),
    ({"quote'\"": "x"}, [3]), ({"user": "alice", "n": 9}, [0]), ({"user": "alice", "n": 10}, []), ({}, [3, 2, 1, 0]),
    ({"user": '") or true or ("'}, []), ({"user": {"$ne": ""}}, []), ({"user": {"$regex": ".*"}}, []),
    ({"user": "alice|bob"}, []), ({"user": "alice} @user:{bob"}, []), ({"user": ["alice", "bob"]}, []),
)  # fmt: skip
"""A filter, and which of the checkpoints above it lets pass, newest first."""

HOSTILE: Sequence[dict[str, Any]] = ({"v' OR 1=1 --": 1}, {"": "x"}, {"__class__": 1}, {"user') OR ('1'='1": "x"})
"""Keys that are no keys of any metadata: nothing passes, or the saver raises."""


@promise()
async def filters_are_exact(case: Case) -> None:
    """Any key of the metadata, equal in value and kind; no pattern, no operator, and no way out into a query."""
    async with case.saver() as saver:
        thread, made = case.thread(), names(len(FILTERED))
        for name, metadata in zip(made, FILTERED, strict=True):
            await put(saver, config(thread), checkpoint(name), **metadata)
        for asked, passing in ASKED:
            found = await ids(saver, config(thread), filter=asked)
            assert found == [made[at] for at in passing], f"filter {asked}"
            assert await ids(saver, config(thread), filter=asked, limit=1) == found[:1], f"filter {asked} with a limit"
        for asked in HOSTILE:
            try:
                found = await ids(saver, config(thread), filter=asked)
            except Exception:  # noqa: BLE001 - refusing such a key is right as well
                continue
            assert found == [], f"filter {asked}"


def _any_character() -> Iterator[str]:
    """Yield ids that together hold every ASCII character and some of every part of Unicode."""
    yield from (f"a{chr(code)}z" for code in range(1, 128))
    points = [code for code in range(0x80, 0x110000, 0x3D7) if not 0xD800 <= code < 0xE000]
    for start in range(0, len(points), 100):
        yield "".join(map(chr, points[start : start + 100]))


@promise()
async def ids_hold_any_character(case: Case) -> None:
    """Every thread, namespace and task that is stored is found under its own id, and deleting one leaves the others."""
    async with case.saver() as saver:
        mark, (name,) = case.thread()[-8:], names(1)
        threads = [*(_fitted(mark, each) for each in TROUBLE), *(_fitted(mark, each) for each in _any_character())]
        for number, thread in enumerate(threads):
            await put(saver, config(thread), checkpoint(name, n=number))
            await saver.aput_writes(config(thread, name), [("x", number)], thread)
        gone = {_fitted(mark, each) for each in ("user[12]", "user*", "*", "?", "a:b", "%2A", "{a}b", "日本")}
        for thread in gone:
            await saver.adelete_thread(thread)
        for number, thread in enumerate(threads):
            found = await saver.aget_tuple(config(thread))
            told = None if found is None else (found.checkpoint["channel_values"], found.pending_writes)
            assert told == (None if thread in gone else ({"n": number}, [(thread, "x", number)])), repr(thread)
        await _namespaces_of_any_character(saver, case.thread(), name)


async def _namespaces_of_any_character(saver: Saver, thread: str, name: str) -> None:
    for space in TROUBLE:
        await put(saver, config(thread, ns=space), checkpoint(name, n=space))
    state = await seen(saver, thread, TROUBLE)
    assert {space: [one[1] for one in found] for space, found in state.items()} == {
        space: [{"n": space}] for space in TROUBLE
    }


def _fitted(mark: str, tail: str) -> str:
    """Put a mark before an id, so that it is nobody else's, and cut it to 1,024 bytes."""
    whole = (mark + tail).encode()[:1024]
    return whole.decode(errors="ignore")


@promise("sync")
async def sync_and_async_are_one(case: Case) -> None:
    """What one stores the other reads, the same in every part; sync methods answer from another thread."""
    async with case.saver() as saver:
        threads, made = (case.thread(), case.thread()), [checkpoint(n=number, items=[number]) for number in range(3)]
        told: Any = {"source": "loop", "step": 1, "parents": {}}

        def through_sync() -> None:
            where = config(threads[0])
            for one in made:
                where = saver.put(where, one, told, one["channel_versions"])
                saver.put_writes(where, [("x", 1), ("y", [2])], "task", "path")

        await asyncio.to_thread(through_sync)
        where = config(threads[1])
        for one in made:
            where = await saver.aput(where, one, told, one["channel_versions"])
            await saver.aput_writes(where, [("x", 1), ("y", [2])], "task", "path")
        assert await seen(saver, threads[0]) == await seen(saver, threads[1])

        def told_by_sync(thread: str) -> Any:
            found = [(each.checkpoint, each.metadata, each.pending_writes) for each in saver.list(config(thread))]
            newest = saver.get_tuple(config(thread))
            assert newest is not None
            return found, newest.checkpoint, saver.get_tuple(config(thread, names(1)[0]))

        for thread in threads:
            listed = [(e.checkpoint, e.metadata, e.pending_writes) async for e in saver.alist(config(thread))]
            newest = (await latest(saver, config(thread))).checkpoint
            assert await asyncio.to_thread(told_by_sync, thread) == (listed, newest, None)
        await asyncio.to_thread(saver.delete_thread, threads[0])
        assert await seen(saver, threads[0]) == {}


CONTRACTS = (
    what_is_not_there_is_nothing,
    the_newest_is_the_largest_id,
    lists_are_ordered_and_cut_by_ids,
    namespaces_are_apart,
    filters_are_exact,
    ids_hold_any_character,
    sync_and_async_are_one,
)
