"""Vector sets: vectors of a path that the server itself searches, kept by the scripts that write its records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, cast
from weakref import WeakSet

from blackboard.errors import ConfigError, EmbedderMismatch, ServerRefused
from blackboard.memory.embedder import Space
from blackboard.memory.record import Token
from blackboard.memory.records import Records
from blackboard.memory.stored import tag
from blackboard.points import reach
from blackboard.settings import MemoryNamespace
from blackboard.store.client import Store
from blackboard.store.script import Script

__all__ = ["Element", "Near", "drop", "fill", "members", "mend", "near", "ready", "refuse", "served", "trim"]

GUARD = "blackboard.claims:guard.lua"
NEAR = Script("blackboard.memory", "near.lua", prelude=(GUARD, "path.lua"), read_only=True)
KEEP = Script("blackboard.memory", "keep.lua", prelude=(GUARD, "path.lua"))
FILL = Script("blackboard.memory", "fill.lua", prelude=(GUARD, "path.lua", "sets.lua"))
TRIM = Script("blackboard.memory", "trim.lua", prelude=(GUARD,))

T = TypeVar("T")

State = Literal["none", "filling", "kept"]

FILLED = 16
"""Vectors entered by one script: each takes about a millisecond, and nobody else is served meanwhile."""
PAGE = 512
"""Records looked through in one step of filling a set."""

_offered: WeakSet[Store] = WeakSet()


@dataclass(frozen=True, slots=True)
class Element:
    """One vector of a set as the server holds it: a direction of 8 bits a number, the largest of which is `most`."""

    numbers: bytes
    most: float

    @classmethod
    def of(cls, told: Sequence[bytes]) -> Element:
        """Read the answer of VEMB with RAW."""
        kind, numbers, _, *most = told
        return cls(numbers, float(most[0])) if kind == b"int8" else cls(b"", 0.0)


@dataclass(frozen=True, slots=True)
class Near:
    """What the server answered: ids, nearest first, each with the cosine as the set estimates it from 8 bits a number.

    `state` says whether there is a set and whether it holds all vectors of the path; `pending` records are still to get one.
    `card` is how many the set holds, `now` the server's clock in µs.
    """

    now: int
    token: Token | None
    space: str
    state: State
    pending: int
    card: int
    hits: tuple[tuple[str, float], ...]

    @property
    def complete(self) -> bool:
        """Whether every vector that the path is to have is in the set."""
        return not self.pending and (self.state == "kept" or not self.space)


def served(policy: MemoryNamespace) -> bool:
    """Tell whether the server is to search the vectors of a namespace."""
    return policy.index == "server"


def refuse(policy: MemoryNamespace, space: Space) -> None:
    """Raise ConfigError for a space that a vector set cannot compare by."""
    if served(policy) and space.metric != "cosine":
        raise ConfigError(
            f'index = "server" compares by the cosine, and vectors of {space.model} are compared by {space.metric}; '
            "use an embedder with the metric cosine, or another index",
            value=space.metric,
        )


async def ready(records: Records) -> None:
    """Make sure that the server has vector sets if the namespace wants them; asked once for each store.

    Raises ConfigError if it has none: nothing else is searched in their place.
    """
    if not served(records.policy) or records.store in _offered:
        return
    try:
        await records.store.command("VCARD", records.keys.vectors)
    except ServerRefused as refused:
        if "unknown command" not in str(refused):
            raise
        raise ConfigError(
            f'namespace {records.namespace!r} has index = "server", and {records.store.backend} has no vector sets (Redis 8 '
            'has); use such a server, or index = "auto"',
            value="server", namespace=records.namespace,
        ) from refused  # fmt: skip
    _offered.add(records.store)


async def near(
    records: Records, space: Space, vector: bytes, count: int, *, exact: bool, at_least: Token | None = None
) -> Near:
    """Ask for the `count` records nearest to a vector of 32 bits a number, in one round trip.

    With `exact` the server compares with every vector of the set instead of following its graph. Raises EmbedderMismatch if
    the path's vectors are of another space, StoreRegressed if it has not come as far as was known, or as `at_least`.
    """
    known, where = records.known, records.keys
    names, args = (where.head, where.vectors, where.pending), (space.text(), vector, count, int(exact))
    now, incarnation, seq, stored, state, pending, card, rows = await records.store.call(NEAR, names, args)
    token = records.reached([incarnation or None, seq or None], known, at_least)
    if stored not in (b"", space.text().encode()):
        raise EmbedderMismatch(
            f"the vectors of path {records.path!r} are of the space {stored.decode()}, and the question's would be of "
            f"{space.text()}; use that embedder, or migrate",
            stored=stored.decode(), offered=space.text(),
        )  # fmt: skip
    hits = tuple((name.decode(), 2 * float(score) - 1) for name, score in zip(rows[::2], rows[1::2], strict=True))
    return Near(int(now), token, stored.decode(), cast("State", state.decode()), pending, card, hits)


async def fill(records: Records) -> int:
    """Enter the vectors that the set lacks, from where that was left; returns how many records were looked at.

    Whoever writes meanwhile keeps the set itself. Call it under the lease of the path.
    """
    stored, kept, at = await records.store.command("HMGET", records.keys.head, "space", "vectors", "vectors_at")
    if stored is None:
        return 0
    space = stored.decode()
    if kept != tag(space):
        await records.store.call(KEEP, (records.keys.head, records.keys.vectors), (space,))
        at = b"0"
    elif at is None:
        return 0
    reach("sets", "begun")
    return await _filled(records, space, int(at))


async def _filled(records: Records, space: str, at: int) -> int:
    total = 0
    while rows := await records.rows(at, PAGE):
        for part in _parts(rows):
            if not await _fill(records, space, [name for name, _ in part], at, str(part[-1][1])):
                return total
            at, total = part[-1][1], total + len(part)
            reach("sets", "filled")
    await _fill(records, space, [], at, "")
    return total


async def mend(records: Records, ids: Sequence[str]) -> bool:
    """Make the set say what these records say; False if it is not kept, or of another space than the path."""
    stored = await records.store.command("HGET", records.keys.head, "space")
    return stored is not None and all([await _fill(records, stored.decode(), part, "", "") for part in _parts([*ids])])


async def _fill(records: Records, space: str, ids: Sequence[str], at: int | Literal[""], through: str) -> bool:
    where = records.keys
    names = [where.head, where.vectors, *(where.record(name) for name in ids)]
    reply = await records.store.call(FILL, names, [space, at, through, *ids])
    return bool(reply[0] == b"OK")


async def drop(records: Records) -> None:
    """Keep no set any more, if one is kept: the namespace has another index by now."""
    if await records.store.command("HEXISTS", records.keys.head, "vectors"):
        await records.store.call(KEEP, (records.keys.head, records.keys.vectors), ("",))


async def trim(records: Records, every: int) -> None:
    """Let the log go up to the last `every` entries or more: without views nobody needs it but `changes`."""
    incarnation, seq, trimmed = await records.store.command("HMGET", records.keys.head, "incarnation", "seq", "trimmed")
    if incarnation is not None and int(seq) - int(trimmed or 0) >= 2 * every:
        await records.store.call(TRIM, (records.keys.head, records.keys.log), (incarnation, int(seq) - every))


async def members(records: Records) -> dict[str, Element] | None:
    """Read what the set holds, by record id; None if none is kept of the path's space, or it is not filled yet."""
    where, store = records.keys, records.store
    space, kept, at, *_ = await store.command("HMGET", where.head, "space", "vectors", "vectors_at")
    if kept is None or at is not None or space is None or kept != tag(space.decode()):
        return None
    card = await store.command("VCARD", where.vectors)
    ids = await store.command("VRANDMEMBER", where.vectors, max(1, card))
    found: dict[str, Element] = {}
    for part in _parts(ids, PAGE):
        rows = await store.batch([("VEMB", where.vectors, name, "RAW") for name in part])
        found |= {name.decode(): Element.of(row) for name, row in zip(part, rows, strict=True) if row is not None}
    return found


def _parts(items: Sequence[T], size: int = FILLED) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
