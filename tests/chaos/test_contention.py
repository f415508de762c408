"""Drivers contend for threads while they are paused, killed and cut off; a checker judges what was stored."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from blackboard.testing.crash import Child, Template
from blackboard.testing.proxy import Command, Fault, FaultProxy, cut_reply, drop_reply, drop_request
from blackboard.testing.servers import Server, binaries, start_server
from tests.chaos.stage import say
from tests.chaos.workload import acknowledged_so_far, judge

BINARY = next(iter(binaries().values()))
THREADS = 24
FAULTS: tuple[Fault, ...] = (drop_reply(), drop_request(), cut_reply(3))
HARMS = ("pause", "kill", "drop_reply", "drop_request", "cut_reply")


class Nemesis:
    """Pauses and kills drivers, breaks their wires, and may kill the server; counts what it did."""

    def __init__(self, proxy: FaultProxy, server: Server | None, directory: Path, seed: int) -> None:
        self.did: Counter[str] = Counter()
        self._proxy, self._server, self._directory = proxy, server, directory
        self._random = random.Random(seed)
        self._due = HARMS if server is None else (*HARMS, "server kill")
        for fault in FAULTS:
            proxy.fault(fault, when=self._breaks(fault), times=1 << 60)

    def _breaks(self, fault: Fault) -> Callable[[Command], bool]:
        def breaks(_: Command) -> bool:
            broken = self._random.random() < 0.002
            self.did[fault.kind] += broken
            return broken

        return breaks

    @property
    def missing(self) -> list[str]:
        """The harms that were not done yet."""
        return [harm for harm in self._due if not self.did[harm]]

    async def strike(self, templates: list[Template], drivers: list[Child]) -> None:
        """Do one harm to one driver; a killed one is replaced by another."""
        at = self._random.randrange(len(drivers))
        if self._random.random() < 0.5:
            self.did["pause"] += 1
            drivers[at].signal(signal.SIGSTOP)
            await asyncio.sleep(self._random.uniform(0.3, 0.9))
            drivers[at].signal(signal.SIGCONT)
        else:
            self.did["kill"] += 1
            drivers[at].signal(signal.SIGKILL)
            await drivers[at].wait()
            drivers[at] = await self.driver(templates[at])
        if self._server is not None and self._random.random() < 0.3:
            self.did["server kill"] += 1
            await self._server.restart(kill=True)

    async def driver(self, template: Template) -> Child:
        self.did["driver"] += 1
        name, seed = f"d{self.did['driver']}", str(self._random.randrange(1 << 30))
        return await template.fork("toil", self._proxy.url, name, seed, str(THREADS), str(self._directory))


async def contend(server: Server, directory: Path, *, quota: int, kill_server: bool, seed: int = 1) -> None:
    """Let two driver processes contend until so many writes were acknowledged and every harm was done, then judge."""
    async with (
        await FaultProxy.start(server.url) as proxy,
        await Template.start("tests.chaos.workload") as first,
        await Template.start("tests.chaos.workload") as other,
    ):
        nemesis, templates = Nemesis(proxy, server if kill_server else None, directory, seed), [first, other]
        drivers = [await nemesis.driver(template) for template in templates]
        strikes = 0
        while acknowledged_so_far(directory) < quota or (nemesis.missing and strikes < 100):
            strikes += 1
            await asyncio.sleep(0.5)
            proxy.commands.clear()
            await nemesis.strike(templates, drivers)
        (directory / "stop").touch()
        assert [await driver.wait() for driver in drivers] == [0, 0], first.errors() + other.errors()
    seen, found = await judge(server.url, directory)
    refused = seen.refused()
    say(f"{seen.acknowledged} acknowledged, {refused} refused, {dict(nemesis.did)}: {len(found)} violations")
    assert found == []
    assert seen.surprises == []
    assert seen.acknowledged >= quota
    assert nemesis.missing == []
    assert refused > 0, "no late write was refused: nothing was contended"


async def test_drivers_killed_paused_and_cut_off(tmp_path: Path) -> None:
    async with await start_server(BINARY, tmp_path / "server") as server:
        await contend(server, tmp_path, quota=20_000, kill_server=False)


async def test_the_server_killed_in_the_middle(tmp_path: Path) -> None:
    """With fsync always, nothing that was acknowledged may be lost and nothing doubled."""
    async with await start_server(BINARY, tmp_path / "server", fsync="always") as server:
        await contend(server, tmp_path, quota=3_000, kill_server=True)


@pytest.mark.chaos
@pytest.mark.parametrize("binary", sorted(binaries()))
@pytest.mark.parametrize("seed", range(4))
async def test_for_long(binary: str, seed: int, tmp_path: Path) -> None:
    async with await start_server(binaries()[binary], tmp_path / "server", fsync="always") as server:
        await contend(server, tmp_path, quota=100_000, kill_server=True, seed=seed)
