"""Frames: what a reader holds is as of one moment, whatever is appended, ended or built anew afterwards."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blackboard.memory.embedder import Space
from blackboard.memory.filters import Eq
from blackboard.memory.frame import Frame
from blackboard.memory.record import Token
from blackboard.memory.table import NEVER, Row, Table
from tests.memory.viewing import SPACE, there, vectors

MADE = vectors(400, 7)
NAMES = [f"r{number}" for number in range(8)]


@dataclass
class Model:
    """The plain truth: records by id, in order of first write."""

    rows: dict[str, Row] = field(default_factory=dict)

    def change(self, rows: list[Row], gone: list[str]) -> None:
        for name in gone:
            self.rows.pop(name, None)
        for row in rows:
            self.rows[row.id] = row

    def holds(self, frame: Frame) -> None:
        assert there(frame) == list(self.rows)
        assert len(frame) == len(self.rows)
        for name in NAMES:
            row = frame.row_of(name)
            assert (row is not None) == (name in self.rows)
            if row is not None:
                truth = self.rows[name]
                found = (frame.ids[row], int(frame.versions[row]), int(frame.vids[row]))
                assert found == (name, truth.version, truth.vid)
        mask = frame.mask(Eq("odd", value=True), now_us=0)
        assert {frame.ids[row] for row in np.flatnonzero(mask)} == {
            name for name, row in self.rows.items() if row.metadata["odd"]
        }
        self._found(frame)

    def _found(self, frame: Frame) -> None:
        query = MADE[0]
        rows, scores = frame.dense(query, frame.mask(now_us=0), 5)
        held = sorted(-float(row.vector @ query) for row in self.rows.values() if row.vector is not None)
        np.testing.assert_allclose(scores, [-score for score in held[:5]], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(frame.nearness(query, rows), scores, rtol=1e-4, atol=1e-5)
        worded = {frame.ids[row] for row in np.flatnonzero(frame.lexical(["even"])).tolist()}
        assert worded == {name for name, row in self.rows.items() if "even" in row.words}


def row_of(name: str, version: int, **more: Any) -> Row:
    vector = MADE[version] if version % 3 else None
    return Row(
        name,
        version,
        version,
        ["odd" if version % 2 else "even", name],
        vid=version if vector is not None else -1,
        vector=vector,
        metadata={"odd": bool(version % 2)},
        **more,
    )


def frame_of(*rows: Row, space: Space | None = SPACE) -> Frame:
    table = Table(space)
    table.add(rows)
    table.settle("flat")
    return Frame(table, Token(1, 1))


STEPS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(NAMES), max_size=4, unique=True),
        st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
        st.sampled_from(["", "", "build"]),
    ),
    max_size=10,
)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS)
def test_every_frame_stays_what_it_was(steps: list[tuple[list[str], list[str], str]]) -> None:
    table, model, version = Table(SPACE), Model(), 0
    table.settle("flat")
    kept: list[tuple[Frame, Model]] = []
    for written, gone, then in steps:
        rows = [row_of(name, version := version + 1) for name in written]
        table.add(rows, gone)
        model.change(rows, gone)
        kept.append((Frame(table), Model(dict(model.rows))))
        if then == "build":
            table = table.kept(table.size, table.epoch)
            table.settle("flat")
            kept.append((Frame(table), Model(dict(model.rows))))
    for frame, held in kept:
        held.holds(frame)


def test_readers_while_rows_come() -> None:
    """Threads that hold a frame search it while rows are appended and ended; nothing that they see moves."""
    table = Table(SPACE)
    table.add([row_of(f"r{number}", number + 1) for number in range(100)])
    table.settle("flat")
    held = [Frame(table)]
    wrong, stop = list[str](), threading.Event()
    checked = [threading.Semaphore(0) for _ in range(2)]

    def read(done: threading.Semaphore) -> None:
        while not stop.is_set():
            frame = held[-1]
            expected = int(np.count_nonzero(frame.vids >= 0))
            rows, _ = frame.dense(MADE[1], np.ones(frame.size, np.bool_), 10_000)
            words = int(np.count_nonzero(frame.lexical(["odd", "even"])))
            either = frame.mask(Eq("odd", value=True), now_us=0) | frame.mask(Eq("odd", value=False), now_us=0)
            if (len(rows), words, int(either.sum())) != (expected, len(frame), len(frame)):
                wrong.append(f"{frame}: {len(rows)} of {expected}, {words} and {either.sum()} of {len(frame)}")
            done.release()

    threads = [threading.Thread(target=read, args=(done,)) for done in checked]
    for thread in threads:
        thread.start()
    try:
        for number in range(300):
            table.add([row_of(f"n{number % 50}", number + 1)], [f"r{number % 100}"])
            held.append(Frame(table))
            if number % 100 == 50:
                assert all(done.acquire(timeout=60) for done in checked), "a reader stands still"
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert len(held[-1]) == 50
    assert len(held[0]) == 100


def test_neighbours() -> None:
    frame = frame_of(
        *(
            Row(f"r{n}", 1, n, ["w"], metadata={"session": session} if session else {})
            for n, session in enumerate("abaabb")
        ),
        Row("alone", 1, 9, ["w"]),
    )
    assert frame.before(4, 10) == [0, 1, 2, 3]
    assert frame.before(4, 2) == [2, 3]
    assert frame.before(5, 10, "session") == [1, 4]
    assert frame.before(3, 1, "session") == [2]
    assert frame.before(0, 3, "session") == []
    assert frame.before(6, 3, "session") == [], "no session, no neighbours"
    assert frame.before(6, 1) == [5]
    frame._table.add([], ["r2"])
    assert Frame(frame._table).before(3, 2, "session") == [0]
    assert frame.before(3, 1, "session") == [2]


def test_times() -> None:
    frame = frame_of(
        Row("always", 1, 1, []),
        Row("old", 1, 2, [], valid_from=10, valid_until=20),
        Row("new", 1, 3, [], valid_from=20),
        Row("short", 1, 4, [], expires=30),
    )

    def chosen(now: int, **more: Any) -> list[str]:
        return [frame.ids[row] for row in np.flatnonzero(frame.mask(now_us=now, **more)).tolist()]

    assert chosen(9) == ["always", "short"]
    assert chosen(10) == ["always", "old", "short"]
    assert chosen(20) == ["always", "new", "short"]
    assert chosen(30) == ["always", "new"]
    assert chosen(30, as_of=15) == ["always", "old"], "what has expired is gone, whatever is asked"
    assert chosen(25, superseded=True) == ["always", "old", "new", "short"]
    later = Frame(frame._table, clock=20)
    assert later.mask(now_us=0).tolist() == chosen_mask(frame, 20)


def chosen_mask(frame: Frame, now: int) -> list[bool]:
    found: list[bool] = frame.mask(now_us=now).tolist()
    return found


@pytest.mark.parametrize("space", [None, SPACE])
def test_without_vectors(space: Space | None) -> None:
    frame = frame_of(Row("a", 1, 1, ["x"]), space=space)
    mask = frame.mask(now_us=0)
    assert frame.dense(MADE[0], mask, 3)[0].tolist() == []
    assert frame.nearness(MADE[0], np.array([0])).tolist() == [-np.inf]
    assert frame.vectors(np.array([0])).any() == np.False_
    assert frame.vectors_alive == 0


def test_vectors_by_row() -> None:
    frame = frame_of(
        Row("a", 1, 1, [], vid=1, vector=MADE[1]), Row("b", 1, 2, []), Row("c", 1, 3, [], vid=3, vector=MADE[3])
    )
    found = frame.vectors(np.array([2, 1, 0]))
    np.testing.assert_array_equal(found, np.stack([MADE[3], 0 * MADE[0], MADE[1]]))
    assert frame.dense(MADE[1], np.array([False, True, True]), 5)[0].tolist() == [2], "only what the mask holds"


def test_nothing_of_what_ended_is_left_after_a_build() -> None:
    table = Table(SPACE)
    table.add([row_of("secret-id", 1), row_of("b", 2)])
    table.settle("flat")
    table.add([], ["secret-id"])
    fresh = table.kept(table.size, table.epoch)
    fresh.settle("flat")
    assert fresh.vectors is not None
    assert (fresh.ids, fresh._newest, fresh.vectors.count) == (["b"], {"b": 0}, 1)
    assert "secret-id" not in fresh.lexicon._numbers
    assert Frame(fresh).alive.tolist() == [True]
    assert fresh.numbers("expires", 1)[0] == NEVER
