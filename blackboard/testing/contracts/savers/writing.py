"""Contracts of writing: puts again, pending writes before their checkpoint, and many writers at once."""

from __future__ import annotations

import asyncio
from typing import Any

from blackboard.testing.contracts.savers.case import Case, checkpoint, config, ids, latest, names, promise, put, seen

__all__ = ["CONTRACTS"]

WRITERS = 60
"""More than a pool of connections has by default, as a graph with parallel branches has."""


@promise()
async def a_put_again_replaces(case: Case) -> None:
    """The same id is one checkpoint, and the last put counts."""
    async with case.saver() as saver:
        thread, (name,) = case.thread(), names(1)
        for number in (1, 2):
            await put(saver, config(thread), checkpoint(name, n=number, items=[number] * 100))
        assert await seen(saver, thread) == {"": [(name, {"n": 2, "items": [2] * 100}, None, [])]}


@promise()
async def writes_may_come_before_their_checkpoint(case: Case) -> None:
    """They are no checkpoint, and none of them is lost."""
    async with case.saver() as saver:
        thread, (first, second) = case.thread(), names(2)
        await saver.aput_writes(config(thread, first), [("x", 1), ("y", 2)], "task")
        assert await saver.aget_tuple(config(thread)) is None
        assert await ids(saver, config(thread)) == []
        where = await put(saver, config(thread), checkpoint(first))
        await saver.aput_writes(config(thread, second), [("x", 3)], "task")
        assert await ids(saver, config(thread)) == [first]
        await put(saver, where, checkpoint(second))
        assert await seen(saver, thread) == {
            "": [(second, {}, first, [("task", "x", 3)]), (first, {}, None, [("task", "x", 1), ("task", "y", 2)])]
        }


@promise()
async def writes_are_kept_once(case: Case) -> None:
    """Of one task and place the first counts; of LangGraph's own channels the last, as an answer may be given again."""
    async with case.saver() as saver:
        thread, (name,) = case.thread(), names(1)
        where = await put(saver, config(thread), checkpoint(name))
        for turn in (1, 2):
            await saver.aput_writes(where, [("x", turn), ("y", turn)], "task")
            await saver.aput_writes(where, [("__interrupt__", turn)], "task")
        found = await seen(saver, thread)
        assert found[""][0][3] == [("task", "__interrupt__", 2), ("task", "x", 1), ("task", "y", 1)]


@promise()
async def writes_come_in_the_order_of_their_tasks(case: Case) -> None:
    """By the path of the task, then its id, then the place: so that a reducer gives the same result everywhere."""
    async with case.saver() as saver:
        thread, (name,) = case.thread(), names(1)
        where = await put(saver, config(thread), checkpoint(name))
        for task, path in (("t2", "~__pregel_pull, b"), ("t1", "~__pregel_pull, a"), ("t0", "~__pregel_pull, a")):
            await saver.aput_writes(where, [("x", task), ("y", task)], task, path)
        found = (await latest(saver, config(thread))).pending_writes or []
        assert [(task, channel) for task, channel, _ in found] == [
            (task, channel) for task in ("t0", "t1", "t2") for channel in ("x", "y")
        ]


@promise()
async def writers_at_once_lose_nothing(case: Case) -> None:
    """Sixty tasks, each of which stores its writes twice, through two savers at the same time."""
    async with case.saver() as one, case.saver() as other:
        thread, (name,) = case.thread(), names(1)
        where = await put(one, config(thread), checkpoint(name))
        calls = [
            saver.aput_writes(where, [("x", number), ("y", [number])], f"task-{number:02}")
            for number in range(WRITERS)
            for saver in (one, other)
        ]
        await asyncio.gather(*calls)
        found = (await seen(one, thread))[""][0][3]
        expected = [
            (f"task-{n:02}", channel, value) for n in range(WRITERS) for channel, value in (("x", n), ("y", [n]))
        ]
        assert found == sorted(expected, key=repr)


@promise()
async def branches_share_no_state(case: Case) -> None:
    """Two children of one parent, written at once: each has what it was given, and so has the parent still."""
    async with case.saver() as saver:
        thread, (root, *children) = case.thread(), names(9)
        items: list[Any] = [{"text": "x" * 50, "n": number} for number in range(10)]
        where = await put(saver, config(thread), checkpoint(root, items=items))
        made = {child: [*items, child] for child in children}
        await asyncio.gather(*(put(saver, where, checkpoint(child, items=grown)) for child, grown in made.items()))
        found = await seen(saver, thread)
        assert {name: values["items"] for name, values, _, _ in found[""]} == {root: items, **made}


CONTRACTS = (
    a_put_again_replaces,
    writes_may_come_before_their_checkpoint,
    writes_are_kept_once,
    writes_come_in_the_order_of_their_tasks,
    writers_at_once_lose_nothing,
    branches_share_no_state,
)
