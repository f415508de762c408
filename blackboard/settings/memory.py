"""The policy of a cold namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from blackboard.errors import ConfigError
from blackboard.quantities import Duration, Expiry, Size
from blackboard.settings.table import Count, Durability, Table, count, default

__all__ = ["Embedding", "MemoryNamespace"]


class Embedding(Table):
    """Which embedder makes the vectors of a namespace, if none is passed to `board.memory`."""

    if TYPE_CHECKING:  # text is welcome for durations and secrets, so the annotations are not the parameters

        def __init__(self, **values: Any) -> None: ...

    secret: ClassVar[bool] = True

    kind: Literal["hashing", "minilm", "openai", "none"] = "hashing"
    """`hashing` needs no model, `minilm` the extra of that name, `openai` an endpoint of that kind; `none` searches words only."""
    model: str | None = None
    """Name of the model at the endpoint; unused by the others."""
    dimension: Annotated[Count, Field(le=8192)] | None = None
    """Numbers per vector: 512 for `hashing` by default, needed for `openai`, given by the model for `minilm`."""
    url: str | None = None
    """Base URL of the endpoint, up to and including its version, such as `http://localhost:8000/v1`."""
    api_key: SecretStr | None = None
    """Key that is sent to the endpoint; it is never shown or logged."""
    timeout: Duration = default("30s")
    """How long one request to the endpoint may take."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind == "openai" and not (self.url and self.model and self.dimension):
            raise ConfigError("an endpoint needs url, model and dimension")
        return self


class MemoryNamespace(Table):
    """A cold namespace: the policy of the records that are kept in it."""

    if TYPE_CHECKING:  # text is welcome for durations and sizes, so the annotations are not the parameters

        def __init__(self, **values: Any) -> None: ...

    kind: Literal["memory"] = "memory"
    """What the namespace holds: records that outlive the runs."""
    ttl: Expiry = None
    """How long a record is kept after its last write; none keeps it until somebody forgets it."""
    durability: Durability = "require"
    """What a backend that loses acknowledged writes means: `require` refuses it, `prefer` warns, `off` does not ask."""
    embedding: Embedding = Field(default_factory=Embedding)
    """Which embedder makes the vectors."""
    text_limit: Size = default("64KiB", ge=1)
    """Longest text of a record, in bytes; a longer one is refused: cut it, or keep it as an artifact and remember what it says."""
    budget: Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(count)] = None
    """How many records a path may hold, pinned ones not counted; the least worth keeping go when the path is tended. None keeps all."""
    index: Literal["auto", "flat", "rabitq", "hnsw", "server"] = "auto"
    """How vectors are searched: exactly (`flat`), by codes with exact rerank (`rabitq`), by graph (`hnsw`), by the vector sets of the server (`server`: Redis 8, cosine, vectors alone: no words, no context); `auto` goes by size."""
    flat_limit: Count = 20_000
    """Up to how many vectors `auto` searches exactly."""
    snapshot_every: Count = 1_000
    """After how many writes the index is worth a new snapshot."""
    context: Annotated[int, Field(ge=0, le=8), BeforeValidator(count)] = 0
    """How many records before one, in the order they were remembered, are read together with it when its relevance is judged."""
    context_by: str | None = None
    """Name of the metadata whose equal values make records neighbours, such as `session`; without one, the whole path is one sequence."""
    lexical_weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the words in a score that fuses words and vectors."""
    recency_weight: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of recency in a score."""
    recency_half_life: Duration = default("7d")
    """After how long a record counts half as recent."""
    importance_weight: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of importance in a score."""
    receipts_ttl: Expiry = None
    """How long receipts of what was forgotten are kept; none keeps them."""
