"""What of the lists that a saver stored it remembers, to tell what is new in them the next time."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from blackboard.integrations.langgraph.imprint import Imprint, Imprints

__all__ = ["Kept", "Shelf", "short"]

MOST_BYTES = 64 << 20
"""Bytes of items that are remembered as they are; of lists beyond them, those unused for longest, digests are kept."""

Split = Callable[[bytes, int, int], Sequence[bytes]]
"""Cuts so many items out of bytes, the first of which begins at a place."""


def short(data: bytes) -> bytes:
    """Name bytes by their content: BLAKE2b of 128 bits."""
    return hashlib.blake2b(data, digest_size=16).digest()


class Kept:
    """The items of a stored list as they are spelled, and what they held then; a checkpoint refers to a prefix.

    Pressed, it holds digests of the items and no longer what they held.
    """

    __slots__ = ("imprints", "items", "pressed", "size")

    def __init__(self, items: Iterable[bytes] = ()) -> None:
        self.items = list(items)
        self.imprints = Imprints()
        self.size = sum(map(len, self.items))
        self.pressed = False

    def matches(self, at: int, data: bytes) -> bool:
        """Tell whether an item is spelled like this."""
        return self.items[at] == (short(data) if self.pressed else data)

    def shared(self, split: Split, spelled: tuple[bytes, int, int], known: int) -> tuple[int, Sequence[bytes]]:
        """Tell with how many of its first `known` items a spelled list begins, and cut off those that follow.

        The list is given as its bytes, where in them its items begin, and how many there are.
        """
        data, start, count = spelled
        if not self.pressed and known <= count:
            body = b"".join(self.items[:known])
            if data.startswith(body, start):
                return known, split(data, start + len(body), count - known)
        items = split(data, start, count)
        same = 0
        while same < min(known, count) and self.matches(same, items[same]):
            same += 1
        return same, items[same:]

    def grown(self, count: int, new: Sequence[bytes], imprints: Sequence[Imprint | None] = ()) -> Kept:
        """Put items behind the first `count`: behind its own if there are no more, else those of a new one."""
        kept = self
        if count < len(self.items):
            kept = Kept(self.items[:count])
            kept.imprints = self.imprints.first(count)
            kept.pressed = self.pressed
        kept.items += [short(one) for one in new] if kept.pressed else new
        for at, imprint in enumerate(imprints, count):
            kept.imprints[at] = imprint
        kept.size += sum(map(len, new))
        return kept

    def press(self) -> None:
        """Keep digests alone."""
        if not self.pressed:
            self.items = [short(item) for item in self.items]
            self.imprints, self.pressed = Imprints(), True
            self.size = sum(map(len, self.items))


class Shelf:
    """The lists of one saver in the order of their use; presses those unused for longest when they are too large."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._sizes: OrderedDict[Kept, int] = OrderedDict()
        self.total = 0
        """Bytes of the items that are remembered as they are."""

    def use(self, kept: Kept) -> None:
        """Note that a list was stored or read just now."""
        if kept.pressed:
            return
        self.total += kept.size - self._sizes.pop(kept, 0)
        self._sizes[kept] = kept.size
        while self.total > self._most:
            oldest, size = self._sizes.popitem(last=False)
            self.total -= size
            oldest.press()
