"""A process is killed at every step of what is done to a path as a whole: nothing is lost, and no half of it is seen."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from blackboard.store.client import Store
from blackboard.testing.crash import Spot, Template
from blackboard.testing.servers import Server
from tests.chaos.changing import SCENES, SMALL, Desk, patiently
from tests.chaos.stage import lines, say


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for where, name, value in SMALL:
            patch.setitem(where, name, value)
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def templates() -> AsyncIterator[list[Template]]:
    """Two, so that two processes of their own run at once."""
    found = [await Template.start("tests.chaos.changing") for _ in range(2)]
    yield found
    for one in found:
        await one.close()


async def spots(own: Server, store: Store, template: Template, scene: str, directory: Path) -> list[Spot]:
    """Every spot of an act; recorded twice after the scripts are loaded, for one that comes and goes cannot be hit."""
    rounds: list[list[Spot]] = []
    for number in range(3):
        on, out = Desk(store, f"recorded/{directory.name}/{number}"), directory / f"spots-{number}"
        await SCENES[scene].prepare(on)
        child = await template.fork("record", own.url, on.path, scene, str(out))
        assert await child.wait() == 0, template.errors()
        await SCENES[scene].ended(on)
        rounds.append([Spot.parse(line) for line in lines(out)])
    assert rounds[1] == rounds[2]
    return rounds[1]


@pytest.mark.parametrize("scene", SCENES)
async def test_killed_anywhere(
    own: Server, store: Store, templates: list[Template], tmp_path: Path, scene: str
) -> None:
    """At every point, the first time that it is reached."""
    found = await spots(own, store, templates[0], scene, tmp_path)
    await killed(own, store, templates, scene, [spot for spot in found if spot.occurrence == 1])


@pytest.mark.chaos
@pytest.mark.parametrize("scene", SCENES)
async def test_killed_anywhere_every_time(
    own: Server, store: Store, templates: list[Template], tmp_path: Path, scene: str
) -> None:
    await killed(own, store, templates, scene, await spots(own, store, templates[0], scene, tmp_path))


async def killed(own: Server, store: Store, templates: list[Template], scene: str, found: list[Spot]) -> None:
    """All that stands is whole; and whoever does it again, or tends the path, brings it to its end."""
    played, path = SCENES[scene], f"{scene}/{len(found)}"
    assert played.points <= {spot.point for spot in found}
    victims = [(spot, Desk(store, f"{path}/{number}")) for number, spot in enumerate(found)]
    for _, on in victims:
        await played.prepare(on)
    waiting = iter(victims)

    async def kill(template: Template) -> None:
        for spot, on in waiting:
            child = await template.fork("die", own.url, on.path, scene, str(spot))
            assert await child.wait() == -signal.SIGKILL, f"{spot} was not hit: {template.errors()}"

    await asyncio.gather(*map(kill, templates))
    for spot, on in victims:
        try:
            await played.whole(on)
        except AssertionError as broken:
            raise AssertionError(f"killed at {spot}") from broken
    for start in range(0, len(victims), 32):
        await asyncio.gather(*(patiently(partial(played.act, on)) for _, on in victims[start : start + 32]))
    for spot, on in victims:
        try:
            await played.ended(on)
        except AssertionError as broken:
            raise AssertionError(f"after {spot}") from broken
    say(f"{scene}: {len(victims)} kills, each path whole and brought to its end")
