"""The inbox of a thread: what others tell it, folded in by its driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from blackboard import keys
from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.refusal import Asked, refusal
from blackboard.claims import registry
from blackboard.codec import Types, decode, encode
from blackboard.codec.cipher import opened, sealed
from blackboard.codec.limit import within
from blackboard.errors import InboxFull
from blackboard.store.script import Script

__all__ = ["Answer", "Inbox", "Letter"]

_SIGNAL = Script("blackboard.runs", "signal.lua", prelude=("blackboard.checkpoints:thread.lua",))

Answer = Literal["ACCEPTED", "ALREADY", "GONE"]

MOST_UNREAD = 10_000
"""Letters that an inbox holds before it refuses more: a thread that nobody drives must not fill the server."""

PAGE = 500


@dataclass(frozen=True, slots=True)
class Letter:
    """One signal or note that the thread has not taken yet; `id` orders them."""

    id: str
    kind: Literal["signal", "note"]
    name: str
    value: bytes

    def open(self, types: Types | None = None) -> Any:
        """Decode what it says."""
        return decode(self.value, types=types)


class Inbox:
    """The inboxes of one namespace's threads; writing needs no lease."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def signal(self, thread: str, name: str, value: Any, *, key: str | None = None) -> Answer:
        """Answer what a thread waits for, or will wait for, under `name`.

        ACCEPTED: it is stored, and the thread's next `wait` for the name returns it. ALREADY: another answer, or one with
        the same `key`, came first and stands. GONE: the thread is finished, deleted or was never begun. Exactly one of
        racing answers is accepted. Raises InboxFull, EncodeError.
        """
        return await self._put(thread, "signal", keys.check_id(name, "name of a signal"), value, key)

    async def note(self, thread: str, value: Any, *, key: str | None = None) -> Answer:
        """Tell a thread something, whoever drives it; the driver reads all notes in order with `run.notes()`.

        ALREADY only if a note with the same `key` was accepted before.
        """
        return await self._put(thread, "note", "", value, key)

    async def unread(self, thread: str) -> list[Letter]:
        """Read the letters that the thread has not taken, oldest first."""
        where = keys.ThreadKeys.of(self._engine.namespace, thread)
        letters: list[Letter] = []
        start = "-"
        while True:
            rows = await self._engine.store.command("XRANGE", where.inbox, start, "+", "COUNT", PAGE)
            letters += [self._open(thread, _letter(*row)) for row in rows]
            if len(rows) < PAGE:
                return letters
            start = f"({letters[-1].id}"

    def _open(self, thread: str, letter: Letter) -> Letter:
        value = opened(self._engine.seal, letter.value, letter.kind, thread, letter.name)
        return replace(letter, value=value)

    async def _put(self, thread: str, kind: str, name: str, value: Any, key: str | None) -> Answer:
        engine = self._engine
        where = keys.ThreadKeys.of(engine.namespace, thread)
        what = f"the value of signal {name!r}" if kind == "signal" else "the note"
        plain = within(engine.policy.value_limit, encode(value, path="value"), what, path="value")
        body = sealed(engine.seal, plain, kind, thread, name)
        keep_ms = max(1000, int(2000 * engine.store.retry_deadline))
        names = [where.meta, where.latest(), where.inbox, where.answers, where.ops]
        unique = "" if key is None else keys.check_id(key, "key of a signal")
        reply = await engine.store.call(
            _SIGNAL, names, [kind, name, unique, engine.store.op_id(), body, keep_ms, MOST_UNREAD]
        )
        match reply[0]:
            case b"ACCEPTED":
                if reply[1] == b"parked":
                    await self._wake(thread)
                return "ACCEPTED"
            case b"ALREADY":
                return "ALREADY"
            case b"GONE":
                return "GONE"
            case b"FULL":
                raise InboxFull(
                    f"thread {thread!r} has {reply[1]} unread letters; it must be driven before it takes more",
                    thread=thread,
                )
            case _:
                raise refusal(Asked(engine.namespace, thread), reply)

    async def parked(self, thread: str, awaits: str, wake: int | None, since: int) -> None:
        """List a thread that parked at `since` (server time in µs, as `wake`) as due when it can go on.

        Due at once if it was answered or moved meanwhile, for this may overwrite the row that said so: a look too many
        costs a look, a wake that is lost is lost for ever.
        """
        store, where = self._engine.store, keys.ThreadKeys.of(self._engine.namespace, thread)
        await self._engine.retention.due(thread, registry.next_look(store) if wake is None else wake // 1000)
        answers = ("HGET", where.answers, f"n:{awaits.removeprefix('signal:')}")
        updated, answer = await store.batch([("HGET", where.meta, "updated"), answers])
        if updated != str(since).encode() or (awaits.startswith("signal:") and answer not in (None, b"taken")):
            await self._wake(thread)

    async def _wake(self, thread: str) -> None:
        """Let whoever looks for parked threads that can go on find this one; a hint, the inbox is the truth."""
        store, namespace = self._engine.store, self._engine.namespace
        shard, now = keys.threads(namespace, keys.shard(thread)), store.server_time() // 1000
        await store.command("ZADD", shard, now, thread)


def _letter(id: bytes, fields: Sequence[bytes]) -> Letter:
    pairs = {fields[i]: fields[i + 1] for i in range(0, len(fields), 2)}
    kind: Literal["signal", "note"] = "signal" if pairs[b"kind"] == b"signal" else "note"
    return Letter(id.decode(), kind, pairs[b"name"].decode(), pairs[b"value"])
