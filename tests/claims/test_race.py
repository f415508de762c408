from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from collections import Counter

from blackboard.claims.outcome import Busy
from blackboard.claims.shared import Claim, SharedEffects
from blackboard.store.client import Store
from blackboard.testing.contracts.leases import NAMESPACE
from blackboard.testing.servers import Server

KEYS = 1_000
CLAIMS = 100_000
PROCESSES = 2
AT_ONCE = 500

RACER = """
import asyncio, json, random, sys
from blackboard.claims.outcome import Busy
from blackboard.claims.shared import Claim, SharedEffects
from blackboard.store.client import Store

async def main(url, namespace, run, seed, claims, keys, at_once):
    store = await Store.connect(url)
    shared = SharedEffects(store, namespace)
    order = [number % keys for number in range(claims)]
    random.Random(seed).shuffle(order)
    won, busy = [], 0
    async def race():
        nonlocal busy
        while order:
            key = f"{run}-{order.pop()}"
            answer = await shared.begin(key, semantics="at-most-once", fingerprint="f", ttl=600.0)
            if isinstance(answer, Claim):
                won.append(key)
            elif isinstance(answer, Busy):
                busy += 1
    await asyncio.gather(*(race() for _ in range(at_once)))
    await store.close()
    print(json.dumps([won, busy]))

url, namespace, run, *numbers = sys.argv[1:]
asyncio.run(main(url, namespace, run, *map(int, numbers)))
"""


async def test_a_hundred_thousand_claims_on_a_thousand_keys_have_a_thousand_winners(solo: Server) -> None:
    run = uuid.uuid4().hex
    numbers = [str(number) for number in (CLAIMS // PROCESSES, KEYS, AT_ONCE)]
    racers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", RACER, solo.url, NAMESPACE, run, str(seed), *numbers, stdout=subprocess.PIPE
        )
        for seed in range(PROCESSES)
    ]
    outputs = await asyncio.gather(*(racer.communicate() for racer in racers))
    results = [json.loads(output) for output, _ in outputs]
    winners = Counter(key for won, _ in results for key in won)
    assert len(winners) == KEYS
    assert set(winners.values()) == {1}
    assert sum(busy for _, busy in results) == CLAIMS - KEYS


async def test_claims_raced_by_many_stores_have_one_winner_each(solo: Server) -> None:
    run = uuid.uuid4().hex
    stores = [await Store.connect(solo.url) for _ in range(8)]
    answers = await asyncio.gather(
        *(
            SharedEffects(store, NAMESPACE).begin(f"{run}-{key}", semantics="at-least-once", fingerprint="f", ttl=600.0)
            for key in range(50)
            for store in stores
        )
    )
    for store in stores:
        await store.close()
    winners = Counter(answer.key for answer in answers if isinstance(answer, Claim))
    assert len(winners) == 50
    assert set(winners.values()) == {1}
    assert sum(isinstance(answer, Busy) for answer in answers) == 350
