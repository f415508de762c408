"""Lists of messages that are read several times, decoded once: each reader is given messages of its own."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from blackboard.checkpoints.channels import Ref
from blackboard.checkpoints.reading import Content
from blackboard.integrations.langgraph.copies import Copies
from blackboard.integrations.langgraph.imprint import are_messages
from blackboard.integrations.langgraph.place import Place
from blackboard.integrations.langgraph.spelling import Spelling

__all__ = ["Lately", "Originals"]

MOST_BYTES = 16 << 20
"""Bytes of items, as they are stored, of which the messages are kept; these take about three times as much memory."""

MOST_LINEAGES = 256
"""Lineages of which it is known that they were read before."""


class Originals:
    """Reads the values of some checkpoints of one lineage; none of what it returns is shared.

    What the store returned decides: a message is copied only if the bytes that were read are those that it was decoded from.
    Best is to read the longest lists first, or each after those that it goes on from. Lists of more than `most` bytes are
    decoded each time.
    """

    def __init__(self, spelling: Spelling, most: float = math.inf) -> None:
        self._spelling, self._most = spelling, most
        self._read: dict[str, tuple[Sequence[bytes], Copies]] = {}
        self._sizes: dict[str, int] = {}

    @property
    def size(self) -> int:
        """Bytes of the items of which the messages are kept."""
        return sum(self._sizes.values())

    def value(self, name: str, ref: Ref, content: Content) -> Any:
        """Read the value of a channel."""
        if isinstance(content, bytes) or ref.kind != "log" or not content:
            return self._spelling.value(ref, content)
        items, copies = self._read.get(name, ((), Copies()))
        same = min(len(items), len(content))
        if items[:same] != content[:same]:
            same, copies = 0, Copies()
        if same < len(content):
            if (size := sum(map(len, content))) > self._most:
                return self._spelling.value(ref, content)
            found = self._spelling.value(ref, content[same:])
            if not same and not are_messages(found):
                return found
            copies.extend(found)
            self._read[name], self._sizes[name] = (content, copies), size
        return copies.first(len(content), lambda at: self._spelling.value(ref, [content[at]])[0])


class Lately:
    """The originals of the lineages that are read again and again; those unused for longest are given up.

    A lineage that is read for the first time is only noted: most are read once by a process, and originals cost a third of what
    decoding does.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._read: OrderedDict[tuple[int, str, str], Originals | None] = OrderedDict()

    def of(self, spelling: Spelling, place: Place) -> Originals | None:
        """Give what was decoded of a lineage with this serializer, and will be; None the first time."""
        key = id(spelling.serde), place.thread, place.lineage
        again, originals = key in self._read, self._read.pop(key, None)
        self._read[key] = originals or (Originals(spelling, self._most) if again else None)
        while len(self._read) > MOST_LINEAGES or self._size() > self._most:
            self._read.popitem(last=False)
        return self._read.get(key)

    def _size(self) -> int:
        return sum(one.size for one in self._read.values() if one is not None)
