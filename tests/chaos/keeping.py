"""What a process does with artifacts; every scene can be played again from wherever it was killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from blackboard.artifacts.owner import Owner
from blackboard.artifacts.store import ArtifactStore
from blackboard.points import watch
from blackboard.settings import Artifacts
from blackboard.store.client import Store
from blackboard.testing.crash import Spot, recorder, strike
from tests.chaos.stage import append

KEPT, LEFT, STREAMED = b"kept " * 45, b"left " * 45, b"streamed " * 45
"""Four chunks and a half each."""

GRACE = 0.02


class Nobody:
    """Owners of a kind that refer to nothing any more."""

    async def refers(self, owner: Owner, digest: str) -> bool:
        return False


@asynccontextmanager
async def shelf(url: str, folder: str) -> AsyncGenerator[ArtifactStore]:
    """The artifacts of a backend, in files below `folder` if it is not empty."""
    store = await Store.connect(url)
    try:
        files = f"file://{folder}" if folder else None
        artifacts = ArtifactStore(store, Artifacts(chunk_size=50, upload_ttl=1, grace=GRACE, url=files))
        artifacts.register("nobody", Nobody())
        yield artifacts
    finally:
        await store.close()


async def _stream() -> AsyncIterator[bytes]:
    for start in range(0, len(STREAMED), 9):
        yield STREAMED[start : start + 9]


async def storing(artifacts: ArtifactStore, journal: Path) -> None:
    """Bytes and a stream are put, put again, and pinned."""
    for content in (KEPT, _stream(), KEPT):
        ref = await artifacts.put(content)
        append(journal, f"put {ref}")
        await artifacts.pin(ref, "somebody")
        append(journal, f"pinned {ref}")


async def collecting(artifacts: ArtifactStore, journal: Path) -> None:
    """Of two artifacts one is pinned, and the other goes after its grace, with the owner that refers no more."""
    kept = await artifacts.put(KEPT)
    await artifacts.pin(kept, "somebody")
    append(journal, f"pinned {kept}")
    left = await artifacts.put(LEFT)
    await artifacts.refer(left, Owner("nobody", "n", "x"))
    await asyncio.sleep(1.5 * GRACE)
    await artifacts.gc()
    await asyncio.sleep(1.5 * GRACE)
    await artifacts.gc()
    append(journal, f"collected {left}")


SCENES: dict[str, Callable[[ArtifactStore, Path], Awaitable[None]]] = {
    scene.__name__: scene for scene in (storing, collecting)
}


async def record(url: str, folder: str, scene: str, journal: str, out: str) -> None:
    """Play a scene and write down every spot that it reaches."""

    def note(spot: Spot) -> None:
        append(Path(out), str(spot))

    async with shelf(url, folder) as artifacts:
        with watch(recorder(note)):
            await SCENES[scene](artifacts, Path(journal))


async def die(url: str, folder: str, scene: str, journal: str, spot: str) -> None:
    """Play a scene up to a spot, and be killed there."""
    async with shelf(url, folder) as artifacts:
        with watch(strike(Spot.parse(spot))):
            await SCENES[scene](artifacts, Path(journal))
