"""The engine keeps its promises on every server."""

from blackboard.testing.contracts.engine import EngineContract


class TestEngine(EngineContract):
    pass
