"""Artifacts: large values that are stored once, by their digest, and read in pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

from blackboard import keys
from blackboard.artifacts.chunks import Chunks
from blackboard.artifacts.collection import Collected, Collection
from blackboard.artifacts.files import Files
from blackboard.artifacts.head import Head
from blackboard.artifacts.owner import PIN, Owner, Referrer
from blackboard.artifacts.reader import ArtifactReader
from blackboard.artifacts.ref import SPELLED, ArtifactRef, digest_of
from blackboard.artifacts.rows import listed
from blackboard.artifacts.source import Content, Source, measured
from blackboard.errors import ArtifactMissing, ConfigError, ServerUnavailable, StoreRegressed
from blackboard.points import reach
from blackboard.quantities import seconds, size
from blackboard.settings import Artifacts
from blackboard.store.client import Store
from blackboard.store.script import Script

__all__ = ["ArtifactStore", "Stored"]


def _script(name: str) -> Script:
    return Script("blackboard.artifacts", name, prelude=("blackboard.claims:guard.lua",))


_TOUCH, _COMPLETE, _REFER = map(_script, ("touch.lua", "complete.lua", "refer.lua"))

_ROUNDS = 3
"""How often an upload is sent whose chunks are not all there when it is completed."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What is known of a stored artifact. Times are server time in µs; `marked` is when nobody was found to refer to it."""

    ref: ArtifactRef
    place: Literal["backend", "files"]
    chunks: int
    stored: int
    touched: int
    marked: int | None
    owners: tuple[Owner, ...]


class ArtifactStore:
    """The artifacts of one backend: put, opened, read and collected; `board.artifacts`.

    Stored once by digest: an artifact stands when its head does, which one script writes after it has seen every chunk. A
    put that broke off, wherever, leaves what ends by itself. What stands is kept as long as somebody refers to it, and for
    the grace after that; nobody deletes one by hand.
    """

    def __init__(self, store: Store, settings: Artifacts | None = None) -> None:
        self._store, self.settings = store, settings or Artifacts()
        self._chunks = Chunks(store, self.settings.upload_ttl)
        self._files: Files | None = None
        self._referrers: dict[str, Referrer] = {}

    def register(self, kind: str, referrer: Referrer) -> None:
        """Let a referrer answer for the owners of a kind; owners of a kind that nobody answers for are kept."""
        self._referrers[kind] = referrer

    async def put(self, content: Content, *, media_type: str | None = None, name: str | None = None) -> ArtifactRef:
        """Store bytes, a file (by its path) or a stream of bytes, in chunks and bounded memory; returns its reference.

        Content that is stored already is not written again; its grace begins anew. `media_type` and `name` go into the
        reference, each of at most 1,024 bytes. Raises ConfigError for a file that cannot be read or is changed meanwhile,
        ServerUnavailable if it takes longer than `upload_ttl`; nothing is stored then.
        """
        media_type = keys.check_id(media_type, "media_type") if media_type else None
        name = keys.check_id(name, "name") if name else None
        async with measured(content, self.settings.chunk_size, self.settings.spool) as source:
            head = await self._touched(source.digest)
            if head is None or not await self._body(head).whole(head):
                await self._upload(source, head, (media_type or "", name or ""))
            return ArtifactRef(f"{SPELLED}{source.digest}", source.size, media_type, name)

    def open(self, ref: ArtifactRef | str, *, offset: int = 0, length: int | None = None) -> ArtifactReader:
        """Open an artifact, or a range of it, to be read in pieces: `async with`, then `read(n)` or `async for`.

        Reading raises ArtifactMissing if it is not stored, CorruptValue for a chunk that is not what was written,
        StoreRegressed for one that the store has lost.
        """
        digest = digest_of(ref)
        return ArtifactReader(lambda: self._head(digest), self._fetch, offset=offset, length=length)

    async def read(self, ref: ArtifactRef | str, *, limit: int | None = None) -> bytes:
        """Read a whole artifact, at most `limit` bytes (by default the settings' `read_limit`): a longer one is refused.

        Raises ConfigError for a longer one, otherwise as `open`.
        """
        most = self.settings.read_limit if limit is None else size(limit, what="limit")
        async with self.open(ref) as opened:
            there = opened.ref.size
            if there > most:
                raise ConfigError(
                    f"{ref} has {there} bytes, more than the limit of {most}: open it and read it in pieces",
                    value=there,
                )
            return await opened.read()

    async def stat(self, ref: ArtifactRef | str) -> Stored | None:
        """Tell what is known of an artifact, those who refer to it included; None if it is not stored."""
        digest = digest_of(ref)
        where = keys.ArtifactKeys(digest)
        flat, refs = await self._store.batch([("HGETALL", where.head), ("HKEYS", where.refs)])
        head = Head.of(digest, flat)
        return None if head is None else _stored(head, refs)

    async def all(self) -> AsyncIterator[Stored]:
        """Yield every stored artifact, in no order; one that is put or collected meanwhile may or may not come."""
        for number in range(keys.SHARDS):
            async for page in listed(self._store, number):
                for _, head, refs in page:
                    if head is not None:
                        yield _stored(head, refs[::2])

    async def refer(self, ref: ArtifactRef | str, owner: Owner) -> None:
        """Enter who refers to an artifact: to be awaited before what refers to it is committed, within the grace.

        Raises ArtifactMissing if it is not stored (any more).
        """
        digest = digest_of(ref)
        where = keys.ArtifactKeys(digest)
        reply = await self._store.call(_REFER, [where.head, where.refs], [str(owner)])
        if reply[0] != b"OK":
            raise _missing(digest)

    async def pin(self, ref: ArtifactRef | str, owner: str) -> None:
        """Keep an artifact for somebody outside, who keeps the text of its reference, under a name of their choice.

        It is never collected until `unpin` with the same name. Raises ArtifactMissing.
        """
        await self.refer(ref, Owner(PIN, PIN, owner))

    async def unpin(self, ref: ArtifactRef | str, owner: str) -> bool:
        """Let an artifact be collected again as far as this name goes; True if it was pinned under it."""
        refs = keys.ArtifactKeys(digest_of(ref)).refs
        return bool(await self._store.command("HDEL", refs, str(Owner(PIN, PIN, owner))))

    async def gc(self, *, dry_run: bool = False, grace: float | str | None = None) -> Collected:
        """Collect what nobody refers to: mark it now, remove it in a later pass, once the grace is over.

        Each owner is asked whether it still refers, in both passes; a put or a reference meanwhile takes the mark away. With
        `dry_run` nothing is changed. `grace` must be longer than any time from a put or a reference to the commit
        that it is for. Anybody may call it at any time; an owner that cannot be asked makes it raise.
        """
        allowed = self.settings.grace if grace is None else seconds(grace, what="grace")
        collection = Collection(self._store, self._referrers, self._files_or_none(), self.settings.upload_ttl)
        return await collection.run(allowed, dry_run=dry_run)

    async def _touched(self, digest: str) -> Head | None:
        reply = await self._store.call(_TOUCH, [keys.ArtifactKeys(digest).head], [])
        return Head.of(digest, reply[1]) if reply[0] == b"OK" else None

    async def _upload(self, source: Source, lost: Head | None, said: tuple[str, str]) -> None:
        """Write all chunks under an upload of its own, then complete it; `lost` is what it replaces."""
        for _ in range(_ROUNDS):
            upload = self._store.op_id()
            until = int(upload.partition("-")[0]) + int(self.settings.upload_ttl * 1e6)
            # The row comes first, so that whatever becomes of the upload, a collection finds what it has stored.
            where = keys.ArtifactKeys(source.digest)
            await self._store.command("ZADD", where.shard, "GT", until // 1000 + 1, source.digest)
            file = await (self._files_or_none() or self._chunks).write(source, upload)
            reach("artifact", "written")
            own = [] if file else [where.chunk(upload, number) for number in range(-(-source.size // source.chunk))]
            names = [where.head, *own, *(lost.chunks if lost else ())]
            about = (source.size, source.chunk, source.checks, file, *said, len(own))
            reply = await self._store.call(_COMPLETE, names, (upload, until, lost.upload if lost else "", *about))
            answer: bytes = reply[0]
            if answer == b"HAVE" and file:
                await self._required_files().remove(file)
            if answer in (b"OK", b"HAVE"):
                return
            if answer == b"TOOLATE":
                break
        raise ServerUnavailable(
            f"storing an artifact of {source.size} bytes took longer than artifacts.upload_ttl "
            f"({self.settings.upload_ttl:g} s): raise it",
            size=source.size,
        )

    async def _head(self, digest: str) -> Head:
        head = Head.of(digest, await self._store.command("HGETALL", keys.ArtifactKeys(digest).head))
        if head is None:
            raise _missing(digest)
        return head

    async def _fetch(self, head: Head, number: int) -> tuple[Head, bytes]:
        """Read one chunk; if it is not there the head may have been replaced or removed since it was read."""
        data = await self._body(head).read(head, number)
        if data is None:
            now = await self._head(head.digest)
            if now.upload != head.upload and now.chunk == head.chunk:
                return await self._fetch(now, number)
            raise StoreRegressed(
                f"the store has lost chunk {number} of artifact {head.digest}, which it had acknowledged: put it again",
                lost=f"chunk {number}", digest=head.digest,
            )  # fmt: skip
        return head, head.check(number, data)

    def _body(self, head: Head) -> Chunks | Files:
        return self._required_files() if head.file else self._chunks

    def _files_or_none(self) -> Files | None:
        return None if self.settings.url is None else self._required_files()

    def _required_files(self) -> Files:
        if self.settings.url is None:
            raise ConfigError(
                "an artifact stands in a file, and artifacts.url is not set: set it to where it was stored"
            )
        if self._files is None:
            self._files = Files(self.settings.url)
        return self._files


def _stored(head: Head, refs: list[bytes]) -> Stored:
    owners = tuple(sorted((Owner.parse(one.decode()) for one in refs), key=str))
    place: Literal["backend", "files"] = "files" if head.file else "backend"
    return Stored(head.ref, place, head.count, head.stored, head.touched, head.marked or None, owners)


def _missing(digest: str) -> ArtifactMissing:
    return ArtifactMissing(
        f"no artifact {digest} is stored: it never was, or nobody referred to it for longer than the grace",
        digest=digest,
    )
