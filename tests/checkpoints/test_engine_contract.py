"""The engine keeps its promises on every server."""

from blackboard.testing.contracts.adapter import AdapterContract
from blackboard.testing.contracts.endings import EndingsContract
from blackboard.testing.contracts.engine import EngineContract


class TestEngine(EngineContract):
    pass


class TestAdapter(AdapterContract):
    pass


class TestEndings(EndingsContract):
    pass
