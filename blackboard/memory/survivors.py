"""Looking for survivors: whether anything of what a receipt names is still stored, and where copies may lie beyond reach."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from blackboard import keys
from blackboard.errors import BlackboardError, CorruptValue
from blackboard.memory.chunks import unpack
from blackboard.memory.receipt import Receipt
from blackboard.store.client import Primary, Store

__all__ = ["Survivors", "look"]

PAGE = 1000
"""Keys, or members of a key, that are looked at in one round trip."""

SCANS = {"pending": "SSCAN", "subjects": "HSCAN", "contents": "HSCAN"}
"""The command that goes over the ids of a key, where that is no sorted set."""


@dataclass(frozen=True, slots=True)
class Survivors:
    """What a search for the forgotten has found. `found` names keys that still hold some of it; it is empty if all is gone.

    `again` are ids of records that were remembered by somebody since, and say the same as something forgotten or are under
    the id of it. `limits` says what could not be looked at: files and copies that the server keeps, and what the path's log
    says (ids alone). `keys` is how many keys were looked at.
    """

    found: tuple[str, ...]
    again: tuple[str, ...]
    limits: tuple[str, ...]
    keys: int

    @property
    def gone(self) -> bool:
        """Whether nothing was found."""
        return not self.found


async def look(store: Store, receipt: Receipt, held: Sequence[str] = ()) -> Survivors:
    """Look through every key of the receipt's paths, and at the ids that this process holds in its view."""
    found: list[str] = []
    again: list[str] = []
    looked = 0
    for one in receipt:
        search = Search(store, one)
        async for primary, key in search.every_key():
            looked += 1
            await search.through(primary, key)
        if one is receipt:
            found += [f"the view of this process: {name}" for name in held if await search.survives(name)]
        found += search.found
        again += search.again
    return Survivors(tuple(found), tuple(again), await _limits(store), looked)


class Search:
    """One search through the keys of one path."""

    def __init__(self, store: Store, receipt: Receipt) -> None:
        self._store, self._receipt = store, receipt
        path = keys.path_text(receipt.path)
        self._keys = keys.PathKeys.of(receipt.namespace, path)
        self._start = self._keys.prefix + ":"
        self.found: list[str] = []
        self.again: list[str] = []

    async def survives(self, name: str, key: str = "") -> bool:
        """Tell whether an id is of something forgotten, and not of a record that was written under it since.

        Every write of what was forgotten has a seq before that of its removal. `key` is one that such a record is entered in.
        """
        if not self._receipt.names(name):
            return False
        seq, subject = await self._store.command("HMGET", self._keys.record(name), "seq", "subject")
        if seq is None or self._receipt.last is None or int(seq) <= self._receipt.last:
            return True
        kind = key.removeprefix(self._start).partition(":")[0]
        return kind == "subject" and (subject is None or self._keys.subject(subject.decode()) != key)

    async def every_key(self) -> AsyncIterator[tuple[Primary, str]]:
        """Yield every key of the path; nothing in its spelling is a pattern."""
        for primary in await self._store.primaries():
            cursor, seen = b"0", set[bytes]()
            while True:
                cursor, names = await primary.command("SCAN", cursor, "MATCH", f"{self._start}*", "COUNT", PAGE)
                for name in set(names) - seen:
                    yield primary, name.decode()
                seen |= set(names)
                if int(cursor) == 0:
                    break

    async def through(self, primary: Primary, key: str) -> None:
        """Look through one key."""
        kind, _, rest = key.removeprefix(self._start).partition(":")
        match kind:
            case "record":
                content = await primary.command("HGET", key, "content")
                await self._judge(key, keys.decode(rest), content.decode() if content else "")
            case "content":
                name = await primary.command("GET", key)
                if name is not None and await self.survives(name.decode()):
                    self.found.append(key)
            case "order" | "expiring" | "sources" | "same" | "contents" | "subject" | "subjects" | "pending":
                await self._members(primary, SCANS.get(kind, "ZSCAN"), key)
            case "vectors":
                await self._elements(primary, key)
            case "forgetting":
                if await primary.command("HLEN", key):
                    self.found.append(key)
            case "chunk":
                await self._chunk(primary, key)
            case _:
                pass

    async def _judge(self, key: str, id: str, content: str) -> None:
        if await self.survives(id):
            self.found.append(key)
        elif self._receipt.names(id) or (content and self._receipt.says(content)):
            self.again.append(id)

    async def _members(self, primary: Primary, scan: str, key: str) -> None:
        cursor = b"0"
        while True:
            cursor, members = await primary.command(scan, key, cursor, "COUNT", PAGE)
            ids: list[bytes] = members if scan == "SSCAN" else members[::2]
            if await self._any(ids, key):
                self.found.append(key)
                return
            if int(cursor) == 0:
                return

    async def _any(self, ids: Sequence[bytes], key: str) -> bool:
        for one in ids:
            if await self.survives(one.decode(), key):
                return True
        return False

    async def _elements(self, primary: Primary, key: str) -> None:
        ids = await primary.command("VRANDMEMBER", key, max(1, await primary.command("VCARD", key)))
        if await self._any(ids, key):
            self.found.append(key)

    async def _chunk(self, primary: Primary, key: str) -> None:
        data = await primary.command("GET", key)
        if data is None:
            return
        try:
            rows = await asyncio.to_thread(unpack, data, self._receipt.path, self._receipt.incarnation)
        except CorruptValue:
            self.found.append(f"{key} (unreadable, so it may)")
            return
        last = self._receipt.last
        if any(self._receipt.names(row.record.id) and (last is None or row.record.token.seq <= last) for row in rows):
            self.found.append(key)


async def _limits(store: Store) -> tuple[str, ...]:
    """Say what the server may still hold where no command reaches."""
    told = ["the log of the path names ids of what was forgotten, and nothing of what it said, until it is trimmed"]
    for primary in await store.primaries():
        try:
            info = _parsed(await primary.command("INFO", "persistence")) | _parsed(
                await primary.command("INFO", "replication")
            )
        except BlackboardError as refused:
            told.append(f"{primary.name}: INFO is refused ({refused}), so files and replicas are unknown")
            continue
        if info.get("aof_enabled") == "1":
            told.append(f"{primary.name}: the append-only file holds it until BGREWRITEAOF has rewritten the file")
        if info.get("rdb_last_save_time", "0") != "0":
            told.append(f"{primary.name}: an RDB file may hold it until the next BGSAVE")
        if int(info.get("connected_slaves", "0")):
            told.append(f"{primary.name}: replicas apply it as they catch up; their files hold it as the primary's do")
    told.append("backups, and copies that others have made, are not known to the server")
    return tuple(told)


def _parsed(info: Any) -> dict[str, str]:
    lines = (line.partition(":") for line in bytes(info).decode("utf-8", "replace").splitlines())
    return {name: value.strip() for name, colon, value in lines if colon}
