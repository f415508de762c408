"""A process is killed at every point of a put and of a collection: an artifact is whole or not there, and what is left ends."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import pkgutil
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from blackboard import artifacts as room
from blackboard import keys
from blackboard.artifacts.head import Head
from blackboard.artifacts.store import ArtifactStore
from blackboard.store.script import Script
from blackboard.testing.crash import Spot, Template
from blackboard.testing.death import empty
from blackboard.testing.servers import Server
from tests.chaos.keeping import GRACE, KEPT, LEFT, SCENES, STREAMED, shelf
from tests.chaos.stage import lines, say

CONTENTS = {f"artifact:sha256:{hashlib.sha256(one).hexdigest()}": one for one in (KEPT, LEFT, STREAMED)}
PLACES = ["backend", "files"]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def template() -> AsyncIterator[Template]:
    async with await Template.start("tests.chaos.keeping") as template:
        yield template


async def spots(own: Server, template: Template, scene: str, folder: str, tmp_path: Path) -> list[Spot]:
    """Every spot of a scene, played on nothing; twice after the scripts are loaded, for one that comes and goes cannot be hit."""
    rounds: list[list[Spot]] = []
    for number in range(3):
        await empty(own)
        shutil.rmtree(folder, ignore_errors=True)
        out = tmp_path / f"spots-{scene}-{number}"
        child = await template.fork("record", own.url, folder, scene, str(tmp_path / "record"), str(out))
        assert await child.wait() == 0, template.errors()
        rounds.append([Spot.parse(line) for line in lines(out)])
    assert rounds[1] == rounds[2]
    return rounds[1]


@pytest.mark.parametrize("occurrence", ["ends", pytest.param("every", marks=pytest.mark.chaos)])
@pytest.mark.parametrize("played", [(scene, place) for scene in SCENES for place in PLACES], ids=" in ".join)
async def test_killed_anywhere(
    own: Server, template: Template, tmp_path: Path, played: tuple[str, str], occurrence: str
) -> None:
    """At every point: the first and the last time that it is reached, or every time."""
    scene, place = played
    folder = str(tmp_path / "files") if place == "files" else ""
    if folder:
        pytest.importorskip("fsspec", reason="files need fsspec: install agent-blackboard[files]")
    found = await spots(own, template, scene, folder, tmp_path)
    if occurrence == "ends":
        last = {spot.point: spot for spot in found}
        found = [spot for spot in found if spot.occurrence == 1 or spot == last[spot.point]]
    assert {f"complete.lua:{moment}" for moment in ("before", "sent", "after")} <= {spot.point for spot in found}
    pinned = 0
    async with shelf(own.url, folder) as artifacts:
        for number, spot in enumerate(found):
            await empty(own)
            journal = tmp_path / f"journal-{number}"
            child = await template.fork("die", own.url, folder, scene, str(journal), str(spot))
            assert await child.wait() == -signal.SIGKILL, f"{spot} was not hit: {template.errors()}"
            await everything_is_whole(artifacts, spot)
            pinned += await what_was_pinned_is_there(artifacts, journal)
            await SCENES[scene](artifacts, journal)
            await everything_is_whole(artifacts, spot)
            assert await what_was_pinned_is_there(artifacts, journal) > 0
            assert await artifacts.stat(uri(LEFT)) is None
        await nothing_is_left(artifacts, Path(folder) if folder else None)
    assert pinned > 0
    say(f"{scene} in {place}: {len(found)} kills, {pinned} pinned artifacts looked for, 0 lost")


def uri(content: bytes) -> str:
    return f"artifact:sha256:{hashlib.sha256(content).hexdigest()}"


async def everything_is_whole(artifacts: ArtifactStore, spot: Spot) -> None:
    """Each artifact that stands is listed and reads as it was put; every other key below it ends by itself."""
    store = artifacts._store
    listed = {one.ref.uri async for one in artifacts.all()}
    reached: set[str] = set()
    for ref, content in CONTENTS.items():
        where = keys.ArtifactKeys(ref.rpartition(":")[2])
        head = Head.of(where.digest, await store.command("HGETALL", where.head))
        if head is not None:
            assert ref in listed, f"after {spot} {ref} is not listed"
            assert await artifacts.read(ref) == content, f"after {spot}"
            reached |= {where.head, where.refs, *head.chunks}
    for key in await store.command("KEYS", "bb:artifact:*"):
        assert key.decode() in reached or await store.command("PTTL", key) > 0, f"after {spot} {key!r} is nobody's"


async def what_was_pinned_is_there(artifacts: ArtifactStore, journal: Path) -> int:
    pinned = {line.partition(" ")[2] for line in lines(journal) if line.startswith("pinned")}
    for ref in pinned:
        assert await artifacts.read(ref) == CONTENTS[ref]
    return len(pinned)


async def nothing_is_left(artifacts: ArtifactStore, folder: Path | None) -> None:
    """When all is unpinned, two collections leave nothing, files of killed puts included."""
    for ref in CONTENTS:
        await artifacts.unpin(ref, "somebody")
    left: list[object] = []
    for _ in range(500):
        await artifacts.gc()
        await asyncio.sleep(1.5 * GRACE)
        left = [*await artifacts._store.command("KEYS", "bb:artifact*")]
        left += [path for path in folder.rglob("*") if path.is_file()] if folder else []
        if not left:
            break
    assert left == []


async def test_the_scenes_reach_every_script(own: Server, template: Template, tmp_path: Path) -> None:
    """A script that no scene calls would have crash points that nobody looked at."""
    modules = [importlib.import_module(one.name) for one in pkgutil.iter_modules(room.__path__, f"{room.__name__}.")]
    scripts = {value.name for one in modules for value in vars(one).values() if isinstance(value, Script)}
    reached = {spot.point for scene in SCENES for spot in await spots(own, template, scene, "", tmp_path)}
    assert len(scripts) == 6
    assert {
        name for name in scripts for moment in ("before", "sent", "after") if f"{name}:{moment}" not in reached
    } == set()
