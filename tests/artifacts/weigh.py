"""How much the memory of a process grows while a large artifact passes through it; run by itself, prints JSON."""

from __future__ import annotations

import asyncio
import hashlib
import json
import resource
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from blackboard.artifacts.store import ArtifactStore
from blackboard.settings import Artifacts
from blackboard.store.client import Store

MIB = 1 << 20


def peak() -> int:
    """Most memory that the process has had, in bytes; on Linux since it was executed, not that of its parent."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


async def blocks(count: int) -> AsyncIterator[bytes]:
    """A stream of MiBs, each another one."""
    for number in range(count):
        yield hashlib.shake_128(number.to_bytes(8)).digest(MIB)


async def weigh(url: str, folder: str, count: int) -> dict[str, int]:
    store = await Store.connect(url)
    try:
        artifacts = ArtifactStore(store, Artifacts(spool=Path(folder)))
        small = await artifacts.put(blocks(4))  # what any first use loads and keeps
        async for _ in artifacts.open(small):
            pass
        before = peak()
        ref = await artifacts.put(blocks(count))
        put, digest = peak(), hashlib.sha256()
        async for chunk in artifacts.open(ref):
            digest.update(chunk)
        assert digest.hexdigest() == ref.digest
        return {"size": ref.size, "put": put - before, "open": peak() - before}
    finally:
        await store.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(weigh(sys.argv[1], sys.argv[2], int(sys.argv[3])))))  # noqa: T201
