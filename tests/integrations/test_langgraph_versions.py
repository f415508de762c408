from typing import Any

import pytest

from blackboard.errors import ConfigError

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from blackboard.integrations.langgraph import BlackboardSerializer
from blackboard.integrations.langgraph.versions import following, named, numbered

VERSIONS: dict[str, Any] = {"messages": 7, "branch:to:chat": "00000007.5", "0": 1.5}


@pytest.mark.parametrize(
    ("seen", "updated"),
    [
        ({}, None),
        ({"__input__": {}, "chat": {"branch:to:chat": "00000006.1"}}, []),
        ({"chat": {"gone": 3, "0": 1.5}}, ["messages", "0", "gone"]),
    ],
)
def test_versions_read_as_they_were(seen: Any, updated: Any) -> None:
    """Also of channels that the checkpoint no longer has, and in their order."""
    serde = BlackboardSerializer()
    versions, nodes, changed = named(serde.loads_typed(serde.dumps_typed(numbered(VERSIONS, seen, updated))))
    assert list(versions.items()) == list(VERSIONS.items())
    assert [(node, list(channels.items())) for node, channels in nodes.items()] == [
        (node, list(channels.items())) for node, channels in seen.items()
    ]
    assert changed == updated


def test_each_name_is_spelled_once() -> None:
    seen = {"chat": VERSIONS, "tool": VERSIONS}
    text = repr(numbered(VERSIONS, seen, list(VERSIONS)))
    assert text.count("messages") == 1
    assert text.count("branch:to:chat") == 1


@pytest.mark.parametrize(
    ("version", "after"),
    [
        (None, 1),
        (1, 2),
        (1.5, 2),
        (2**70, 2**70 + 1),
        ("5", "6"),
        ("0009.25", "0010.00"),
        (f"{9:032}.5", f"{10:032}.0"),
    ],
)
def test_a_version_follows_its_kind(version: Any, after: Any) -> None:
    assert following(version) == after


@pytest.mark.parametrize("version", ["", "abc", ".5", float("nan"), float("inf"), [1]])
def test_what_is_no_version_is_named(version: Any) -> None:
    with pytest.raises(ConfigError, match="version"):
        following(version)
