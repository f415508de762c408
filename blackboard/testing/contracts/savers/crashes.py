"""Contracts of trouble on the wire: a reply that is lost, and a writer that dies at any of its commands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from blackboard.testing.contracts.savers.case import Case, Saver, State, checkpoint, config, names, promise, put, seen

__all__ = ["CONTRACTS"]

SPACES = ("", "child:1")
MOST_COMMANDS = 400
"""More commands than an operation on a handful of checkpoints can need."""

LONG = 3
"""Checkpoints of the threads that are deleted and pruned; a copy has two, and the namespace below one less."""


@dataclass(frozen=True, slots=True)
class Scene:
    """An operation on a thread: what stands before it, what it does, and whether each namespace is a unit of its own.

    `target` names the thread that the operation makes, where that is another one.
    """

    before: Callable[[Saver, str], Awaitable[Any]]
    act: Callable[[Saver, str], Awaitable[Any]]
    apart: bool = False
    target: Callable[[str], str] | None = None

    async def look(self, saver: Saver, thread: str) -> tuple[State, State]:
        """Tell what stands of the thread, and of the one that the operation makes."""
        made = {} if self.target is None else await seen(saver, self.target(thread), SPACES)
        return await seen(saver, thread, SPACES), made


async def _history(saver: Saver, thread: str, made: list[str]) -> None:
    where, text = config(thread), "t" * 300
    for number, name in enumerate(made):
        items = [f"{at}" * 40 for at in range(number + 1)]
        where = await put(saver, where, checkpoint(name, n=number, text=text, items=items), step=number)
        await saver.aput_writes(where, [("x", number), ("y", text)], "task")
    for name in made[1:]:
        await put(saver, config(thread, ns=SPACES[1]), checkpoint(name, n=name))


def _putting() -> Scene:
    made = names(3)

    async def act(saver: Saver, thread: str) -> None:
        grown = checkpoint(made[2], n=2, text="another" * 50, items=[f"{at}" * 40 for at in range(3)])
        await put(saver, config(thread, made[1]), grown)

    return Scene(lambda saver, thread: _history(saver, thread, made[:2]), act)


def _beginning() -> Scene:
    (name,) = names(1)

    async def before(saver: Saver, thread: str) -> None:
        """Nothing stands."""

    async def act(saver: Saver, thread: str) -> None:
        await put(saver, config(thread), checkpoint(name, n=0, items=["x" * 40] * 10))

    return Scene(before, act)


def _writing() -> Scene:
    made = names(2)

    async def act(saver: Saver, thread: str) -> None:
        await saver.aput_writes(config(thread, made[1]), [("x", 1), ("y", "t" * 300)], "another", "path")

    return Scene(lambda saver, thread: _history(saver, thread, made), act)


def _deleting() -> Scene:
    made = names(LONG)
    return Scene(
        lambda saver, thread: _history(saver, thread, made), lambda saver, thread: saver.adelete_thread(thread)
    )


def _pruning() -> Scene:
    made = names(LONG)
    return Scene(
        lambda saver, thread: _history(saver, thread, made), lambda saver, thread: saver.aprune([thread]), apart=True
    )


def _copying() -> Scene:
    made = names(2)

    def target(thread: str) -> str:
        return f"{thread}-copy"

    async def act(saver: Saver, thread: str) -> None:
        await saver.acopy_thread(thread, target(thread))

    return Scene(lambda saver, thread: _history(saver, thread, made), act, target=target)


async def _outcome(case: Case, scene: Scene) -> tuple[tuple[State, State], tuple[State, State]]:
    """Play a scene without trouble; returns what stands before and after it."""
    thread = case.thread()
    async with case.saver() as saver:
        await scene.before(saver, thread)
        old = await scene.look(saver, thread)
        await scene.act(saver, thread)
        new = await scene.look(saver, thread)
    assert old != new, "the operation changes nothing"
    return old, new


async def _crash_everywhere(case: Case, scene: Scene) -> None:
    """Let a writer die at each command, before and after it is executed; another then finds the old or the new, and goes on."""
    old, new = await _outcome(case, scene)
    async with case.saver() as other:
        for executed in (False, True):
            for at in range(MOST_COMMANDS):
                thread = case.thread()
                await scene.before(other, thread)
                if not await _dies(case, scene, thread, at, executed=executed):
                    assert at > 0, "the operation sent nothing"
                    break
                where = f"{'after' if executed else 'before'} command {at}"
                found = await scene.look(other, thread)
                assert _is_one_of(found, old, new, apart=scene.apart), f"{where}: {found} is neither {old} nor {new}"
                if scene.target is None or found != new:
                    await scene.act(other, thread)
                assert await scene.look(other, thread) == new, f"{where}: done again it is not as it should be"
                await _goes_on(other, thread if scene.target is None else scene.target(thread), where)
            else:
                raise AssertionError(f"an operation of more than {MOST_COMMANDS} commands")


async def _dies(case: Case, scene: Scene, thread: str, at: int, *, executed: bool) -> bool:
    """Let a writer die at a command; False if it needed fewer."""
    async with case.saver() as saver:
        cut = case.wire.cut(at, executed=executed, once=False)
        work = asyncio.ensure_future(_acted(scene, saver, thread))
        noticed = asyncio.ensure_future(cut.noticed.wait())
        await asyncio.wait([work, noticed], return_when=asyncio.FIRST_COMPLETED)
        for task in (work, noticed):
            task.cancel()
        done, _ = await asyncio.gather(work, noticed, return_exceptions=True)
        if not cut.reached.is_set() and isinstance(done, Exception):
            raise done
    case.wire.mend()
    return cut.reached.is_set()


async def _acted(scene: Scene, saver: Saver, thread: str) -> None:
    await scene.act(saver, thread)


def _is_one_of(found: Any, old: Any, new: Any, *, apart: bool) -> bool:
    if not apart:
        return found in (old, new)
    (found, _), (old, _), (new, _) = found, old, new
    spaces = {*found, *old, *new}
    return all(found.get(space) in (old.get(space), new.get(space)) for space in spaces)


async def _goes_on(saver: Saver, thread: str, where: str) -> None:
    """Store one more checkpoint, and read it."""
    newest = await saver.aget_tuple(config(thread))
    (name,) = names(1)
    await put(saver, config(thread) if newest is None else newest.config, checkpoint(name, last=where))
    assert (await seen(saver, thread))[""][0][:2] == (name, {"last": where}), f"{where}: the thread does not go on"


async def _lose_every_reply(case: Case, scene: Scene) -> None:
    """Lose each reply once; the writer sends again, or raises and is called again: what it did stands once."""
    _, new = await _outcome(case, scene)
    for at in range(MOST_COMMANDS):
        thread = case.thread()
        async with case.saver() as saver:
            await scene.before(saver, thread)
            cut = case.wire.cut(at, executed=True, once=True)
            told = False
            with suppress(Exception):
                await scene.act(saver, thread)
                told = True
            case.wire.mend()
            if not cut.reached.is_set():
                assert told
                assert at > 0, "the operation sent nothing"
                return
            if not told:
                await scene.act(saver, thread)
            found = await scene.look(saver, thread)
        assert found == new, f"the reply to command {at} was lost: {found} instead of {new}"
    raise AssertionError(f"an operation of more than {MOST_COMMANDS} commands")


@promise("wire")
async def a_lost_reply_is_one_put(case: Case) -> None:
    """A put whose reply is lost is in the history once, also the first one of a thread."""
    await _lose_every_reply(case, _beginning())
    await _lose_every_reply(case, _putting())


@promise("wire")
async def a_lost_reply_is_one_write(case: Case) -> None:
    """Pending writes whose reply is lost stand once."""
    await _lose_every_reply(case, _writing())


@promise("wire")
async def a_crash_in_a_first_put(case: Case) -> None:
    """Dies at any command of a thread's first put: there is no thread, or one with this checkpoint."""
    await _crash_everywhere(case, _beginning())


@promise("wire")
async def a_crash_in_a_put(case: Case) -> None:
    """Dies at any command of a put: the old checkpoint is the newest, or the new one, whole."""
    await _crash_everywhere(case, _putting())


@promise("wire")
async def a_crash_in_pending_writes(case: Case) -> None:
    """Dies at any command of a put_writes: all of its writes stand, or none."""
    await _crash_everywhere(case, _writing())


@promise("wire")
async def a_crash_in_a_delete(case: Case) -> None:
    """Dies at any command of a delete: the thread is there, whole, or gone, whole."""
    await _crash_everywhere(case, _deleting())


@promise("wire", "aprune")
async def a_crash_in_a_prune(case: Case) -> None:
    """Dies at any command of a prune: each namespace is as it was, or pruned, and what stays is whole."""
    await _crash_everywhere(case, _pruning())


@promise("wire", "acopy_thread")
async def a_crash_in_a_copy(case: Case) -> None:
    """Dies at any command of a copy: there is no copy, or a whole one, and the source is as it was."""
    await _crash_everywhere(case, _copying())


CONTRACTS = (
    a_lost_reply_is_one_put,
    a_lost_reply_is_one_write,
    a_crash_in_a_first_put,
    a_crash_in_a_put,
    a_crash_in_pending_writes,
    a_crash_in_a_delete,
    a_crash_in_a_prune,
    a_crash_in_a_copy,
)
