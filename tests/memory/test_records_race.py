"""Processes that say the same at the same time."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid

from blackboard.memory.records import Records
from blackboard.settings import MemoryNamespace
from blackboard.store.client import Store
from blackboard.testing.servers import Server

TEXTS = 1_000
PROCESSES = 2

RACER = """
import asyncio, json, random, sys
from blackboard.memory.new import Body
from blackboard.memory.records import Records
from blackboard.settings import MemoryNamespace
from blackboard.store.client import Store

async def main(url, path, seed, texts):
    store = await Store.connect(url)
    records = Records(store, "memory", path, MemoryNamespace())
    order = list(range(texts))
    random.Random(seed).shuffle(order)
    found, made = {}, 0
    async def race():
        nonlocal made
        while order:
            text = str(order.pop() % texts)
            record = await records.put(Body(text))
            found[text] = record.id
            made += not record.duplicate
    await asyncio.gather(*(race() for _ in range(50)))
    await store.close()
    print(json.dumps([found, made]))

url, path, seed, texts = sys.argv[1:]
asyncio.run(main(url, path, int(seed), int(texts)))
"""


async def raced(url: str, path: str, order: str) -> list[tuple[dict[str, str], int]]:
    """Let processes remember the same texts, in one order or in orders of their own."""
    racers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", RACER, url, path, order or str(number), str(TEXTS), stdout=subprocess.PIPE
        )
        for number in range(PROCESSES)
    ]
    outputs = await asyncio.gather(*(racer.communicate() for racer in racers))
    return [json.loads(output) for output, _ in outputs]


async def test_two_processes_that_remember_the_same_have_one_record_of_each(solo: Server) -> None:
    path = uuid.uuid4().hex
    results = await raced(solo.url, path, "7")
    store = await Store.connect(solo.url)
    records = Records(store, "memory", path, MemoryNamespace())
    stored = {one.record.text: one.record.id async for page in records.walk() for one in page}
    assert await records.count() == len(stored) == TEXTS
    assert [found for found, _ in results] == [stored] * PROCESSES
    assert sum(made for _, made in results) == TEXTS
    tail = await records.tail(0)
    assert [(change.op, change.version) for change in tail.changes] == [("put", 1)] * TEXTS
    await store.close()
