"""Embedders: what turns text into vectors, the space those belong to, and how vectors are checked and stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from blackboard.errors import BlackboardError, ConfigError, CorruptValue, EmbedderFailed, EmbeddingInvalid

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from blackboard.settings import Embedding

    Floats = npt.NDArray[np.float32]
    Made = Sequence[Sequence[float]] | npt.NDArray[Any]

__all__ = ["Embedder", "Metric", "Space", "checked", "embedded", "for_settings", "pack", "unpack", "whole"]

Metric = Literal["cosine", "dot", "l2"]
"""How vectors of a space are compared: by direction, by inner product, by distance."""

LARGEST = 8192
"""Most numbers of one vector."""
ROUNDED = 0.01
"""How far from 1 the length of a vector in 16-bit numbers may be; rounding moves it by a tenth of that at most."""
LONGEST = 2.0**62
"""Greatest length of a vector that is compared as it is: products and squared distances of two stay below 2^128."""


class Embedder(Protocol):
    """What makes vectors of texts. Any object with these members is one.

    `name` says which model made a vector, `dimension` how many numbers it has, `metric` how two are compared; with `cosine`
    vectors are brought to unit length by whoever stores them. The three make up the space, and vectors of different
    spaces are never compared: change the name whenever the same text would get another vector.
    """

    @property
    def name(self) -> str:
        """Name of the model, its version included."""
        ...

    @property
    def dimension(self) -> int:
        """Numbers per vector."""
        ...

    @property
    def metric(self) -> Metric:
        """How two vectors are compared."""
        ...

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Made:
        """Return one vector per text, in their order; `query` tells a question from what is remembered.

        Whatever it raises counts as a failure of the embedder: records are kept without their vector and get it later.
        """
        ...


@dataclass(frozen=True, slots=True)
class Space:
    """Where a vector belongs: which model made it, how long it is, and how it is compared."""

    model: str
    dimension: int
    metric: Metric = "cosine"

    def __post_init__(self) -> None:
        if type(self.model) is not str or not self.model:
            raise ConfigError(f"an embedder needs a name, got {self.model!r}", value=self.model)
        if type(self.dimension) is not int or not 1 <= self.dimension <= LARGEST:
            raise ConfigError(
                f"{self.model}: a dimension is 1 to {LARGEST}, got {self.dimension!r}", value=self.dimension
            )
        if self.metric not in ("cosine", "dot", "l2"):
            raise ConfigError(f"{self.model}: the metric is cosine, dot or l2, got {self.metric!r}", value=self.metric)

    @classmethod
    def of(cls, embedder: Embedder) -> Space:
        """Name the space of an embedder's vectors; ConfigError if it does not say what is needed."""
        try:
            return cls(embedder.name, embedder.dimension, embedder.metric)
        except AttributeError as missing:
            raise ConfigError(
                f"an embedder has name, dimension, metric and embed; {type(embedder).__name__} lacks {missing.name!r}"
            ) from missing

    @classmethod
    def parse(cls, text: str) -> Space:
        """Read what `text` has spelled; CorruptValue if it is anything else."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as wrong:
            raise CorruptValue(f"the space of a path's vectors is not readable: {text!r}", value=text) from wrong

    def text(self) -> str:
        """Spell it canonically: equal spaces have equal texts."""
        return json.dumps(
            {"dimension": self.dimension, "metric": self.metric, "model": self.model},
            ensure_ascii=True,
            separators=(",", ":"),
        )

    @property
    def id(self) -> str:
        """16 hexadecimal digits that stand for it."""
        return hashlib.blake2b(self.text().encode(), digest_size=8).hexdigest()


def checked(vectors: Made, space: Space, count: int) -> Floats:
    """Return `count` vectors as an array of shape (count, dimension), of unit length where directions are compared.

    Raises EmbeddingInvalid, naming the vector by its position, for a wrong count or dimension, a number that is not
    finite or too large for 32 bits, a zero vector in a cosine space, and in another one a vector too long to be compared.
    """
    import numpy as np

    try:
        given = np.asarray(vectors)
    except ValueError as ragged:
        raise EmbeddingInvalid(f"{space.model}: the vectors differ in length", model=space.model) from ragged
    if given.dtype.kind not in "fiu":
        raise EmbeddingInvalid(f"{space.model}: a vector holds numbers, got {given.dtype}", model=space.model)
    if given.shape != (count, space.dimension):
        raise EmbeddingInvalid(
            f"{space.model}: {count} vectors of {space.dimension} numbers were expected, got the shape {given.shape}",
            model=space.model,
            dimension=space.dimension,
            shape=given.shape,
        )
    with np.errstate(over="ignore"):
        floats = given.astype(np.float32)
    _refuse(np.asarray(~np.isfinite(floats).all(axis=1)), "holds a number that is not finite", space)
    wide = floats.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    if space.metric != "cosine":
        _refuse(lengths[:, 0] > LONGEST, f"is longer than {LONGEST:.2g}, so that comparing it leaves 32 bits", space)
        return floats
    _refuse(lengths[:, 0] == 0, "is zero, which has no direction to compare", space)
    unit: Floats = (wide / lengths).astype(np.float32)
    return unit


def _refuse(wrong: npt.NDArray[Any], why: str, space: Space) -> None:
    if wrong.any():
        position = int(wrong.argmax())
        raise EmbeddingInvalid(f"{space.model}: vector {position} {why}", model=space.model, position=position)


def pack(vectors: Floats, space: Space) -> list[bytes]:
    """Spell checked vectors as they are stored: little-endian, 16 bits a number where all have unit length, else 32."""
    return [row.tobytes() for row in vectors.astype(_stored(space))]


def unpack(data: bytes, space: Space) -> Floats:
    """Read one stored vector; CorruptValue if its length is not that of the space."""
    import numpy as np

    kind = np.dtype(_stored(space))
    if len(data) != space.dimension * kind.itemsize:
        raise CorruptValue(
            f"a vector of {space.model} has {space.dimension * kind.itemsize} bytes, found {len(data)}",
            model=space.model,
        )
    return np.frombuffer(data, kind).astype(np.float32)


def whole(vector: Floats, space: Space) -> None:
    """Refuse a stored vector that `checked` and `pack` cannot have made: EmbeddingInvalid."""
    import numpy as np

    length = float(np.linalg.norm(vector.astype(np.float64)))
    if not (abs(length - 1) <= ROUNDED if space.metric == "cosine" else length <= LONGEST):
        expected = "1" if space.metric == "cosine" else f"at most {LONGEST:.2g}"
        raise EmbeddingInvalid(
            f"{space.model}: a vector has the length {length:.4g} instead of {expected}", model=space.model
        )


def _stored(space: Space) -> str:
    return "<f2" if space.metric == "cosine" else "<f4"


async def embedded(embedder: Embedder, texts: Sequence[str], *, query: bool = False) -> Floats:
    """Have texts embedded, and check what comes back.

    Raises EmbedderFailed, with the reason as its cause, for whatever the embedder raises, and EmbeddingInvalid for vectors
    that its space cannot hold.
    """
    space = Space.of(embedder)
    try:
        made = await embedder.embed(texts, query=query)
    except BlackboardError:
        raise
    except Exception as failure:
        raise EmbedderFailed(f"the embedder {space.model} failed: {failure!r}", model=space.model) from failure
    return checked(made, space, len(texts))


def for_settings(settings: Embedding) -> Embedder | None:
    """Make the embedder that a namespace's settings name; None where words alone are searched. Nothing is loaded yet."""
    match settings.kind:
        case "none":
            return None
        case "hashing":
            from blackboard.memory.embedders.hashing import DIMENSION, HashingEmbedder

            return HashingEmbedder(settings.dimension or DIMENSION)
        case "minilm":
            from blackboard.memory.embedders.minilm import MiniLMEmbedder

            return MiniLMEmbedder()
        case "openai":
            from blackboard.memory.embedders.openai import OpenAIEmbedder

            return OpenAIEmbedder(
                cast("str", settings.url),
                cast("str", settings.model),
                cast("int", settings.dimension),
                api_key=settings.api_key.get_secret_value() if settings.api_key else None,
                timeout=settings.timeout,
            )
