"""Any order of events that Hypothesis thinks of, against the model of a path."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from blackboard.testing.remembering import MemoryMachine
from blackboard.testing.servers import Server


def play(url: str, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        lambda: MemoryMachine(url),  # type: ignore[arg-type]
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=False,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(900)  # a failure is shrunk before it is shown
def test_any_order_of_events_agrees_with_the_model(solo: Server) -> None:
    play(solo.url, 60, 30)


@pytest.mark.chaos
def test_many_orders_of_events_agree_with_the_model(solo: Server) -> None:
    play(solo.url, 1500, 60)
