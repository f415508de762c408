"""The records of one path: the truth about what is remembered there, written by one script each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from blackboard.errors import StoreRegressed
from blackboard.keys import PathKeys
from blackboard.memory.mentions import Mentions
from blackboard.memory.new import Body
from blackboard.memory.record import Record, Token
from blackboard.memory.stored import LIGHT, Stored, answered, light, pairs, parse
from blackboard.memory.writing import ROUNDS, Forgotten, Put, Removal, refusal
from blackboard.settings import MemoryNamespace
from blackboard.store.client import Store
from blackboard.store.protocol import Part
from blackboard.store.script import Script

__all__ = ["Change", "Records", "Tail"]


def _script(name: str, *prelude: str, read_only: bool = False) -> Script:
    return Script("blackboard.memory", name, prelude=("blackboard.claims:guard.lua", *prelude), read_only=read_only)


_PUT = _script("put.lua", "path.lua", "chain.lua", "said.lua", "sources.lua", "sets.lua")
_FORGET = _script("forget.lua", "path.lua", "chain.lua", "said.lua", "sources.lua", "sets.lua")
_VECTOR = _script("vector.lua", "path.lua", "sets.lua")
_EXPIRED = _script("expired.lua", read_only=True)
_COUNT = _script("count.lua", read_only=True)

SLICE = 200
SLICE_BYTES = 1 << 20
"""How many records, and about how many bytes, are sent or asked for at once."""


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of a path's log: a record was written (`put`), got its vector, or is gone (`forget`); or the space was set."""

    seq: int
    op: Literal["put", "vector", "forget", "space"]
    id: str
    version: int


@dataclass(frozen=True, slots=True)
class Tail:
    """What the log says after a seq. `token` is how far this goes (None: the path was never written), `more` whether more stands.

    `gap`: entries are missing because the log was trimmed; what they said has to be found in the records themselves.
    `space` is the embedding space of the path's vectors.
    """

    token: Token | None
    changes: tuple[Change, ...] = ()
    gap: bool = False
    space: str | None = None
    more: bool = False


class Records:
    """The records of one path of a memory namespace; `path` as `keys.path_text` spells it.

    Each write is one script: it checks everything before it writes, and a repetition after a lost reply is recognised
    and answered as before. `known` is the newest token seen here: a store that has less is StoreRegressed.
    """

    def __init__(
        self, store: Store, namespace: str, path: str, policy: MemoryNamespace, mentions: Mentions | None = None
    ) -> None:
        self.store, self.namespace, self.path, self.policy = store, namespace, path, policy
        self.mentions = mentions
        self.keys = PathKeys.of(namespace, path)
        self.indexed = "1" if policy.index == "server" else ""
        self.known: Token | None = None
        self._keep_ms = max(1000, int(2000 * store.retry_deadline))

    def __repr__(self) -> str:
        return f"<Records {self.namespace}:{self.path}>"

    async def put(self, body: Body, *, over: Stored | None = None) -> Record:
        """Store a record, or find the one with the same content, if the body names no id; then `duplicate` is set.

        An id that is named is the identity: what stands there gets its next version. What was read and is given as `over`
        is replaced only if it still has that version: RecordConflict, RecordMissing. Raises EmbedderMismatch for a vector
        of another space, StoreRegressed.
        """
        return (await self._put([Put.of(self.keys, body, over, indexed=self.indexed)]))[0]

    async def put_all(self, bodies: Iterable[Body]) -> list[Record]:
        """Store many, pipelined in their order, each as `put`; one that has to be sent again comes after those that follow it.

        If one fails, any others may have been stored.
        """
        found: list[Record] = []
        for part in _slices([Put.of(self.keys, body, indexed=self.indexed) for body in bodies]):
            found += await self._put(part)
        return found

    async def forget(
        self, ids: Iterable[str], *, versions: Mapping[str, int] | None = None, expired: bool = False
    ) -> list[Forgotten]:
        """Remove records, and tell which there were. What one had superseded is valid again, and so is what it was merged of.

        With `versions`, one that has another version by now stays. With `expired`, only what is left of records whose time
        is over is removed (`expired` lists them): one that was remembered again meanwhile stays.
        """

        def only(name: str) -> str:
            return "expired" if expired else "" if versions is None else str(versions[name])

        gone: list[Forgotten] = []
        names = [*dict.fromkeys(ids)]
        for start in range(0, len(names), SLICE):
            part = names[start : start + SLICE]
            removals = [
                Removal(self.keys, self.store.op_id(), name, content, subject, only=only(name))
                for name, (content, subject) in zip(part, await self._marks(part), strict=True)
            ]
            for removal, reply in zip(removals, await self._write(_FORGET, removals), strict=True):
                if reply[0] == b"OK":
                    gone.append(Forgotten.of(removal.id, reply[1], self._incarnation()))
                elif reply[0] != b"NONE":
                    raise refusal(self.namespace, self.path, removal.id, reply)
        return gone

    async def set_vector(self, id: str, version: int, vector: bytes, space: str) -> bool:
        """Give a record the vector that was made of this version of it; False if that is gone, or has a vector by now."""
        where = self.keys
        names = [where.head, where.log, where.order, where.pending, where.ops, where.record(id), where.vectors]
        args: list[Part] = [*self.shown(), id, version, space, vector, self.indexed]
        reply = await self.store.call(_VECTOR, names, args)
        if reply[0] not in (b"OK", b"NONE"):
            raise refusal(self.namespace, self.path, id, reply, space)
        return bool(reply[0] == b"OK")

    def shown(self) -> list[Part]:
        """What every script that writes is shown first: a new op id, how long it counts, and what is known of the path."""
        incarnation, seq = ("", 0) if self.known is None else (self.known.incarnation, self.known.seq)
        return [self.store.op_id(), self._keep_ms, incarnation, seq]

    async def read(self, ids: Sequence[str], *fields: str) -> list[list[bytes | None]]:
        """Read a few fields of records as they are stored, in one round trip; a store that lost the path is noticed."""
        return await self._looked([("HMGET", self.keys.record(one), *fields) for one in ids])

    async def get(self, id: str) -> Record | None:
        """Read one record; None if it is not there."""
        (stored,) = await self.fetch([id])
        return None if stored is None else stored.record

    async def fetch(
        self, ids: Sequence[str], *, vectors: bool = False, space: str | None = None
    ) -> list[Stored | None]:
        """Read records by id, in order; None for one that is not there. One round trip for every 1,000.

        Their vectors are those of `space`, or of the space that the path has when they are read.
        """
        found: list[Stored | None] = []
        for start in range(0, len(ids), 1000):
            found += await self._read(ids[start : start + 1000], vectors, space)
        return found

    async def tail(self, after: int | Token, limit: int = 5000) -> Tail:
        """Read the log after a seq or a token, at most `limit` entries: one round trip.

        StoreRegressed if the path has not come so far, or a token is of another life of it.
        """
        known = self.known
        if isinstance(after, Token):
            known, after = (
                after if known is None or known.incarnation != after.incarnation else max(known, after),
                after.seq,
            )
        head, rows = await self.store.batch(
            [
                ("HMGET", self.keys.head, "incarnation", "seq", "space"),
                ("XRANGE", self.keys.log, f"({after}-0", "+", "COUNT", limit),
            ]
        )
        token = self._checked(head[:2], known, after)
        if token is None:
            return Tail(None)
        changes = tuple(_change(*row) for row in rows)
        end = changes[-1].seq if changes else token.seq
        more = len(changes) == limit and end < token.seq
        gap = changes[0].seq != after + 1 if changes else after < token.seq
        reached = Token(token.incarnation, end if more else max(end, token.seq))
        return Tail(reached, changes, gap, None if head[2] is None else head[2].decode(), more)

    async def walk(
        self, size: int = 500, *, vectors: bool = True, space: str | None = None
    ) -> AsyncIterator[list[Stored]]:
        """Yield every record that is there, in order of first write, by pages, each as `fetch` reads it.

        One that is written meanwhile may come or not.
        """
        rows: list[tuple[str, int]] = []
        while rows := await self.rows(rows[-1][1] if rows else 0, size):
            page = await self.fetch([name for name, _ in rows], vectors=vectors, space=space)
            yield [one for one in page if one is not None]

    async def rows(self, after: int, limit: int) -> list[tuple[str, int]]:
        """List at most `limit` ids, each with the seq of its first write, in that order, after a seq."""
        command = ("ZRANGEBYSCORE", self.keys.order, f"({after}", "+inf", "WITHSCORES", "LIMIT", 0, limit)
        rows = await self.store.command(*command)
        return [(name.decode(), int(score)) for name, score in zip(rows[::2], rows[1::2], strict=True)]

    async def about(self, subject: str, limit: int = 100) -> list[Record]:
        """Read the newest records about a subject, the current one first; rows of those that expired do not count."""
        found: dict[str, Record] = {}
        start = 0
        while len(found) < limit:
            command = ("ZREVRANGE", self.keys.subject(subject), start, start + limit - 1)
            ids = [row.decode() for row in await self.store.command(*command)]
            records = [one.record for one in await self.fetch(ids) if one is not None]
            found |= {record.id: record for record in records if record.subject == subject}
            start += limit
            if len(ids) < limit:
                break
        return sorted(found.values(), key=lambda record: (record.valid_from, record.created), reverse=True)[:limit]

    async def count(self) -> int:
        """Count the records that are there, exactly, as of one moment."""
        return int(await self.store.call(_COUNT, [self.keys.head, self.keys.expiring], []))

    async def expired(self, limit: int = 1000) -> list[str]:
        """List at most `limit` records whose time is over and which nobody has cleared away yet."""
        return [row.decode() for row in await self.store.call(_EXPIRED, [self.keys.expiring], [limit])]

    async def _put(self, puts: Sequence[Put]) -> list[Record]:
        found: list[Record] = []
        for put in puts:
            put.op = self.store.op_id()  # it begins with the time, and a long batch takes its time
            if self.mentions is not None:
                await self.mentions.enter(put.id, put.body)
        for put, reply in zip(puts, await self._write(_PUT, puts), strict=True):
            if reply[0] == b"DUP":
                twin = reply[2].decode()
                space = reply[4].decode() or None
                stored = parse(self.path, int(reply[1]), twin, pairs(reply[3]), self.keys.record(twin), space=space)
                found.append(replace(stored.record, duplicate=True))
            elif reply[0] == b"OK":
                found.append(answered(self.path, put.id, put.body, reply[1]))
            else:
                raise refusal(self.namespace, self.path, put.id, reply, put.body.space)
            self._saw(found[-1].token)
        return found

    async def _write(self, script: Script, writes: Sequence[Put | Removal]) -> list[Any]:
        """Send writes until each is answered; one that is told that what it stands on has moved is sent again."""
        replies: dict[str, Any] = {}
        waiting = [*writes]
        while waiting:
            calls = [write.call(self._keep_ms, self.known) for write in waiting]
            if len(calls) == 1:
                answers = [await self.store.call(script, *calls[0])]
            else:
                answers = await self.store.calls(script, calls)
            for write, reply in zip(waiting, answers, strict=True):
                replies[write.op] = reply
                if reply[0] == b"MOVED":
                    write.learn(reply)
            waiting = [one for one in waiting if replies[one.op][0] == b"MOVED" and one.rounds < ROUNDS]
        return [replies[write.op] for write in writes]

    async def _looked(self, reads: Sequence[tuple[Part, ...]]) -> list[Any]:
        """Read in one round trip, and notice a store that lost the path."""
        known = self.known
        head, *replies = await self.store.batch([("HMGET", self.keys.head, "incarnation", "seq"), *reads])
        self._checked(head, known)
        return replies

    async def _marks(self, ids: Sequence[str]) -> list[tuple[str, str]]:
        """Read the content and subject of records, and of those whose time is over what their rows are under."""
        where = self.keys
        reads = [("HMGET", where.record(one), "content", "subject") for one in ids]
        said, left, *replies = await self._looked(
            [("HMGET", where.contents, *ids), ("HMGET", where.subjects, *ids), *reads]
        )
        return [
            (_word(content or spoke), _word(subject if content else under))
            for (content, subject), spoke, under in zip(replies, said, left, strict=True)
        ]

    async def _read(self, ids: Sequence[str], vectors: bool, space: str | None) -> list[Stored | None]:
        known, names = self.known, [self.keys.record(one) for one in ids]
        reads = [("HGETALL", name) if vectors else ("HMGET", name, *LIGHT) for name in names]
        head, *replies = await self.store.batch([("HMGET", self.keys.head, "incarnation", "seq", "space"), *reads])
        token = self._checked(head[:2], known)
        wanted = space or (head[2].decode() if head[2] else None)
        found: list[Stored | None] = []
        for one, name, reply in zip(ids, names, replies, strict=True):
            fields = pairs(reply) if vectors else light(reply)
            if token is None or fields.get("version") is None:
                found.append(None)
            else:
                found.append(parse(self.path, token.incarnation, one, fields, name, space=wanted))
        return found

    def reached(self, head: Sequence[bytes | None], known: Token | None, at_least: Token | None) -> Token | None:
        """Read how far the path has come, from incarnation and seq as a script has answered them; None if nowhere yet.

        StoreRegressed if that is less than `known`, which was known before the script was called, or than `at_least`.
        """
        if at_least is not None:
            same = known is not None and known.incarnation == at_least.incarnation
            known = max(known, at_least) if known is not None and same else at_least
        return self._checked(head, known)

    def _checked(self, head: Sequence[bytes | None], known: Token | None, after: int = 0) -> Token | None:
        """Read how far the path has come, and remember it; `known` is what was known before that was asked."""
        incarnation, seq = (None if part is None else int(part) for part in head)
        if incarnation is None or seq is None:
            if known is not None or after > 0:
                raise self._lost("head")
            return None
        if known is not None and incarnation != known.incarnation:
            raise self._lost("incarnation")
        if seq < max(after, known.seq if known else 0):
            raise self._lost("seq")
        token = Token(incarnation, seq)
        self._saw(token)
        return token

    def _lost(self, what: str) -> StoreRegressed:
        return StoreRegressed(
            f"the store has lost what it had acknowledged about path {self.path!r}: its {what} is not what it was",
            namespace=self.namespace, path=self.path, lost=what,
        )  # fmt: skip

    def _saw(self, token: Token) -> None:
        if self.known is None or token > self.known:
            self.known = token

    def _incarnation(self) -> int:
        return 0 if self.known is None else self.known.incarnation


def _slices(puts: Sequence[Put]) -> Iterator[list[Put]]:
    """Cut a batch so that none is long, and nothing in one stands on something else in it."""
    part: list[Put] = []
    taken = set[tuple[str, str | None]]()
    size = 0
    for put in puts:
        marks = {("id", put.id), ("subject", put.body.subject)} - {("subject", None)}
        if len(part) == SLICE or size + put.size > SLICE_BYTES or taken & marks:
            if part:
                yield part
            part, size = [], 0
            taken.clear()
        part.append(put)
        taken |= marks
        size += put.size
    if part:
        yield part


def _change(entry: bytes, fields: Sequence[bytes]) -> Change:
    told = dict(zip(fields[::2], fields[1::2], strict=True))
    op = cast("Literal['put', 'vector', 'forget', 'space']", told[b"op"].decode())
    return Change(int(entry.partition(b"-")[0]), op, told[b"id"].decode(), int(told[b"version"]))


def _word(part: bytes | None) -> str:
    return "" if part is None else part.decode()
