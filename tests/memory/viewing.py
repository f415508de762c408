"""Paths to view: what the tests of views write, and how they compare."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import numpy.typing as npt

from blackboard.memory.embedder import Space, pack
from blackboard.memory.frame import Frame
from blackboard.memory.new import Body
from blackboard.memory.records import Records
from blackboard.memory.view import View
from blackboard.settings import MemoryNamespace
from blackboard.store.client import Store

SPACE = Space("made-up", 16)


def vectors(count: int, seed: int = 1, space: Space = SPACE) -> npt.NDArray[np.float32]:
    """Vectors in a few clusters, as they come back from the store."""
    chance = np.random.default_rng(seed)
    centres = chance.standard_normal((10, space.dimension))
    made = centres[chance.integers(0, 10, count)] + 0.3 * chance.standard_normal((count, space.dimension))
    if space.metric == "cosine":
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        return made.astype(np.float16).astype(np.float32)
    return made.astype(np.float32)


def records_of(store: Store, **policy: Any) -> Records:
    return Records(store, "memory", f"view/{uuid.uuid4().hex}", MemoryNamespace(**policy))


def body(
    id: str, vector: npt.NDArray[np.float32] | None = None, text: str = "", space: Space = SPACE, **more: Any
) -> Body:
    if vector is not None:
        more |= {"vector": pack(vector[None], space)[0], "space": space.text()}
    return Body(text or f"text of {id}", id=id, **more)


async def fill(records: Records, count: int, *, start: int = 0, seed: int = 1) -> npt.NDArray[np.float32]:
    """Remember records named by their numbers, each with a vector of its own."""
    made = vectors(count, seed)
    await records.put_all([body(str(start + at), vector) for at, vector in enumerate(made)])
    return made


def there(frame: Frame) -> list[str]:
    """Ids that a frame holds, in order of first write."""
    preceding = frame.preceding()
    rows = np.flatnonzero(frame.alive)
    last = set(rows.tolist()) - set(preceding[rows].tolist())
    assert len(last) == min(1, len(rows))
    found = [frame.ids[row] for at in last for row in [*frame.before(at, frame.size), at]]
    assert len(found) == len(rows)
    return found


def nearest(frame: Frame, query: npt.NDArray[np.float32], k: int = 1, now: int = 0) -> list[str]:
    rows, _ = frame.dense(query, frame.mask(now_us=now), k)
    return [frame.ids[row] for row in rows.tolist()]


def view_of(records: Records, space: Space | None = SPACE, **more: Any) -> View:
    return View(records, space, records.policy, **more)
