"""What must hold of a thread after a crash, and of the whole keyspace at any time."""

from __future__ import annotations

from blackboard import keys
from blackboard.claims.effect import Effects, SettledEffect
from blackboard.claims.shared import SharedEffects
from blackboard.codec import decode
from blackboard.store.client import Store
from blackboard.testing.contracts.thread import all_keys
from tests.chaos.stage import NAMESPACE, Stage, items_of

AT_MOST_ONCE = ("pay", "ship", "broken", "interrupted", "lone")


async def acknowledged_is_there(on: Stage) -> int:
    """Look for everything that the journal says was acknowledged; returns how much that was."""
    found = 0
    for check in (_commits, _puts, _writes, _effects, _shared, _copies):
        found += await check(on)
    return found


def effects_are_honest(on: Stage) -> None:
    """No at-most-once effect twice; whatever happened, happened under one downstream key."""
    for effect, runs in on.happened().items():
        assert len(runs) == 1, f"{effect} of {on.thread} has {len(runs)} downstream keys"
        if effect in AT_MOST_ONCE:
            assert runs.total() <= 1, f"{effect} of {on.thread} ran {runs.total()} times"


async def chain_is_whole(on: Stage) -> None:
    """Steps without a gap, each the child of the one before, fences never lower, `latest` at its end."""
    chain = list(reversed(await on.engine.history(on.thread, limit=1000)))
    assert [one.step for one in chain] == list(range(len(chain)))
    assert [one.parent for one in chain] == [None, *(one.checkpoint for one in chain)][: len(chain)]
    fences = [one.fence for one in chain]
    assert fences == sorted(fences)
    latest = await on.engine.latest(on.thread)
    assert (latest.manifest.checkpoint if latest else None) == (chain[-1].checkpoint if chain else None)


async def no_key_without_owner(store: Store) -> int:
    """Walk the keyspace: every key belongs to a thread that is listed, or ends by itself; returns the number of keys."""
    listed: set[str] = set()
    for number in range(keys.SHARDS):
        rows = await store.command("ZRANGE", keys.threads(NAMESPACE, number), 0, -1)
        listed |= {row.decode() for row in rows}
    walked = await all_keys(store)
    for key in walked:
        if not key.startswith(f"bb:{NAMESPACE}:thread:"):
            continue
        thread = keys.decode(key.partition("{")[2].partition("}")[0])
        if thread not in listed:
            life = await store.command("PTTL", key)
            assert life != -1, f"{key} has no owner and no end"
    return len(walked)


async def _commits(on: Stage) -> int:
    facts = on.acknowledged("commit")
    for fact in facts:
        found = await on.engine.at(on.thread, fact["checkpoint"])
        assert found is not None, f"{fact} of {on.thread} is lost"
        assert found.manifest.step == fact["step"]
        assert [decode(item) for item in items_of(found, "lines")] == fact["lines"]
    return len(facts)


async def _puts(on: Stage) -> int:
    gone = bool(on.acknowledged("closed"))
    facts = [] if gone else on.acknowledged("put")
    for fact in facts:
        found = await on.engine.at(on.thread, fact["checkpoint"], lineage=fact["lineage"])
        assert found is not None, f"{fact} of {on.thread} is lost"
        assert len(found.contents.get("items", ())) == fact.get("items", 0)
    return len(facts)


async def _writes(on: Stage) -> int:
    facts = on.acknowledged("write")
    where = keys.ThreadKeys.of(NAMESPACE, on.thread)
    for fact in facts:
        stored = await on.store.command("HGET", where.writes(fact["checkpoint"], fact["lineage"]), fact["field"])
        assert stored == fact["data"].encode(), f"{fact} of {on.thread} is lost"
    return len(facts)


async def _effects(on: Stage) -> int:
    facts = on.acknowledged("effect")
    recorded = {effect.key: effect for effect in await Effects(on.store, NAMESPACE).all(on.thread)}
    for fact in facts:
        effect = recorded.get(fact["key"])
        assert isinstance(effect, SettledEffect), f"{fact} of {on.thread} is lost"
        assert (effect.state, decode(effect.result)) == ("done", fact["result"])
    return len(facts)


async def _shared(on: Stage) -> int:
    facts = on.acknowledged("shared")
    for fact in facts:
        effect = await SharedEffects(on.store, NAMESPACE).read(fact["key"])
        assert effect is not None, f"{fact} of {on.thread} is lost"
        assert (effect.state, effect.result.decode()) == ("done", fact["result"])
    return len(facts)


async def _copies(on: Stage) -> int:
    facts = on.acknowledged("copied")
    for fact in facts:
        found = await on.engine.latest(fact["to"])
        assert found is not None, f"{fact} is lost"
        assert found.manifest.checkpoint == fact["newest"]
        assert len(items_of(found, "items")) == found.manifest.step + 1
        assert len(await on.engine.history(fact["to"])) == fact["checkpoints"]
    return len(facts)
