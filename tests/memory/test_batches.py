"""Long batches: each slice is sent as a new write, however long those before it took."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from blackboard.memory import records as module
from blackboard.memory.new import Body
from blackboard.memory.records import Records
from blackboard.settings import MemoryNamespace
from blackboard.store.client import Store


async def test_an_op_begins_when_it_is_sent(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An op id begins with the time; one made for all slices at once would be too old for the last."""
    monkeypatch.setattr(module, "SLICE", 2)
    records = Records(store, "memory", f"batches/{uuid.uuid4().hex}", MemoryNamespace())
    told: list[str] = []
    op_id, calls = store.op_id, store.calls

    def made() -> str:
        told.append("op")
        return op_id()

    async def sent(*arguments: Any, **more: Any) -> Any:
        told.append("sent")
        return await calls(*arguments, **more)

    monkeypatch.setattr(store, "op_id", made)
    monkeypatch.setattr(store, "calls", sent)
    stored = await records.put_all([Body(f"fact {number}") for number in range(6)])
    assert told == ["op", "op", "sent"] * 3
    assert len({record.id for record in stored}) == 6
