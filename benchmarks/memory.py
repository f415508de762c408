"""What a memory costs: writing, recall against exact search and other indexes, filters, bytes, and a cold start."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure.bench import Bench, Effort, main
from benchmarks.measure.contest import Times, alternate, ratio
from benchmarks.measure.figures import Figure
from benchmarks.measure.vectors import Clusters, Flat, Graph, VectorSet, found
from blackboard import Blackboard
from blackboard.memory.embedder import Metric, Space, pack
from blackboard.memory.memory import Memory
from blackboard.memory.new import New
from blackboard.settings import Settings
from blackboard.store.client import Store
from blackboard.testing.servers import binaries

ROOT = Path(__file__).parents[1]
PROFILE = ROOT / "namespaces" / "memory" / "documents.toml"
DIMENSION, K = 384, 10
SLICE = 1_000


@dataclass(frozen=True)
class Sizes:
    """How many records, how many queries, and which peers take part."""

    records: Sequence[int]
    rounds: int
    graph: int
    sets: int


SIZES: Mapping[Effort, Sizes] = {
    "full": Sizes((10_000, 100_000), 200, 100_000, 100_000),
    "quick": Sizes((10_000,), 60, 10_000, 2_000),
    "least": Sizes((300,), 10, 300, 300),
}


class Given:
    """Stands for a model: every vector comes with its record or its question."""

    name, dimension = "given", DIMENSION
    metric: Metric = "cosine"

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        raise NotImplementedError("vectors are given here")


@dataclass
class Filled:
    """A memory of so many records in clusters, and what searches the same vectors exactly."""

    memory: Memory
    clusters: Clusters
    flat: Flat
    rows: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def count(self) -> int:
        return len(self.clusters.vectors)

    def text(self, row: int) -> str:
        return f"note {row} on topic {row % 97} of shelf {row % 31}"

    async def fill(self) -> None:
        """Remember everything: one of a hundred is rare, every other one even."""
        for start in range(0, self.count, SLICE):
            part = range(start, min(start + SLICE, self.count))
            await self.memory.remember_all(
                New(
                    self.text(row), id=str(row), embedding=self.clusters.vectors[row],
                    metadata={"rare": row % 100 == 0, "even": row % 2 == 0},
                )
                for row in part
            )  # fmt: skip

    async def recall(self, query: NDArray[np.float32], **how: Any) -> list[int]:
        hits = await self.memory.recall("", k=K, embedding=query, lexical=0.0, context=0, **how)  # type: ignore[arg-type]
        return [int(hit.record.id) for hit in hits]


async def measure(bench: Bench) -> Sequence[Figure]:
    """Measure at every size, then the server's vector sets where one has them."""
    sizes = SIZES[bench.effort]
    figures: list[Figure] = []
    for count in sizes.records:
        async with (
            bench.server("everysec") as server,
            await Blackboard.open(server.url, settings=Settings.load(PROFILE)) as board,
        ):
            clusters = Clusters(count, DIMENSION, queries=sizes.rounds)
            filled = Filled(board.memory("benchmark/notes", embedder=Given()), clusters, Flat(clusters.vectors))
            figures += await _written(filled, board.store, sizes)
            figures += await _searched(filled, sizes)
            figures += await _filtered(filled, sizes)
            figures += await _cold(filled, server.url)
    return [*figures, *await _sets(bench, sizes)]


async def _written(filled: Filled, store: Store, sizes: Sizes) -> list[Figure]:
    before, began = await _used(store), time.perf_counter()
    await filled.fill()
    rate = filled.count / (time.perf_counter() - began)
    size = (await _used(store) - before) / filled.count
    (vector,) = pack(filled.clusters.vectors[:1], Space.of(filled.memory.embedder))  # type: ignore[arg-type]
    numbers = iter(range(10**9))

    async def remember() -> None:
        await filled.memory.remember(f"extra {next(numbers)}", embedding=filled.clusters.vectors[0], ttl=3600)

    async def plain() -> None:
        await store.command("SET", f"plain:{next(numbers)}", vector + b"x" * 200, "PX", 3_600_000)

    times = await alternate({"remember": remember, "SET": plain}, sizes.rounds, warm=5)
    await filled.memory.forget(where={"not": {"rare": {"exists": True}}})
    name = f"{filled.count:,} records"
    return [
        Figure(f"{name}: written in batches", rate, "/s"),
        Figure(f"{name}: remember / SET of its bytes p50", ratio(times, "remember", "SET"), ""),
        Figure(f"{name}: bytes of the server per record", size, "B"),
    ]


async def _used(store: Store) -> int:
    info = (await store.command("INFO", "memory")).decode()
    return next(int(line.partition(":")[2]) for line in info.splitlines() if line.startswith("used_memory:"))


async def _searched(filled: Filled, sizes: Sizes) -> list[Figure]:
    """Recall, the index alone, exact search and a graph, in turns."""
    await filled.memory.view().refresh()
    await filled.memory.view().rebuild()
    frame = filled.memory.view().frame
    everything = frame.mask(now_us=0)
    ids = np.array([int(name) for name in frame.ids])
    graph = Graph(filled.clusters.vectors) if filled.count <= sizes.graph else None
    got: dict[str, list[list[int]]] = {"recall": [], "index": [], "Flat": [], "HNSW": []}

    async def whole(query: Any) -> list[int]:
        return await filled.recall(query)

    async def index(query: Any) -> list[int]:
        return [int(row) for row in ids[frame.dense(query, everything, K)[0]]]

    async def flat(query: Any) -> list[int]:
        return filled.flat.search(query)

    async def along(query: Any) -> list[int]:
        assert graph is not None
        return graph.search(query)

    ways: dict[str, Callable[[Any], Awaitable[list[int]]]] = {"recall": whole, "index": index, "Flat": flat}
    if graph is not None:
        ways["HNSW"] = along
    times = await _in_turns(ways, got, filled.clusters, sizes)
    name, large = f"{filled.count:,} records", filled.count >= 100_000
    exact = got["Flat"]
    return [
        Figure(f"{name}: exact Flat p50", _p50(times, "Flat"), "ms"),
        Figure(f"{name}: index / exact Flat p50", ratio(times, "index", "Flat"), "", 0.2 if large else None, "lower" if large else None),
        Figure(f"{name}: recall, both round trips / exact Flat p50", ratio(times, "recall", "Flat"), ""),
        Figure(f"{name}: recall@10 of the index", found(got["index"], exact), "", 0.99, "higher"),
        Figure(f"{name}: recall@10 of recall", found(got["recall"], exact), "", 0.99, "higher"),
        *([] if graph is None else [
            Figure(f"{name}: HNSW / exact Flat p50", ratio(times, "HNSW", "Flat"), ""),
            Figure(f"{name}: recall@10 of HNSW", found(got["HNSW"], exact), ""),
        ]),
    ]  # fmt: skip


async def _filtered(filled: Filled, sizes: Sizes) -> list[Figure]:
    """Filters at 1 % and 50 %, against an exact search of the same rows."""
    figures: list[Figure] = []
    for share, where, step in (("1 %", {"rare": True}, 100), ("50 %", {"even": True}, 2)):
        allowed = np.arange(0, filled.count, step)
        got: dict[str, list[list[int]]] = {"filtered": [], "Flat": []}

        async def filtered(query: Any, where: Any = where) -> list[int]:
            return await filled.recall(query, where=where)

        async def flat(query: Any, allowed: Any = allowed) -> list[int]:
            return filled.flat.search(query, K, allowed)

        times = await _in_turns({"filtered": filtered, "Flat": flat}, got, filled.clusters, sizes)
        name = f"{filled.count:,} records, {share} pass"
        figures += [
            Figure(f"{name}: recall p50", _p50(times, "filtered"), "ms"),
            Figure(f"{name}: recall / exact Flat of the same p50", ratio(times, "filtered", "Flat"), ""),
            Figure(f"{name}: recall@10", found(got["filtered"], got["Flat"]), "", 0.99, "higher"),
        ]
    return figures


async def _in_turns(
    ways: Mapping[str, Callable[[Any], Awaitable[list[int]]]],
    got: dict[str, list[list[int]]],
    clusters: Clusters,
    sizes: Sizes,
) -> Times:
    """Ask every way the same queries in turns, and keep what each finds."""

    def asked(name: str) -> Callable[[], Awaitable[None]]:
        queries = cycle(clusters.queries)

        async def ask() -> None:
            got[name].append(await ways[name](next(queries)))

        return ask

    return await alternate({name: asked(name) for name in ways}, sizes.rounds, warm=0)


def _p50(times: Times, name: str) -> float:
    return 1000 * float(np.median(times[name]))


async def _cold(filled: Filled, url: str) -> list[Figure]:
    """How long a new process waits for its first answer: from a snapshot, and from the records."""
    pointer = await filled.memory.snapshot()
    assert pointer is not None
    taken: dict[str, float] = {}
    for way in ("snapshot", "records"):
        if way == "records":
            await filled.memory.records.store.command("DEL", filled.memory.records.keys.index)
        async with await Blackboard.open(url, settings=Settings.load(PROFILE)) as board:
            memory = board.memory("benchmark/notes", embedder=Given())
            began = time.perf_counter()
            hits = await Filled(memory, filled.clusters, filled.flat).recall(filled.clusters.queries[0])
            taken[way] = time.perf_counter() - began
            assert len(hits) == min(K, filled.count)
    name = f"{filled.count:,} records"
    return [
        Figure(f"{name}: bytes of the snapshot per record", pointer.size / filled.count, "B"),
        Figure(f"{name}: cold start with a snapshot", taken["snapshot"], "s"),
        Figure(f"{name}: cold start from the records / with a snapshot", taken["records"] / taken["snapshot"], ""),
    ]


async def _sets(bench: Bench, sizes: Sizes) -> list[Figure]:
    """The server's own vector sets, where one of the servers here has them."""
    for binary in binaries().values():
        async with Bench(binary, bench.effort, bench.servers).server("everysec") as server:
            store = await Store.connect(server.url)
            peer = VectorSet(store)
            try:
                if await peer.offered():
                    return await _set_of(peer, sizes)
            finally:
                await store.close()
    print("skipped: no server here has vector sets (Redis 8 has)", file=sys.stderr)
    return []


async def _set_of(peer: VectorSet, sizes: Sizes) -> list[Figure]:
    clusters = Clusters(sizes.sets, DIMENSION, queries=sizes.rounds)
    flat = Flat(clusters.vectors)
    began = time.perf_counter()
    await peer.fill(clusters.vectors)
    filled = time.perf_counter() - began
    got: dict[str, list[list[int]]] = {"set": [], "Flat": []}

    async def exact(query: Any) -> list[int]:
        return flat.search(query)

    times = await _in_turns({"set": peer.search, "Flat": exact}, got, clusters, sizes)
    name = f"{sizes.sets:,} vectors in a vector set"
    return [
        Figure(f"{name}: added", sizes.sets / filled, "/s"),
        Figure(f"{name}: search / exact Flat p50", ratio(times, "set", "Flat"), ""),
        Figure(f"{name}: recall@10", found(got["set"], got["Flat"]), ""),
    ]


if __name__ == "__main__":
    sys.exit(main("What a memory costs", measure))
