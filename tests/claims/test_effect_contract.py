from __future__ import annotations

from blackboard.testing.contracts.effects import EffectContract
from blackboard.testing.contracts.shared_effects import SharedEffectContract


class TestEffects(EffectContract):
    """The contract, over every backend that this machine has."""


class TestSharedEffects(SharedEffectContract):
    """The contract, over every backend that this machine has."""
