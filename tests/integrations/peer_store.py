"""LangGraph's store in memory as the judge of ours, mended where it is at odds with its own documentation."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from langgraph.store.base import IndexConfig, Item, ListNamespacesOp, Op, PutOp, Result, SearchItem
from langgraph.store.memory import InMemoryStore

__all__ = ["DIMENSION", "INDEX", "Peer", "embed", "told"]

DIMENSION = 64


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Count words by their hash: equal words make texts alike, and nothing is learned or loaded."""
    rows = [[0.0] * DIMENSION for _ in texts]
    for row, text in zip(rows, texts, strict=True):
        for word in text.lower().split():
            row[hashlib.sha256(word.encode()).digest()[0] % DIMENSION] += 1.0
    return rows


INDEX = IndexConfig(dims=DIMENSION, embed=embed, fields=["title", "body", "tags[*]"])


class Peer(InMemoryStore):
    """The peer, but: an emptied namespace is gone, an update leaves no vector behind, equal texts may come twice.

    Namespaces come in order, as ours do; it has them in that of their first use, reads included.
    """

    def _prepare_ops(self, ops: Iterable[Op]) -> Any:
        self._tidy()
        return super()._prepare_ops(ops)

    def _handle_list_namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        self._tidy()
        return super()._handle_list_namespaces(op)

    def _tidy(self) -> None:
        held = sorted((name, items) for name, items in self._data.items() if items)
        self._data = defaultdict(dict, held)

    def _extract_texts(self, put_ops: dict[tuple[tuple[str, ...], str], PutOp]) -> Any:
        for namespace, key in put_ops:
            self._vectors[namespace].pop(key, None)
        return super()._extract_texts(put_ops)

    def _insertinmem_store(self, to_embed: dict[str, Any], embeddings: list[list[float]]) -> None:
        for places, vector in zip(to_embed.values(), embeddings, strict=True):
            for namespace, key, path in places:
                self._vectors[namespace][key][path] = vector


def told(result: Result) -> Any:
    """Say what a result holds, without its times; scores as far as 32 bits keep them."""
    if isinstance(result, SearchItem):
        score = None if result.score is None else round(result.score, 5) + 0.0
        return result.namespace, result.key, result.value, score
    if isinstance(result, Item):
        return result.namespace, result.key, result.value
    if isinstance(result, list):
        return [told(each) if isinstance(each, Item) else each for each in result]
    return result
