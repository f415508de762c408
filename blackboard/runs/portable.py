"""A thread as a file: one JSON object a line, written as a stream and checked as a whole before anything is stored."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any, BinaryIO, cast

from blackboard import keys
from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.manifest import parse
from blackboard.checkpoints.sealing import open_manifest
from blackboard.checkpoints.seeding import Seeding
from blackboard.checkpoints.walk import checkpoints, letters, members, pairs, segment, unmoved
from blackboard.claims.record import SettledEffect
from blackboard.errors import ConfigError, ThreadGone
from blackboard.runs.intact import checked
from blackboard.runs.lines import (
    AnswerLine,
    CheckpointLine,
    EffectLine,
    End,
    Header,
    LetterLine,
    Line,
    LineageLine,
    PinLine,
    SegmentLine,
    ValueLine,
    WriteLine,
    read,
)
from blackboard.runs.pieces import Writer, pieces

__all__ = ["export_thread", "import_thread"]

VALUES_AT_ONCE = 5
"""Values of channels per trip: each may be large."""


async def export_thread(engine: Engine, thread: str) -> AsyncIterator[bytes]:
    """Yield a thread line by line: every lineage with its history, contents, pins, pending writes, settled effects, letters.

    Takes no lease and little memory. A thread that is driven meanwhile is given as of its newest checkpoint at the start.
    What is open does not come along: leases, and effects whose outcome nobody knows. Refuses
    an encrypted namespace with ConfigError, for the file would be plain, and a thread that refers to artifacts, which no
    file holds. The last line carries counts and
    the SHA-256 of the lines before it. Raises ThreadGone, and ServerUnavailable if the thread is pruned meanwhile: what
    was yielded by then has no last line and is refused by `import_thread`.
    """
    _check_plain(engine)
    counts: Counter[str] = Counter()
    seal = hashlib.sha256()
    async for line in _Export(engine, thread).lines():
        spelled = line.spell()
        seal.update(spelled)
        counts[line.line] += 1
        yield spelled
    yield End(counts=dict(counts), sha256=seal.hexdigest()).spell()


def _check_plain(engine: Engine) -> None:
    if engine.seal is not None:
        raise ConfigError(
            f"namespace {engine.namespace!r} is encrypted, and a file of a thread is not: copy the thread instead",
            value=engine.namespace,
        )


async def import_thread(engine: Engine, file: BinaryIO, *, to: str | None = None) -> str:
    """Store an exported thread under its own id or `to`, which nobody may use; returns that id.

    The file is read twice: checked as a whole, then stored, and the thread is seen when all of it is there. State,
    history, effects, pins, letters and status read as in the origin; its incarnation is new, and an expiry counts from
    now by this namespace's settings. Raises ConfigError naming the line of a file that is cut, changed, newer or
    foreign, and ThreadExists; nothing was stored then. After an outage what was stored goes with a sweep.
    """
    _check_plain(engine)
    start = file.tell()
    header = checked(engine.namespace, file)
    thread = header.thread if to is None else keys.check_id(to, "thread id")
    writer = Writer(await Seeding.begin(engine.store, engine.namespace, thread))
    latest = ""
    file.seek(start)
    for data in file:
        line = read(data)
        if isinstance(line, LineageLine) and not line.lineage:
            latest = line.latest
        for piece in pieces(writer.target.where, line):
            await writer.add(piece)
    await writer.flush()
    await _open(engine, writer.target, header, latest)
    return thread


class _Export:
    """One reading of a thread: first the checkpoints, then what they refer to, which only grows."""

    def __init__(self, engine: Engine, thread: str) -> None:
        self._engine, self._store, self._thread = engine, engine.store, thread
        self._where = keys.ThreadKeys.of(engine.namespace, thread)

    async def lines(self) -> AsyncIterator[Line]:
        """Yield all but the last line."""
        before = await unmoved(self._store, self._where, self._thread, [])
        yield await self._header()
        await self._check_artifacts()
        parts = [part.decode() async for part in members(self._store, self._where.parts)]
        for lineage in ["", *(keys.decode(part[1:]) for part in parts if part.startswith("@"))]:
            async for line in self._lineage(lineage):
                yield line
        async for part in members(self._store, self._where.parts):
            async for line in self._part(part.decode()):
                yield line
        await self._check_artifacts()
        async for line in self._contents():
            yield line
        await self._check_artifacts()
        await unmoved(self._store, self._where, self._thread, before)

    async def _header(self) -> Header:
        meta, now = await self._engine.meta(self._thread), self._store.server_time()
        expired = meta.expires is not None and meta.expires * 1000 <= now
        if meta.incarnation is None or expired:
            raise ThreadGone(f"there is no thread {self._thread!r} to export", thread=self._thread, why="missing")
        return Header(
            namespace=self._engine.namespace, thread=self._thread, incarnation=meta.incarnation, time=now,
            status=cast("Any", meta.status), sequence=meta.sequence, reason=meta.reason or None,
            awaits=meta.awaits or None, wake=meta.wake, parent=meta.parent,
        )  # fmt: skip

    async def _check_artifacts(self) -> None:
        """Refuse a thread that refers to artifacts, also if it does so only since it is read."""
        found: int = await self._store.command("HLEN", self._where.artifacts)
        if found:
            raise ConfigError(
                f"thread {self._thread!r} refers to {found} artifacts, and a file of a thread holds none: copy the thread "
                "instead, or get them with `blackboard artifacts get`",
                thread=self._thread, value=found,
            )  # fmt: skip

    async def _lineage(self, lineage: str) -> AsyncIterator[Line]:
        where, store = self._where, self._store
        newest = await store.command("GET", where.latest(lineage))
        if newest is None:
            return
        yield LineageLine(lineage=lineage, latest=keys.decode(newest.decode()))
        async for page in checkpoints(store, where, lineage, newest):
            written = await store.batch([("HGETALL", where.writes(name, lineage)) for name, _ in page])
            for (name, data), flat in zip(page, written, strict=True):
                yield CheckpointLine.of(lineage, open_manifest(None, self._thread, lineage, parse(name, data)))
                for line in _writes(lineage, name, flat, early=False):
                    yield line
        async for pin in members(store, where.pins(lineage)):
            yield PinLine(lineage=lineage, checkpoint=keys.decode(pin.decode()))

    async def _part(self, part: str) -> AsyncIterator[Line]:
        """Yield what a part names: a segment, or writes whose checkpoint is not stored."""
        place, _, rest = part.partition(":")
        kind, _, lineage = (keys.decode(piece) for piece in place.partition("@"))
        if kind == "log":
            channel, _, name = rest.partition(":")
            async for offset, items in segment(self._store, f"{self._where.prefix}:{part}"):
                yield SegmentLine(
                    lineage=lineage, channel=keys.decode(channel), segment=name, offset=offset, items=tuple(items)
                )
        elif kind == "writes" and await self._store.command("ZSCORE", self._where.history(lineage), rest) is None:
            flat = await self._store.command("HGETALL", f"{self._where.prefix}:{part}")
            for line in _writes(lineage, keys.decode(rest), flat, early=True):
                yield line

    async def _contents(self) -> AsyncIterator[Line]:
        where, store = self._where, self._store
        async for page in pairs(store, where.values, VALUES_AT_ONCE):
            for name, data in _couples(page):
                yield ValueLine(digest=name.decode(), data=data)
        async for page in pairs(store, where.effects):
            for name, data in _couples(page):
                yield EffectLine.of(SettledEffect.parse(name, data))
        async for name, flat in letters(store, where.inbox):
            said = dict(_couples(flat))
            kind: Any = said[b"kind"].decode()
            yield LetterLine(id=name.decode(), kind=kind, name=said[b"name"].decode(), value=said[b"value"])
        async for page in pairs(store, where.answers):
            for name, letter_id in _couples(page):
                yield AnswerLine(field=name.decode(), id=letter_id.decode())


def _writes(lineage: str, checkpoint: str, flat: list[bytes], *, early: bool) -> Iterator[WriteLine]:
    for name, data in _couples(flat):
        task, _, index = name.decode().rpartition(":")
        yield WriteLine(
            lineage=lineage, checkpoint=checkpoint, task=keys.decode(task), index=int(index), data=data, early=early
        )


def _couples(flat: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


async def _open(engine: Engine, target: Seeding, header: Header, latest: str) -> None:
    """Let the thread be seen, with the expiry that one of its status has here."""
    policy, now = engine.policy, engine.store.server_time() // 1000
    ttls = {"finished": policy.ttl, "failed": policy.failed_ttl, "running": policy.idle_ttl}
    ttl = ttls.get(header.status)
    expires = None if ttl is None else now + max(1, int(ttl * 1000))
    known = {"reason": header.reason, "awaits": header.awaits, "wake": header.wake, "parent": header.parent}
    facts = {name: fact for name, fact in {**known, "expires": expires}.items() if fact is not None}
    incarnation = await target.open(latest, {"sequence": header.sequence, "status": header.status, **facts})
    if header.status == "parked":
        await engine.retention.due(target.thread, now)  # whoever drives it next finds whether it can go on
    elif expires is not None and header.status == "running":
        await engine.retention.due(target.thread, expires)
    elif expires is not None:
        await engine.retention.expire(target.thread, incarnation, expires)
