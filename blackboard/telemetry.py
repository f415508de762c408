"""Loggers, spans and counters: what happened and to which ids, never what the state holds.

OpenTelemetry is used if its API is installed, and only then; without it spans and counters do nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

__all__ = ["count", "logger", "span"]

Attribute = str | int | float | bool


def logger(room: str) -> logging.Logger:
    """Return the logger `blackboard.<room>`; ids go into `extra`, and nothing is configured on anybody's behalf."""
    return logging.getLogger(f"blackboard.{room}")


@contextmanager
def span(name: str, **attributes: Attribute | None) -> Generator[None]:
    """Wrap a block in the span `blackboard.<name>`, with attributes `blackboard.<attribute>`; None is left out.

    An exception marks the span and passes unchanged.
    """
    tracer = _tracer()
    if tracer is None:
        yield
        return
    with tracer.start_as_current_span(f"blackboard.{name}", attributes=_named(attributes)):
        yield


def count(name: str, number: int = 1, **attributes: Attribute | None) -> None:
    """Add to the counter `blackboard.<name>`; attributes should be few-valued, so ids of threads do not belong here."""
    counter = _counter(name)
    if counter is not None:
        counter.add(number, _named(attributes))


def _named(attributes: Mapping[str, Attribute | None]) -> dict[str, Attribute]:
    return {f"blackboard.{name}": value for name, value in attributes.items() if value is not None}


@cache
def _tracer() -> Any:
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace.get_tracer("blackboard")


@cache
def _counter(name: str) -> Any:
    try:
        from opentelemetry import metrics
    except ImportError:
        return None
    return metrics.get_meter("blackboard").create_counter(f"blackboard.{name}")
