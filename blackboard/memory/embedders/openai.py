"""An embedder behind an HTTP endpoint that speaks OpenAI's embeddings interface (the extra `endpoint`)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from blackboard.errors import ConfigError, EmbedderFailed, EmbeddingInvalid
from blackboard.memory.embedder import Metric

if TYPE_CHECKING:
    import httpx

__all__ = ["OpenAIEmbedder"]

BATCH = 128
"""Most texts of one request."""

CHARACTERS = 200_000
"""Most characters of one request, a single longer text apart."""

ATTEMPTS = 4
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
"""Seconds; a server that asks for a longer pause is not waited for."""

_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Answers after which the same request may succeed."""


class OpenAIEmbedder:
    """Vectors from an endpoint of OpenAI's kind: their own service, or vLLM, Ollama, TEI, LiteLLM and others.

    Requests that time out, break off or are refused for load are repeated, at most 4 attempts in all, after pauses that
    double from half a second or as the server asks (Retry-After). After that, or at any other refusal, EmbedderFailed.
    `timeout` is seconds per request. The key is sent and nothing else: not shown, not logged, not part of an error. Each
    call opens its own connection; inside `async with` they are kept.
    """

    def __init__(
        self,
        url: str,
        model: str,
        dimension: int,
        *,
        metric: Metric = "cosine",
        api_key: str | None = None,
        timeout: float = 30.0,
    ) -> None:
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.netloc:
            raise ConfigError(
                f"an endpoint is an http or https URL such as http://localhost:8000/v1, got {url!r}", url=url
            )
        self.name, self.dimension = model, dimension
        self.metric: Metric = metric
        self._url = url.rstrip("/") + "/embeddings"
        self._key, self._timeout = api_key, timeout
        self._client: httpx.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"OpenAIEmbedder({self._url!r}, {self.name!r}, {self.dimension})"

    async def __aenter__(self) -> Self:
        self._client = self._opened()
        return self

    async def __aexit__(self, *_: object) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> list[list[float]]:
        """Return one vector per text, as the endpoint sent it."""
        vectors: list[list[float]] = []
        async with self._connected() as client:
            for batch in _batches(texts):
                vectors += _ordered(await self._answer(client, batch), len(batch), self.name)
        return vectors

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[httpx.AsyncClient]:
        if self._client is not None:
            yield self._client
            return
        async with self._opened() as client:
            yield client

    def _opened(self) -> httpx.AsyncClient:
        try:
            import httpx
        except ImportError as missing:
            raise ConfigError(
                "the embedder openai needs the package httpx: pip install 'agent-blackboard[endpoint]'", value="httpx"
            ) from missing
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        return httpx.AsyncClient(headers=headers, timeout=self._timeout)

    async def _answer(self, client: httpx.AsyncClient, texts: Sequence[str]) -> Any:
        """Ask for the vectors of one batch, again as long as that may help."""
        import httpx

        body = {"model": self.name, "input": list(texts), "encoding_format": "float"}
        failed = "was not asked"
        for attempt in range(ATTEMPTS):
            pause = FIRST_PAUSE * 2**attempt * random.uniform(0.75, 1.25)
            try:
                response = await client.post(self._url, json=body)
            except httpx.TransportError as broken:
                failed = f"could not be asked: {type(broken).__name__}"
            else:
                if response.is_success:
                    return self._read(response)
                failed = f"answered {response.status_code}: {self._quoted(response)}"
                pause = _asked(response.headers.get("Retry-After"), pause)
                if response.status_code not in _PASSING or pause > LONGEST_PAUSE:
                    break
            if attempt < ATTEMPTS - 1:
                await asyncio.sleep(pause)
        raise EmbedderFailed(f"the endpoint {self._url} {failed}", model=self.name, url=self._url)

    def _read(self, response: httpx.Response) -> Any:
        try:
            return response.json()
        except ValueError as unreadable:
            raise EmbedderFailed(
                f"the endpoint {self._url} did not answer with JSON: {self._quoted(response)}",
                model=self.name,
                url=self._url,
            ) from unreadable

    def _quoted(self, response: httpx.Response) -> str:
        """Quote the beginning of an answer, without the key should it contain it."""
        text = response.text.replace(self._key, "***") if self._key else response.text
        return " ".join(text.split())[:200]


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    start, characters = 0, 0
    for end, text in enumerate(texts):
        if end > start and (end - start == BATCH or characters + len(text) > CHARACTERS):
            yield texts[start:end]
            start, characters = end, 0
        characters += len(text)
    if start < len(texts):
        yield texts[start:]


def _ordered(answer: Any, count: int, model: str) -> list[list[float]]:
    """Take the vectors out of an answer, each at the place that its index names."""
    try:
        found = {int(row["index"]): list(row["embedding"]) for row in answer["data"]}
    except (KeyError, TypeError, ValueError) as wrong:
        raise EmbedderFailed(f"{model}: the endpoint's answer holds no embeddings: {wrong!r}", model=model) from wrong
    if sorted(found) != list(range(count)):
        raise EmbeddingInvalid(f"{model}: the endpoint answered {len(found)} vectors for {count} texts", model=model)
    return [found[number] for number in range(count)]


def _asked(after: str | None, otherwise: float) -> float:
    """Read how many seconds a server asks to wait: a number, or a date."""
    if after is None:
        return otherwise
    try:
        return max(0.0, float(after))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(after)
    except ValueError:
        return otherwise
    return max(0.0, (moment - datetime.now(moment.tzinfo or UTC)).total_seconds())
