"""Contracts of ownership: who drives a thread alone writes to it, and who was superseded is told so."""

from __future__ import annotations

from typing import Any

from blackboard.testing.contracts.savers.case import (
    Case,
    Saver,
    at,
    checkpoint,
    config,
    latest,
    names,
    promise,
    put,
    refused,
    seen,
)

__all__ = ["CONTRACTS"]

SPACES = ("", "child:1")


def _shown(where: Any, owner: Any) -> Any:
    """Add what an owner shows to a config."""
    return {"configurable": {**at(where), **owner}}


async def _two_writes(saver: Saver, where: Any, name: str) -> list[Any]:
    """Begin a put below a checkpoint, pending writes on it, and a put in a namespace below; none is awaited yet."""
    below = _shown(config(at(where)["thread_id"], ns=SPACES[1]), _owner(where))
    return [
        put(saver, where, checkpoint(name, n="intruder")),
        saver.aput_writes(where, [("x", "intruder")], "intruder"),
        put(saver, below, checkpoint(name, n="intruder")),
    ]


def _owner(where: Any) -> dict[str, Any]:
    known = ("thread_id", "checkpoint_ns", "checkpoint_id")
    return {key: value for key, value in at(where).items() if key not in known}


@promise("lease")
async def two_writers_on_one_parent(case: Case) -> None:
    """Of two who continue the same checkpoint only the owner does: the history stays one chain."""
    async with case.saver() as ours, case.saver() as theirs:
        thread, made = case.thread(), names(4)
        async with case.owned(ours, thread) as owner:
            root = await put(ours, _shown(config(thread), owner), checkpoint(made[0], n=0))
            first = await put(ours, _shown(root, owner), checkpoint(made[1], n=1))
            await refused(await _two_writes(theirs, root, made[2]))
            await put(ours, _shown(first, owner), checkpoint(made[3], n=3))
        assert await seen(theirs, thread, SPACES) == {
            "": [(made[3], {"n": 3}, made[1], []), (made[1], {"n": 1}, made[0], []), (made[0], {"n": 0}, None, [])]
        }


@promise("lease")
async def a_stale_owner_is_refused(case: Case) -> None:
    """Who was superseded can write nothing, neither while the new owner is there nor after it has gone."""
    async with case.saver() as ours, case.saver() as theirs:
        thread, made = case.thread(), names(4)
        async with case.owned(ours, thread) as stale:
            root = await put(ours, _shown(config(thread), stale), checkpoint(made[0], n=0))
        async with case.owned(theirs, thread) as owner:
            await refused(await _two_writes(ours, _shown(root, stale), made[1]))
            await put(theirs, _shown(root, owner), checkpoint(made[2], n=2))
            await refused(await _two_writes(ours, _shown(root, stale), made[3]))
        await refused(await _two_writes(ours, _shown(root, stale), made[3]))
        assert await seen(ours, thread, SPACES) == {
            "": [(made[2], {"n": 2}, made[0], []), (made[0], {"n": 0}, None, [])]
        }


@promise("lease")
async def a_thread_that_is_owned_takes_no_other_writes(case: Case) -> None:
    """Also a thread without a checkpoint yet; when its owner has gone, anybody may write as before."""
    async with case.saver() as ours, case.saver() as theirs:
        thread, made = case.thread(), names(2)
        async with case.owned(ours, thread) as owner:
            await refused([put(theirs, config(thread), checkpoint(made[0], n="intruder"))])
            await refused([theirs.aput_writes(config(thread, made[0]), [("x", "intruder")], "intruder")])
            where = await put(ours, _shown(config(thread), owner), checkpoint(made[0], n=0))
        await put(theirs, where, checkpoint(made[1], n=1))
        await theirs.aput_writes(where, [("x", 1)], "task")
        assert await seen(ours, thread, SPACES) == {
            "": [(made[1], {"n": 1}, made[0], []), (made[0], {"n": 0}, None, [("task", "x", 1)])]
        }


@promise("lease")
async def ownership_is_no_part_of_the_state(case: Case) -> None:
    """What an owner shows is stored in no metadata, and comes back in no config."""
    async with case.saver() as saver:
        thread, (name,) = case.thread(), names(1)
        async with case.owned(saver, thread) as owner:
            where = await put(saver, _shown(config(thread), owner), checkpoint(name, n=0), colour="red")
            found = await latest(saver, _shown(config(thread), owner))
        assert found.metadata.get("colour") == "red"
        for key in owner:
            assert key not in found.metadata
            assert key not in at(found.config)
            assert key not in at(where)


CONTRACTS = (
    two_writers_on_one_parent,
    a_stale_owner_is_refused,
    a_thread_that_is_owned_takes_no_other_writes,
    ownership_is_no_part_of_the_state,
)
