"""The embedders that run on this machine: what they hold near, and that nothing changes their vectors."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blackboard.errors import ConfigError
from blackboard.memory.embedder import Embedder, embedded
from blackboard.memory.embedders import minilm
from blackboard.memory.embedders.hashing import HashingEmbedder
from blackboard.memory.embedders.minilm import MiniLMEmbedder


async def likeness(embedder: Embedder, one: str, other: str) -> float:
    first, second = await embedded(embedder, [one, other])
    return float(first @ second)


async def test_hashing_holds_inflections_near() -> None:
    hashing = HashingEmbedder()
    assert await likeness(hashing, "She paints sunsets", "painted a sunset") > 0.2
    assert await likeness(hashing, "Straße in KÖLN", "strasse köln") > 0.6
    assert abs(await likeness(hashing, "She paints sunsets", "quarterly budget report")) < 0.15


def test_hashing_is_the_same_in_every_process() -> None:
    """Python salts its own hashes; these are stored, so they must not change."""
    script = (
        "import asyncio; from blackboard.memory.embedders.hashing import HashingEmbedder;"
        "print(asyncio.run(HashingEmbedder(16).embed(['two words']))[0].astype(float).round(4).tolist())"
    )
    expected = [
        -0.2379,
        0.2379,
        0.0,
        0.2379,
        0.3192,
        -0.3192,
        0.2379,
        0.0,
        0.0,
        -0.6325,
        0.0,
        -0.2379,
        0.0,
        -0.2379,
        0.2379,
        0.0,
    ]
    printed = [
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed == [f"{expected}\n".encode()] * 2


@given(st.text(max_size=40))
def test_hashing_gives_every_text_a_direction(text: str) -> None:
    (vector,) = asyncio.run(HashingEmbedder(16).embed([text]))
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


async def test_hashing_of_many_texts_is_that_of_each() -> None:
    hashing, texts = HashingEmbedder(64), [f"text number {n} " * 40 for n in range(50)]
    together = await hashing.embed(texts)
    assert (together == np.vstack([await hashing.embed([text]) for text in texts])).all()
    assert (await hashing.embed([])).shape == (0, 64)


@pytest.mark.parametrize("wrong", [0, 15, 9000, True, "512"])
def test_hashing_refuses_sizes(wrong: int) -> None:
    with pytest.raises(ConfigError, match="16 to 8192"):
        HashingEmbedder(wrong)


class TestMiniLM:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("onnxruntime", reason="needs the extra minilm")
        pytest.importorskip("tokenizers", reason="needs the extra minilm")

    async def test_holds_meanings_near(self) -> None:
        model = MiniLMEmbedder()
        near = await likeness(model, "My daughter plays the violin.", "Her child is learning an instrument.")
        far = await likeness(model, "My daughter plays the violin.", "The invoice is overdue.")
        assert (near > 0.35, far < 0.15) == (True, True)

    async def test_batches_change_nothing(self) -> None:
        """Texts of a batch are padded; padding must not count."""
        model, texts = MiniLMEmbedder(), [*(" ".join(["word"] * n) for n in range(1, 40)), "", "x" * 3000]
        together = await model.embed(texts)
        alone = np.vstack([await model.embed([text]) for text in texts])
        assert together.shape == (41, 384)
        assert np.abs(together - alone).max() < 1e-4

    async def test_many_callers_load_it_once(self) -> None:
        minilm._loaded.cache_clear()
        await asyncio.gather(*(MiniLMEmbedder().embed(["a"]) for _ in range(8)))
        assert minilm._loaded.cache_info().misses == 1

    async def test_another_file_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        package, name, _ = minilm._TOKENIZER
        with pytest.raises(ConfigError, match="is not the file"):
            minilm._file(package, name, "0" * 64)

    async def test_what_is_not_installed_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def absent(package: str) -> None:
            raise PackageNotFoundError(package)

        monkeypatch.setattr(minilm, "distribution", absent)
        minilm._loaded.cache_clear()
        with pytest.raises(ConfigError, match=r"pip install 'agent-blackboard\[minilm\]'"):
            await embedded(MiniLMEmbedder(), ["a"])
