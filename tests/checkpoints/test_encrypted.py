"""The contracts of threads and effects hold where everything is encrypted."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from blackboard.checkpoints.engine import Engine
from blackboard.claims.effect import Effects
from blackboard.claims.outcome import Mismatch
from blackboard.claims.record import SettledEffect
from blackboard.claims.shared import SharedEffects
from blackboard.codec.cipher import MAGIC, Seal
from blackboard.settings import CheckpointNamespace
from blackboard.store.client import Store
from blackboard.testing.contracts.adapter import AdapterContract
from blackboard.testing.contracts.effects import EffectContract, drive, start
from blackboard.testing.contracts.engine import EngineContract
from blackboard.testing.contracts.leases import NAMESPACE as CLAIMS
from blackboard.testing.contracts.shared_effects import SharedEffectContract
from blackboard.testing.contracts.thread import NAMESPACE
from blackboard.testing.servers import Server

KEY = base64.b64encode(b"k" * 32).decode()
POLICY = CheckpointNamespace(encryption={"keys": {"k": KEY}, "current": "k"})


@pytest_asyncio.fixture
async def store(solo: Server) -> AsyncIterator[Store]:
    connected = await Store.connect(solo.url)
    yield connected
    await connected.close()


class Encrypted:
    @pytest.fixture
    def engine(self, store: Store) -> Engine:
        return Engine(store, NAMESPACE, POLICY)


class TestEngine(Encrypted, EngineContract):
    pass


class TestAdapter(Encrypted, AdapterContract):
    pass


class TestDeclared(EngineContract):
    """Reading in three trips opens the same."""

    @pytest.fixture
    def engine(self, store: Store) -> Engine:
        engine = Engine(store, NAMESPACE, POLICY)
        engine.reader.declares = True
        return engine


def keyed(answer: object) -> bool:
    """Tell whether an answer is a mismatch that shows nothing of the arguments' own digest."""
    return isinstance(answer, Mismatch) and answer.fingerprint.startswith("k:") and len(answer.fingerprint) == 67


class TestEffects(EffectContract):
    @pytest.fixture
    def effects(self, store: Store) -> Effects:
        return Effects(store, CLAIMS, Seal.of(CLAIMS, POLICY.encryption))

    async def test_other_arguments_are_a_mismatch(self, store: Store, effects: Effects, thread: str) -> None:
        token = (await drive(store, thread)).token
        begun = await start(effects, token, "at-least-once")
        assert keyed(await effects.begin(token, "mail", semantics="at-least-once", fingerprint="g"))
        await effects.complete(begun, b"1")
        assert keyed(await effects.begin(token, "mail", semantics="at-least-once", fingerprint="g"))

    async def test_a_settlement_reads_as_a_record(self, store: Store, effects: Effects, thread: str) -> None:
        token = (await drive(store, thread)).token
        settlement = effects.settlement(await start(effects, token, "at-least-once"), b"\x00:1")
        inside = SettledEffect.parse(b"mail", settlement.within("000000000002"))
        assert (inside.checkpoint, inside.state, inside.attempt) == ("000000000002", "done", 1)
        assert inside.result.startswith(MAGIC)
        assert inside.spell() == settlement.within("000000000002")


class TestSharedEffects(SharedEffectContract):
    @pytest.fixture
    def shared(self, store: Store) -> SharedEffects:
        return SharedEffects(store, CLAIMS, seal=Seal.of(CLAIMS, POLICY.encryption))

    async def test_other_arguments_are_a_mismatch(self, shared: SharedEffects, thread: str) -> None:
        await self.claim(shared, thread, "at-least-once")
        assert keyed(await shared.begin(thread, semantics="at-least-once", fingerprint="g", ttl=60.0))

    async def test_a_key_may_be_replaced(self, store: Store, shared: SharedEffects, thread: str) -> None:
        await self.claim(shared, thread, "at-least-once")
        both = CheckpointNamespace(encryption={"keys": {"k": KEY, "new": KEY}, "current": "new"})
        later = SharedEffects(store, CLAIMS, seal=Seal.of(CLAIMS, both.encryption))
        answer = await later.begin(thread, semantics="at-least-once", fingerprint="f", ttl=60.0)
        assert not isinstance(answer, Mismatch)
        assert keyed(await later.begin(thread, semantics="at-least-once", fingerprint="g", ttl=60.0))
