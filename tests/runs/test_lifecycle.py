"""Any order of what becomes of threads in their lives, against a model; the keyspace is walked after each end."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from blackboard.testing.lifecycle import LifecycleMachine
from blackboard.testing.servers import Server


def play(url: str, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        lambda: LifecycleMachine(url),  # type: ignore[arg-type]
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(900)  # a failure is shrunk before it is shown
def test_any_life_agrees_with_the_model(solo: Server) -> None:
    play(solo.url, 50, 40)


@pytest.mark.chaos
def test_many_lives_agree_with_the_model(solo: Server) -> None:
    play(solo.url, 2000, 60)
