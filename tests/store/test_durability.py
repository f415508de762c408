"""The proof of durability: what is wrong is found and named, on every kind of server, and nothing sound is refused."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from blackboard.errors import NotDurable, ServerUnavailable
from blackboard.store.binaries import Binary
from blackboard.store.client import Store
from blackboard.store.durability import Check, Report, forget, prove
from blackboard.testing.cluster import start_cluster
from blackboard.testing.sentinel import start_sentinel
from blackboard.testing.servers import Server, binaries, start_server

BINARIES = binaries()
each = pytest.mark.parametrize("name", sorted(BINARIES))
NAMES = [
    "role",
    "eviction",
    "persistence",
    "fsync",
    "last_write",
    "scripts",
    "conditional_writes",
    "read_your_write",
    "epoch",
]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    forget()
    yield
    forget()


def waits(name: str) -> bool:
    """Whether this server has WAITAOF."""
    return Binary.inspect(BINARIES[name]).release >= (7, 2)


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncGenerator[Store]:
    store = await Store.connect(url, **options)
    try:
        yield store
    finally:
        await store.close()


async def proof(server: Server) -> Report:
    async with opened(server.url) as store:
        return await prove(store)


def named(report: Report) -> dict[str, Check]:
    return {check.name: check for check in report.checks}


def verdicts(report: Report) -> dict[str, str]:
    return {check.name: check.verdict for check in report.checks}


@each
@pytest.mark.parametrize("fsync", ["always", "everysec"])
async def test_a_durable_server_is_proven(name: str, fsync: Any, tmp_path: Path) -> None:
    async with await start_server(BINARIES[name], tmp_path, fsync=fsync) as server:
        report = await proof(server)
        expected = dict.fromkeys(NAMES, "PROVEN")
        if not waits(name):
            expected |= {"persistence": "CLAIMED", "fsync": "CLAIMED"}
        assert verdicts(report) == expected
        assert report.verdict == ("PROVEN" if waits(name) else "CLAIMED")
        assert report.violations == ()
        assert report.require() is report
        assert named(report)["fsync"].detail.startswith(fsync)


@each
async def test_each_violation_names_its_setting(name: str, tmp_path: Path) -> None:
    async with await start_server(BINARIES[name], tmp_path) as server:
        for setting, value, check, mend in (
            ("maxmemory_policy", "allkeys-lru", "eviction", "maxmemory-policy noeviction"),
            ("maxmemory_policy", "volatile-ttl", "eviction", "maxmemory-policy noeviction"),
            ("appendonly", "no", "persistence", "appendonly yes"),
        ):
            before = (await server.ask("CONFIG", "GET", setting.replace("_", "-")))[1].decode()
            await server.configure(**{setting: value})
            report = await proof(server)
            assert [(one.name, one.mend) for one in report.violations] == [(check, mend)]
            with pytest.raises(NotDurable, match=mend) as raised:
                report.require()
            assert raised.value.report is report
            await server.configure(**{setting: before})
        assert (await proof(server)).violations == ()


@each
async def test_fsync_no_is_violated(name: str, tmp_path: Path) -> None:
    async with await start_server(BINARIES[name], tmp_path, fsync="no") as server:
        report = await proof(server)
    assert [(one.name, one.mend) for one in report.violations] == [("fsync", "appendfsync everysec, or always")]


async def forbid(server: Server, *commands: str) -> str:
    """Make a user that lacks commands; returns its URL."""
    rights = [f"-{command}" for command in commands]
    await server.ask("ACL", "SETUSER", "app", "on", ">secret", "~bb:*", "+@all", *rights)
    return f"unix://{server.socket}?username=app&password=secret"


@each
@pytest.mark.parametrize("fsync", ["always", "everysec", "no"])
async def test_where_config_is_forbidden_the_policy_is_inferred(name: str, fsync: Any, tmp_path: Path) -> None:
    async with await start_server(BINARIES[name], tmp_path, fsync=fsync) as server:
        url = await forbid(server, "config")
        async with opened(url) as store:
            found = named(await prove(store))
    told = {"always": ["UNKNOWN"], "everysec": ["CLAIMED", "UNKNOWN"], "no": ["VIOLATED"]}[fsync]
    assert found["fsync"].verdict in (told if waits(name) else ["UNKNOWN"])
    if name == "redis" and fsync == "everysec":
        assert found["fsync"].detail.startswith("everysec, inferred")
    if waits(name) and fsync != "no":
        assert "always" in found["fsync"].detail or "everysec" in found["fsync"].detail
        assert found["persistence"].verdict in ("PROVEN", "CLAIMED")
    assert {found[one].verdict for one in ("scripts", "conditional_writes", "read_your_write", "epoch")} == {"PROVEN"}


async def test_a_server_that_says_nothing_is_unknown_not_refused(tmp_path: Path) -> None:
    async with (
        await start_server(next(iter(BINARIES.values())), tmp_path, fsync="always") as server,
        opened(await forbid(server, "info", "config", "waitaof")) as store,
    ):
        report = await prove(store)
    found = verdicts(report)
    assert {found[one] for one in ("role", "eviction", "persistence", "fsync", "last_write")} == {"UNKNOWN"}
    assert {found[one] for one in ("scripts", "conditional_writes", "read_your_write", "epoch")} == {"PROVEN"}
    assert report.verdict == "UNKNOWN"
    report.require()


@each
async def test_a_user_without_admin_and_dangerous_commands_is_served(name: str, tmp_path: Path) -> None:
    """What managed servers forbid: INFO and CONFIG are among it, WAITAOF is not."""
    async with await start_server(BINARIES[name], tmp_path, fsync="always") as server:
        url = await forbid(server, "@admin", "@dangerous")
        async with opened(url) as store:
            report = (await prove(store)).require()
    found = verdicts(report)
    assert found["persistence"] == ("CLAIMED" if waits(name) else "UNKNOWN")
    assert found["fsync"] == "UNKNOWN"
    assert named(report)["eviction"].detail.startswith("INFO is refused: NOPERM")


async def test_a_server_without_scripts_is_violated(tmp_path: Path) -> None:
    async with (
        await start_server(next(iter(BINARIES.values())), tmp_path, fsync="always") as server,
        opened(await forbid(server, "@scripting")) as store,
    ):
        report = await prove(store)
    assert {check.name for check in report.violations} == {"scripts", "conditional_writes"}
    assert all("eval" in check.detail for check in report.violations)


async def test_a_full_server_is_violated(tmp_path: Path) -> None:
    async with await start_server(next(iter(BINARIES.values())), tmp_path, fsync="always") as server:
        await server.configure(maxmemory=1)
        report = await proof(server)
    assert "read_your_write" in {check.name for check in report.violations}
    assert "OOM" in named(report)["read_your_write"].detail


@each
async def test_a_replica_is_violated(name: str, tmp_path: Path) -> None:
    async with await start_sentinel(BINARIES[name], tmp_path, appendfsync="always") as group:
        report = await proof(group.servers[1])
        assert [check.name for check in report.violations] == ["role"]
        assert await group.servers[1].ask("DBSIZE") == 0
        async with opened(group.url) as store:
            assert (await prove(store)).violations == ()


@each
async def test_a_flushed_store_has_regressed(name: str, tmp_path: Path) -> None:
    async with await start_server(BINARIES[name], tmp_path, fsync="always") as server, opened(server.url) as store:
        assert not (await prove(store)).regressed
        assert not (await prove(store)).regressed
        await server.ask("FLUSHALL")
        for _ in range(2):
            report = await prove(store)
            assert report.regressed
            assert [check.name for check in report.violations] == ["epoch"]
            assert "now it is absent" in named(report)["epoch"].detail
        assert (await proof(server)).regressed
        forget()
        assert not (await proof(server)).regressed


async def test_an_older_and_another_life_have_regressed(tmp_path: Path) -> None:
    """A restored backup knows the life but not the last looks; another store has another life."""
    async with await start_server(next(iter(BINARIES.values())), tmp_path, fsync="always") as server:
        for _ in range(3):
            await proof(server)
        assert await server.ask("HGET", "bb:epoch", "counter") == b"3"
        await server.ask("HSET", "bb:epoch", "counter", 2)
        assert (await proof(server)).regressed
        await server.ask("HSET", "bb:epoch", "counter", 3)
        assert not (await proof(server)).regressed
        await server.ask("HSET", "bb:epoch", "life", "other")
        assert (await proof(server)).regressed


async def test_a_restart_keeps_the_epoch(tmp_path: Path) -> None:
    async with await start_server(next(iter(BINARIES.values())), tmp_path, fsync="always") as server:
        await proof(server)
        await server.restart(kill=True)
        assert (await proof(server)).verdict == "PROVEN"


async def test_databases_of_one_server_are_different_backends(tmp_path: Path) -> None:
    async with await start_server(next(iter(BINARIES.values())), tmp_path, fsync="always") as server:
        for db in (0, 1):
            async with opened(f"{server.url}?db={db}") as store:
                assert not (await prove(store)).regressed


async def test_probes_end_by_themselves_and_the_epoch_stays(tmp_path: Path) -> None:
    async with await start_server(next(iter(BINARIES.values())), tmp_path, fsync="always") as server:
        await proof(server)
        keys = await server.ask("KEYS", "*")
        lives = {key: await server.ask("PTTL", key) for key in keys}
        assert lives.pop(b"bb:epoch") == -1
        assert len(lives) == 4
        assert all(key.startswith(b"bb:probe:") and 0 < life <= 60_000 for key, life in lives.items())


async def test_only_the_first_proof_waits_for_the_disk(tmp_path: Path) -> None:
    name = next(one for one in sorted(BINARIES) if waits(one))
    async with await start_server(BINARIES[name], tmp_path) as server, opened(server.url) as store:
        for _ in range(3):
            assert verdicts(await prove(store))["persistence"] == "PROVEN"
        calls = (await server.ask("INFO", "commandstats")).decode()
        assert "cmdstat_waitaof:calls=1," in calls


@each
async def test_one_bad_primary_of_a_cluster_is_named(name: str, tmp_path: Path) -> None:
    async with await start_cluster(BINARIES[name], tmp_path) as cluster, opened(cluster.url) as store:
        report = await prove(store)
        assert report.violations == ()
        assert len(report.checks) == 3 * len(NAMES)
        assert len({check.server for check in report.checks}) == 3
        bad = cluster.nodes[1]
        await bad.configure(maxmemory_policy="allkeys-lfu")
        await cluster.nodes[2].ask("FLUSHALL")
        report = await prove(store)
    assert [(check.name, check.server.split(":")[-1]) for check in report.violations] == [
        ("eviction", str(bad.port)),
        ("epoch", str(cluster.nodes[2].port)),
    ]


async def test_an_outage_is_an_error_not_a_verdict(tmp_path: Path) -> None:
    async with (
        await start_server(next(iter(BINARIES.values())), tmp_path) as server,
        opened(server.url, retry_deadline=0.3) as store,
    ):
        server.kill()
        with pytest.raises(ServerUnavailable):
            await prove(store)


async def test_a_report_is_plain_data(tmp_path: Path) -> None:
    async with await start_server(next(iter(BINARIES.values())), tmp_path, fsync="always") as server:
        report = await proof(server)
    shown = json.loads(json.dumps(report.to_dict()))
    assert shown["verdict"] == report.verdict
    assert [one["name"] for one in shown["checks"]] == NAMES
    assert set(shown["checks"][0]) == {"name", "verdict", "detail", "mend", "server"}
    assert hash(report)
