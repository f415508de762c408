"""The engine keeps its promises on every server."""

import pytest

from blackboard.checkpoints.engine import Engine
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.contracts.adapter import AdapterContract
from blackboard.testing.contracts.endings import EndingsContract
from blackboard.testing.contracts.engine import EngineContract
from blackboard.testing.contracts.thread import NAMESPACE


class TestEngine(EngineContract):
    pass


class TestAdapter(AdapterContract):
    pass


class TestEndings(EndingsContract):
    pass


class TestDeclared(EngineContract):
    """The same where the server lets scripts touch declared keys only: a read takes more trips and finds the same."""

    @pytest.fixture
    def engine(self, store: Store) -> Engine:
        engine = Engine(store, NAMESPACE, CheckpointNamespace())
        engine.reader.declares = True
        return engine
