"""What the tests of the savers share: a board on one server, the serializers, and a count of what they do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from blackboard import Blackboard, Settings
from blackboard.testing.servers import Server


@pytest_asyncio.fixture
async def board(solo: Server) -> AsyncIterator[Blackboard]:
    """A board that is opened on the single server."""
    async with Blackboard.open(solo.url, settings=Settings(), proof=False) as opened:
        yield opened


@pytest.fixture(params=["langgraph", "blackboard"])
def serde(request: pytest.FixtureRequest) -> Any:
    """LangGraph's own serializer, then ours."""
    from tests.integrations.chats import SERIALIZERS

    return SERIALIZERS[request.param]()


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the serializers write and read from here on."""
    from tests.integrations.chats import counting

    return counting(monkeypatch)
