from __future__ import annotations

from blackboard.testing.contracts.effects import EffectContract, SharedEffectContract


class TestEffects(EffectContract):
    """The contract, over every backend that this machine has."""


class TestSharedEffects(SharedEffectContract):
    """The contract, over every backend that this machine has."""
