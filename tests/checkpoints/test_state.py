"""State to channels and back: exact, in bytes of what is new, whatever is done to the state."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, PrivateAttr, RootModel, computed_field, field_validator

from blackboard.checkpoints.channels import Keep, Ref
from blackboard.checkpoints.log import Log
from blackboard.checkpoints.state import StateChannels
from blackboard.codec import encode
from blackboard.errors import ConfigError, CorruptValue, EncodeError
from tests.checkpoints.shelf import Driver, Keyed, Message, Note, State, items, long, same

# --- logs ----------------------------------------------------------------------------------------------------------


def test_a_commit_of_k_new_items_encodes_k_items(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(value: Any, *, path: str) -> bytes:
        calls.append(path)
        return encode(value, path=path)

    monkeypatch.setattr("blackboard.checkpoints.log.encode", counted)
    driver, state = Driver(State), State()
    state.messages.extend(Message(text=long(number)) for number in range(100))
    assert len(calls) == 100
    driver.commit(state)
    driver, state = driver.load()
    calls.clear()
    state.messages.extend([Message(text="a"), Message(text="b")])
    draft = driver.channels.draft(state)
    assert len(items(draft.channels["messages"]).new) == 2
    assert calls == ["state.messages[100]", "state.messages[101]"]
    assert len(items(draft.channels["messages"]).whole()) == 102


def test_a_commit_that_failed_is_sent_again_and_what_came_meanwhile_is_not_lost() -> None:
    driver, state = Driver(State), State()
    state.messages.append(Message(text="a"))
    driver.channels.draft(state)
    assert driver.channels.changed(state)
    draft = driver.channels.draft(state)
    state.messages.append(Message(text="in flight"))
    state.words.append("in flight")
    assert (
        list(items(draft.channels["messages"]).new)
        == list(items(draft.channels["messages"]).whole())
        == [items(driver.channels.draft(state).channels["messages"]).new[0]]
    )
    refs = {name: driver.shelf.put(channel) for name, channel in draft.channels.items()}
    driver.channels.acknowledge(draft, refs)
    assert driver.channels.changed(state)
    assert len(items(driver.commit(state)["messages"]).new) == 1
    assert same(list(driver.load()[1].messages), [Message(text="a"), Message(text="in flight")])
    assert driver.load()[1].words == ["in flight"]


def test_what_comes_while_the_first_commit_of_a_loaded_log_is_in_flight_is_not_lost() -> None:
    driver, state = Driver(State), State(messages=Log([Message(text="a"), Message(text="b")]))
    driver.commit(state)
    driver, state = driver.load()
    state.messages.append(Message(text="c"))
    draft = driver.channels.draft(state)
    state.messages.append(Message(text="in flight"))
    driver.refs = {name: driver.shelf.put(channel) for name, channel in draft.channels.items()}
    driver.channels.acknowledge(draft, driver.refs)
    assert len(items(driver.commit(state)["messages"]).new) == 1
    assert [message.text for message in driver.load()[1].messages] == ["a", "b", "c", "in flight"]


class Reversed(BaseModel):
    messages: Log[Message] = Log()

    @field_validator("messages")
    @classmethod
    def turn(cls, messages: Log[Message]) -> Log[Message]:
        return Log(messages[::-1])


def test_a_log_that_a_validator_made_at_load_is_stored_whole() -> None:
    driver, state = Driver(State), State(messages=Log([Message(text="a"), Message(text="b")]))
    driver.commit(state)
    driver, state = driver.load(Reversed)
    channel = items(driver.commit(state)["messages"])
    assert (channel.base, len(channel.new)) == ((), 2)
    driver.refs = {"messages": driver.refs["messages"]}
    assert [message.text for message in driver.load(Old)[1].messages] == ["b", "a"]


@pytest.mark.parametrize("other", [Log(), Log([Message(text="a")]), [Message(text="a")], None], ids=repr)
def test_a_replaced_log_is_refused(other: Any) -> None:
    driver, state = Driver(State), State()
    state.messages.append(Message(text="a"))
    driver.commit(state)
    state.messages = other
    assert driver.channels.changed(state)
    with pytest.raises(EncodeError, match=r"state\.messages was replaced") as refused:
        driver.channels.draft(state)
    assert refused.value.path == "state.messages"


def test_a_log_of_another_run_or_field_is_refused() -> None:
    class Two(BaseModel):
        left: Log[Message] = Log()
        right: Log[Message] = Log()

    driver, state = Driver(State), State()
    driver.commit(state)
    with pytest.raises(EncodeError, match="belongs to another run"):
        Driver(State).commit(State(messages=state.messages))
    log = Log([Message(text="a")])
    with pytest.raises(EncodeError, match=r"state\.right is a Log that belongs to another run or field"):
        Driver(Two).commit(Two(left=log, right=log))


def test_a_loaded_log_of_a_stale_state_is_refused() -> None:
    driver, state = Driver(State), State(messages=Log([Message(text="a")]))
    driver.commit(state)
    driver.channels.load(driver.refs, driver.shelf.contents(driver.refs))
    with pytest.raises(EncodeError, match="replaced"):
        driver.channels.draft(state)


class Frozen(BaseModel, frozen=True):
    messages: Log[Message] = Log()
    title: str = ""


def test_a_frozen_state_is_replaced_around_the_same_log() -> None:
    driver, state = Driver(Frozen), Frozen(messages=Log([Message(text="a")]))
    driver.commit(state)
    state = state.model_copy(update={"title": "new"})
    assert driver.channels.changed(state)
    driver.commit(state)
    state = Frozen(messages=state.messages, title="newer")
    state.messages.append(Message(text="b"))
    driver.commit(state)
    assert same(driver.load()[1], state) and list(driver.load()[1].messages) == list(state.messages)


def test_items_that_nobody_checked_are_checked_at_the_commit() -> None:
    class Made(BaseModel):
        messages: Log[Message] = Field(default_factory=Log)

    state = Made()
    state.messages.append("no message")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Message"):
        Driver(Made).commit(state)


# --- the whole state ---------------------------------------------------------------------------------------------------


class Rich(BaseModel):
    model_config = {"validate_by_alias": True}

    at: datetime
    sizes: set[int]
    pair: tuple[int, Decimal]
    note: Note
    kind: Literal["a", "b"] = Field(alias="the-kind")
    odd: dict[str, Note | None] = {}
    _cache: int = PrivateAttr(default=0)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> int:
        return sum(self.sizes)


def rich() -> Rich:
    value = {
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "sizes": {3, 1},
        "pair": (1, Decimal("0.10")),
        "note": Note(marks=[1]),
    }
    return Rich.model_validate({**value, "the-kind": "a"})


def test_every_other_field_is_a_value_and_private_and_computed_ones_are_not_stored() -> None:
    driver, state = Driver(Rich), rich()
    state._cache = 5
    channels = driver.commit(state)
    assert list(channels) == ["at", "sizes", "pair", "note", "kind", "odd"]
    loaded = driver.load()[1]
    assert same(loaded.model_dump(), state.model_dump())
    assert (loaded._cache, type(loaded.pair[1])) == (0, Decimal)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.note.marks.append(2),
        lambda state: state.sizes.add(9),
        lambda state: state.odd.update(a=None),
        lambda state: setattr(state, "pair", (1, Decimal("0.1"))),
    ],
)
def test_changes_in_place_are_seen(change: Callable[[Rich], None]) -> None:
    driver, state = Driver(Rich), rich()
    assert driver.channels.changed(state)
    driver.commit(state)
    driver, state = driver.load()
    change(state)
    assert driver.channels.changed(state)
    driver.commit(state)
    assert same(driver.load()[1].model_dump(), state.model_dump())


def test_reordering_a_dict_is_a_change() -> None:
    driver, state = Driver(Keyed), Keyed(table={key: long(1) for key in "abc"})
    driver.commit(state)
    state.table = {key: long(1) for key in "acb"}
    assert driver.channels.changed(state)
    assert state.table == driver.load()[1].table and list(state.table) != list(driver.load()[1].table)


class Old(BaseModel):
    messages: Log[Message] = Log()
    gone: list[str] = []
    small: int = 0
    title: str = ""


class New(BaseModel):
    messages: list[Message] = []
    title: str = ""
    added: dict[str, int] = {"a": 1}


def test_another_version_of_the_model_loses_nothing() -> None:
    driver = Driver(Old)
    old = Old(messages=Log([Message(text="a")]), gone=list(map(long, range(5))), small=7, title="t")
    driver.commit(old)
    driver, new = driver.load(New)
    assert same(new, New(messages=[Message(text="a")], title="t"))
    new.messages += [Message(text=long(number)) for number in range(3)]
    channels = driver.commit(new)
    assert isinstance(channels["gone"], Keep) and isinstance(channels["small"], Keep)
    assert driver.refs["messages"].segments[0] == ("s0", 4)
    driver, again = driver.load(Old)
    assert (again.gone, again.small, list(again.messages)) == (old.gone, 7, new.messages)
    again.messages.append(Message(text="last"))
    channels = driver.commit(again)
    assert len(items(channels["messages"]).new) == 1
    assert isinstance(channels["added"], Keep)
    assert same(driver.load(New)[1].messages, list(again.messages))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (type("Loose", (BaseModel,), {"__annotations__": {"title": int}}), "title"),
        (type("More", (BaseModel,), {"__annotations__": {"required": int}}), "required"),
        (type("Items", (BaseModel,), {"__annotations__": {"messages": Log[int]}}), "messages"),
    ],
)
def test_a_state_that_does_not_fit_names_the_field_and_stays(model: type[BaseModel], name: str) -> None:
    driver, state = Driver(State), State(messages=Log([Message(text="a")]), title="t")
    driver.commit(state)
    before = copy.deepcopy(driver.shelf)
    with pytest.raises(ConfigError, match=f"{model.__name__}: {name}") as refused:
        driver.load(model)
    assert refused.value.fields[0].split(".")[0] == name
    assert driver.shelf == before and same(driver.load()[1], state)


def test_aliases_do_not_matter_to_what_is_stored() -> None:
    class Named(BaseModel):
        value: int = Field(alias="worth")
        model_: int = Field(default=1, validation_alias="x")

    driver = Driver(Named)
    driver.commit(Named.model_validate({"worth": 5, "x": 6}))
    assert set(driver.refs) == {"value", "model_"}
    assert same(driver.load()[1].model_dump(), {"value": 5, "model_": 6})


class Open(BaseModel, extra="allow"):
    fixed: int = 0


def test_extra_fields_are_stored_where_the_model_allows_them() -> None:
    driver, state = Driver(Open), Open.model_validate({"fixed": 1, "more": list(map(long, range(9)))})
    driver.commit(state)
    driver, loaded = driver.load()
    assert same(loaded, state)
    del loaded.more
    assert set(driver.commit(loaded)) == {"fixed"}
    assert same(driver.load()[1], Open(fixed=1))


class Upper(BaseModel):
    names: list[str] = []

    @field_validator("names")
    @classmethod
    def loud(cls, names: list[str]) -> list[str]:
        return [name.upper() for name in names]


def test_what_a_validator_changes_at_load_is_stored_by_the_next_commit() -> None:
    driver = Driver(type("Plain", (BaseModel,), {"__annotations__": {"names": list[str]}}))
    driver.commit(driver.model(names=["A" * 99, "b" * 99]))
    driver, state = driver.load(Upper)
    assert state.names == ["A" * 99, "B" * 99]
    channel = items(driver.commit(state)["names"])
    assert (channel.base, len(channel.new)) == ((("s0", 1),), 1)
    assert driver.load()[1].names == state.names


@pytest.mark.parametrize(
    ("state", "path"),
    [
        (lambda: Keyed(table={"a": [1, {"b": object()}]}), "state.table.a[1].b"),
        (lambda: Open.model_validate({"more": [0, object()]}), "state.more[1]"),
        (lambda: Open.model_validate({"more": object()}), "state.more"),
        (lambda: Open.model_validate({"more": Log([1])}), "state.more"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_its_path(state: Callable[[], BaseModel], path: str) -> None:
    value = state()
    driver = Driver(type(value))
    with pytest.raises(EncodeError) as refused:
        driver.commit(value)
    assert refused.value.path == path and driver.shelf.written == 0
    assert driver.channels.changed(value)


class Root(RootModel[list[int]]):
    pass


class Inside(BaseModel):
    maybe: Log[int] | None = None


@dataclass
class Plain:
    value: int = 0


@pytest.mark.parametrize("model", [Root, Plain, dict, BaseModel, 5, Inside], ids=repr)
def test_what_is_no_state_is_refused(model: Any) -> None:
    with pytest.raises(ConfigError):
        StateChannels(model)


@pytest.mark.parametrize("value", [Rich.model_construct(), {"title": "a"}, None, type("Sub", (State,), {})()], ids=type)
def test_a_state_of_another_class_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="State"):
        StateChannels(State).draft(value)


@pytest.mark.parametrize(
    ("kind", "item"), [("log", b"1,2"), ("map", b"1"), ("map", b"[]"), ("map", b'["unknown"]'), ("log", b"{")]
)
def test_items_that_nobody_wrote_are_corrupt(kind: Any, item: bytes) -> None:
    refs = {"table": Ref(kind, segments=(("s0", 1),))}
    with pytest.raises(CorruptValue):
        StateChannels(Keyed).load(refs, {"table": [item]})
