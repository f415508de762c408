"""Writing to a store: every item is checked and embedded before the first is sent, and each is one atomic write."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from langgraph.store.base import PutOp

from blackboard.errors import BlackboardError
from blackboard.integrations.langgraph.items import ItemBody, expecting, life_ms, spelled
from blackboard.integrations.langgraph.namespaces import MOST_NAMESPACES, Labels, Namespaces
from blackboard.integrations.langgraph.texts import Texts
from blackboard.keys import check_id
from blackboard.memory.lease import Place
from blackboard.memory.records import Records
from blackboard.memory.scrubbing import scrub
from blackboard.memory.upkeep import tended
from blackboard.settings import MemoryNamespace
from blackboard.telemetry import logger

__all__ = ["Storing", "Write"]

log = logger("langgraph.store")


@dataclass(frozen=True, slots=True)
class Write:
    """What is to become of one item: its body and the texts that are still to be embedded, or None to delete it."""

    namespace: Labels
    key: str
    records: Records
    body: ItemBody | None
    texts: Sequence[str] = ()


class Storing:
    """The writes of one store, and the tending that they make due."""

    def __init__(self, namespaces: Namespaces, texts: Texts | None, policy: MemoryNamespace) -> None:
        self._namespaces, self._texts, self._policy = namespaces, texts, policy
        self._written = Counter[Labels]()

    def prepared(self, ops: Sequence[PutOp]) -> list[Write]:
        """Check puts and encode their values; nothing is sent. Of several of one item the last counts."""
        return list({(write.namespace, write.key): write for write in map(self._prepared, ops)}.values())

    async def write(self, writes: Sequence[Write], expected: int | None = None) -> None:
        """Store and delete: one round trip for the puts of a namespace, all namespaces at once."""
        vectors: dict[str, bytes] = {}
        if self._texts is not None:
            vectors = await self._texts.vectors([text for write in writes for text in write.texts])
        places: dict[Labels, list[Write]] = {}
        for write in writes:
            places.setdefault(write.namespace, []).append(self._embedded(write, vectors))
        await asyncio.gather(*(self._write(part, expected) for part in places.values()))

    async def tend(self, namespace: Labels) -> int:
        """Tend a namespace; returns how many items were cleared away whose time was over."""
        self._written.pop(namespace, None)
        return (await tended(self._namespaces.records(namespace), None)).expired

    def _prepared(self, op: PutOp) -> Write:
        namespace, key = op.namespace, check_id(op.key, "key")
        records = self._namespaces.records(namespace)
        if op.value is None:
            return Write(namespace, key, records, None)
        ttl = life_ms(op.ttl)
        body = ItemBody(key, spelled(op.value, key), id=key, ttl=ttl, without="none")
        return Write(namespace, key, records, body, () if self._texts is None else self._texts.of(op))

    def _embedded(self, write: Write, vectors: dict[str, bytes]) -> Write:
        if self._texts is None or write.body is None or not write.texts:
            return write
        vector = b"".join(vectors[text] for text in write.texts)
        return replace(write, body=replace(write.body, vector=vector, space=self._texts.space.text()))

    async def _write(self, writes: Sequence[Write], expected: int | None) -> None:
        """Carry out the writes of one namespace."""
        namespace, records = writes[0].namespace, writes[0].records
        bodies = [write.body for write in writes if write.body is not None]
        gone = [write.key for write in writes if write.body is None]
        if bodies:
            await self._namespaces.enter(namespace)
        if expected is not None:
            await records.put(bodies[0], over=expecting(records, writes[0].key, expected))
        else:
            await records.put_all(bodies)
        if gone and await records.forget(gone):
            await scrub(Place(records.store, records.namespace, records.path), gone)
        if len(self._written) > MOST_NAMESPACES:
            self._written.clear()
        self._written[namespace] += len(writes)
        if self._written[namespace] >= self._policy.snapshot_every:
            await self._tended(namespace)

    async def _tended(self, namespace: Labels) -> None:
        """Tend a namespace now and then, so that its log does not grow for ever; the writes stand whatever becomes of this."""
        try:
            await self.tend(namespace)
        except BlackboardError as failed:
            log.warning("a namespace was not tended: %s", failed, extra={"path": "/".join(namespace)})
