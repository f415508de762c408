"""An exported thread reads as its origin wherever it is imported, and a file that is not whole leaves nothing."""

from __future__ import annotations

import hashlib
import io
import json
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from blackboard import Parked, keys
from blackboard.board import Blackboard
from blackboard.checkpoints.channels import Channel, Items, Value
from blackboard.checkpoints.engine import Engine, Write
from blackboard.checkpoints.prune import Pruner
from blackboard.checkpoints.seeding import Seeding
from blackboard.errors import ConfigError, ServerUnavailable, ThreadExists, ThreadGone
from blackboard.runs.inbox import Inbox
from blackboard.runs.portable import export_thread, import_thread
from blackboard.testing.contracts.thread import NAMESPACE, all_keys, log, step

from .conftest import Message, Review


async def exported(board: Blackboard, thread: str) -> bytes:
    return b"".join([line async for line in export_thread(board.engine(NAMESPACE), thread)])


async def imported(board: Blackboard, data: bytes, to: str) -> str:
    return await import_thread(board.engine(NAMESPACE), io.BytesIO(data), to=to)


def sealed_anew(rows: list[dict[str, Any]]) -> bytes:
    """Spell lines with a last line that fits them, as somebody who edits a file would."""
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    end = {"line": "end", "counts": Counter(r["line"] for r in rows), "sha256": hashlib.sha256(data).hexdigest()}
    return data + json.dumps(end).encode() + b"\n"


def rows(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


async def standing(engine: Engine, thread: str) -> set[str]:
    prefix = keys.ThreadKeys.of(NAMESPACE, thread).prefix + ":"
    return {key.removeprefix(prefix) for key in await all_keys(engine.store, prefix)}


async def everything(engine: Engine, thread: str, lineages: tuple[str, ...] = ("",)) -> dict[str, Any]:
    """Read all that anybody can read of a thread but its incarnation."""
    where, found = keys.ThreadKeys.of(NAMESPACE, thread), dict[str, Any]()
    for lineage in lineages:
        history = await engine.history(thread, lineage=lineage, limit=1000)
        snapshots = [await engine.at(thread, one.checkpoint, lineage=lineage) for one in history]
        latest = await engine.latest(thread, lineage=lineage)
        assert latest is not None
        pins = await engine.store.command("SMEMBERS", where.pins(lineage))
        found[lineage] = history, snapshots, latest, sorted(pins)
    meta = await engine.meta(thread)
    found["meta"] = meta.status, meta.sequence, meta.reason, meta.awaits, meta.wake, meta.parent
    found["letters"] = await Inbox(engine).unread(thread)
    found["effects"] = sorted(await engine.store.command("HGETALL", where.effects))
    found["answers"] = sorted(await engine.store.command("HGETALL", where.answers))
    return found


async def drive(board: Blackboard, thread: str) -> None:
    """Three steps with a log, a map, a list, effects both ways, letters and a pin."""
    async with board.run(thread, Review, start=Review) as run:
        for number in range(3):
            run.state.messages.append(Message(text=f"m{number} ü\u2028"))
            run.state.counts[f"k{number}"] = number
            run.state.notes.append("n" * 400)
            await run.effect("now", semantics="at-least-once").call(lambda n=number: {"page": n})
            await run.effect("with", semantics="at-most-once", record="commit").call(lambda: "text")
            run.cursors["page"] = number
            await run.commit(next=f"step-{number}")
        checkpoint = run.checkpoint
    assert checkpoint is not None
    assert await board.signal(thread, "verdict", {"ok": True}, key="k1") == "ACCEPTED"
    assert await board.note(thread, "a note") == "ACCEPTED"
    await board.thread(thread).pin(checkpoint)


async def test_a_driven_thread_reads_as_its_origin(board: Blackboard, thread: str) -> None:
    await drive(board, thread)
    engine, to = board.engine(NAMESPACE), f"{thread}-in"
    data = await exported(board, thread)
    assert await imported(board, data, to) == to
    assert await everything(engine, to) == await everything(engine, thread)
    counts = rows(data)[-1]["counts"]
    kinds = {kind: counts[kind] for kind in ("checkpoint", "effect", "letter", "answer", "pin")}
    assert kinds == {"checkpoint": 4, "effect": 6, "letter": 2, "answer": 2, "pin": 1}
    latest = await board.thread(to).latest(Review)
    assert latest is not None
    assert [message.text for message in latest.state.messages] == [f"m{n} ü\u2028" for n in range(3)]


async def test_it_goes_on_where_the_origin_stood(board: Blackboard, thread: str) -> None:
    await drive(board, thread)
    to = f"{thread}-in"
    await imported(board, await exported(board, thread), to)
    await board.thread(thread).delete(drop_unread=True)
    assert await board.signal(to, "verdict", {"ok": False}) == "ALREADY"
    async with board.run(to, Review) as run:
        assert (run.step, run.next, run.cursors) == (3, "step-2", {"page": 2})
        assert await run.wait("verdict") == {"ok": True}
        assert await run.notes() == ["a note"]
        run.state.messages.append(Message(text="more"))
        await run.commit()
    latest = await board.thread(to).latest(Review)
    assert latest is not None
    assert [message.text for message in latest.state.messages][2:] == ["m2 ü\u2028", "more"]


async def fill(engine: Engine, thread: str) -> None:
    """Lineages, bytes that are no text, writes with and without their checkpoint, a fork inside the thread."""
    odd = bytes(range(256))
    first = await engine.put(thread, "a%", step({"l": log([odd, b"{}"]), "v": Value(odd * 4), "small": Value(b"\xff")}))
    await engine.put(thread, "b", step({"l": log([odd, b"{}", b""], first.refs["l"])}, first))
    await engine.put(thread, "c", step({"l": log([odd, b"{}", b"other"], first.refs["l"])}, first))
    deep = await engine.put(thread, "s", step({"m": Items("map", (), [b"1"], lambda: [b"1"])}), lineage="sub:1|x")
    await engine.put(thread, "t", step({"v": Value(odd * 4)}, deep), lineage="sub:1|x")
    await engine.put_writes(thread, "c", [Write("task:1", 0, odd), Write("task:1", -1, b"w")])
    await engine.put_writes(thread, "later", [Write("t", 0, b"early")], lineage="sub:1|x")
    await Pruner(engine.store, NAMESPACE).pin(thread, "s", lineage="sub:1|x")


async def test_an_adapters_thread_reads_as_its_origin(board: Blackboard, thread: str) -> None:
    engine, to, lineages = board.engine(NAMESPACE), f"{thread}-in", ("", "sub:1|x")
    await fill(engine, thread)
    await imported(board, await exported(board, thread), to)
    assert await everything(engine, to, lineages) == await everything(engine, thread, lineages)
    await engine.put(to, "u", step({"v": Value(b"1")}), lineage="sub:1|x")
    await engine.put(to, "later", step({"v": Value(b"1")}), lineage="sub:1|x")
    snapshot = await engine.at(to, "later", lineage="sub:1|x")
    assert snapshot is not None
    assert snapshot.writes == {"t:0": b"early"}
    await engine.retention.delete(to)
    assert await standing(engine, to) == {"meta"}


async def test_an_import_can_be_exported_again(board: Blackboard, thread: str) -> None:
    await fill(board.engine(NAMESPACE), thread)
    data = await exported(board, thread)
    await imported(board, data, f"{thread}-in")
    again = await exported(board, f"{thread}-in")
    spelled = [sorted(map(repr, rows(one)[1:-1])) for one in (data, again)]
    assert spelled[0] == spelled[1]


async def test_a_closed_thread_keeps_its_result_and_expires_anew(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        await run.finish({"sum": 3})
    engine, to = board.engine(NAMESPACE), f"{thread}-in"
    await imported(board, await exported(board, thread), to)
    assert await board.thread(to).status() == "finished"
    assert await board.thread(to).result() == {"sum": 3}
    prefix = keys.ThreadKeys.of(NAMESPACE, to).prefix
    expiries = [await engine.store.command("PTTL", f"{prefix}:{name}") for name in await standing(engine, to)]
    assert min(expiries) > 6 * 24 * 3600 * 1000


async def test_a_parked_thread_waits_on(board: Blackboard, thread: str) -> None:
    with pytest.raises(Parked):
        async with board.run(thread, Review, start=Review) as run:
            await run.wait("verdict", within="7d")
    engine, to = board.engine(NAMESPACE), f"{thread}-in"
    await imported(board, await exported(board, thread), to)
    assert (await engine.meta(to)).status == "parked"
    assert (await engine.meta(to)).wake == (await engine.meta(thread)).wake
    assert await board.signal(to, "verdict", "yes") == "ACCEPTED"
    assert to in await board.runnable(1000)
    async with board.run(to, Review) as run:
        assert await run.wait("verdict") == "yes"
        await run.finish(None)


async def test_a_used_id_is_refused_and_unharmed(board: Blackboard, thread: str) -> None:
    await drive(board, thread)
    engine, data, to = board.engine(NAMESPACE), await exported(board, thread), f"{thread}-in"
    await imported(board, data, to)
    before = await everything(engine, to)
    for used in (to, thread):
        with pytest.raises(ThreadExists):
            await imported(board, data, used)
    with pytest.raises(ThreadExists):
        await import_thread(engine, io.BytesIO(data))
    assert await everything(engine, to) == before


async def test_a_cut_file_is_refused_wherever_it_is_cut(board: Blackboard, thread: str) -> None:
    engine, to = board.engine(NAMESPACE), f"{thread}-in"
    await drive(board, thread)
    data = await exported(board, thread)
    ends = [at + 1 for at, byte in enumerate(data) if byte == 10][:-1]
    cuts = [0, 1, len(data) - 1, *ends, *(end - 1 for end in ends), *(end + 7 for end in ends)]
    for cut in cuts:
        with pytest.raises(ConfigError, match=r"the file, line \d+: "):
            await imported(board, data[:cut], to)
    assert len(cuts) >= 50
    assert await standing(engine, to) == set()


def swap(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert old in data
        return data.replace(old, new, 1)

    return change


def edited(change: Callable[[list[dict[str, Any]]], object]) -> Callable[[bytes], bytes]:
    def edit(data: bytes) -> bytes:
        found = rows(data)[:-1]
        change(found)
        return sealed_anew(found)

    return edit


def of(kind: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    return next(row for row in found if row["line"] == kind)


WRONG = {
    "a changed byte": (swap(b"m1", b"m9"), r"SHA-256 differs"),
    "a line too few": (lambda d: b"".join(line for line in d.splitlines(keepends=True) if b'"line":"pin"' not in line), r"are there"),
    "two files joined": (lambda d: d + d, r"follows the last line"),
    "two heads": (edited(lambda f: f.append(f[0])), r"second header"),
    "a newer format": (edited(lambda f: f[0].update(version=2)), r"line 1: its format is version 2.*newer blackboard"),
    "another format": (edited(lambda f: f[0].update(format="x")), r"line 1: this is no exported thread"),
    "no JSON": (lambda d: b"\x89PNG\r\n" + d, r"line 1: this is no exported thread"),
    "an array": (lambda d: b"[]\n" + d, r"line 1: this is no exported thread"),
    "an unknown kind": (edited(lambda f: f.insert(1, {"line": "dream"})), r"line 2: it is not readable"),
    "an unknown field": (edited(lambda f: f[1].update(more=1)), r"line 2: it is not readable \(lineage.more"),
    "a number as text": (edited(lambda f: of("checkpoint", f).update(step="1")), r"checkpoint.step"),
    "an unnamed lineage": (edited(lambda f: of("pin", f).update(lineage="x")), r"lineage 'x' was not named"),
    "an empty id": (edited(lambda f: of("pin", f).update(checkpoint="")), r"must have 1 to 1024 bytes"),
    "a broken body": (edited(lambda f: of("effect", f).update(result={"base64": "?"})), r"effect.result"),
    "a reference to nothing": (
        edited(lambda f: of("checkpoint", f)["channels"].update(x={"kind": "log"})), r"a log has inline or digest",
    ),
    "a segment elsewhere": (edited(lambda f: of("segment", f).update(segment="x:y")), r"segment.segment"),
    "letters out of order": (edited(lambda f: f.append(of("letter", f))), r"comes after a later one"),
    "no status that ends": (edited(lambda f: f[0].update(status="deleted")), r"header.status"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_wrong_file_is_refused_and_named(board: Blackboard, thread: str, wrong: str) -> None:
    change, said = WRONG[wrong]
    await drive(board, thread)
    engine, data = board.engine(NAMESPACE), await exported(board, thread)
    with pytest.raises(ConfigError, match=said) as refused:
        await imported(board, change(data), f"{thread}-in")
    assert refused.value.line >= 1
    assert await standing(engine, f"{thread}-in") == set()


async def test_an_edited_file_that_fits_is_taken(board: Blackboard, thread: str) -> None:
    """What refuses the wrong files is what is wrong with them."""
    await drive(board, thread)
    change = edited(lambda found: of("checkpoint", found).update(next="elsewhere"))
    await imported(board, change(await exported(board, thread)), f"{thread}-in")
    history = await board.thread(f"{thread}-in").history()
    assert [one.next for one in history] == ["step-2", "step-1", "step-0", "elsewhere"]


async def test_a_broken_off_import_is_unseen_and_swept(
    board: Blackboard, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await drive(board, thread)
    engine, to, data = board.engine(NAMESPACE), f"{thread}-in", await exported(board, thread)

    async def broken(self: Seeding, latest: str, facts: object) -> str:
        raise ServerUnavailable("gone")

    monkeypatch.setattr(Seeding, "open", broken)
    with pytest.raises(ServerUnavailable):
        await imported(board, data, to)
    assert await engine.latest(to) is None
    assert to not in [row.thread async for row in board.threads() if row.meta.incarnation]
    monkeypatch.undo()
    with pytest.raises(ThreadExists, match="being written by somebody else"):
        await imported(board, data, to)
    await engine.retention.due(to, 1)
    await board.sweep(10_000)
    assert await standing(engine, to) == {"meta"}
    await imported(board, data, to)
    assert await everything(engine, to) == await everything(engine, thread)


async def test_what_is_not_there_cannot_be_exported(board: Blackboard, thread: str) -> None:
    with pytest.raises(ThreadGone):
        await exported(board, thread)
    async with board.lease(thread, ttl=30):
        with pytest.raises(ThreadGone):
            await exported(board, thread)


async def test_a_thread_driven_meanwhile_is_given_as_of_the_start(board: Blackboard, thread: str) -> None:
    await drive(board, thread)
    engine, to, lines = board.engine(NAMESPACE), f"{thread}-in", list[bytes]()
    async for line in export_thread(engine, thread):
        lines.append(line)
        if len(lines) == 2:
            async with board.run(thread, Review) as run:
                run.state.messages.append(Message(text="late"))
                await run.commit(next="late")
    await imported(board, b"".join(lines), to)
    history = await board.thread(to).history()
    assert [one.next for one in history] == ["step-2", "step-1", "step-0", "start"]
    latest = await board.thread(to).latest(Review)
    assert latest is not None
    assert len(latest.state.messages) == 3


async def test_a_thread_pruned_meanwhile_is_no_export(board: Blackboard, thread: str) -> None:
    await drive(board, thread)
    lines = list[bytes]()
    with pytest.raises(ServerUnavailable, match="was pruned while it was read"):
        async for line in export_thread(board.engine(NAMESPACE), thread):
            lines.append(line)
            if len(lines) == 2:
                assert (await board.thread(thread).prune(keep_last=1)).checkpoints == 3
    with pytest.raises(ConfigError, match="ends without its last line"):
        await imported(board, b"".join(lines), f"{thread}-in")


async def test_a_long_thread_is_moved_whole(board: Blackboard, thread: str) -> None:
    """More checkpoints, items and values than any one page or slice holds."""
    engine, to, last = board.engine(NAMESPACE), f"{thread}-in", None
    items = [b'"%d"' % number for number in range(1500)]
    for number in range(700):
        channels: dict[str, Channel] = {
            "l": log(items[: 2 * number + 2], last.refs["l"] if last else None),
            "v": Value(b"v%d" % number * 90),
        }
        last = await engine.commit(thread, step(channels, last), sequence=number)
    data = await exported(board, thread)
    assert rows(data)[-1]["counts"]["value"] == 700
    await imported(board, data, to)
    assert await everything(engine, to) == await everything(engine, thread)


async def peak(work: Awaitable[object]) -> int:
    """Tell how many bytes a piece of work holds at most."""
    tracemalloc.start()
    try:
        await work
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def test_memory_does_not_grow_with_the_thread(board: Blackboard, thread: str, tmp_path: Path) -> None:
    """Thirty values and thirty items of a megabyte each are never held together."""
    engine, path, large = board.engine(NAMESPACE), tmp_path / "thread.jsonl", 1 << 20
    items = [bytes([65 + number]) * large for number in range(30)]
    last = None
    for number, item in enumerate(items):
        channels: dict[str, Channel] = {"l": log(items[: number + 1], last.refs["l"] if last else None)}
        last = await engine.commit(thread, step({**channels, "v": Value(item)}, last), sequence=number)

    async def write() -> None:
        with path.open("wb") as file:
            async for line in export_thread(engine, thread):
                file.write(line)

    async def read() -> None:
        with path.open("rb") as file:
            await import_thread(engine, file, to=f"{thread}-in")

    held = await peak(write()), await peak(read())
    assert path.stat().st_size > 60 * large
    assert max(held) < 30 * large, held
    snapshot = await engine.latest(f"{thread}-in")
    assert snapshot is not None
    assert snapshot.contents == {"l": items, "v": items[-1]}
