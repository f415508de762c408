from __future__ import annotations

from blackboard.testing.contracts.leases import LeaseContract


class TestLeases(LeaseContract):
    """The contract, over every backend that this machine has."""
