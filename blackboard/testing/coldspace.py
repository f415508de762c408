"""A walk over all keys of memory and artifacts: each has an owner, and ends by itself unless it is on the permanent list."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from blackboard import keys
from blackboard.artifacts.head import Head
from blackboard.memory.pointer import Pointer
from blackboard.store.client import Store
from blackboard.testing.contracts.thread import all_keys

__all__ = ["Coldspace"]

PERMANENT = {
    "head", "log", "order", "expiring", "subjects", "sources", "contents", "pending", "vectors", "subject", "index", "chunks", "migration",
    "forgetting", "receipts",
}  # fmt: skip
"""What may stand at a path for ever. Records and chunks are judged one by one."""

FLEETING = {"lock", "ops"}
"""What has to end by itself."""


@dataclass(frozen=True, slots=True)
class Coldspace:
    """The keys that outlive the runs, on a server that others may use as well: those of one namespace, and all artifacts."""

    store: Store
    namespace: str

    async def walk(self) -> int:
        """Look at every key of the namespace's paths; returns how many there are. Writers have to be at rest.

        Each path that was written is listed. A record stands in the order of its path and is kept as long as it says; what
        names a record by its content ends with it; a subject holds records about it alone, and rows that a sweep will find;
        of chunks those that the pointer names stay, and all others end by themselves.
        """
        start = f"bb:{keys.encode(self.namespace)}:memory:"
        by_path: defaultdict[str, set[str]] = defaultdict(set)
        walked = await all_keys(self.store, start)
        listed = set[str]()
        for key in walked:
            path, _, name = key.removeprefix(start).removeprefix("{").partition("}:")
            if name == "children":
                listed |= {row.decode() for row in await self.store.command("ZRANGE", key, 0, -1)}
            elif key != keys.tops(self.namespace):
                by_path[path].add(name)
        assert by_path.keys() <= listed, f"written and not listed: {by_path.keys() - listed}"
        for path, names in by_path.items():
            await self._path(keys.PathKeys.of(self.namespace, path), names)
        return len(walked)

    async def artifacts(self) -> int:
        """Look at every key of every artifact; returns how many there are. What no head names ends by itself."""
        start, by_digest, walked = "bb:artifact:{", defaultdict[str, set[str]](set), 0
        for key in await all_keys(self.store, start):
            by_digest[key.removeprefix(start).partition("}")[0]].add(key)
            walked += 1
        for digest, found in by_digest.items():
            where = keys.ArtifactKeys(digest)
            head = Head.of(digest, await self.store.command("HGETALL", where.head))
            kept = set[str]() if head is None else {where.head, where.refs, *head.chunks}
            lives = await self._lives(found)
            lasting = {key for key, life in lives.items() if life == -1}
            assert lasting <= kept, f"nobody's, and without an end: {lasting - kept}"
            if head is not None:
                assert {where.head, *head.chunks} <= lasting, f"ends although it is stored: {digest}"
                row = await self.store.command("ZSCORE", where.shard, digest)
                assert row is not None, f"artifact {digest} is not listed"
        return walked

    async def _path(self, where: keys.PathKeys, names: set[str]) -> None:
        lives = await self._lives({f"{where.prefix}:{name}" for name in names})
        order = {row.decode() for row in await self.store.command("ZRANGE", where.order, 0, -1)}
        pointer = await self.store.command("GET", where.index)
        chunks = set(Pointer.parse(pointer).names()) if pointer else set[str]()
        for name in sorted(names, reverse=True):  # records before what names them
            key = f"{where.prefix}:{name}"
            kind, _, rest = name.partition(":")
            match kind:
                case "record":
                    await self._record(where, keys.decode(rest), order, lives[key])
                case "content":
                    await self._content(where, rest, lives[key])
                case "same":
                    await self._same(where, rest, lives[key])
                case "subject":
                    await self._subject(where, keys.decode(rest), lives[key])
                case "subjects":
                    await self._subjects(where)
                case "chunk":
                    assert (lives[key] == -1) == (rest in chunks), f"{key} ends in {lives[key]} ms"
                case _:
                    assert kind in PERMANENT | FLEETING, f"nobody's: {key}"
                    assert lives[key] > 0 or kind in PERMANENT, f"without an end: {key}"

    async def _record(self, where: keys.PathKeys, id: str, order: set[str], life: int) -> None:
        (expires, subject), swept = await self.store.batch(
            [("HMGET", where.record(id), "expires", "subject"), ("HGET", where.subjects, id)]
        )
        assert expires is None or swept == subject, f"no sweep of {where.prefix} will find the row of {id!r}"
        assert id in order, f"record {id!r} of {where.prefix} is in no order"
        assert (life == -1) == (expires is None), (
            f"record {id!r} of {where.prefix} ends in {life} ms, and says {expires!r}"
        )

    async def _content(self, where: keys.PathKeys, digest: str, life: int) -> None:
        owner = await self.store.command("GET", where.content(digest))
        found, ends = await self.store.batch(
            [("HGET", where.record(owner.decode()), "content"), ("PTTL", where.record(owner.decode()))]
        )
        assert found == digest.encode(), f"content {digest} of {where.prefix} is no record's"
        assert (life == -1) == (ends == -1), f"content {digest} of {where.prefix} does not end with its record"

    async def _same(self, where: keys.PathKeys, digest: str, life: int) -> None:
        assert life == -1, f"those who say {digest} in {where.prefix} end in {life} ms, whatever they are"
        for row in await self.store.command("ZRANGE", where.same(digest), 0, -1):
            (content, said) = await self.store.batch(
                [("HGET", where.record(row.decode()), "content"), ("HGET", where.contents, row)]
            )
            assert digest.encode() == (said if content is None else content), f"{row!r} does not say {digest}"

    async def _subject(self, where: keys.PathKeys, subject: str, life: int) -> None:
        assert life == -1, f"subject {subject!r} of {where.prefix} ends in {life} ms, whatever its records say"
        for row in await self.store.command("ZRANGE", where.subject(subject), 0, -1):
            about = await self.store.command("HGET", where.record(row.decode()), "subject")
            swept = await self.store.command("HGET", where.subjects, row)
            assert subject.encode() == (swept if about is None else about), f"{row!r} is not about {subject!r}"

    async def _subjects(self, where: keys.PathKeys) -> None:
        told = await self.store.command("HGETALL", where.subjects)
        for name in told[::2]:
            due = await self.store.command("ZSCORE", where.expiring, name)
            assert due is not None, f"no sweep of {where.prefix} will come by {name!r}"

    async def _lives(self, found: set[str]) -> dict[str, int]:
        names = sorted(found)
        return dict(zip(names, await self.store.batch([("PTTL", name) for name in names]), strict=True))
