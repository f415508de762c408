"""Fields to channels: lists and dicts cost what is new, and any edits come back exactly."""

from __future__ import annotations

import copy
import uuid
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from blackboard.checkpoints.channels import Items, Value
from blackboard.checkpoints.log import Log
from blackboard.checkpoints.state import StateChannels
from tests.checkpoints.shelf import Driver, Keyed, Level, Note, State, items, long, same

# --- lists ---------------------------------------------------------------------------------------------------------


def test_a_list_costs_what_is_new() -> None:
    driver, state = Driver(State), State()
    for number in range(1000):
        state.words.append(long(number))
        driver.commit(state)
    content = sum(len(word) for word in state.words)
    assert content < driver.shelf.written <= 1.05 * content
    assert driver.load()[1].words == state.words


def test_a_loaded_list_costs_what_is_new() -> None:
    driver, state = Driver(State), State(words=[long(number) for number in range(20)])
    driver.commit(state)
    driver, state = driver.load()
    assert items(driver.commit(state)["words"]).new == []
    state.words.append("more")
    assert items(driver.commit(state)["words"]).new == [b'"more"']


def test_a_change_inside_a_list_keeps_the_items_before_it() -> None:
    driver, state = Driver(State), State(notes=[Note(text=long(number)) for number in range(10)])
    driver.commit(state)
    state.notes.append(Note(text=long(10)))
    driver.commit(state)
    state.notes[7].marks.append(1)
    channel = items(driver.commit(state)["notes"])
    assert (channel.base, len(channel.new)) == ((("s0", 7),), 4)
    assert same(driver.load()[1], state)


def test_a_cut_keeps_exact_prefixes_of_segments() -> None:
    driver, state = Driver(State), State(words=[long(number) for number in range(6)])
    driver.commit(state)
    state.words[4:] = [long(44), long(55)]
    driver.commit(state)
    assert driver.refs["words"].segments == (("s0", 4), ("s1", 2))
    del state.words[5:]
    assert items(driver.commit(state)["words"]).base == (("s0", 4), ("s1", 1))
    del state.words[3:]
    assert items(driver.commit(state)["words"]).base == (("s0", 3),)
    assert driver.load()[1].words == state.words


def test_a_small_list_or_dict_is_a_value_and_changes_its_kind_as_it_grows() -> None:
    driver, state = Driver(State), State(words=["a"], scores={"a": 1})
    channels = driver.commit(state)
    assert (channels["words"], channels["scores"]) == (Value(b'["a"]'), Value(b'{"a":1}'))
    state.words += map(long, range(9))
    state.scores |= {long(number): number for number in range(9)}
    channels = driver.commit(state)
    assert [items(channels[name]).kind for name in ("words", "scores")] == ["log", "map"]
    assert same(driver.load()[1], state)
    del state.words[1:]
    state.scores = {"b": 2}
    channels = driver.commit(state)
    assert (channels["words"], channels["scores"]) == (Value(b'["a"]'), Value(b'{"b":2}'))
    assert same(driver.load()[1], state)


# --- dicts ---------------------------------------------------------------------------------------------------------


def test_a_dict_costs_what_changed() -> None:
    driver, state = Driver(State), State(scores={f"key {number}": [long(number)] for number in range(50)})
    driver.commit(state)
    state.scores["key 7"].append("in place")
    del state.scores["key 8"]
    state.scores["new"] = 1
    new = items(driver.commit(state)["scores"]).new
    assert new[0] == b'["key 8"]' and new[2] == b'["new",1]' and b"in place" in new[1] and len(new) == 3
    driver, loaded = driver.load()
    assert same(loaded, state)
    assert items(driver.commit(loaded)["scores"]).new == []


def test_a_key_that_was_deleted_and_set_again_comes_last() -> None:
    driver, state = Driver(State), State(scores={f"key {number}": long(number) for number in range(20)})
    driver.commit(state)
    state.scores["key 3"] = state.scores.pop("key 3")
    assert len(items(driver.commit(state)["scores"]).new) == 2
    assert list(driver.load()[1].scores)[-1] == "key 3"
    assert same(driver.load()[1], state)


def test_a_map_is_compacted_when_it_has_doubled() -> None:
    driver, state = Driver(State), State(scores={f"key {number}": long(number) for number in range(10)})
    driver.commit(state)
    counts = []
    for step in range(60):
        state.scores["key 5"] = f"step {step}"
        driver.commit(state)
        counts.append(driver.refs["scores"].count)
        assert same(driver.load()[1], state)
    assert counts[:18] == list(range(11, 29)) and counts[18] == 10 and max(counts) == 28


def test_keys_that_are_no_str_keep_their_types() -> None:
    keys = [1, "1", 2.5, None, b"1", uuid.UUID(int=1), date(2026, 1, 2), Decimal("1.50"), Level.LOW]
    driver, state = Driver(Keyed), Keyed(table={key: long(place) for place, key in enumerate(keys)})
    assert isinstance(driver.commit(state)["table"], Items)
    state.table.pop(1)
    state.table[True] = "another type, equal to the key before"
    driver.commit(state)
    assert same(driver.load()[1], state)


@pytest.mark.parametrize("key", [(1, "a"), float("nan"), frozenset({1})], ids=repr)
def test_a_dict_with_a_key_that_is_no_scalar_or_not_itself_is_a_value(key: Any) -> None:
    driver, state = Driver(Keyed), Keyed(table={"a": long(1), key: long(2), float("nan"): long(3)})
    assert isinstance(driver.commit(state)["table"], Value)
    assert repr(driver.load()[1]) == repr(state)


# --- any edit ------------------------------------------------------------------------------------------------------

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.text("ab", max_size=60), st.floats(allow_nan=False)
)
values = st.one_of(
    scalars, st.lists(scalars, max_size=3), st.tuples(scalars, scalars), st.dictionaries(st.text("ab"), scalars)
)
keys = st.one_of(
    st.text("abc", max_size=2), st.integers(0, 3), st.booleans(), st.sampled_from([0.0, -0.0, 1.0, 2.5, None])
)


class Anything(BaseModel):
    items: list[Any] = []
    table: dict[Any, Any] = {}
    log: Log[int | str | tuple[str, ...]] = Log()


def _again(state: Anything, place: int, key: Any, value: Any) -> None:
    if key in state.table:
        state.table[key] = state.table.pop(key)


def _append(state: Anything, place: int, key: Any, value: Any) -> None:
    state.items.append(value)
    state.table[key] = value


def _clear(state: Anything, place: int, key: Any, value: Any) -> None:
    state.items.clear()
    state.table.clear()


def _delete(state: Anything, place: int, key: Any, value: Any) -> None:
    del state.items[place : place + 2]
    state.table.pop(key, None)


def _insert(state: Anything, place: int, key: Any, value: Any) -> None:
    state.items.insert(place, value)
    state.table = {key: value, **state.table}


def _log(state: Anything, place: int, key: Any, value: Any) -> None:
    state.log.extend([place, str(value), (str(key),)])


def _mutate(state: Anything, place: int, key: Any, value: Any) -> None:
    for held in [*state.items[place : place + 1], *state.table.values()]:
        if isinstance(held, list):
            held.append(1)


def _reorder(state: Anything, place: int, key: Any, value: Any) -> None:
    state.items.reverse()
    names = list(state.table)
    state.table = {name: state.table[name] for name in names[place % 3 :] + names[: place % 3]}


def _replace(state: Anything, place: int, key: Any, value: Any) -> None:
    state.items = [value] * place
    state.table = {key: value}


def _set(state: Anything, place: int, key: Any, value: Any) -> None:
    state.items[place : place + 1] = [value]
    state.table.update(dict.fromkeys(list(state.table)[:1], value))


EDITS = (_again, _append, _clear, _delete, _insert, _log, _mutate, _reorder, _replace, _set)
edits = st.tuples(st.sampled_from(EDITS), st.integers(0, 9), keys, values)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(edits, max_size=6), max_size=8), st.sampled_from([0, 8, 128]))
def test_any_edits_come_back_exactly(steps: list[list[Any]], inline_limit: int) -> None:
    driver, state = Driver(Anything), Anything()
    driver.channels = StateChannels(Anything, inline_limit=inline_limit)
    for number, step in enumerate(steps):
        before = copy.deepcopy(state)
        for edit, place, key, value in step:
            edit(state, min(place, len(state.items)), key, copy.deepcopy(value))
        if number:
            assert driver.channels.changed(state) == (repr_of(before) != repr_of(state))
        if number % 3 == 1:
            driver.channels.draft(state)  # a commit that failed
        driver.commit(state)
        other, loaded = driver.load()
        assert repr_of(loaded) == repr_of(state)
        if number % 2:
            driver, state = other, loaded


def repr_of(state: Anything) -> str:
    return repr((state.items, list(state.table.items()), list(state.log)))
