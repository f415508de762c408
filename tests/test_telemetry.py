"""Loggers, spans and counters, with OpenTelemetry and without it."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blackboard import telemetry

ROOT = Path(__file__).parents[1]


@pytest.fixture
def fresh() -> Iterator[None]:
    telemetry._tracer.cache_clear()
    telemetry._counter.cache_clear()
    yield
    telemetry._tracer.cache_clear()
    telemetry._counter.cache_clear()


def test_logger_is_ours_and_configures_nothing() -> None:
    logger = telemetry.logger("store")
    assert logger.name == "blackboard.store"
    assert logger is logging.getLogger("blackboard.store")
    assert logger.handlers == []
    assert logger.level == logging.NOTSET


def test_spans_and_counters_reach_opentelemetry(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = pytest.importorskip("opentelemetry.metrics")
    trace = pytest.importorskip("opentelemetry.trace")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([reader])
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", tracers.get_tracer)
    monkeypatch.setattr(metrics, "get_meter", meters.get_meter)

    with telemetry.span("commit", thread="t-1", step=3, lineage=None):
        telemetry.count("commits", namespace="checkpoint")
        telemetry.count("commits", 2, namespace="checkpoint")
    with pytest.raises(LookupError, match="gone"), telemetry.span("latest"):
        raise LookupError("gone")

    first, second = exporter.get_finished_spans()
    assert first.name == "blackboard.commit"
    assert dict(first.attributes or {}) == {"blackboard.thread": "t-1", "blackboard.step": 3}
    assert second.name == "blackboard.latest"
    assert not second.status.is_ok
    data = reader.get_metrics_data()
    assert data is not None
    (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
    (point,) = metric.data.data_points
    assert metric.name == "blackboard.commits"
    assert point.value == 3  # type: ignore[union-attr]
    assert dict(point.attributes or {}) == {"blackboard.namespace": "checkpoint"}
    tracers.shutdown()
    meters.shutdown()


def test_without_opentelemetry_nothing_happens() -> None:
    script = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from blackboard.telemetry import count, span\n"
        "with span('commit', thread='t-1'):\n"
        "    count('commits')\n"
        "print('done')\n"
    )
    answer = subprocess.run(
        [sys.executable, "-S", "-c", script], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, check=True
    )
    assert answer.stdout.split() == [b"done"]
