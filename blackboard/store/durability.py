"""Durability, proven at start: that the backend keeps what it acknowledges, and is still the one that we knew.

| verdict | when |
|---|---|
| PROVEN | it was tried, or the running server says so of its present state |
| CLAIMED | a setting says so, or it was inferred; it was not seen |
| UNKNOWN | it cannot be found out here (a forbidden command, a server that cannot tell) |
| VIOLATED | it is not so: acknowledged data will be lost, or have been |

A process that dies loses nothing under any fsync policy; `everysec` may lose about the last second when the machine
dies. Replication is asynchronous: no proof covers what a failover loses, but the epoch sentinel and the fences notice it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

from blackboard.errors import NotDurable
from blackboard.store.client import Primary, Store
from blackboard.store.facts import LIFE_MS, PATIENCE_MS, Epoch, Facts, Flush, advance_epoch, gather

__all__ = ["Check", "Report", "Verdict", "forget", "prove"]

Verdict: TypeAlias = Literal["PROVEN", "CLAIMED", "UNKNOWN", "VIOLATED"]

WORST: tuple[Verdict, ...] = ("PROVEN", "CLAIMED", "UNKNOWN", "VIOLATED")

ALWAYS_MS = 250.0
"""Some waits for the disk in a row take over 1,000 ms together with `everysec`, as many flushes with `always`."""

_SECOND = "about the last second may be lost if the machine dies"
_SYNC = "appendfsync everysec, or always"
_SLOW = "look at the server's disk, and at appendfsync"
_SPACE = "free disk space and look into the server's log"
_OTHER = "use another server: this one does not keep to the protocol"
_LOST = "restore the data; or if they were removed on purpose, start a new process"

_remembered: dict[tuple[str, str], Epoch] = {}
_flushes: dict[str, Flush] = {}
"""What a wait for the disk has shown, by server run: so that only the first proof waits."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at on one primary; `mend` names what to change, empty if there is nothing to mend."""

    name: str
    verdict: Verdict
    detail: str
    mend: str = ""
    server: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What was found out about every primary of a backend."""

    checks: tuple[Check, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all checks."""
        return WORST[max((WORST.index(check.verdict) for check in self.checks), default=WORST.index("UNKNOWN"))]

    @property
    def violations(self) -> tuple[Check, ...]:
        """The checks that are VIOLATED."""
        return tuple(check for check in self.checks if check.verdict == "VIOLATED")

    @property
    def regressed(self) -> bool:
        """Whether a primary has lost what it once acknowledged: its epoch is absent, another one or older."""
        return any(check.name == "epoch" for check in self.violations)

    @property
    def told(self) -> str:
        """Each violation with its server, and what to change, for people."""
        return "; ".join(f"{check.server}: {check.name}: {check.detail}: {check.mend}" for check in self.violations)

    def require(self) -> Report:
        """Return the report, or raise NotDurable (with it as `report`) naming each violation and what to change."""
        if self.violations:
            raise NotDurable(f"the backend does not keep what it acknowledges: {self.told}", report=self)
        return self

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data: `verdict`, and `checks` with their fields."""
        return {"verdict": self.verdict, "checks": [asdict(check) for check in self.checks]}


async def prove(store: Store) -> Report:
    """Look at every primary of a connected store, and try it.

    What is checked: role, eviction, persistence, fsync, last_write, scripts, conditional_writes, read_your_write,
    epoch. It takes a few round trips; the first proof of a server run in this process also waits until a probe write is on
    the disk, where the server can tell (with `everysec` up to one second, or two where CONFIG is forbidden). Probe keys
    (`bb:probe:...`) end by themselves within a minute; `bb:epoch` stays. The epoch is remembered by this process per
    backend and key; see `forget`. Raises ServerUnavailable and OutcomeUnknown; what the server refuses is a verdict.
    """
    proven = await asyncio.gather(*(_prove(store, primary) for primary in await store.primaries()))
    return Report(tuple(check for checks in proven for check in checks))


def forget() -> None:
    """Forget the epochs that this process remembers: for a store that was emptied on purpose."""
    _remembered.clear()


async def _prove(store: Store, primary: Primary) -> list[Check]:
    run = primary.identity.run_id if primary.identity else ""
    facts = await gather(store, primary, _flushes.get(run))
    if run and facts.flush is not None and facts.flush.outcome == "DONE":
        _flushes[run] = facts.flush
    checks = [judge(facts) for judge in _JUDGES]
    checks.append(await _epoch(store, primary, facts))
    return [replace(check, server=facts.server) for check in checks]


def _role(facts: Facts) -> Check:
    if facts.info is None:
        return Check("role", "UNKNOWN", _unsaid(facts, "INFO"), "grant it: ACL SETUSER <user> +info")
    if facts.info.get("role") != "master":
        mend = "give the primary's address, or a redis+sentinel:// or redis+cluster:// URL"
        return Check("role", "VIOLATED", f"it is a {facts.info.get('role', 'server without a role')}", mend)
    if "1" in (facts.info.get("loading"), facts.info.get("async_loading")):
        return Check("role", "VIOLATED", "it is loading its data", "wait until it has loaded")
    version = facts.info.get("valkey_version") or facts.info.get("redis_version", "of unknown version")
    return Check("role", "PROVEN", f"a primary, {facts.info.get('server_name', 'redis')} {version}, not loading")


def _eviction(facts: Facts) -> Check:
    policy = (facts.info or {}).get("maxmemory_policy")
    if policy is None:
        return Check("eviction", "UNKNOWN", _unsaid(facts, "INFO"), "see that it evicts nothing")
    if policy != "noeviction":
        evicted = (facts.info or {}).get("evicted_keys", "0")
        return Check("eviction", "VIOLATED", f"{policy}, {evicted} keys evicted so far", "maxmemory-policy noeviction")
    return Check("eviction", "PROVEN", policy)


def _persistence(facts: Facts) -> Check:
    outcome = facts.flush.outcome if facts.flush else "UNKNOWN"
    enabled = (facts.info or {}).get("aof_enabled")
    if outcome == "OFF" or enabled == "0":
        return Check("persistence", "VIOLATED", "there is no append-only file", "appendonly yes")
    if facts.flush and outcome == "DONE":
        took = f"{facts.flush.milliseconds:.0f} ms"
        verdict: Verdict = "PROVEN" if enabled == "1" or facts.fsync == "always" else "CLAIMED"
        return Check("persistence", verdict, f"the server says that a probe write was on its disk within {took}")
    if outcome == "LATE":
        return Check("persistence", "CLAIMED", f"a probe write was not on the disk within {PATIENCE_MS} ms", _SLOW)
    if enabled == "1":
        return Check("persistence", "CLAIMED", "the append-only file is on; when a write is on the disk is not told")
    return Check("persistence", "UNKNOWN", "neither INFO nor WAITAOF tells", "see its maker's word on persistence")


def _fsync(facts: Facts) -> Check:
    outcome = facts.flush.outcome if facts.flush else "UNKNOWN"
    seen: Verdict = "PROVEN" if outcome == "DONE" else "CLAIMED"
    match facts.fsync:
        case "always":
            return Check("fsync", seen, "always: a write is on the disk before it is acknowledged")
        case "everysec":
            return Check("fsync", seen, f"everysec: {_SECOND}", "for more: appendfsync always")
        case "no":
            return Check("fsync", "VIOLATED", "no: the system decides when to write", _SYNC)
        case _:
            return _inferred(facts)


def _inferred(facts: Facts) -> Check:
    """Judge the fsync policy by how long a wait for the disk takes, where CONFIG is forbidden."""
    if facts.flush is None or facts.flush.outcome in ("OFF", "UNKNOWN"):
        return Check("fsync", "UNKNOWN", _unsaid(facts, "CONFIG"), "grant it: ACL SETUSER <user> +config|get")
    took = f"{facts.flush.milliseconds:.0f} ms for some flushes in a row"
    if facts.flush.outcome == "LATE":
        return Check("fsync", "VIOLATED", f"a probe write was not on the disk within {PATIENCE_MS} ms", _SYNC)
    if facts.flush.milliseconds < ALWAYS_MS:
        # Valkey 9.1 answers WAITAOF under everysec before it has synced, so a short wait tells nothing.
        return Check("fsync", "UNKNOWN", f"always, or everysec not told apart from it: {took}", "grant +config|get")
    return Check("fsync", "CLAIMED", f"everysec, inferred: {took}; {_SECOND}", "for more: appendfsync always")


def _last_write(facts: Facts) -> Check:
    known = facts.info or {}
    if known.get("aof_last_write_status", "ok") != "ok":
        return Check("last_write", "VIOLATED", "the last write of the append-only file failed", _SPACE)
    failed = [name for name in ("aof_last_bgrewrite_status", "rdb_last_bgsave_status") if known.get(name, "ok") != "ok"]
    if failed:
        return Check("last_write", "CLAIMED", f"writes succeed, but not {' and '.join(failed)}", _SPACE)
    if "aof_last_write_status" not in known:
        return Check("last_write", "UNKNOWN", _unsaid(facts, "INFO"), "look into the server's log")
    return Check("last_write", "PROVEN", "the last write and rewrite of the append-only file succeeded")


def _scripts(facts: Facts) -> Check:
    if (scripted := facts.scripted) is None:
        return _untried(facts, "scripts", "allow EVAL and EVALSHA, and keys bb:*")
    *_, token, absent, seconds, microseconds = scripted.reply
    clock = int(seconds) * 1_000_000 + int(microseconds)
    if token != scripted.token or absent is not None or not scripted.before <= clock <= scripted.after:
        return Check("scripts", "VIOLATED", f"a script answered {scripted.reply!r}", _OTHER)
    return Check("scripts", "PROVEN", "a script wrote and read two keys at the server's time")


def _conditional_writes(facts: Facts) -> Check:
    if (scripted := facts.scripted) is None:
        return _untried(facts, "conditional_writes", "allow SET, and keys bb:*")
    first, second, life = scripted.reply[:3]
    if (first, second) != (1, 0) or not 0 < life <= LIFE_MS:
        return Check("conditional_writes", "VIOLATED", f"SET NX PX twice answered {first}, {second}, {life} ms", _OTHER)
    return Check("conditional_writes", "PROVEN", "SET NX set once and not again, and the key has a life")


def _read_your_write(facts: Facts) -> Check:
    if facts.read_back is None:
        return _untried(facts, "read_your_write", "have the server accept writes of keys bb:*")
    if not facts.read_back:
        return Check("read_your_write", "VIOLATED", "a write was acknowledged, and an older value read", _OTHER)
    return Check("read_your_write", "PROVEN", "what was written was read")


async def _epoch(store: Store, primary: Primary, facts: Facts) -> Check:
    """Compare the sentinel with what is remembered, and advance it if nothing is lost."""
    if facts.read_back is None or "EPOCH" in facts.refusals:
        tried = _untried(facts, "epoch", "allow HMGET, HSETNX and HINCRBY, and keys bb:*")
        return replace(tried, verdict="UNKNOWN")  # a user without the permission has lost nothing
    place, found = (store.backend, facts.epoch_key), facts.epoch
    known = _remembered.get(place)
    if known and (found is None or found.life != known.life or found.counter < known.counter):
        now = f"life {found.life} at {found.counter}" if found else "absent"
        return Check("epoch", "VIOLATED", f"life {known.life} at {known.counter} was seen, now it is {now}", _LOST)
    advanced = await advance_epoch(primary, facts.epoch_key)
    _remembered[place] = max(advanced, _remembered.get(place, advanced), key=lambda epoch: epoch.counter)
    return Check("epoch", "PROVEN", f"life {advanced.life}, number of looks: {advanced.counter}")


def _unsaid(facts: Facts, asked: str) -> str:
    refusal = facts.refusals.get(asked)
    return f"{asked} is refused: {refusal.reply}" if refusal else f"{asked} does not say"


def _untried(facts: Facts, name: str, mend: str) -> Check:
    """Judge what was not answered: refused, or not tried because the server takes no writes."""
    refusal = next((facts.refusals[tried] for tried in ("WRITE", "SCRIPT", "EPOCH") if tried in facts.refusals), None)
    if refusal:
        return Check(name, "VIOLATED", str(refusal), mend)
    return Check(name, "UNKNOWN", "not tried on a replica")


_JUDGES: tuple[Callable[[Facts], Check], ...] = (
    _role,
    _eviction,
    _persistence,
    _fsync,
    _last_write,
    _scripts,
    _conditional_writes,
    _read_your_write,
)
