"""Public bug reports about what comes back from a saver, as inputs with the right answer: as channels and as pending writes."""

import collections
import datetime as dt
import decimal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from blackboard import Blackboard, Settings
from blackboard.codec import Opaque
from blackboard.errors import EncodeError
from blackboard.testing.servers import Server
from tests.cases.classes import CLASSES, Base, Car, Garage, Phase

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from blackboard.integrations.langgraph import BlackboardSaver, BlackboardSerializer
from blackboard.testing.contracts.savers.case import checkpoint, config, latest, put, seen

NEW_YORK = ZoneInfo("America/New_York")
ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def savers(url: str, *classes: type, strict: bool = True) -> AsyncIterator[BlackboardSaver]:
    async with Blackboard.open(url, settings=Settings(), proof=False) as board:
        yield BlackboardSaver(board, serde=BlackboardSerializer(classes) if strict else None)


async def back(url: str, thread: str, value: Any, *, strict: bool = True) -> list[Any]:
    """Store a value as a channel, as an item of one, and as a pending write; read them with a saver that knows nothing of it."""
    long = [value] * 12
    async with savers(url, *CLASSES, strict=strict) as saver:
        where = await put(saver, config(thread), checkpoint(x=value, items=long))
        await saver.aput_writes(where, [("x", value)], "task")
    async with savers(url, *CLASSES, strict=strict) as saver:
        found = await latest(saver, config(thread))
    values = found.checkpoint["channel_values"]
    assert len(values["items"]) == len(long)
    assert found.pending_writes is not None
    return [values["x"], values["items"][-1], found.pending_writes[0][2]]


async def test_c01_zone_and_fold_come_back(solo: Server, thread: str) -> None:
    before = dt.datetime(2026, 3, 7, 9, tzinfo=NEW_YORK)
    for found in await back(solo.url, thread, before):
        assert isinstance(found.tzinfo, ZoneInfo)
        assert found.tzinfo.key == "America/New_York"
        assert (found + dt.timedelta(days=1)).astimezone(dt.UTC).hour == 13
    for fold in (0, 1):
        hour = dt.datetime(2025, 11, 2, 1, 30, fold=fold, tzinfo=NEW_YORK)
        for found in await back(solo.url, f"{thread}-{fold}", hour):
            assert (found.fold, found.astimezone(dt.UTC)) == (fold, hour.astimezone(dt.UTC))
    offset = dt.timezone(dt.timedelta(hours=5, minutes=45))
    for plain in (
        before.astimezone(dt.UTC),
        before.astimezone(offset),
        before.replace(tzinfo=None, microsecond=123456),
    ):
        assert [(one, one.utcoffset()) for one in await back(solo.url, f"{thread}-{plain}", plain)] == [
            (plain, plain.utcoffset())
        ] * 3


@pytest.mark.parametrize(
    "value",
    [
        decimal.Decimal("0.10"), decimal.Decimal("1E-30"), dt.timedelta(days=-1, microseconds=1), frozenset({1, 2}), {"a", "b"},
        collections.deque([1, 2], maxlen=3), uuid.UUID("12345678-1234-5678-1234-567812345678"), dt.date(2026, 1, 31),
        dt.time(1, 2, 3, 4), Phase.QUERY, {"invoice": [{"amount": decimal.Decimal("19.99"), "tags": {"x"}}]}, {1: "a", "1": "b"},
        (1, (2,)), 10**40, float("inf"), b"\x00\xff", "\x00",
    ],
    ids=lambda value: type(value).__name__,  # what a set prints is another order in every process
)  # fmt: skip
async def test_c02_values_keep_their_type(solo: Server, thread: str, value: Any) -> None:
    for found in await back(solo.url, thread, value):
        assert (type(found), found) == (type(value), value)
        if isinstance(value, collections.deque):
            assert found.maxlen == value.maxlen


async def test_c02_what_is_not_supported_is_refused_and_nothing_stored(solo: Server, thread: str) -> None:
    async with savers(solo.url) as saver:
        for value in (Garage(item=Base(k="1")), object(), (n for n in range(3))):
            with pytest.raises(EncodeError):
                await put(saver, config(thread), checkpoint(x={"deep": [value]}))
            with pytest.raises(EncodeError):
                await saver.aput_writes(config(thread, "a"), [("fine", 1), ("x", value)], "task")
        assert await seen(saver, thread) == {}
        await put(saver, config(thread), checkpoint("a", x=1))
        assert await seen(saver, thread) == {"": [("a", {"x": 1}, None, [])]}


async def test_c08_a_subclass_in_a_base_typed_field(solo: Server, thread: str) -> None:
    garage = Garage(item=Car(k="1", model="VW"), items=[Car(k="2", model="T"), Base(k="3")])
    for found in await back(solo.url, thread, garage):
        assert (type(found.item), found.item.model, [type(one) for one in found.items]) == (Car, "VW", [Car, Base])
        assert found == garage


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype="f4").reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(3, dtype=">i4"),
        np.array(3.0), np.zeros((0, 4), "f4"), np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array(["2026-01-01", "NaT"], dtype="datetime64[D]"), np.array([1, "a", None], dtype=object),
    ],
    ids=["c-order", "fortran", "big-endian", "0-d", "empty", "structured", "datetime64", "object"],
)  # fmt: skip
async def test_c11_arrays(solo: Server, thread: str, array: np.ndarray[Any, Any]) -> None:
    for found in await back(solo.url, thread, array):
        assert (found.dtype, found.shape, repr(found.tolist())) == (array.dtype, array.shape, repr(array.tolist()))
        assert found.flags.writeable


async def test_c11_array_scalars(solo: Server, thread: str) -> None:
    for single, true in await back(solo.url, thread, [np.float32(1.5), np.bool_(True)]):  # noqa: FBT003
        assert (type(single), single, type(true), bool(true)) == (np.float32, 1.5, np.bool_, True)


async def test_c17_a_class_that_vanished_keeps_its_bytes(solo: Server, tmp_path: Path, thread: str) -> None:
    """Another process writes a model of a module that is gone afterwards; storing it again does not destroy it."""
    (tmp_path / "vanishing.py").write_text("from pydantic import BaseModel\nclass WillVanish(BaseModel):\n    a: int\n")
    program = textwrap.dedent(f"""
        import asyncio
        from blackboard.integrations.langgraph import BlackboardSaver, BlackboardSerializer
        from blackboard.testing.contracts.savers.case import checkpoint, config, put
        from blackboard import Blackboard, Settings
        from vanishing import WillVanish
        async def main():
            async with Blackboard.open({solo.url!r}, settings=Settings(), proof=False) as board:
                saver = BlackboardSaver(board, serde=BlackboardSerializer([WillVanish]))
                await put(saver, config({thread!r}), checkpoint("a", x=WillVanish(a=1), items=[WillVanish(a=n) for n in range(9)], y=7))
        asyncio.run(main())
    """)
    environment = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)
    data: list[bytes] = []
    for parent, name in (("a", "b"), ("b", "c")):
        async with savers(solo.url) as saver:
            found = (await latest(saver, config(thread, parent))).checkpoint["channel_values"]
            assert isinstance(found["x"], Opaque)
            assert (found["x"].name, found["y"], len(found["items"])) == ("vanishing:WillVanish", 7, 9)
            assert all(isinstance(one, Opaque) for one in found["items"])
            data.append(found["x"].data)
            await put(saver, config(thread, parent), checkpoint(name, **found))
    assert data[0] == data[1]
    assert b"1" in data[0]


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "default"])
@pytest.mark.parametrize(
    "value",
    [
        {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", "HumanMessage"], "kwargs": {"content": "x"}},
        {"lc": 1, "type": "secret", "id": ["OPENAI_API_KEY"]},
        {"lc": 2, "type": "constructor", "id": ["decimal", "Decimal"], "args": ["1.0"], "kwargs": {}},
        {"__send__": True, "arg": 1, "node": "n"}, {"__bytes__": "AAE="}, {"__type__": "os.system", "args": ["true"]},
        {"py/object": "os.system"}, {"value": 1, "id": "abc"}, {"value": 1, "resumable": True, "ns": None, "when": "during"},
        {"$ref": "#/x"}, {"__proto__": {}}, {"!model": ["os:system", "", {}]}, {"!decimal": "1"}, {"!dict": [[1, 2]]},
        {"!opaque": "x"}, {"!": {"!model": 1}}, {"x": {"!set": [1]}},
    ],
    ids=repr,
)  # fmt: skip
async def test_c24_data_that_looks_like_an_envelope_is_data(
    solo: Server, thread: str, value: Any, strict: bool
) -> None:
    nested = {"m": value, "list": [value, [value]], "key": {"k": value}}
    assert await back(solo.url, thread, nested, strict=strict) == [nested] * 3
