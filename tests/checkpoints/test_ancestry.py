"""Walking to the ancestors of a checkpoint, in one trip or where the server refuses that in more."""

import pytest

from blackboard import keys
from blackboard.checkpoints import ancestry
from blackboard.checkpoints.ancestry import ancestors, until_met
from blackboard.checkpoints.channels import Channel, Items, Value
from blackboard.checkpoints.commit import Commit
from blackboard.checkpoints.engine import Engine, Write
from blackboard.checkpoints.reading import MOST_ITEMS
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.contracts.thread import NAMESPACE

LINEAGE = "sub|1:{x}"


@pytest.fixture
def engine(store: Store) -> Engine:
    return Engine(store, NAMESPACE, CheckpointNamespace(inline_limit=16))


def log(count: int) -> Items:
    items = [b"%d" % number for number in range(count)]
    return Items("log", (), items, lambda: items)


async def chain(engine: Engine, thread: str, *steps: dict[str, Channel]) -> list[str]:
    """Store checkpoints, each the child of the one before, with a write pending on each; ids that need encoding."""
    ids: list[str] = []
    for number, channels in enumerate(steps):
        name = f"{number:04}:*é{{x}}%"
        parent = ids[-1] if ids else None
        await engine.put(thread, name, Commit(number, channels, parent=parent), lineage=LINEAGE)
        await engine.put_writes(thread, name, [Write("t", 0, b"w%d" % number)], lineage=LINEAGE)
        ids.append(name)
    return ids


async def both(
    engine: Engine, place: ancestry.Place, channels: list[str]
) -> list[tuple[str, dict[str, object], object]]:
    """Walk both ways, and tell what both found: ids, contents and writes."""
    found = await until_met(engine, place, channels)
    engine.reader.declares = True
    assert await until_met(engine, place, channels) == found
    engine.reader.declares = False
    return [(one.manifest.checkpoint, dict(one.contents), one.writes) for one in found]


async def test_it_ends_where_every_channel_has_been_met(engine: Engine, thread: str) -> None:
    long, short = Value(b"v" * 100), Value(b"s")
    ids = await chain(
        engine,
        thread,
        {"a": short},
        {"b:é": long, "a": short},
        {"l": log(3)},
        {},
        {"a": long, "b:é": long, "l": log(1)},
    )
    for newest in (None, ids[4]):
        assert await both(engine, (thread, LINEAGE, newest), ["a", "l"]) == [
            (ids[3], {}, {"t:0": b"w3"}),
            (ids[2], {"l": [b"0", b"1", b"2"]}, {"t:0": b"w2"}),
            (ids[1], {"a": b"s"}, {"t:0": b"w1"}),
        ]
    assert await both(engine, (thread, LINEAGE, ids[2]), ["b:é", "b:é"]) == [
        (ids[1], {"b:é": b"v" * 100}, {"t:0": b"w1"})
    ]
    assert [one[0] for one in await both(engine, (thread, LINEAGE, None), ["nowhere"])] == ids[3::-1]


async def test_nothing_is_there(engine: Engine, thread: str) -> None:
    assert await both(engine, (thread, LINEAGE, None), ["a"]) == []
    ids = await chain(engine, thread, {"a": Value(b"1")}, {})
    assert await both(engine, (thread, LINEAGE, "nowhere"), ["a"]) == []
    assert await both(engine, (thread, "elsewhere", None), ["a"]) == []
    assert await both(engine, (thread, LINEAGE, ids[0]), ["a"]) == []
    await engine.retention.delete(thread)
    assert await both(engine, (thread, LINEAGE, ids[1]), ["a"]) == []


async def test_a_walk_in_pages(engine: Engine, thread: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ancestry, "MOST_ANCESTORS", 2)
    ids = await chain(engine, thread, {"a": Value(b"1"), "b": Value(b"1")}, {}, {"b": Value(b"2")}, {}, {}, {})
    found = await both(engine, (thread, LINEAGE, None), ["a", "b"])
    assert [(name, contents) for name, contents, _ in found] == [
        (ids[4], {}), (ids[3], {}), (ids[2], {"b": b"2"}), (ids[1], {}), (ids[0], {"a": b"1"}),
    ]  # fmt: skip


async def test_a_long_log_comes_in_a_trip_of_its_own(engine: Engine, thread: str) -> None:
    ids = await chain(engine, thread, {"l": log(MOST_ITEMS + 1), "v": Value(b"v" * 100)}, {}, {})
    found = await both(engine, (thread, LINEAGE, None), ["l", "v"])
    assert [(name, writes) for name, _, writes in found] == [(ids[1], {"t:0": b"w1"}), (ids[0], {"t:0": b"w0"})]
    assert found[1][1] == {"l": [b"%d" % number for number in range(MOST_ITEMS + 1)], "v": b"v" * 100}


async def test_ancestors_end_at_one_that_was_pruned(engine: Engine, thread: str) -> None:
    ids = await chain(engine, thread, {}, {}, {}, {})
    await engine.store.command("DEL", keys.ThreadKeys.of(NAMESPACE, thread).checkpoint(ids[1], LINEAGE))
    assert [one[0] for one in await both(engine, (thread, LINEAGE, None), ["a"])] == [ids[2]]
    assert [one.checkpoint async for one in ancestors(engine, thread, LINEAGE, None)] == [ids[3], ids[2]]


async def test_each_comes_once_whatever_is_named_as_parent(
    engine: Engine, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await chain(engine, thread, {}, {}, {}, {}, {})
    await engine.put(thread, ids[1], Commit(1, {}, parent=ids[3]), lineage=LINEAGE)
    for most in (1000, 2, 3):
        monkeypatch.setattr(ancestry, "MOST_ANCESTORS", most)
        found = [one[0] for one in await both(engine, (thread, LINEAGE, None), ["a"])]
        assert found == [ids[3], ids[2], ids[1]]
