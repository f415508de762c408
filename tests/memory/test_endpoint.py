"""The endpoint embedder against a real HTTP server on loopback."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from blackboard.errors import ConfigError, EmbedderFailed, EmbeddingInvalid
from blackboard.memory.embedder import embedded
from blackboard.memory.embedders import openai
from blackboard.memory.embedders.openai import OpenAIEmbedder

KEY = "sk-very-secret"
Answer = tuple[int, dict[str, str], Any]


def vectors(texts: list[str]) -> Any:
    """The vectors of texts as the interface answers them, the last one first."""
    rows = [{"index": n, "embedding": [float(len(text)), 1.0]} for n, text in enumerate(texts)]
    return {"object": "list", "data": rows[::-1]}


@dataclass
class Endpoint:
    """An HTTP server that answers as it is told: a status and its headers, or None to hang up."""

    answers: list[Answer | None] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    connections: int = 0
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        self.heads.append(head)
        self.bodies.append(body)
        answer = self.answers.pop(0) if self.answers else (200, {}, vectors(body["input"]))
        if answer is None:
            return False
        status, headers, content = answer
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
        await writer.drain()
        return True


@asynccontextmanager
async def endpoint(*answers: Answer | None) -> AsyncGenerator[Endpoint]:
    served = Endpoint(list(answers))
    server = await asyncio.start_server(served.serve, "127.0.0.1")
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        yield served


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy between, and no waiting where the pause itself is not the point."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(openai, "FIRST_PAUSE", 0.001)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    taken: list[float] = []

    async def sleep(seconds: float, sleep: Callable[[float], Any] = asyncio.sleep) -> None:
        taken.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return taken


def at(served: Endpoint, dimension: int = 2, **more: Any) -> OpenAIEmbedder:
    return OpenAIEmbedder(served.url, "small", dimension, api_key=KEY, **more)


async def test_vectors_come_in_the_order_of_the_texts() -> None:
    async with endpoint() as served:
        assert await at(served).embed(["a", "bbb", "cc"]) == [[1, 1], [3, 1], [2, 1]]
    assert served.bodies == [{"model": "small", "input": ["a", "bbb", "cc"], "encoding_format": "float"}]
    (head,) = served.heads
    assert head.startswith("POST /v1/embeddings HTTP/1.1\r\n")
    assert f"\r\nauthorization: bearer {KEY}\r\n" in head.lower()


async def test_many_texts_go_in_several_requests() -> None:
    async with endpoint() as served:
        assert await at(served).embed(["a" * n for n in range(300)]) == [[n, 1] for n in range(300)]
        assert [len(body["input"]) for body in served.bodies] == [128, 128, 44]
        assert served.connections == 1
        await at(served).embed(["x" * 150_000, "y" * 150_000, "z"])
        assert [len(body["input"]) for body in served.bodies[3:]] == [1, 2]
        assert await at(served).embed([]) == []
        assert len(served.bodies) == 5


async def test_connections_are_kept_inside_a_context() -> None:
    async with endpoint() as served, at(served) as kept:
        await kept.embed(["a"])
        await kept.embed(["b"])
        assert served.connections == 1


@pytest.mark.parametrize("passing", [429, 500, 502, 503, 504])
async def test_passing_refusals_are_asked_again(passing: int) -> None:
    async with endpoint((passing, {}, {}), None, (passing, {}, {})) as served:
        assert await at(served).embed(["a"]) == [[1, 1]]
    assert len(served.bodies) == 4


async def test_attempts_are_bounded(pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "FIRST_PAUSE", 0.5)
    async with endpoint(*[(500, {}, {"error": "busy"})] * 9) as served:
        with pytest.raises(EmbedderFailed, match='answered 500: {"error": "busy"}'):
            await at(served).embed(["a"])
    assert len(served.bodies) == 4
    assert [0.375 <= pauses[0] <= 0.625, 0.75 <= pauses[1] <= 1.25, 1.5 <= pauses[2] <= 2.5] == [True] * 3
    assert len(pauses) == 3


async def test_the_server_says_how_long_to_wait(pauses: list[float]) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    async with endpoint((429, {"Retry-After": "7"}, {}), (503, {"Retry-After": later}, {})) as served:
        assert await at(served).embed(["a"]) == [[1, 1]]
    assert pauses[0] == 7
    assert 17 <= pauses[1] <= 20


async def test_no_pause_without_bound(pauses: list[float]) -> None:
    async with endpoint((429, {"Retry-After": "3600"}, {})) as served:
        with pytest.raises(EmbedderFailed, match="answered 429"):
            await at(served).embed(["a"])
    assert (len(served.bodies), pauses) == (1, [])


@pytest.mark.parametrize("final", [400, 401, 404, 301])
async def test_final_refusals_are_not_asked_again(final: int) -> None:
    async with endpoint((final, {}, {})) as served:
        with pytest.raises(EmbedderFailed, match=f"answered {final}"):
            await at(served).embed(["a"])
    assert len(served.bodies) == 1


async def test_nobody_listens(pauses: list[float]) -> None:
    async with endpoint() as served:
        gone = at(served)
    with pytest.raises(EmbedderFailed, match="could not be asked: ConnectError"):
        await gone.embed(["a"])
    assert len(pauses) == 3


async def test_a_silent_server_times_out() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1")
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(EmbedderFailed, match="could not be asked: ReadTimeout"):
            await OpenAIEmbedder(url, "small", 2, timeout=0.02).embed(["a"])


@pytest.mark.parametrize(
    "answer", [b"<html>", {"data": [{"index": 0}]}, {"error": "x"}, [], {"data": [{"index": "x", "embedding": [1, 2]}]}]
)
async def test_answers_that_are_none(answer: Any) -> None:
    async with endpoint((200, {}, answer)) as served:
        with pytest.raises(EmbedderFailed):
            await at(served).embed(["a"])


async def test_too_few_vectors_and_wrong_dimension() -> None:
    async with endpoint((200, {}, vectors(["a"]))) as served:
        with pytest.raises(EmbeddingInvalid, match="1 vectors for 2 texts"):
            await at(served).embed(["a", "b"])
    async with endpoint() as served:
        with pytest.raises(EmbeddingInvalid, match="1 vectors of 3 numbers"):
            await embedded(at(served, dimension=3), ["a"])


async def test_the_key_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with endpoint((401, {}, {"error": f"bad key {KEY}"})) as served:
        embedder = at(served)
        with pytest.raises(EmbedderFailed, match=r"bad key \*\*\*") as caught:
            await embedder.embed(["a"])
    assert KEY not in f"{caught.value!r} {caught.value.ids} {embedder!r} {caplog.text}"
    assert caplog.records


@pytest.mark.parametrize("url", ["", "localhost:8000/v1", "ftp://x/v1", "http://"])
def test_addresses_are_checked(url: str) -> None:
    with pytest.raises(ConfigError, match="http or https"):
        OpenAIEmbedder(url, "m", 2)
