"""One command as it goes to the server: its bytes, the key that routes it, and what a lost reply means for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import hiredis

from blackboard.errors import ConfigError
from blackboard.store.script import Script

__all__ = ["Part", "Request", "command", "invocation", "pack"]

Part: TypeAlias = bytes | str | int

KEYLESS = frozenset(
    "ACL AUTH BGREWRITEAOF BGSAVE CLIENT CLUSTER COMMAND CONFIG DBSIZE DEBUG ECHO FLUSHALL FLUSHDB FUNCTION HELLO INFO"
    " KEYS LASTSAVE LATENCY MODULE MONITOR PING PUBLISH RANDOMKEY ROLE SAVE SCAN SCRIPT SELECT SLOWLOG TIME WAIT"
    " WAITAOF".split()
)
"""Commands that name no key: any primary may answer them."""

KEY_SECOND = frozenset("MEMORY OBJECT XGROUP XINFO BITOP".split())
"""Commands with a word before their key."""

READS = frozenset(
    "CLUSTER COMMAND DBSIZE ECHO EXISTS EXPIRETIME GET GETRANGE HEXISTS HGET HGETALL HKEYS HLEN HMGET HSCAN HSTRLEN"
    " HVALS INFO KEYS LASTSAVE LINDEX LLEN LPOS LRANGE MEMORY MGET OBJECT PEXPIRETIME PING PTTL RANDOMKEY ROLE SCAN"
    " SCARD SISMEMBER SMEMBERS SMISMEMBER SRANDMEMBER SSCAN STRLEN TIME TTL TYPE WAIT WAITAOF XINFO XLEN XPENDING"
    " XRANGE XREAD XREVRANGE ZCARD ZCOUNT ZLEXCOUNT ZMSCORE ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREVRANGE"
    " ZREVRANK ZSCAN ZSCORE".split()
)
"""Commands that change nothing: if their reply is lost, nothing is unknown."""

_pack = cast("Callable[[tuple[Part, ...]], bytes]", hiredis.pack_command)


def pack(parts: tuple[Part, ...]) -> bytes:
    """Spell a command in the protocol. ConfigError if a part is not bytes, str or int (of 64 bits)."""
    try:
        return _pack(parts)
    except (TypeError, UnicodeEncodeError) as wrong:
        kinds = ", ".join(type(part).__name__ for part in parts)
        raise ConfigError(
            f"{parts[:1]!r} takes bytes, valid text and 64-bit integers, got ({kinds}): {wrong}", value=parts[:1]
        ) from None


class Request:
    """A command and what the retries need to know about it."""

    __slots__ = ("idempotent", "keys", "name", "packed", "read_only", "with_source")

    def __init__(
        self,
        name: str,
        packed: bytes,
        keys: Sequence[Part],
        *,
        read_only: bool,
        idempotent: bool = True,
        with_source: Callable[[], bytes] | None = None,
    ) -> None:
        self.name = name
        self.packed = packed
        self.keys = keys
        self.read_only = read_only
        self.idempotent = idempotent
        self.with_source = with_source
        """Gives the bytes of the same call with the script's text, for a server that does not have it."""

    @property
    def key(self) -> Part | None:
        """The key by which a cluster routes the command; None: any primary."""
        return self.keys[0] if self.keys else None


def invocation(script: Script, keys: Sequence[str], args: Sequence[Part]) -> Request:
    """Call a script by digest."""
    tail = (len(keys), *keys, *args)
    return Request(
        script.name,
        pack(("EVALSHA", script.sha, *tail)),
        keys,
        read_only=script.read_only,
        with_source=lambda: pack(("EVAL", script.source, *tail)),
    )


def command(parts: tuple[Part, ...], *, idempotent: bool = True) -> Request:
    """A plain command; its key is found by its place."""
    if not parts:
        raise ConfigError("a command needs a name", value=parts)
    name = _word(parts[0])
    return Request(name, pack(parts), _keys(name, parts), read_only=name in READS, idempotent=idempotent)


def _word(part: Part) -> str:
    return (part.decode("ascii", "replace") if isinstance(part, bytes) else str(part)).upper()


def _keys(name: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    if name in KEYLESS or len(parts) < 2:
        return ()
    if name in ("EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL"):
        return tuple(parts[3 : 3 + int(parts[2])])
    if name in ("XREAD", "XREADGROUP"):
        words = [_word(part) for part in parts]
        start = words.index("STREAMS") + 1
        return tuple(parts[start : start + (len(parts) - start) // 2])
    if name in KEY_SECOND:
        return tuple(parts[2:3])
    return tuple(parts[1:2])
