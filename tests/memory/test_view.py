"""A view holds what its path holds, whatever happened meanwhile, and says so when it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from blackboard.errors import ServerUnavailable, StoreRegressed
from blackboard.memory import view as viewing
from blackboard.memory.embedder import Space, pack
from blackboard.memory.filters import Eq
from blackboard.memory.record import Token
from blackboard.memory.records import Tail
from blackboard.memory.snapshot import Loaded, Progress
from blackboard.memory.stored import Stored, tag
from blackboard.memory.words import words
from blackboard.store.client import Store
from blackboard.testing.proxy import FaultProxy
from blackboard.testing.servers import Server
from tests.memory.viewing import SPACE, body, fill, nearest, records_of, there, vectors, view_of

FAR = 2**62
"""A time by which everything that is valid has begun."""


async def test_a_path_that_nobody_wrote_to(store: Store) -> None:
    view = view_of(records_of(store))
    frame = await view.refresh()
    assert (frame.token, len(frame), there(frame)) == (None, 0, [])
    assert nearest(frame, vectors(1)[0]) == []
    assert frame.lexical(words("text")).tolist() == []


async def test_what_is_written_is_seen(store: Store) -> None:
    records = records_of(store)
    view = view_of(records)
    made = await fill(records, 5)
    frame = await view.refresh()
    assert there(frame) == ["0", "1", "2", "3", "4"]
    assert [nearest(frame, vector) for vector in made] == [["0"], ["1"], ["2"], ["3"], ["4"]]
    assert np.flatnonzero(frame.lexical(words("text"))).tolist() == [0, 1, 2, 3, 4]
    assert frame.token == records.known


async def test_an_older_frame_stays_what_it_was(store: Store) -> None:
    records = records_of(store)
    view = view_of(records)
    made = await fill(records, 4)
    before = await view.refresh()
    await records.put(body("1", -made[1], "changed entirely"))
    await records.forget(["2"])
    await fill(records, 3, start=10, seed=5)
    after = await view.refresh()
    assert there(after) == ["0", "1", "3", "10", "11", "12"], "a record that changes keeps its place"
    assert there(before) == ["0", "1", "2", "3"]
    assert nearest(before, made[2]) == ["2"]
    assert nearest(after, -made[1]) == ["1"]
    assert before.row_of("1") != after.row_of("1")
    assert (before.row_of("2"), after.row_of("2"), before.row_of("10")) == (2, None, None)
    assert not before.lexical(words("changed")).any()
    assert after.lexical(words("changed")).nonzero()[0].tolist() == [after.row_of("1")]


async def test_a_frame_is_kept_while_nothing_is_new(store: Store) -> None:
    records = records_of(store)
    view = view_of(records)
    made = await fill(records, 2)
    frame = await view.refresh()
    assert await view.refresh() is frame
    await records.put(body("1", made[0]))
    assert await view.refresh() is not frame


async def test_a_vector_that_comes_later(store: Store) -> None:
    records = records_of(store)
    view = view_of(records)
    made = vectors(2)
    written = await records.put(body("a"))
    await records.put(body("b", made[1]))
    frame = await view.refresh()
    assert nearest(frame, made[0], k=5) == ["b"]
    row = frame.row_of("a")
    assert row is not None
    assert (frame.vids[row], frame.nearness(made[0], np.array([row])).tolist()) == (-1, [-np.inf])
    coming = body("a", made[0])
    assert coming.vector is not None
    assert await records.set_vector("a", written.version, coming.vector, coming.space)
    frame = await view.refresh()
    assert nearest(frame, made[0]) == ["a"]
    assert there(frame) == ["a", "b"]


async def test_forgotten_and_remembered_again_in_one_stretch(store: Store) -> None:
    records = records_of(store)
    view = view_of(records)
    await fill(records, 3)
    await view.refresh()
    await records.forget(["0", "1"])
    await records.put(body("0"))
    frame = await view.refresh()
    assert there(frame) == ["2", "0"]


async def test_read_ahead_of_the_log(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record is read as it is now, forgotten and remembered again; then the log tells of that."""
    records = records_of(store)
    view = view_of(records)
    await fill(records, 1)
    tail, fetch, again = records.tail, records.fetch, True

    async def late(ids: Sequence[str], *, vectors: bool = False, space: str | None = None) -> list[Stored | None]:
        nonlocal again
        if again:
            again = False
            await records.forget(["0"])
            await records.put(body("0", text="anew"))
        return await fetch(ids, vectors=vectors, space=space)

    monkeypatch.setattr(records, "fetch", late)
    first = await view.refresh()
    assert first.token is not None
    assert (there(first), int(first.seqs[-1])) == (["0"], first.token.seq + 2)
    second = await view.refresh()
    assert (there(second), int(second.seqs[-1])) == (["0"], first.token.seq + 2)
    assert second.lexical(words("anew")).nonzero()[0].tolist() == [second.row_of("0")]
    assert (await tail(0)).token == second.token


async def test_ids_find_themselves_after_some_are_forgotten(store: Store) -> None:
    """Case C94: nothing shifts when a record goes; also after a rebuild, and after adding again."""
    records = records_of(store)
    view = view_of(records)
    made = await fill(records, 50, start=2000)
    names = [str(number) for number in range(2000, 2050)]

    def found() -> list[str]:
        return [hit for vector in made for hit in nearest(view.frame, vector)]

    await view.refresh()
    assert found() == names
    await records.forget(["2000"])
    await view.refresh()
    assert found()[1:] == names[1:]
    assert found()[0] != "2000"
    await view.rebuild()
    assert found()[1:] == names[1:]
    await records.put(body("2000", made[0]))
    await view.refresh()
    assert found() == names
    await view.rebuild()
    assert found() == names
    assert len(set(view.frame.vids[view.frame.alive].tolist())) == 50


async def test_a_subject_supersedes(store: Store) -> None:
    records = records_of(store)
    view = view_of(records)
    for number in range(3):
        await records.put(body(str(number), subject="home", valid_from=1000 + number))
    await records.put(body("3", subject="work"))
    frame = await view.refresh()

    def chosen(**more: Any) -> list[str]:
        return [frame.ids[row] for row in np.flatnonzero(frame.mask(now_us=0, **more)).tolist()]

    assert sorted(chosen()) == ["2", "3"]
    assert sorted(chosen(superseded=True)) == ["0", "1", "2", "3"]
    assert chosen(as_of=1001) == ["1"]
    assert chosen(as_of=999) == []
    assert chosen(subject="home") == ["2"]
    assert chosen(subject="work") == ["3"]
    assert chosen(subject="Home") == []


async def test_what_begins_in_the_future_and_what_ends(store: Store) -> None:
    records = records_of(store)
    view = view_of(records)
    now = store.server_time()
    await records.put(body("later", valid_from=now + 10**9))
    await records.put(body("short", ttl=100_000))
    await records.put(body("always"))
    frame = await view.refresh()

    def chosen(at: int) -> set[str]:
        return {frame.ids[row] for row in np.flatnonzero(frame.mask(now_us=at)).tolist()}

    assert chosen(0) == {"short", "always"}, "a clock that is behind takes nothing for the future"
    assert chosen(now + 2 * 10**8) == {"always"}
    assert chosen(now + 2 * 10**9) == {"later", "always"}


async def test_metadata(store: Store) -> None:
    records = records_of(store)
    view = view_of(records)
    for number in range(4):
        await records.put(body(str(number), metadata={"n": number, "tags": ("x", number)}))
    frame = await view.refresh()
    assert frame.mask(Eq("tags", 2), now_us=FAR).tolist() == [False, False, True, False]
    await view.rebuild()
    assert view.frame.mask(Eq("n", 3), now_us=FAR).tolist() == [False, False, False, True]


async def test_round_trips(solo: Server) -> None:
    """One if nothing is new, two if something is; those who ask at the same time share them."""
    async with await FaultProxy.start(solo.url) as proxy:
        store = await Store.connect(proxy.url)
        records = records_of(store)
        view = view_of(records)
        await fill(records, 3)
        await view.refresh()
        proxy.reset()
        await view.refresh()
        assert proxy.round_trips == 1
        await asyncio.gather(*(view.refresh() for _ in range(20)))
        assert proxy.round_trips == 2
        await fill(records, 3, start=3)
        proxy.reset()
        await asyncio.gather(*(view.refresh() for _ in range(20)))
        assert proxy.round_trips == 2
        await view.close()
        await store.close()


async def test_who_comes_during_a_refresh_waits_for_the_next(store: Store) -> None:
    records = records_of(store)
    view = view_of(records)
    await fill(records, 1)
    begun, go = asyncio.Event(), asyncio.Event()
    tail = records.tail

    async def slow(after: int | Token, limit: int = 5000) -> Tail:
        answer = await tail(after, limit)
        begun.set()
        await go.wait()
        return answer

    records.tail = slow  # type: ignore[method-assign]
    first = asyncio.create_task(view.refresh())
    await begun.wait()
    await fill(records, 1, start=1)
    later = [asyncio.create_task(view.refresh()) for _ in range(3)]
    await asyncio.sleep(0)
    go.set()
    assert there(await first) == ["0"]
    frames = await asyncio.gather(*later)
    assert [there(frame) for frame in frames] == [["0", "1"]] * 3
    assert len({id(frame) for frame in frames}) == 1


async def test_a_cancelled_caller_disturbs_nobody(store: Store) -> None:
    records = records_of(store)
    view = view_of(records)
    await fill(records, 2)
    one, other = asyncio.create_task(view.refresh()), asyncio.create_task(view.refresh())
    await asyncio.sleep(0)
    one.cancel()
    assert there(await other) == ["0", "1"]
    assert one.cancelled()


async def test_tokens(store: Store) -> None:
    records = records_of(store)
    view = view_of(records)
    with pytest.raises(StoreRegressed, match="the store has nothing"):
        await view.refresh(at_least=Token(1, 1))
    await fill(records, 2)
    token = records.known
    assert token is not None
    assert (await view.refresh(at_least=token)).token == token
    with pytest.raises(StoreRegressed, match="lost what it had acknowledged"):
        await view.refresh(at_least=replace(token, seq=token.seq + 1))
    with pytest.raises(StoreRegressed):
        await view.refresh(at_least=replace(token, incarnation=token.incarnation - 1))


async def test_a_store_that_lost_the_path(store: Store) -> None:
    records = records_of(store)
    view = view_of(records)
    await fill(records, 2)
    await view.refresh()
    await store.command("DEL", records.keys.head)
    with pytest.raises(StoreRegressed):
        await view.refresh()


async def test_a_store_whose_path_begins_anew(store: Store) -> None:
    """Noticed by the view also where the one who reads knows no better."""
    records = records_of(store)
    view = view_of(records)
    await fill(records, 2)
    await view.refresh()
    await store.command("HSET", records.keys.head, "incarnation", "7")
    records.known = None
    with pytest.raises(StoreRegressed, match="its incarnation is not what it was"):
        await view.refresh()


@pytest.mark.parametrize("known", [0, 3])
async def test_a_gap_means_reading_everything(store: Store, known: int) -> None:
    records = records_of(store)
    view = view_of(records)
    await fill(records, known)
    if known:
        await view.refresh()
    made = await fill(records, 10, start=known, seed=9)
    await records.forget(["0"])
    await store.command("XTRIM", records.keys.log, "MAXLEN", 2)
    told: list[tuple[int, int]] = []
    view._progress = lambda done, total: told.append((done, total))
    frame = await view.refresh()
    assert there(frame) == [str(number) for number in range(1, known + 10)]
    assert told[-1][0] == known + 9
    assert nearest(frame, made[5]) == [str(known + 5)]
    await fill(records, 1, start=100)
    assert there(await view.refresh())[-1] == "100"


async def test_a_loader_that_is_given(store: Store) -> None:
    """What it gives is taken, and the log replayed from its token; a loader that ends early too often is given up."""
    records = records_of(store)
    await fill(records, 4)
    first = records.known
    assert first is not None
    rows = [stored for page in [page async for page in records.walk()] for stored in page]
    await fill(records, 2, start=4)
    spaces: list[str | None] = []

    async def loader(space: str | None, progress: Progress | None) -> Loaded:
        spaces.append(space)
        return Loaded(first, rows, "snapshot")

    view = view_of(records, loader=loader)
    await store.command("XDEL", records.keys.log, "1-0")
    assert there(await view.refresh()) == ["0", "1", "2", "3", "4", "5"]
    assert spaces == [SPACE.text()]
    await store.command("XTRIM", records.keys.log, "MAXLEN", 1)
    again = view_of(records, loader=loader)
    with pytest.raises(ServerUnavailable, match="faster than it can be read"):
        await again.refresh()
    assert len(spaces) == 1 + viewing.LOADS


async def test_a_long_log_is_not_replayed_the_first_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    records = records_of(store)
    await fill(records, 30)
    tail, limits = records.tail, list[int]()

    async def short(after: int | Token, limit: int = 5000) -> Tail:
        limits.append(limit)
        return await tail(after, 10)

    monkeypatch.setattr(records, "tail", short)
    view = view_of(records)
    assert there(await view.refresh()) == [str(number) for number in range(30)]
    assert len(limits) == 2
    await fill(records, 25, start=30)
    assert len(await view.refresh()) == 55
    assert len(limits) == 5


async def test_spaces(store: Store) -> None:
    """Vectors of another space are not compared with; where the space of a path is replaced, everything is read anew."""
    records = records_of(store)
    other = Space("another", 16)
    mine, theirs, any_ = view_of(records), view_of(records, other), view_of(records, None)
    made = await fill(records, 3)
    frames = [await view.refresh() for view in (mine, theirs, any_)]
    assert [frame.vectors_alive for frame in frames] == [3, 0, 3]
    assert [frame.stored_space for frame in frames] == [SPACE.text()] * 3
    assert [frame.space for frame in frames] == [SPACE, None, SPACE]
    assert [nearest(frame, made[1]) for frame in frames] == [["1"], [], ["1"]]
    assert there(frames[1]) == ["0", "1", "2"]
    for name, vector in zip(("0", "1", "2"), pack(vectors(3, 7, other), other), strict=True):
        beside = ("next", vector, "next_of", tag(other.text()), "next_vid", 4)
        await store.command("HSET", records.keys.record(name), *beside)
    await store.command("HSET", records.keys.head, "space", other.text())
    frames = [await view.refresh() for view in (mine, theirs, any_)]
    assert [frame.vectors_alive for frame in frames] == [0, 3, 3]
    assert frames[2].space == other


async def test_a_vector_that_is_not_what_was_written(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    records = records_of(store)
    made = await fill(records, 2)
    await store.command("HSET", records.keys.record("1"), "vector", b"short")
    frame = await view_of(records).refresh()
    assert nearest(frame, made[1], k=3) == ["0"]
    assert frame.lexical(words("text")).all()
    assert "record '1' is found by its words alone" in caplog.text
