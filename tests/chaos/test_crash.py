"""A driver is killed at every point that it reaches, and another goes on: nothing acknowledged is lost, nothing repeated."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import pkgutil
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import pytest_asyncio

from blackboard import checkpoints, claims, keys
from blackboard.artifacts.owner import Owner
from blackboard.checkpoints.outside import KIND, ThreadReferrer
from blackboard.store.client import Store
from blackboard.store.script import Script
from blackboard.testing.crash import Spot, Template
from blackboard.testing.servers import Server, binaries, start_server
from tests.chaos import invariants
from tests.chaos.scenes import SCENES
from tests.chaos.stage import NAMESPACE, Stage, items_of, lines, say
from tests.chaos.upkeep import KEPT, STEPS

ROOMS = (checkpoints, claims)
FINAL = ["did search", "did pay", "did ship", "did mail", "did shared"]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def templates() -> AsyncIterator[list[Template]]:
    """Two, for two processors."""
    async with await Template.start("tests.chaos.scenes") as first, await Template.start("tests.chaos.scenes") as other:
        yield [first, other]


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=sorted(binaries())[:1] or [""])
async def own(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server whose keyspace is walked as a whole."""
    async with await start_server(binaries()[request.param], tmp_path_factory.mktemp("crash")) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def spots(
    own: Server, templates: list[Template], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Spot]]:
    """Every spot of every scene; recorded twice, for a spot that comes and goes cannot be hit."""
    directory = tmp_path_factory.mktemp("record")
    rounds: list[dict[str, list[Spot]]] = []
    for number in range(3):
        found = {}
        for scene in SCENES:
            out = directory / f"{scene}-{number}"
            child = await templates[0].fork(
                "record", own.url, scene, f"record-{scene}-{number}", str(directory), str(out)
            )
            assert await child.wait() == 0, templates[0].errors()
            found[scene] = [Spot.parse(line) for line in lines(out)]
        rounds.append(found)
    assert rounds[1] == rounds[2], "the first round also loads the scripts; the others must agree"
    return rounds[1]


def writing(room: ModuleType) -> Iterator[Script]:
    """Every script of a room that may write."""
    for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Script) and not value.read_only:
                yield value


@dataclass(frozen=True)
class Victim:
    """A thread whose driver was killed at a spot."""

    spot: Spot
    on: Stage


def test_the_scenes_reach_every_script(spots: dict[str, list[Spot]]) -> None:
    """A script that writes and that no scene calls would have crash points that nobody looked at."""
    reached = {spot.point for found in spots.values() for spot in found}
    scripts = {script.name for room in ROOMS for script in writing(room)}
    assert len(scripts) > 15
    for moment in ("before", "sent", "after"):
        assert {name for name in scripts if f"{name}:{moment}" not in reached} == set()
    assert {"effect:before", "effect:after", "commit:before", "commit:after"} <= reached


@pytest.mark.parametrize("scene", SCENES)
async def test_killed_anywhere(
    scene: str, own: Server, spots: dict[str, list[Spot]], templates: list[Template], tmp_path: Path
) -> None:
    store = await Store.connect(own.url)
    try:
        victims = [Victim(spot, Stage(store, f"{scene}-{index}", tmp_path)) for index, spot in enumerate(spots[scene])]
        await _kill_all(scene, own.url, victims, templates)
        await invariants.no_key_without_owner(store)
        acknowledged = sum([await invariants.acknowledged_is_there(victim.on) for victim in victims])
        assert acknowledged > 0 or scene in ("leasing", "failing", "pruning", "setting_aside")
        for victim in victims:
            invariants.effects_are_honest(victim.on)
        await asyncio.gather(*(SCENES[scene](victim.on) for victim in victims))
        for victim in victims:
            await _went_on(scene, victim.on)
        walked = await invariants.no_key_without_owner(store)
        say(f"{scene}: {len(victims)} kills, {acknowledged} acknowledged, 0 lost; {walked} keys walked")
    finally:
        await store.close()


async def _kill_all(scene: str, url: str, victims: list[Victim], templates: list[Template]) -> None:
    """Kill one driver at each spot, two at a time; fails for a spot that is not reached."""
    waiting = iter(victims)

    async def work(template: Template) -> None:
        for victim in waiting:
            spot, on = victim.spot, victim.on
            child = await template.fork("die", url, scene, on.thread, str(on.directory), str(spot))
            assert await child.wait() == -signal.SIGKILL, f"{spot} was not hit: {template.errors()}"

    await asyncio.gather(*map(work, templates))


async def _went_on(scene: str, on: Stage) -> None:
    """What stands after the next driver has played the scene to its end."""
    await invariants.acknowledged_is_there(on)
    invariants.effects_are_honest(on)
    match scene:
        case "finishing":
            await invariants.chain_is_whole(on)
            found = await on.engine.latest(on.thread)
            assert found is not None
            assert [json.loads(item) for item in items_of(found, "lines")] == FINAL
            assert (await on.engine.meta(on.thread)).status == "finished"
            assert {name: runs.total() >= 1 for name, runs in on.happened().items()} == dict.fromkeys(
                ("search", "pay", "ship", "mail", "shared"), True
            )
            assert {on.happened()[name].total() for name in ("pay", "ship")} == {1}
        case "failing":
            assert len(on.acknowledged("failed")) <= 1
            await invariants.chain_is_whole(on)
            assert (await on.engine.meta(on.thread)).status == "failed"
        case "leasing":
            assert await on.leases.holder(on.thread) is None
            fences = [fact["fence"] for fact in on.acknowledged("granted")]
            assert fences == sorted(set(fences))
        case "pruning":
            await _the_newest_are_whole(on)
        case "referring":
            await _the_artifact_is_kept(on)
        case "ending":
            await _nothing_but_a_tombstone(on)
        case _:
            assert len(on.acknowledged("complete")) >= 1


async def _the_newest_are_whole(on: Stage) -> None:
    """The newest are whole: nothing that they refer to went with the others."""
    chain = await on.engine.history(on.thread)
    assert [one.checkpoint for one in chain] == [f"c{STEPS - 1 - at}" for at in range(KEPT)]
    for one in chain:
        found = await on.engine.at(on.thread, one.checkpoint)
        assert found is not None
        assert len(items_of(found, "items")) == one.step + 1


async def _the_artifact_is_kept(on: Stage) -> None:
    """The artifact knows of the thread and the thread of the artifact."""
    content = f"page of {on.thread}".encode()
    digest, artifacts = hashlib.sha256(content).hexdigest(), on.engine.outside.artifacts
    found = await artifacts.stat(f"artifact:sha256:{digest}")
    assert found is not None
    assert found.owners == (Owner(KIND, NAMESPACE, on.thread),)
    assert await ThreadReferrer(on.store).refers(found.owners[0], digest)
    assert await artifacts.read(found.ref) == content


async def _nothing_but_a_tombstone(on: Stage) -> None:
    """A sweep clears what is left of a removal that was cut, but for keys that end by themselves."""
    while await on.engine.retention.sweep():
        pass
    where = keys.ThreadKeys.of(NAMESPACE, on.thread)
    assert (await on.engine.meta(on.thread)).status == "deleted"
    for key in (where.latest(), where.history(), where.parts, where.values, where.effects, where.checkpoint("anew")):
        assert await on.store.command("EXISTS", key) == 0, key
    assert await on.store.command("ZSCORE", keys.threads(NAMESPACE, keys.shard(on.thread)), on.thread) is None
