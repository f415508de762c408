from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blackboard.claims.outcome import downstream_key
from blackboard.claims.record import OpenEffect, SettledEffect, pack, unpack
from blackboard.errors import ConfigError, CorruptValue


@given(st.lists(st.binary()))
def test_frames_round_trip(items: list[bytes]) -> None:
    assert unpack(pack(*items)) == items


@given(st.lists(st.binary(), min_size=1), st.data())
def test_fewer_items_are_a_prefix_of_the_bytes(items: list[bytes], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(items)))
    assert pack(*items).startswith(pack(*items[:count]))


@pytest.mark.parametrize("damaged", [b"x", b"3:ab", b":", b"-1:a", b"1:ab", b"1a:b", b"2"])
def test_damaged_frames_are_told(damaged: bytes) -> None:
    with pytest.raises(CorruptValue):
        unpack(damaged)


def test_a_record_with_a_frame_too_few_is_told() -> None:
    with pytest.raises(CorruptValue, match="mail"):
        OpenEffect.parse(b"mail", pack(1, "owner"))
    with pytest.raises(CorruptValue, match="mail"):
        SettledEffect.parse(b"mail", pack("", 1, "done"))


ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80)


@given(st.tuples(ids, ids, ids, ids), st.tuples(ids, ids, ids, ids))
def test_different_ids_never_share_a_downstream_key(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert (downstream_key(*one) == downstream_key(*other)) == (one == other)


@given(st.tuples(ids, ids, ids, ids))
def test_a_downstream_key_is_short_and_plain(parts: tuple[str, ...]) -> None:
    key = downstream_key(*parts)
    assert len(key) <= 200
    assert key.isascii()
    assert not any(character.isspace() for character in key)


def test_a_downstream_key_names_its_ids() -> None:
    assert downstream_key("checkpoint", "review 42", "17", "mail/1") == "checkpoint:review%2042:17:mail%2F1"


def test_long_ids_that_differ_at_the_end_differ() -> None:
    assert downstream_key("n", "t" * 500 + "1", "1", "k") != downstream_key("n", "t" * 500 + "2", "1", "k")


def test_an_empty_id_is_refused() -> None:
    with pytest.raises(ConfigError):
        downstream_key("n", "", "1", "k")
