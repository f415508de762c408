"""Chunks: what is packed comes back the same, and what is not exactly what was packed is never taken for rows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blackboard.errors import CorruptValue
from blackboard.memory.chunks import LONGEST_ROWS, LONGEST_START, fingerprints, holds, pack, sealed, unpack, weight
from blackboard.memory.pointer import Pointer
from blackboard.memory.record import Record, Token
from blackboard.memory.stored import Stored

PATH = ("acme", "users", "42")
LIFE = 1_700_000_000_000_000

some = settings(max_examples=50, deadline=None)
big = st.integers(min_value=-(2**62), max_value=2**62)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
scalars = st.one_of(words, big, st.integers(), st.floats(allow_nan=False), st.booleans(), st.none())
metadata = st.dictionaries(words, scalars | st.lists(scalars, max_size=3).map(tuple), max_size=4)


@st.composite
def rows(draw: st.DrawFn) -> Stored:
    """A row as a chunk keeps it: no value, no digest of its content, no TTL."""
    vid = draw(st.none() | st.integers(1, 2**53))
    record = Record(
        PATH, draw(ids), draw(words), Token(LIFE, draw(st.integers(1, 2**53))), draw(st.integers(1, 2**31)),
        subject=draw(st.none() | ids), metadata=draw(metadata), importance=draw(st.floats(0, 1)), created=draw(big),
        updated=draw(big), valid_from=draw(big), valid_until=draw(st.none() | big), expires=draw(st.none() | big),
        superseded_by=draw(st.none() | ids), pinned=draw(st.booleans()), embedded=vid is not None,
    )  # fmt: skip
    return Stored(record, vid, draw(st.binary(min_size=0, max_size=64)) if vid else None, "", None)


lists = st.lists(rows(), max_size=4)


def plain(count: int) -> list[Stored]:
    record = [Record(PATH, f"r{number}", f"text {number}", Token(LIFE, number + 1)) for number in range(count)]
    return [Stored(one, None, None, "", None) for one in record]


@some
@given(lists)
def test_what_is_packed_comes_back(found: list[Stored]) -> None:
    chunk, data = sealed(3, found)
    assert chunk.open(data, PATH, LIFE) == found
    assert (chunk.number, chunk.rows, chunk.size) == (3, len(found), len(data))


@some
@given(rows())
def test_a_row_is_never_larger_than_it_is_taken_for(row: Stored) -> None:
    assert len(pack([row])) <= weight(row)


@some
@given(lists, st.data())
def test_a_flipped_bit_is_never_a_row(found: list[Stored], data: st.DataObject) -> None:
    chunk, packed = sealed(0, found)
    at = data.draw(st.integers(0, 8 * len(packed) - 1))
    broken = bytearray(packed)
    broken[at // 8] ^= 1 << at % 8
    with pytest.raises(CorruptValue):
        chunk.open(bytes(broken), PATH, LIFE)


@some
@given(lists, st.data())
def test_a_part_of_it_is_refused_even_without_its_digest(found: list[Stored], data: st.DataObject) -> None:
    _, packed = sealed(0, found)
    end = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(CorruptValue):
        unpack(packed[:end], PATH, LIFE)
    with pytest.raises(CorruptValue):
        unpack(packed + b"0", PATH, LIFE)


@some
@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    chunk, _ = sealed(0, plain(1))
    with pytest.raises(CorruptValue):
        chunk.open(data, PATH, LIFE)
    with pytest.raises(CorruptValue):
        unpack(data, PATH, LIFE)


def test_an_absent_chunk_is_refused() -> None:
    chunk, _ = sealed(0, plain(1))
    with pytest.raises(CorruptValue, match="chunk 0"):
        chunk.open(None, PATH, LIFE)


def test_another_version_is_refused() -> None:
    """Digest and length are right, the layout is of a later version."""
    data = bytearray(pack(plain(3)))
    data[4] += 1
    with pytest.raises(CorruptValue, match="version 2"):
        unpack(bytes(data), PATH, LIFE)


@some
@given(lists, st.lists(ids, max_size=4))
def test_its_start_says_what_it_may_hold(found: list[Stored], others: list[str]) -> None:
    packed = pack(found)
    start = packed[:LONGEST_START]
    for row in found:
        assert holds(start, fingerprints([row.record.id]))
    if holds(start, fingerprints(others)):
        assert fingerprints(others) & fingerprints(row.record.id for row in found)


def test_the_start_of_the_longest_chunk_is_enough() -> None:
    packed = pack(plain(LONGEST_ROWS))
    start = packed[:LONGEST_START]
    assert all(holds(start, fingerprints([f"r{number}"])) for number in range(LONGEST_ROWS))
    assert sum(holds(start, fingerprints([f"other{number}"])) for number in range(1000)) == 0


@pytest.mark.parametrize("start", [b"", b"bb", b"bbch\x02\x00\x00\x00\x00\x00", b"bbch\x01\x00\x05\x00\x00\x00\x00"])
def test_a_start_that_cannot_be_read_may_hold_anything(start: bytes) -> None:
    assert holds(start, fingerprints(["x"]))


@some
@given(st.lists(lists, max_size=3), st.none() | words)
def test_a_pointer_comes_back(groups: list[list[Stored]], space: str | None) -> None:
    chunks = tuple(sealed(number, found)[0] for number, found in enumerate(groups))
    pointer = Pointer("0001-ab", Token(LIFE, 7), space, chunks)
    again = Pointer.parse(pointer.text().encode())
    assert again == pointer
    assert again.text() == pointer.text()
    assert (again.rows, again.size) == (sum(map(len, groups)), sum(len(pack(found)) for found in groups))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"snapshot-2":{}}',
        b'{"snapshot-1":{}}',
        b'{"snapshot-1":[]}',
        b"\xff",
        b'{"snapshot-1":{"generation":"g","watermark":"1","space":null,"chunks":[]}}',
        b'{"snapshot-1":{"generation":"g","watermark":"1.1","space":null,"chunks":[[0,"d",1]]}}',
    ],
)
def test_another_pointer_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptValue):
        Pointer.parse(data)
