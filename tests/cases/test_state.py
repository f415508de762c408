"""Public bug reports about what comes back from a checkpoint, as inputs with the right answer, through a run."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import json
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from pydantic import BaseModel

from blackboard import Settings
from blackboard.board import Blackboard
from blackboard.codec import Opaque
from blackboard.errors import EncodeError
from blackboard.store.client import Store
from tests.cases.classes import Base, Car, Garage, Phase

NEW_YORK = ZoneInfo("America/New_York")
ROOT = Path(__file__).parents[2]


class State(BaseModel):
    x: Any = None


@pytest.fixture
def board(store: Store) -> Blackboard:
    return Blackboard(store, Settings.load(), None, None)


async def back(board: Blackboard, thread: str, value: Any, *classes: type) -> Any:
    """Commit a value in a state and read it in a run of its own."""
    async with board.run(thread, State, start=State, classes=classes) as run:
        run.state.x = value
        await run.commit()
    async with board.run(thread, State, classes=classes) as run:
        return run.state.x


async def test_c01_zone_and_fold_come_back(board: Blackboard, thread: str) -> None:
    before = dt.datetime(2026, 3, 7, 9, tzinfo=NEW_YORK)
    folded = dt.datetime(2025, 11, 2, 1, 30, fold=1, tzinfo=NEW_YORK)
    x, y, unfolded, offset = await back(
        board,
        thread,
        [before, folded, folded.replace(fold=0), before.astimezone(dt.timezone(dt.timedelta(hours=5, minutes=45)))],
    )
    assert isinstance(x.tzinfo, ZoneInfo)
    assert (x.tzinfo.key, y.fold, unfolded.fold) == ("America/New_York", 1, 0)
    assert (x + dt.timedelta(days=1)).astimezone(dt.UTC).hour == 13
    assert y.astimezone(dt.UTC) - unfolded.astimezone(dt.UTC) == dt.timedelta(hours=1)
    assert offset.utcoffset() == dt.timedelta(hours=5, minutes=45)


@pytest.mark.parametrize(
    "value",
    [
        decimal.Decimal("0.10"), decimal.Decimal("1E-30"), decimal.Decimal("-0"), dt.timedelta(days=-1, microseconds=1),
        frozenset({1, 2}), {"a", "b"}, collections.deque([1, 2], maxlen=3), uuid.UUID(int=7), dt.date(2026, 1, 31),
        dt.time(1, 2, 3, 4), Phase.QUERY, {1: "a", "1": "b", None: "c"}, (1, (2,)), 10**40, float("inf"), b"\x00\xff",
        {"invoice": [{"amount": decimal.Decimal("19.99"), "tags": {"x"}}]},
    ],
)  # fmt: skip
async def test_c02_values_keep_their_type(board: Blackboard, thread: str, value: Any) -> None:
    found = await back(board, thread, value, Phase)
    assert (type(found), found) == (type(value), value)
    if isinstance(value, collections.deque):
        assert found.maxlen == value.maxlen


async def test_c02_what_is_not_supported_is_refused_and_nothing_stored(board: Blackboard, thread: str) -> None:
    with pytest.raises(EncodeError) as caught:
        async with board.run(thread, State, start=State) as run:
            run.state.x = {"items": [1, 2, 3, {"price": (n for n in range(3))}]}
            await run.commit()
    assert caught.value.path == "state.x.items[3].price"
    assert len(await board.thread(thread).history()) == 1


async def test_c08_a_subclass_in_a_base_typed_field(board: Blackboard, thread: str) -> None:
    garage = Garage(item=Car(k="1", model="VW"), items=[Car(k="2", model="T"), Base(k="3")])

    async with board.run(thread, Garage, start=lambda: garage) as run:
        await run.commit()
    async with board.run(thread, Garage) as run:
        assert (type(run.state.item), [type(one) for one in run.state.items]) == (Car, [Car, Base])
        assert run.state == garage


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype="f4").reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(3, dtype=">i4"),
        np.array(3.0), np.zeros((0, 4), "f4"), np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array(["2026-01-01", "NaT"], dtype="datetime64[D]"), np.array([1, "a", None], dtype=object),
    ],
    ids=["c-order", "fortran", "big-endian", "0-d", "empty", "structured", "datetime64", "object"],
)  # fmt: skip
async def test_c11_arrays(board: Blackboard, thread: str, array: np.ndarray[Any, Any]) -> None:
    found = await back(board, thread, array)
    assert (found.dtype, found.shape, found.tolist().__repr__()) == (
        array.dtype,
        array.shape,
        array.tolist().__repr__(),
    )
    assert found.flags.writeable


async def test_c11_array_scalars(board: Blackboard, thread: str) -> None:
    single, true = await back(board, thread, [np.float32(1.5), np.bool_(1)])
    assert (type(single), single, type(true), bool(true)) == (np.float32, 1.5, np.bool_, True)


async def test_c17_a_class_that_vanished_keeps_its_bytes(server: Any, tmp_path: Path, thread: str) -> None:
    """Another process writes a model of a module that is gone afterwards; a re-put does not destroy it."""
    (tmp_path / "vanishing.py").write_text("from pydantic import BaseModel\nclass Note(BaseModel):\n    a: int\n")
    program = textwrap.dedent(f"""
        import asyncio
        from typing import Any
        from pydantic import BaseModel
        from blackboard import Blackboard
        from vanishing import Note
        class State(BaseModel):
            x: Any = None
            y: int = 0
        async def main():
            async with Blackboard.open({server.url!r}) as board, board.run({thread!r}, State, start=State) as run:
                run.state.x, run.state.y = Note(a=1), 7
                await run.commit()
        asyncio.run(main())
    """)
    environment = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)

    class Later(BaseModel):
        x: Any = None
        y: int = 0

    stored = b""
    async with Blackboard.open(server.url) as board:
        for _ in range(2):
            async with board.run(thread, Later) as run:
                assert isinstance(run.state.x, Opaque)
                assert (run.state.x.name, run.state.y) == ("vanishing:Note", 7)
                assert json.loads(run.state.x.data)
                stored = run.state.x.data
                await run.commit()
        latest = await board.thread(thread).latest()
        assert latest is not None
        assert latest.state["x"].data == stored


@pytest.mark.parametrize(
    "value",
    [
        {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", "HumanMessage"], "kwargs": {"content": "x"}},
        {"lc": 1, "type": "secret", "id": ["OPENAI_API_KEY"]}, {"__send__": True, "arg": 1, "node": "n"},
        {"__bytes__": "AAE="}, {"__type__": "os.system", "args": ["true"]}, {"py/object": "os.system"}, {"$ref": "#/x"},
        {"__proto__": {}}, {"!model": ["os:system", "", {}]}, {"!decimal": "1"}, {"!dict": [[1, 2]]}, {"!opaque": "x"},
        {"!": {"!model": 1}}, {"x": {"!set": [1]}},
    ],
)  # fmt: skip
async def test_c24_data_that_looks_like_an_envelope_is_data(board: Blackboard, thread: str, value: Any) -> None:
    nested = {"m": value, "list": [value, [value]], "key": {"k": value}}
    assert await back(board, thread, nested) == nested
