"""A backend's artifacts, and looks at what stands of them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from blackboard import keys
from blackboard.artifacts.store import ArtifactStore
from blackboard.settings import Artifacts
from blackboard.store.client import Store
from blackboard.testing.servers import Server

CHUNK = 1024


@pytest.fixture
def artifacts(store: Store) -> ArtifactStore:
    """Artifacts in chunks of a KiB."""
    return ArtifactStore(store, Artifacts(chunk_size=CHUNK))


@pytest.fixture
def content() -> bytes:
    """Three chunks and a half that no other test stores."""
    return os.urandom(3 * CHUNK + CHUNK // 2)


@pytest.fixture
def standing(store: Store) -> Callable[[str], Awaitable[dict[str, int]]]:
    """What stands of a digest: each key without its prefix, and the ms that it still lives, -1 for ever."""

    async def look(digest: str) -> dict[str, int]:
        prefix = keys.ArtifactKeys(digest).prefix + ":"
        found: dict[str, int] = {}
        for primary in await store.primaries():
            for key in await primary.command("KEYS", "bb:artifact:*"):
                if key.decode().startswith(prefix):
                    found[key.decode().removeprefix(prefix)] = await store.command("PTTL", key)
        return found

    return look


async def stream(data: bytes, step: int) -> AsyncIterator[bytes]:
    """The bytes as they come, so many at a time."""
    for start in range(0, len(data), step):
        yield data[start : start + step]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def solo_artifacts(solo: Server) -> AsyncIterator[ArtifactStore]:
    """Artifacts of one single server, for what need not be shown on every backend."""
    store = await Store.connect(solo.url)
    yield ArtifactStore(store, Artifacts(chunk_size=CHUNK))
    await store.close()
