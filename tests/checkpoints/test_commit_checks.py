"""What commit.lua makes sure of before its first write, and how long it remembers its operations."""

from collections.abc import Callable

import pytest

from blackboard.checkpoints.channels import Channel, Items, Value
from blackboard.checkpoints.commit import Commit, Committed
from blackboard.checkpoints.engine import Engine
from blackboard.errors import ServerRefused
from blackboard.keys import ThreadKeys, sequence_id
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store

NAMESPACE = "checkpoint"

KEYS: dict[str, Callable[[ThreadKeys], str]] = {
    "meta": lambda where: where.meta,
    "latest": lambda where: where.latest(),
    "lock": lambda where: where.lock,
    "history": lambda where: where.history(),
    "values": lambda where: where.values,
    "parts": lambda where: where.parts,
}


@pytest.fixture
def engine(store: Store) -> Engine:
    return Engine(store, NAMESPACE, CheckpointNamespace())


async def commit(engine: Engine, thread: str, last: Committed | None) -> Committed:
    """Write to every kind of key: a value, a log that starts a segment, the history, the op ids."""
    step = last.step + 1 if last else 0
    channels: dict[str, Channel] = {"value": Value(b"%d" % step * 500), "log": Items("log", (), [b"1"], lambda: [b"1"])}
    parent = last.checkpoint if last else None
    done = Commit(step, channels, base=last.refs if last else {}, parent=parent)
    return await engine.commit(thread, done, sequence=last.sequence if last else 0)


async def put(engine: Engine, thread: str, number: int) -> Committed:
    """Put a checkpoint under an id of our own: its op id is kept apart, for the id may be put again."""
    return await engine.put(thread, f"c{number}", Commit(number, {"value": Value(b"%d" % number)}))


async def spoil(store: Store, key: str) -> None:
    """Put a value of another type where the library's own belongs."""
    await store.command("DEL", key)
    await store.command(*(("RPUSH", key, "x") if key.endswith((":latest", ":lock")) else ("SET", key, "x")))


@pytest.mark.parametrize("name", KEYS)
async def test_a_first_commit_refuses_a_key_of_another_type(engine: Engine, thread: str, name: str) -> None:
    where = ThreadKeys.of(NAMESPACE, thread)
    await spoil(engine.store, KEYS[name](where))
    with pytest.raises(ServerRefused, match="WRONGTYPE"):
        await commit(engine, thread, None)
    own = [key(where) for key in KEYS.values()] + [where.checkpoint(sequence_id(1))]
    assert await engine.store.command("EXISTS", *own) == 1
    await engine.store.command("DEL", KEYS[name](where))


@pytest.mark.parametrize("name", KEYS)
async def test_a_later_commit_refuses_a_key_of_another_type(engine: Engine, thread: str, name: str) -> None:
    where = ThreadKeys.of(NAMESPACE, thread)
    first = await commit(engine, thread, None)
    await spoil(engine.store, KEYS[name](where))
    with pytest.raises(ServerRefused, match="WRONGTYPE"):
        await commit(engine, thread, first)
    assert await engine.store.command("EXISTS", where.checkpoint(sequence_id(2))) == 0
    if name != "latest":
        assert await engine.store.command("GET", where.latest()) == first.checkpoint.encode()
    await engine.store.command("DEL", where.meta)


async def test_a_segment_of_another_type_is_refused(engine: Engine, thread: str) -> None:
    where = ThreadKeys.of(NAMESPACE, thread)
    first = await commit(engine, thread, None)
    base = first.refs["log"].segments
    await spoil(engine.store, where.log("log", base[0][0]))
    more = Commit(
        1, {"log": Items("log", base, [b"2"], lambda: [b"1", b"2"])}, base=first.refs, parent=first.checkpoint
    )
    with pytest.raises(ServerRefused, match="WRONGTYPE"):
        await engine.commit(thread, more, sequence=first.sequence)
    assert await engine.store.command("EXISTS", where.checkpoint(sequence_id(2))) == 0


async def test_a_put_refuses_op_ids_of_another_type(engine: Engine, thread: str) -> None:
    await spoil(engine.store, ThreadKeys.of(NAMESPACE, thread).ops)
    with pytest.raises(ServerRefused, match="WRONGTYPE"):
        await put(engine, thread, 0)
    assert await engine.latest(thread) is None


async def test_op_ids_are_kept_for_twice_the_retry_deadline_and_swept(engine: Engine, thread: str) -> None:
    store, ops = engine.store, ThreadKeys.of(NAMESPACE, thread).ops
    keep_ms = int(2000 * store.retry_deadline)
    last = await put(engine, thread, 0)
    assert keep_ms < await store.command("PTTL", ops) <= 2 * keep_ms
    await store.command("ZADD", ops, last.time - 1000 * keep_ms - 1, "old")
    await put(engine, thread, 1)
    assert await store.command("ZCARD", ops) == 3
    await store.command("PEXPIRE", ops, keep_ms - 1)
    await put(engine, thread, 2)
    assert await store.command("ZSCORE", ops, "old") is None
    assert await store.command("ZCARD", ops) == 3
    assert keep_ms < await store.command("PTTL", ops) <= 2 * keep_ms


async def test_an_op_id_never_goes_before_its_time(engine: Engine, thread: str) -> None:
    """Whatever expiry the key had, a put leaves it at least as long as its own op id has to stay."""
    store, ops = engine.store, ThreadKeys.of(NAMESPACE, thread).ops
    keep_ms = int(2000 * store.retry_deadline)
    await put(engine, thread, 0)
    for number, change in enumerate((("PEXPIRE", ops, 5000), ("PERSIST", ops), ("DEL", ops))):
        await store.command(*change)
        await put(engine, thread, number + 1)
        assert await store.command("PTTL", ops) > keep_ms


async def test_a_repeated_commit_is_known_by_its_manifest(
    engine: Engine, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when others have gone on meanwhile, and however late: its id was given out once."""
    first = await commit(engine, thread, None)
    op = engine.store.op_id()
    with monkeypatch.context() as same:
        same.setattr(engine.store, "op_id", lambda: op)
        second = await commit(engine, thread, first)
    third = await commit(engine, thread, second)
    monkeypatch.setattr(engine.store, "op_id", lambda: op)
    again = await commit(engine, thread, first)
    assert (again.repeated, again.checkpoint, again.refs) == (True, second.checkpoint, second.refs)
    assert [m.checkpoint for m in await engine.history(thread)] == [c.checkpoint for c in (third, second, first)]
    assert await engine.store.command("EXISTS", ThreadKeys.of(NAMESPACE, thread).ops) == 0
