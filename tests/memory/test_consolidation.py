"""Consolidation: nothing is written by a plan, and a group changes as a whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from blackboard.errors import ConfigError, EmbedderMismatch, LeaseHeld
from blackboard.memory.consolidation import Plan
from blackboard.memory.lease import Place, tend
from blackboard.memory.memory import Memory
from blackboard.memory.new import New
from blackboard.memory.record import Record
from blackboard.points import watch
from blackboard.store.client import Store
from tests.memory.recalling import Topics, memory_of, texts

SAME = (
    "The kitten sleeps in the red box",
    "The kitten sleeps in the red box.",
    "The kitten sleeps in the big red box",
)


async def filled(store: Store) -> Memory:
    memory = memory_of(store, Topics())
    ids = ("a", "b", "c")
    await memory.remember_all(
        [New(text, id=name, importance=0.2 + at / 10) for at, (name, text) in enumerate(zip(ids, SAME, strict=True))]
    )
    await memory.remember("A storm is coming", id="storm")
    return memory


async def test_plan_writes_nothing(store: Store) -> None:
    memory = await filled(store)
    before = memory.records.known
    plan = await memory.consolidate()
    assert [{source.id for source in group.sources} for group in plan.groups] == [{"a", "b", "c"}]
    assert plan.groups[0].text == SAME[2]
    assert 0.6 <= plan.groups[0].likeness < 1
    assert plan.looked == 4
    assert (await memory.changes()).token == before


async def test_applied(store: Store) -> None:
    """One record stands for its sources, which are kept, and found only by those who ask for what was valid before."""
    memory = await filled(store)
    before = max(record.created for record in await memory.list())
    done = await memory.apply(await memory.consolidate())
    (merged,) = done.merged
    assert (set(merged.sources), done.skipped) == ({"a", "b", "c"}, ())
    assert texts(await memory.recall("kitten", k=10))[0] == SAME[2]
    assert texts(await memory.recall("kitten", k=10)).count(SAME[2]) == 1
    assert set(texts(await memory.recall("kitten", k=10))) == {SAME[2], "A storm is coming"}
    assert set(texts(await memory.recall("kitten", k=10, as_of=before))) == {*SAME, "A storm is coming"}
    record = await memory.get(merged.id)
    assert record is not None
    assert (round(record.importance, 6), record.embedded, record.version) == (0.4, True, 1)
    source = await memory.get("a")
    assert source is not None
    assert (source.superseded_by, source.version, source.text) == (merged.id, 2, SAME[0])
    assert (await memory.consolidate()).groups == ()


async def test_undone(store: Store) -> None:
    memory = await filled(store)
    done = await memory.apply(await memory.consolidate())
    assert await memory.undo(done.merged[0]) == 3
    assert await memory.get(done.merged[0].id) is None
    assert set(texts(await memory.recall("kitten", k=10))) == {*SAME, "A storm is coming"}
    assert await memory.undo(done.merged[0]) == 0
    (group,) = (await memory.consolidate()).groups
    assert len(group.sources) == 3


async def test_undone_after_changes(store: Store) -> None:
    """What was forgotten since is not brought back, and with no source left the merged record stays."""
    memory = await filled(store)
    (merged,) = (await memory.apply(await memory.consolidate())).merged
    await memory.forget(["a", "b"])
    assert await memory.undo(merged) == 1
    assert await memory.get("a") is None
    assert texts(await memory.recall("kitten", k=1)) == [SAME[2]]


@pytest.mark.parametrize("change", ["update", "forget"])
async def test_a_changed_source_skips_its_group(store: Store, change: str) -> None:
    """A write during a slow merge wins; nothing of the group is written."""
    memory = await filled(store)
    plan = await memory.consolidate()

    async def slow(records: Sequence[Record]) -> str:
        if change == "update":
            await memory.update("b", expected=1, what="The kitten is outside")
        else:
            await memory.forget("b")
        return " ".join(record.text for record in records)

    done = await memory.apply(plan, merge=slow)
    assert (done.merged, done.skipped) == ((), plan.groups)
    record = await memory.get("a")
    assert record is not None
    assert (record.version, record.superseded_by) == (1, None)
    assert await memory.count() == (4 if change == "update" else 3)


async def test_merged_by_the_caller(store: Store) -> None:
    memory = await filled(store)

    async def merge(records: Sequence[Record]) -> str:
        return f"{len(records)} say that the kitten sleeps"

    done = await memory.apply(await memory.consolidate(), merge=merge)
    record = await memory.get(done.merged[0].id)
    assert record is not None
    assert record.text == "3 say that the kitten sleeps"


async def test_what_differs_in_a_number_or_metadata_is_not_the_same(store: Store) -> None:
    memory = memory_of(store, Topics())
    await memory.remember_all(
        [
            New("the kitten sleeps in box 1"),
            New("the kitten sleeps in box 2"),
            New("the kitten sleeps in a box", metadata={"who": "ann"}),
            New("the kitten sleeps in the box", metadata={"who": "bob"}),
            New("the kitten sleeps in one box", subject="kitten", valid_from=1),
            New("the kitten sleeps in the one box", subject="kitten", valid_from=2),
        ]
    )
    assert (await memory.consolidate()).groups == ()


async def test_no_chains(store: Store) -> None:
    """Where the ends are not alike, they are not in one group, whatever stands between them."""
    memory = memory_of(store, None)
    await memory.remember_all(["red green blue", "red green blue black", "green blue black white"])
    plan = await memory.consolidate(words=0.6)
    assert [[source.text for source in group.sources] for group in plan.groups] == [
        ["red green blue", "red green blue black"]
    ]


async def test_twice_is_once(store: Store) -> None:
    memory = await filled(store)
    plan = await memory.consolidate()
    await memory.apply(plan)
    again = await memory.apply(plan)
    assert (again.merged, again.skipped) == ((), plan.groups)
    assert await memory.count() == 5


async def test_only_where_it_was_planned(store: Store) -> None:
    memory, other = await filled(store), memory_of(store, Topics())
    plan = await memory.consolidate()
    with pytest.raises(ConfigError, match="the plan is of path"):
        await other.apply(plan)
    for wrong in (0.0, -1, 1.1, float("nan"), True, "0.5", None):
        with pytest.raises(ConfigError, match="words is a share"):
            await memory.consolidate(words=wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="vectors is a share"):
            await memory.consolidate(vectors=wrong)  # type: ignore[arg-type]
    for nothing in (None, plan.groups, "plan"):
        with pytest.raises(ConfigError, match="apply takes a plan"):
            await memory.apply(nothing)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="undo takes what apply has told"):
            await memory.undo(nothing)  # type: ignore[arg-type]


@pytest.mark.parametrize("made", ["", " ", None, 5, "\ud800"])
@pytest.mark.parametrize("waits", [True, False])
async def test_a_merge_that_makes_no_text_changes_nothing(store: Store, made: Any, waits: bool) -> None:
    memory = await filled(store)
    plan = await memory.consolidate()

    async def awaited(records: Sequence[Record]) -> Any:
        return made

    def at_once(records: Sequence[Record]) -> Any:
        return made

    with pytest.raises(ConfigError, match="merge is an async function|nothing to remember|a text or a model|surrogate"):
        await memory.apply(plan, merge=awaited if waits else at_once)
    assert len((await memory.apply(plan)).merged) == 1


async def test_under_the_lease(store: Store) -> None:
    memory = await filled(store)
    plan = await memory.consolidate()
    async with tend(Place(store, "memory", memory.records.path), "somebody"):
        with pytest.raises(LeaseHeld):
            await memory.apply(plan)
    assert await memory.count() == 4


async def test_vectors_of_another_space_are_refused(store: Store) -> None:
    memory = await filled(store)
    plan = await memory.consolidate()
    other = memory_of(store, Topics(), path="/".join(memory.path))
    other.embedder.name = "topics-2"  # type: ignore[union-attr, misc]
    with pytest.raises(EmbedderMismatch):
        await other.apply(plan)
    assert await memory.count() == 4


async def test_cut_down_plans(store: Store) -> None:
    memory = await filled(store)
    plan = await memory.consolidate()
    assert (await memory.apply(replace(plan, groups=()))).merged == ()
    assert isinstance(plan, Plan)
    assert await memory.count() == 4


@pytest.mark.parametrize("moment", ["consolidate:made", "consolidate:merged", "undo:parted"])
async def test_cut_short(store: Store, moment: str) -> None:
    """Wherever it is cut short, each statement is found once, or each of its sources is."""
    memory = await filled(store)
    plan = await memory.consolidate()
    done = await memory.apply(plan) if moment.startswith("undo") else None

    def stop(point: str) -> None:
        if point == moment:
            raise RuntimeError(moment)

    with watch(stop), pytest.raises(RuntimeError, match=moment):
        if done is None:
            await memory.apply(plan)
        else:
            await memory.undo(done.merged[0])
    found = set(texts(await memory.recall("kitten", k=10))) - {"A storm is coming"}
    assert found == ({SAME[2]} if moment == "consolidate:merged" else {*SAME})
    kittens = texts(await memory.recall("kitten", k=10))
    assert len(kittens) == len(set(kittens))


async def test_undoing_that_was_cut_short(store: Store) -> None:
    """The same call ends it; and what says the same as a source is recognised as that again."""
    memory = await filled(store)
    (merged,) = (await memory.apply(await memory.consolidate())).merged

    def stop(point: str) -> None:
        if point == "undo:parted":
            raise RuntimeError(point)

    with watch(stop), pytest.raises(RuntimeError, match="parted"):
        await memory.undo(merged)
    assert await memory.undo(merged) == 3
    assert await memory.get(merged.id) is None
    assert (await memory.remember(SAME[2])).id == "c"
    assert (await memory.verify()).findings == ()
