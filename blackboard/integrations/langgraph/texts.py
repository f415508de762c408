"""Which texts of an item are searched by meaning, and their vectors: LangGraph's index configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from langchain_core.embeddings import Embeddings
from langgraph.store.base import IndexConfig, PutOp, ensure_embeddings, get_text_at_path, tokenize_path

from blackboard.errors import ConfigError
from blackboard.memory.embedder import Embedder, Metric, Space, embedded

if TYPE_CHECKING:
    from blackboard.memory.embedder import Floats, Made

__all__ = ["Texts"]

WHOLE = "$"
"""The path of a whole value."""

UNNAMED = "langgraph"
"""The model of embeddings that do not say which they are; only the dimension tells them apart."""


class Texts:
    """Chooses the texts of items and has them embedded. Vectors have unit length, so that inner products are cosines."""

    def __init__(self, index: IndexConfig) -> None:
        self._embedder = _embedder(index)
        self.space = Space(self._embedder.name, self._embedder.dimension, "dot")
        self._fields = _paths(index.get("fields") or [WHOLE])

    def of(self, op: PutOp) -> list[str]:
        """Choose the texts of an item that is put: of the fields that the op names, or of those of the configuration.

        A path may lead to several. ConfigError for a value that JSON cannot spell where a whole one is asked for.
        """
        if op.index is False or op.value is None:
            return []
        fields = self._fields if op.index is None else _paths(op.index)
        return [text for field, tokens in fields for text in _texts(op.value, field, tokens)]

    async def vectors(self, texts: Sequence[str]) -> dict[str, bytes]:
        """Have texts embedded, each once; raises EmbedderFailed, EmbeddingInvalid, and nothing is stored then."""
        asked = list(dict.fromkeys(texts))
        if not asked:
            return {}
        rows = _unit(await embedded(self._embedder, asked)).astype("<f4")
        return {text: row.tobytes() for text, row in zip(asked, rows, strict=True)}

    async def questions(self, queries: Sequence[str]) -> dict[str, Floats]:
        """Have questions embedded, each once."""
        asked = list(dict.fromkeys(queries))
        if not asked:
            return {}
        return dict(zip(asked, _unit(await embedded(self._embedder, asked, query=True)), strict=True))


class _Wrapped:
    """LangChain's embeddings as an embedder of the library."""

    metric: Metric = "dot"

    def __init__(self, embeddings: Embeddings, dimension: int) -> None:
        names = (getattr(embeddings, name, None) for name in ("model", "model_name"))
        self.name = next((name for name in names if isinstance(name, str) and name), UNNAMED)
        self.dimension, self._embeddings = dimension, embeddings

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Made:
        if query:
            return [await self._embeddings.aembed_query(text) for text in texts]
        return await self._embeddings.aembed_documents(list(texts))


def _embedder(index: IndexConfig) -> Embedder:
    given: Any = index.get("embed")
    dimension: Any = index.get("dims")
    if hasattr(given, "embed") and hasattr(given, "dimension"):
        own: Embedder = given
        if dimension not in (None, own.dimension):
            raise ConfigError(f"dims is {dimension}, and vectors of {own.name} have {own.dimension}", value=dimension)
        return own
    if given is None or type(dimension) is not int:
        raise ConfigError(f"an index needs dims, a whole number, and embed; got dims={dimension!r}, embed={given!r}")
    return _Wrapped(ensure_embeddings(given), dimension)


def _paths(fields: object) -> list[tuple[str, list[str]]]:
    """Read the paths of fields; ConfigError for a single text, whose characters would be taken for paths."""
    if not isinstance(fields, (list, tuple)) or not all(
        isinstance(field, str) for field in cast("list[object]", fields)
    ):
        raise ConfigError(
            f"an index names fields by a list of paths, as ['text'], or is False; got {fields!r}", value=fields
        )
    return [(field, _tokens(field)) for field in cast("list[str]", fields)]


def _tokens(field: str) -> list[str]:
    return [] if field == WHOLE else tokenize_path(field)


def _texts(value: Mapping[str, Any], field: str, tokens: list[str]) -> list[str]:
    try:
        return get_text_at_path(value, tokens)
    except (TypeError, ValueError) as wrong:
        raise ConfigError(
            f"{field!r} cannot be spelled as JSON to be embedded ({wrong}); name fields of text"
        ) from wrong


def _unit(rows: Floats) -> Floats:
    """Bring vectors to unit length; one of zeros stays, and is like nothing."""
    import numpy as np

    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    unit: Floats = np.divide(rows, lengths, out=np.zeros(rows.shape), where=lengths > 0).astype(np.float32)
    return unit
