"""Public bug reports about memories and vector stores, as inputs with the right answer, through the board as users open it."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from blackboard import Blackboard, Settings
from blackboard.errors import ConfigError, EmbedderMismatch
from blackboard.memory.embedder import Metric
from blackboard.memory.memory import Memory
from blackboard.memory.new import New

TENANTS = ("alice", "Alice", "ALICE", "user1", "user10", "user", "a,b", "a", "b", "the", "run", "running", "x.y", "x:y", "*", "us?r1", "{a}", "%61", "é", "e\u0301", "a b")  # fmt: skip


class Marked:
    """Vectors by hand: texts that begin with a number lie at that place of a line, others far away."""

    name, dimension = "marked", 2
    metric: Metric = "l2"

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        return [[float(text.split()[0]) if text.split()[0].isdigit() else 1e4, 0.0] for text in texts]


@pytest_asyncio.fixture
async def board(backend: str) -> AsyncIterator[Blackboard]:
    async with await Blackboard.open(backend, settings=Settings()) as opened:
        yield opened


@pytest.fixture
def path() -> str:
    return f"cases/{uuid.uuid4().hex}"


def texts(found: Any) -> list[str]:
    return [getattr(one, "record", one).text for one in found]


async def test_no_tenant_sees_another(board: Blackboard, path: str) -> None:
    """Prefixes, case, stop words, stems, separators and composed characters are all told apart."""
    memories = {name: board.memory((*path.split("/"), name)) for name in TENANTS}
    for name, memory in memories.items():
        await memory.remember(f"a secret of {name}", id="1", metadata={"user": name})
    for name, memory in memories.items():
        for found in (
            await memory.recall("secret", k=50),
            await memory.list(),
            await memory.recall("secret", k=50, below=True),
        ):
            assert texts(found) == [f"a secret of {name}"]
    await memories["user1"].forget(everything=True, below=True)
    await memories["*"].forget(where={"user": "*"})
    left = [name for name, memory in memories.items() if await memory.count()]
    assert left == [name for name in TENANTS if name not in ("user1", "*")]


async def test_an_id_belongs_to_its_path(board: Blackboard, path: str) -> None:
    """A second tenant that writes the same id overwrites nothing."""
    one, other = board.memory(f"{path}/one"), board.memory(f"{path}/other")
    await one.remember("mine", id="1")
    await other.remember("theirs", id="1")
    assert (texts(await one.list()), texts(await other.list())) == (["mine"], ["theirs"])


async def test_ids_are_not_used_again(board: Blackboard, path: str) -> None:
    """Add a, b, c; forget a; add d: d answers for itself, and forgetting it leaves c."""
    memory = board.memory(path, embedder=Marked())
    records = [await memory.remember(f"{at} {name}") for at, name in enumerate("abc")]
    await memory.forget(records[0].id)
    late = await memory.remember("7 d")
    assert len({*(record.id for record in records), late.id}) == 4
    for at, text in ((1, "1 b"), (2, "2 c"), (7, "7 d")):
        assert texts(await memory.recall(f"{at}", k=1, lexical=0.0)) == [text]
    await memory.forget(late.id)
    assert texts(await memory.recall("2", k=5, lexical=0.0)) == ["2 c", "1 b"]


async def test_adding_an_id_again_leaves_one(board: Blackboard, path: str) -> None:
    memory = board.memory(path, embedder=Marked())
    await memory.remember("1 old", id="x")
    await memory.remember("5 new", id="x")
    assert texts(await memory.recall("1", k=9, lexical=0.0)) == ["5 new"]
    assert await memory.count() == 1


async def test_two_writers_lose_nothing(backend: str, path: str) -> None:
    async with (
        await Blackboard.open(backend) as first,
        await Blackboard.open(backend) as second,
        await Blackboard.open(backend) as third,
    ):
        writers = [first.memory(path), second.memory(path)]
        await asyncio.gather(
            *(memory.remember(f"fact {at} of {who}") for who, memory in enumerate(writers) for at in range(50))
        )
        for memory in (*writers, third.memory(path)):
            assert len(await memory.recall("fact", k=200)) == 100


async def test_one_percent_pass(board: Blackboard, path: str) -> None:
    memory = board.memory(path)
    await memory.remember_all(New(f"note {at} about tea", metadata={"rare": at % 100 == 7}) for at in range(500))
    hits = await memory.recall("tea", k=5, where={"rare": True})
    assert {hit.record.metadata["rare"] for hit in hits} == {True}
    assert len(hits) == 5


async def test_duplicates_in_one_batch_are_one(board: Blackboard, path: str) -> None:
    memory = board.memory(path)
    first, second, other = await memory.remember_all(["the same", "the same", "another"])
    assert (first.id == second.id, first.duplicate, second.duplicate) == (True, False, True)
    assert await memory.count() == 2
    assert other.id != first.id


async def test_forgotten_is_not_recalled(board: Blackboard, backend: str, path: str) -> None:
    """Not here, and not by a process that has it in its index."""
    memory = board.memory(path)
    record = await memory.remember("the door code is blue")
    async with await Blackboard.open(backend) as elsewhere:
        other = elsewhere.memory(path)
        assert len(await other.recall("door code")) == 1
        await memory.forget(record.id)
        assert len(await memory.recall("door code")) == 0
        assert len(await other.recall("door code", consistency="eventual")) == 0


async def test_nothing_and_too_much_asked_for(board: Blackboard, path: str) -> None:
    memory = board.memory(path)
    assert list(await memory.recall("anything", k=10)) == []
    await memory.remember("one thing")
    assert len(await memory.recall("thing", k=1_000)) == 1


async def test_expired_is_remembered_again(board: Blackboard, path: str) -> None:
    memory = board.memory(path)
    first = await memory.remember("for a moment", ttl=0.15)
    for _ in range(300):
        if await memory.get(first.id) is None:
            break
        await asyncio.sleep(0.01)
    again = await memory.remember("for a moment")
    assert not again.duplicate
    assert texts(await memory.recall("moment")) == ["for a moment"]
    await memory.tend()
    assert texts(await memory.recall("moment")) == ["for a moment"]


class TestFiltersOfStrangers:
    """C26: no filter that somebody passes in reaches another tenant's record, in recall, list, count or forget."""

    CASES: Any = json.loads(
        """[{"user_id": "\\") or true or (\\""}, {"user_id": {"$ne": ""}}, {"user_id": {"$regex": ".*"}},
        {"v' OR 1=1 --": 1}, {"user_id": "*"}, {"user_id": "alice|bob"}, {"user_id": "alice} @user_id:{bob"},
        {"user_id": ["alice", "bob"]}, {"": "x"}, {"a.b": 1}, {"__class__": 1}, {"user_id": {"eq": {"ne": ""}}},
        {"user_id": {"in": "alice"}}, {"user_id": "ALICE"}, {"user_id": "alice "}, {"user_id": null}, {"user_id": true},
        {"all": "alice"}, {"not": []}, {"any": []}]"""
    )

    @pytest.mark.parametrize("where", CASES, ids=json.dumps)
    async def test_finds_nobody(self, board: Blackboard, path: str, where: Any) -> None:
        memory = board.memory(path)
        await memory.remember_all(
            New(f"{user} {at}", metadata={"user_id": user}) for user in ("alice", "bob") for at in range(5)
        )
        for act in (
            lambda: memory.recall("alice", where=where),
            lambda: memory.list(where),
            lambda: memory.count(where),
            lambda: memory.forget(where=where),
        ):
            try:
                found: Any = await act()
            except ConfigError:
                continue
            hits = (
                getattr(found, "count", 0)
                if hasattr(found, "salt")
                else found
                if isinstance(found, int)
                else len(found)
            )
            assert hits == 0
        assert await memory.count() == 10


class TestAnotherModel:
    """C93: vectors of another model are refused by name, nothing is deleted, and the right model goes on."""

    class Model:
        metric: Metric = "cosine"

        def __init__(self, name: str, dimension: int) -> None:
            self.name, self.dimension = name, dimension

        async def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
            return [[1.0 + hash(text) % 7, *[1.0] * (self.dimension - 1)] for text in texts]

    @pytest.mark.parametrize(("name", "dimension"), [("b", 3), ("c", 4)])
    async def test_is_refused(self, board: Blackboard, path: str, name: str, dimension: int) -> None:
        memory = board.memory(path, embedder=self.Model("a", 4))
        await memory.remember_all(f"fact {at}: the box is on shelf {at}" for at in range(20))
        other = board.memory(path, embedder=self.Model(name, dimension))
        for act in (lambda: other.remember("more"), lambda: other.recall("box")):
            with pytest.raises(EmbedderMismatch) as refused:
                await act()
            assert '"a"' in str(refused.value) or "a" in str(refused.value.stored)
            assert name in str(refused.value.offered)
        assert len(await memory.recall("box", k=30)) == 20


async def test_nearest_of_a_category(board: Blackboard, path: str) -> None:
    """C98: the four nearest are of the other category; the five asked for come in their order, and 20 of 10,020 are found."""
    memory = board.memory(path, embedder=Marked())
    await memory.remember_all(
        New(f"{at} row", id=f"id{at}", metadata={"category": "B" if at < 4 else "A"}) for at in range(10)
    )
    hits = await memory.recall("0", k=5, lexical=0.0, where={"category": "A"})
    assert [hit.record.id for hit in hits] == ["id4", "id5", "id6", "id7", "id8"]


async def test_each_finds_itself_after_one_went(board: Blackboard, backend: str, path: str) -> None:
    """C94: ids do not shift when one is forgotten, nor after a snapshot is loaded, nor when it is remembered again."""
    memory = board.memory(path, embedder=Marked())
    await memory.remember_all(New(f"{at} thing", id=str(at)) for at in range(2000, 2050))
    await memory.forget("2000")

    async def agree(who: Memory, ids: range) -> None:
        for at in ids:
            (hit,) = await who.recall(str(at), k=1, lexical=0.0)
            assert hit.record.id == str(at)

    await agree(memory, range(2001, 2050))
    await memory.snapshot()
    async with await Blackboard.open(backend) as reopened:
        await agree(reopened.memory(path, embedder=Marked()), range(2001, 2050))
    await memory.remember("2000 thing", id="2000")
    await agree(memory, range(2000, 2050))
