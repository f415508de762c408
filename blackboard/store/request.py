"""One command as it goes to the server: its bytes, the key that routes it, and what a lost reply means for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from blackboard.errors import ConfigError
from blackboard.store.protocol import Part, pack
from blackboard.store.script import Script

__all__ = ["Request", "command", "invocation"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


KEYLESS = _names(
    "ACL AUTH BGREWRITEAOF BGSAVE CLIENT CLUSTER COMMAND CONFIG DBSIZE DEBUG ECHO FLUSHALL FLUSHDB FUNCTION HELLO INFO"
    " KEYS LASTSAVE LATENCY MODULE MONITOR PING PUBLISH RANDOMKEY ROLE SAVE SCAN SCRIPT SELECT SLOWLOG TIME WAIT"
    " WAITAOF"
)
"""Commands that name no key: any primary may answer them."""

KEY_SECOND = _names("MEMORY OBJECT XGROUP XINFO BITOP")
"""Commands with a word before their key."""

ALL_KEYS = _names(
    "DEL EXISTS MGET PFCOUNT PFMERGE RENAME RENAMENX SDIFF SDIFFSTORE SINTER SINTERSTORE SUNION SUNIONSTORE TOUCH UNLINK"
)
"""Commands that take nothing but keys."""

READS = _names(
    "CLUSTER COMMAND DBSIZE ECHO EXISTS EXPIRETIME GET GETRANGE HEXISTS HGET HGETALL HKEYS HLEN HMGET HSCAN HSTRLEN"
    " HVALS INFO KEYS LASTSAVE LINDEX LLEN LPOS LRANGE MEMORY MGET OBJECT PEXPIRETIME PING PTTL RANDOMKEY ROLE SCAN"
    " SCARD SISMEMBER SMEMBERS SMISMEMBER SRANDMEMBER SSCAN STRLEN TIME TTL TYPE WAIT WAITAOF XINFO XLEN XPENDING"
    " XRANGE XREAD XREVRANGE ZCARD ZCOUNT ZLEXCOUNT ZMSCORE ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREVRANGE"
    " ZREVRANK ZSCAN ZSCORE"
)
"""Commands that change nothing: if their reply is lost, nothing is unknown."""


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
        start = next((at for at, part in enumerate(parts, 1) if _word(part) == "STREAMS"), len(parts))
        return tuple(parts[start : start + (len(parts) - start) // 2])
    if name in KEY_SECOND:
        return tuple(parts[2:3])
    return tuple(parts[1:]) if name in ALL_KEYS else tuple(parts[1:2])
