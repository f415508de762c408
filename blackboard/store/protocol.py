"""The Redis protocol in bytes: hiredis, with types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, cast

import hiredis

from blackboard.errors import ConfigError

__all__ = ["INCOMPLETE", "ErrorReply", "Part", "ProtocolBroken", "Reader", "pack", "reader"]

Part: TypeAlias = bytes | str | int
"""What a command is made of; text is sent as UTF-8, an int in decimal."""

INCOMPLETE = object()
"""What a reader gives while a reply is not complete."""

ProtocolBroken = cast("type[Exception]", hiredis.ProtocolError)


class ErrorReply(Exception):
    """The server answered a command with an error."""


class Reader(Protocol):
    """Bytes in, replies out."""

    def feed(self, data: bytes, /) -> None:
        """Take what was received."""
        ...

    def gets(self) -> Any:
        """The next reply: bytes, int, list, None, ErrorReply; or INCOMPLETE. ProtocolBroken if it is none."""
        ...


def reader() -> Reader:
    """A reader of one connection."""
    return cast("Reader", hiredis.Reader(replyError=ErrorReply, notEnoughData=INCOMPLETE))


_pack = cast("Callable[[tuple[Part, ...]], bytes]", getattr(hiredis, "pack_command"))  # noqa: B009 - its stub is wrong


def pack(parts: tuple[Part, ...]) -> bytes:
    """Spell a command. ConfigError if a part is not bytes, valid text or an int."""
    try:
        return _pack(parts)
    except (TypeError, UnicodeEncodeError) as wrong:
        kinds = ", ".join(type(part).__name__ for part in parts)
        raise ConfigError(
            f"{parts[:1]!r} takes bytes, valid text and int, got ({kinds}): {wrong}", value=parts[:1]
        ) from None
