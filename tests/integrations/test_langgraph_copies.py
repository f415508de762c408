"""Copies of messages: equal to what was taken over, in any number, and sharing nothing that can change."""

from typing import Any

import pytest

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from blackboard.integrations.langgraph.copies import Copies
from tests.integrations.chats import exact, rich, spoil


def mixed() -> list[Any]:
    """Messages as they were read, among them one that cannot be copied, and one that was given some of its fields."""
    serde = JsonPlusSerializer()
    spelled = serde.dumps_typed([*rich(), AIMessage("plain"), HumanMessage("plain")])
    read = serde.loads_typed(spelled)
    other = ToolMessage("t", tool_call_id="1", artifact=(1, 2))
    return [*read[:2], other, "text", *read[2:], AIMessage("some", id="s"), *serde.loads_typed(spelled)]


def taken(messages: list[Any]) -> Copies:
    """Take them over in two portions."""
    copies = Copies()
    copies.extend(messages[:3])
    copies.extend(messages[3:])
    return copies


def test_any_number_of_copies_is_as_what_was_taken() -> None:
    expected, copies, asked = mixed(), taken(mixed()), list[int]()

    def other(at: int) -> Any:
        asked.append(at)
        return expected[at]

    assert len(copies) == len(expected)
    for count in range(len(expected) + 1):
        made = copies.first(count, other)
        assert exact(made) == exact(expected[:count])
        assert [getattr(one, "model_fields_set", None) for one in made] == [
            getattr(one, "model_fields_set", None) for one in expected[:count]
        ]
    assert set(asked) == {2, 3}


def test_who_changes_a_copy_changes_no_other() -> None:
    messages = mixed()
    del messages[2:4]
    expected, copies = exact(messages), taken(messages)
    first, second = (copies.first(len(messages), messages.__getitem__) for _ in range(2))
    held = [id(one) for made in (messages, first, second) for message in made for one in containers(message)]
    assert len(held) == len(set(held))
    spoil([one for one in first if one.__pydantic_extra__ is not None])
    assert exact(second) == expected == exact(copies.first(len(messages), messages.__getitem__))


def test_a_field_that_is_set_is_given_in_that_copy_alone() -> None:
    copies = taken([AIMessage("some", id="s")])
    first, second = (copies.first(1, lambda at: at)[0] for _ in range(2))
    first.name = "named"
    assert [("name" in one.model_fields_set) for one in (first, second, *copies.first(1, lambda at: at))] == [
        True, False, False,
    ]  # fmt: skip


def containers(message: Any) -> list[Any]:
    """List what of a message can change in place."""
    found, left = list[Any](), [message.__dict__, message.__pydantic_extra__]
    while left:
        one = left.pop()
        if isinstance(one, dict | list):
            found.append(one)
            left += one.values() if isinstance(one, dict) else one
    return found
