"""The store: LangGraph's long-term memory as records of a memory namespace, found exactly and by meaning."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from langgraph.store.base import (
    NOT_PROVIDED,
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    NotProvided,
    Op,
    PutOp,
    Result,
    SearchOp,
    TTLConfig,
    validate_op_namespace,
)

from blackboard.board import Blackboard
from blackboard.errors import ConfigError
from blackboard.integrations.langgraph.conditions import conditions
from blackboard.integrations.langgraph.items import item, life_ms
from blackboard.integrations.langgraph.loop import entered, on_board, wait_for
from blackboard.integrations.langgraph.namespaces import Labels, Namespaces, labelled, labels
from blackboard.integrations.langgraph.reading import read
from blackboard.integrations.langgraph.searching import Images, Question, search
from blackboard.integrations.langgraph.storing import Storing
from blackboard.integrations.langgraph.texts import Texts
from blackboard.memory.paths import Paths
from blackboard.settings import MemoryNamespace, Settings

__all__ = ["BlackboardStore"]


class BlackboardStore(BaseStore):
    """A LangGraph store on a board: `graph.compile(store=BlackboardStore(board))`.

    An item is one record of the memory namespace `namespace` (whose policy needs no settings), with the vectors of its
    texts: a put is one atomic write, so that nobody ever sees an item missing or half while it is replaced, and `created_at`
    stays. Namespaces are told apart label by label and byte by byte, filters are compared exactly before `limit` counts,
    and every call sees all writes acknowledged before it, by whomever. The server ends each item by its own `ttl`. An
    outage is an error and never "no item". Values are plain data that the codec keeps: the same come back.

    With an `index` a query is answered by the best cosine over an item's texts, all of them compared; without one, as
    with LangGraph's own store in memory, `query` and `index` count for nothing. Searched namespaces are held in this
    process's memory. The ops of a batch read what stood before it; of several puts of one item the last counts.

    Made on the board's event loop, or elsewhere with `loop=saver.loop`; its sync methods serve every other thread.
    """

    supports_ttl = True

    def __init__(
        self,
        board: Blackboard,
        *,
        namespace: str = "langgraph-store",
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.board = on_board(board, "a BlackboardStore")
        try:
            self.loop = asyncio.get_running_loop() if loop is None else loop
        except RuntimeError:
            raise ConfigError("make the store on the board's event loop, or use BlackboardStore.open(url)") from None
        life_ms((ttl or {}).get("default_ttl"))  # refused here, not at the first put
        known = namespace in board.settings.namespaces
        self.policy = board.settings.memory_namespace(namespace) if known else MemoryNamespace()
        self.namespace, self.ttl_config = namespace, ttl
        self._texts = None if index is None else Texts(index)
        self._namespaces = Namespaces(Paths(board.store, namespace), self.policy, board.artifacts)
        self._images = Images(self._namespaces)
        self._storing = Storing(self._namespaces, self._texts, self.policy)

    @classmethod
    @contextlib.asynccontextmanager
    async def aopen(
        cls,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        namespace: str = "langgraph-store",
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> AsyncGenerator[BlackboardStore]:
        """Open a board for the store alone; without a URL the embedded server. Raises as `Blackboard.open` does."""
        async with Blackboard.open(url, settings=settings) as board:
            yield cls(board, namespace=namespace, index=index, ttl=ttl)

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        namespace: str = "langgraph-store",
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> Generator[BlackboardStore]:
        """Open a board on a loop in a thread of its own, for callers without one: every sync method works."""
        with entered(cls.aopen(url, settings=settings, namespace=namespace, index=index, ttl=ttl)) as store:
            yield store

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out ops: all reads at once, then the writes; results in the order of the ops, None for a put.

        Everything is checked before anything is sent: ConfigError (a ValueError) for a namespace, key, filter or number
        that makes no sense, EncodeError for a value that would not come back the same. Raises EmbedderFailed,
        EmbeddingInvalid and EmbedderMismatch where texts are embedded; if a write fails, others may be stored.
        """
        asked = [labelled(op) for op in ops]
        writes = self._storing.prepared([op for op in asked if isinstance(op, PutOp)])
        results: list[Result] = [None] * len(asked)
        reads = [self._gets(asked, results), self._searches(asked, results), self._lists(asked, results)]
        await asyncio.gather(*reads)
        await self._storing.write(writes)
        return results

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out ops; see `abatch`."""
        return wait_for(self.loop, self.abatch(ops))

    async def aput(
        self,
        namespace: Labels,
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
        expected: int | None = None,
    ) -> None:
        """Store an item, or replace it; with `expected` only if it has that version, or is not there if that is 0.

        `ttl` is in minutes. Raises RecordConflict with the version that stands, RecordMissing: nothing was written.
        """
        if expected is None:
            await super().aput(namespace, key, value, index, ttl=ttl)
            return
        life = (self.ttl_config or {}).get("default_ttl") if isinstance(ttl, NotProvided) else ttl
        op = PutOp(labels(namespace), str(key), value, index, life)
        validate_op_namespace(op)
        writes = self._storing.prepared([op])
        await self._storing.write(writes, expected)

    def put(
        self,
        namespace: Labels,
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
        expected: int | None = None,
    ) -> None:
        """Store an item; see `aput`."""
        wait_for(self.loop, self.aput(namespace, key, value, index, ttl=ttl, expected=expected))

    async def aversion(self, namespace: Labels, key: str) -> int | None:
        """Read the version of an item, 1 more with every put; None if it is not there. Read it before the item that it guards."""
        record = await self._namespaces.records(labels(namespace)).get(str(key))
        return None if record is None else record.version

    def version(self, namespace: Labels, key: str) -> int | None:
        """Read the version of an item; see `aversion`."""
        return wait_for(self.loop, self.aversion(namespace, key))

    async def atend(self, prefix: Labels = ()) -> int:
        """Clear away what is left of items whose time is over, in every namespace below a prefix; returns how many.

        Reads never see them. It is done by itself in each namespace after every `snapshot_every` writes of a process.
        """
        return sum([await self._storing.tend(name) for name in await self._namespaces.below(labels(prefix))])

    def tend(self, prefix: Labels = ()) -> int:
        """Clear away what is left of items whose time is over; see `atend`."""
        return wait_for(self.loop, self.atend(prefix))

    async def _gets(self, ops: Sequence[Op], results: list[Result]) -> None:
        """Read the items that are asked for: one round trip for all of a namespace, all namespaces at once."""
        places: dict[tuple[Labels, bool], list[str]] = {}
        for op in ops:
            if isinstance(op, GetOp) and op.namespace:
                places.setdefault((op.namespace, op.refresh_ttl), []).append(op.key)
        found: dict[tuple[Labels, str], Item | None] = {}

        async def one(namespace: Labels, keys: list[str], *, refresh: bool) -> None:
            records = self._namespaces.records(namespace)
            stored = await read(
                records, list(dict.fromkeys(keys)), refresh=refresh, together=self.ttl_config is not None
            )
            for key, each in zip(dict.fromkeys(keys), stored, strict=True):
                found[namespace, key] = None if each is None else item(namespace, each)

        await asyncio.gather(*(one(name, keys, refresh=refresh) for (name, refresh), keys in places.items()))
        for at, op in enumerate(ops):
            if isinstance(op, GetOp):
                results[at] = found.get((op.namespace, op.key))

    async def _searches(self, ops: Sequence[Op], results: list[Result]) -> None:
        """Answer the searches at once; each distinct query is embedded once."""
        asked = {at: op for at, op in enumerate(ops) if isinstance(op, SearchOp)}
        tests = {at: conditions(op.filter) for at, op in asked.items()}
        queries = [op.query for op in asked.values() if op.query]
        vectors = {} if self._texts is None else await self._texts.questions(queries)
        space = None if self._texts is None else self._texts.space

        async def one(at: int, op: SearchOp) -> None:
            vector = vectors.get(op.query or "")
            question = Question(op, tests[at], vector, None if vector is None else space)
            results[at] = cast("Result", await search(self._images, question, together=self.ttl_config is not None))

        await asyncio.gather(*(one(at, op) for at, op in asked.items()))

    async def _lists(self, ops: Sequence[Op], results: list[Result]) -> None:
        asked = {at: op for at, op in enumerate(ops) if isinstance(op, ListNamespacesOp)}
        for at, found in zip(asked, await asyncio.gather(*map(self._namespaces.listed, asked.values())), strict=True):
            results[at] = cast("Result", found)
