"""Whole frames out of a stream of RESP bytes."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["Frames"]

_BULK = b"$!="
_AGGREGATE = {ord("*"): (1, 0), ord("~"): (1, 0), ord(">"): (1, 0), ord("%"): (2, 0), ord("|"): (2, 1)}
"""Elements per announced item, and elements that follow besides: an attribute stands before the reply it describes."""


class Frames:
    """Split a stream of RESP 2 or 3 into whole frames, byte for byte; every byte is looked at once.

    A frame is a command (an array, or an inline line) or a whole reply with all that is nested in it. Streamed RESP 3
    types, which no server sends, are not known.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._missing = 1

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes, and yield every frame that is now whole."""
        self._buffer += data
        while (end := self._element()) >= 0:
            self._scanned = end
            if not self._missing:
                frame = bytes(self._buffer[:end])
                del self._buffer[:end]
                self._scanned, self._missing = 0, 1
                yield frame

    def _element(self) -> int:
        """Return where the next element ends and count what it announces, or -1 if it is not whole yet."""
        line = self._buffer.find(b"\r\n", self._scanned)
        if line < 0:
            return -1
        kind, end = self._buffer[self._scanned], line + 2
        if kind in _BULK:
            size = int(self._buffer[self._scanned + 1 : line])
            end += size + 2 if size >= 0 else 0
            if len(self._buffer) < end:
                return -1
        self._missing -= 1
        if kind in _AGGREGATE:
            each, besides = _AGGREGATE[kind]
            self._missing += each * max(0, int(self._buffer[self._scanned + 1 : line])) + besides
        return end
