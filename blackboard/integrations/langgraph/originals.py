"""Lists of messages that several checkpoints share, decoded once: each checkpoint is given messages of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blackboard.checkpoints.channels import Ref
from blackboard.checkpoints.reading import Content
from blackboard.integrations.langgraph.imprint import Original, are_messages
from blackboard.integrations.langgraph.spelling import Spelling

__all__ = ["Originals"]


class Originals:
    """Reads the values of some checkpoints of one lineage, the longest lists first; none of what it returns is shared."""

    def __init__(self, spelling: Spelling) -> None:
        self._spelling = spelling
        self._read: dict[str, tuple[Sequence[bytes], list[Original | None]]] = {}

    def value(self, name: str, ref: Ref, content: Content) -> Any:
        """Read the value of a channel."""
        if isinstance(content, bytes) or ref.kind != "log" or not content:
            return self._spelling.value(ref, content)
        items, originals = self._read.get(name, ((), []))
        if items[: len(content)] != content:
            found = self._spelling.value(ref, content)
            if not are_messages(found):
                return found
            items, originals = content, [Original.of(one) for one in found]
            self._read[name] = items, originals
        pairs = zip(content, originals, strict=False)
        return [self._alone(ref, item) if one is None else one.copy() for item, one in pairs]

    def _alone(self, ref: Ref, item: bytes) -> Any:
        """Read what cannot be copied."""
        return self._spelling.value(ref, [item])[0]
