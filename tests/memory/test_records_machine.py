"""Any order of events that Hypothesis thinks of, against the model of a path."""

from __future__ import annotations

import pytest

from blackboard.testing.remembering import MemoryMachine
from blackboard.testing.servers import Server
from tests.machines import play


@pytest.mark.timeout(900)  # a failure is shrunk before it is shown
def test_any_order_of_events_agrees_with_the_model(own: Server) -> None:
    play(lambda: MemoryMachine(own.url), 60, 30)


@pytest.mark.chaos
def test_many_orders_of_events_agree_with_the_model(own: Server) -> None:
    play(lambda: MemoryMachine(own.url), 1500, 60)
