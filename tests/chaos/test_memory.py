"""Memory under fire: killed at every step of a snapshot, and read by some processes while others write and forget."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from blackboard.memory.record import Token
from blackboard.memory.records import Records
from blackboard.store.client import Store
from blackboard.testing.crash import Spot, Template
from blackboard.testing.servers import Server, binaries, start_server
from tests.chaos.memories import FIRST, FORGOTTEN, NAMESPACE, POLICY, Shelf, held, keeping, stored
from tests.chaos.stage import lines, say
from tests.memory.dump import holding

BINARY = next(iter(binaries().values()))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def templates() -> AsyncIterator[list[Template]]:
    """Four, so that four processes of their own run at once."""
    found = [await Template.start("tests.chaos.memories") for _ in range(4)]
    yield found
    for one in found:
        await one.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def spots(own: Server, templates: list[Template], tmp_path_factory: pytest.TempPathFactory) -> list[Spot]:
    """Every spot of the scene; recorded twice, for a spot that comes and goes cannot be hit."""
    directory = tmp_path_factory.mktemp("record")
    rounds: list[list[Spot]] = []
    for number in range(3):
        out = directory / f"spots-{number}"
        child = await templates[0].fork("record", own.url, f"record/{number}", str(directory), str(out))
        assert await child.wait() == 0, templates[0].errors()
        rounds.append([Spot.parse(line) for line in lines(out)])
    assert rounds[1] == rounds[2], "the first round also loads the scripts; the others must agree"
    return rounds[1]


def test_the_scene_reaches_every_step(spots: list[Spot]) -> None:
    reached = {spot.point for spot in spots}
    for script in ("claim.lua", "release.lua", "stage.lua", "flip.lua", "scrub.lua", "put.lua", "forget.lua"):
        assert {f"{script}:before", f"{script}:sent", f"{script}:after"} <= reached
    steps = {"build:read", "build:staged", "load:read", "scrub:found", "scrub:decided", "forget:removed", "view:read"}
    assert steps <= reached
    assert sum(spot.point == "stage.lua:sent" for spot in spots) == 6, "three chunks, twice"


async def test_killed_anywhere(
    own: Server, store: Store, spots: list[Spot], templates: list[Template], tmp_path: Path
) -> None:
    """Nothing acknowledged is lost, no half state is seen, and the next process goes on to the same end."""
    victims = [(spot, Shelf.of(store, f"killed/{number}", tmp_path)) for number, spot in enumerate(spots)]
    waiting = iter(victims)

    async def kill(template: Template) -> None:
        for spot, on in waiting:
            child = await template.fork("die", own.url, on.records.path, str(tmp_path), str(spot))
            assert await child.wait() == -signal.SIGKILL, f"{spot} was not hit: {template.errors()}"

    await asyncio.gather(*map(kill, templates[:2]))
    acknowledged = sum([await _whole(on) for _, on in victims])
    assert acknowledged > len(victims)
    for start in range(0, len(victims), 16):
        await asyncio.gather(*(keeping(on) for _, on in victims[start : start + 16]))
    for spot, on in victims:
        await _ended(spot, on)
    say(f"{len(victims)} kills, {acknowledged} acknowledged, 0 lost")


async def _whole(on: Shelf) -> int:
    """What was acknowledged is there, a new process sees exactly what the store holds, and what is forgotten is nowhere."""
    facts = on.acknowledged()
    newest = {name: (what, token) for what, name, token in facts}
    known = await stored(on.records)
    for name, (what, token) in newest.items():
        if what == "put" and name != FORGOTTEN:
            assert known[name][0] >= token.seq
        elif what == "forget":
            assert name not in known
            assert await holding(on.records, f"text of {name}".encode()) == []
    view = on.view
    assert held(await view.refresh(max((token for *_, token in facts), default=None))) == known
    await view.close()
    loaded = await on.snapshots.load()
    if known:
        assert loaded is not None
    return len(facts)


async def _ended(spot: Spot, on: Shelf) -> None:
    """After the next process has played the scene: one snapshot, no debris, and nothing of what was forgotten."""
    assert set(await stored(on.records)) == {*FIRST, "late"} - {FORGOTTEN}, spot
    await _whole(on)
    pointer = await on.snapshots.pointer()
    assert pointer is not None, spot
    standing = {name.decode() for name in await on.records.store.command("SMEMBERS", on.records.keys.chunks)}
    assert standing == set(pointer.names()), spot
    loaded = await on.snapshots.load()
    assert loaded is not None
    assert loaded.source == "snapshot", spot
    assert await holding(on.records, f"text of {FORGOTTEN}".encode()) == [], spot


async def contend(server: Server, templates: list[Template], directory: Path, operations: int) -> None:
    """Two processes write and forget, two read; every reader ends with what the store holds and never saw less than it was told."""
    path, share = "contended", str(operations // 2)
    readers = [
        await template.fork("read", server.url, path, str(directory), name)
        for template, name in zip(templates[:2], ("r1", "r2"), strict=True)
    ]
    writers = [
        await template.fork("write", server.url, path, str(directory), name, share)
        for template, name in zip(templates[2:], ("w1", "w2"), strict=True)
    ]
    assert [await writer.wait() for writer in writers] == [0, 0], [one.errors() for one in templates[2:]]
    (directory / "stop").touch()
    assert [await reader.wait() for reader in readers] == [0, 0], [one.errors() for one in templates[:2]]
    store = await Store.connect(server.url)
    try:
        records = Records(store, NAMESPACE, path, POLICY)
        known = await stored(records)
        shelves = [Shelf(records, directory / f"{writer}.journal") for writer in ("w1", "w2")]
        forgotten = [(name, token.seq) for on in shelves for what, name, token in on.acknowledged() if what == "forget"]
        rounds = 0
        for reader in ("r1", "r2"):
            told = [json.loads(line) for line in lines(directory / f"{reader}.told")]
            assert [line for line in told if line[0] in ("older", "stale", "ghost")] == []
            for _, name, token, _ in (line for line in told if line[0] == "gone"):
                assert [seq for gone, seq in forgotten if gone == name and seq > Token.parse(token).seq], name
            (count,) = [line[1] for line in told if line[0] == "rounds"]
            (holds,) = [line[1] for line in told if line[0] == "holds"]
            assert holds == known
            rounds += count
        head = await store.command("HMGET", records.keys.head, "trimmed", "scrubs")
        assert int(head[0]) > 0, "no second snapshot came"
        assert int(head[1]) > operations // 10
        say(f"{operations} operations, {rounds} reads, {len(known)} records: every reader agrees with the store")
    finally:
        await store.close()


async def test_two_write_and_two_read(own: Server, templates: list[Template], tmp_path: Path) -> None:
    await contend(own, templates, tmp_path, 2_000)


@pytest.mark.chaos
@pytest.mark.parametrize("binary", sorted(binaries()))
async def test_two_write_and_two_read_for_long(binary: str, templates: list[Template], tmp_path: Path) -> None:
    async with await start_server(binaries()[binary], tmp_path / "server") as server:
        await contend(server, templates, tmp_path, 20_000)
