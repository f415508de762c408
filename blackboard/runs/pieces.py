"""What the lines of an exported thread become in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

from blackboard import keys
from blackboard.checkpoints.manifest import spell
from blackboard.checkpoints.seeding import SLICE_BYTES, SLICE_ITEMS, Kind, Seeding
from blackboard.runs.lines import (
    AnswerLine,
    CheckpointLine,
    EffectLine,
    LetterLine,
    Line,
    LineageLine,
    PinLine,
    SegmentLine,
    ValueLine,
    WriteLine,
)

__all__ = ["Piece", "Writer", "pieces"]


@dataclass(slots=True)
class Piece:
    """What one line writes to one key."""

    kind: Kind
    key: str
    items: list[bytes | str]
    part: str = ""
    offset: int = 0


def pieces(where: keys.ThreadKeys, line: Line) -> Iterable[Piece]:
    """Tell what a line writes; ValueError for ids that cannot be any."""
    match line:
        case LineageLine(lineage=lineage, latest=latest) if lineage:
            newest = keys.encode(latest).encode()
            return (
                Piece("set", where.parts, [f"@{keys.encode(lineage)}"]),
                Piece("string", where.latest(lineage), [newest]),
            )
        case CheckpointLine(lineage=lineage, checkpoint=name):
            entry = Piece("history", where.history(lineage), [keys.encode(name)])
            return entry, Piece("string", where.checkpoint(name, lineage), [spell(line.manifest())])
        case PinLine(lineage=lineage, checkpoint=name):
            return (Piece("set", where.pins(lineage), [keys.encode(name)]),)
        case WriteLine():
            key = where.writes(line.checkpoint, line.lineage)
            part = key[len(where.prefix) + 1 :] if line.early else ""
            return (Piece("hash", key, [f"{keys.encode(line.task)}:{line.index}", line.data], part),)
        case SegmentLine():
            key = where.log(line.channel, line.segment, line.lineage)
            return (Piece("list", key, list(line.items), key[len(where.prefix) + 1 :], line.offset),)
        case _:
            return _plain_pieces(where, line)


def _plain_pieces(where: keys.ThreadKeys, line: Line) -> Iterable[Piece]:
    match line:
        case ValueLine():
            return (Piece("hash", where.values, [line.digest, line.data]),)
        case EffectLine():
            return (Piece("hash", where.effects, [keys.check_id(line.key, "effect key"), line.record().spell()]),)
        case LetterLine():
            return (Piece("letters", where.inbox, [line.id, line.kind, line.name, line.value]),)
        case AnswerLine():
            return (Piece("hash", where.answers, [line.field, line.id]),)
        case _:
            return ()


@dataclass(slots=True)
class Writer:
    """Joins what goes to the same key, so that a line does not cost a round trip."""

    target: Seeding
    open: Piece | None = None
    strings: list[Piece] = field(default_factory=list[Piece])
    size: int = 0

    async def add(self, piece: Piece) -> None:
        """Take a piece; write what is held once it is a slice, or goes elsewhere."""
        if piece.kind == "string":
            self.strings.append(piece)
        elif self.open is None:
            self.open = piece
        elif self._continues(self.open, piece):
            self.open.items += piece.items
        else:
            await self.flush()
            self.open = piece
        self.size += sum(map(len, piece.items))
        if self.size >= SLICE_BYTES or len(self.strings) >= SLICE_ITEMS:
            await self.flush()

    async def flush(self) -> None:
        """Write what is held; a history comes before the checkpoints that it names."""
        piece, strings = self.open, self.strings
        self.open, self.strings, self.size = None, [], 0
        if piece is not None:
            await self.target.items(piece.kind, piece.key, piece.items, part=piece.part, offset=piece.offset)
        await asyncio.gather(*(self.target.string(one.key, cast("bytes", one.items[0])) for one in strings))

    @staticmethod
    def _continues(held: Piece, piece: Piece) -> bool:
        return (held.kind, held.key, held.part) == (piece.kind, piece.key, piece.part) and (
            piece.kind != "list" or piece.offset == held.offset + len(held.items)
        )
