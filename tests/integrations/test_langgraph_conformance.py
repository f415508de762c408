"""LangGraph's published suite, on every backend."""

from collections.abc import AsyncIterator

import pytest

from blackboard import Blackboard, Settings
from blackboard.testing.servers import Server

pytest.importorskip("langgraph.checkpoint.conformance", reason="install langgraph-checkpoint-conformance")

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.serde.base import SerializerProtocol

from blackboard.integrations.langgraph import BlackboardSaver, BlackboardSerializer

TESTS = 81
"""How many the suite has, in eight capabilities."""


async def test_every_capability_is_detected_and_passes(backend: str) -> None:
    await passes(backend, "langgraph", None)


async def test_with_the_strict_serializer(solo: Server) -> None:
    await passes(solo.url, "strict", BlackboardSerializer())


async def passes(url: str, namespace: str, serde: SerializerProtocol | None) -> None:
    @checkpointer_test(name="BlackboardSaver")
    async def savers() -> AsyncIterator[BlackboardSaver]:
        async with Blackboard.open(url, settings=Settings(), proof=False) as board:
            yield BlackboardSaver(board, namespace=namespace, serde=serde)

    report = await validate(savers)
    failures = {name: result.failures for name, result in report.results.items() if result.failures}
    assert failures == {}
    assert {name for name, result in report.results.items() if not result.detected} == set()
    assert {name for name, result in report.results.items() if result.tests_skipped} == set()
    assert len(report.results) == 8
    assert sum(result.tests_passed for result in report.results.values()) == TESTS
    assert report.passed_all()
