"""A small store for channels, and a run that commits to it and loads from it."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from blackboard.checkpoints.channels import Channel, Items, Keep, Moved, Ref, Value, digest
from blackboard.checkpoints.log import Log
from blackboard.checkpoints.state import StateChannels


@dataclass
class Shelf:
    """A small store of segments that keeps the engine's rules: push behind an exact length, else a new segment."""

    segments: dict[str, list[bytes]] = field(default_factory=dict)
    written: int = 0

    def put(self, channel: Channel) -> Ref:
        match channel:
            case Keep(ref) | Moved(ref):
                return ref
            case Value(data):
                return Ref("value", inline=data, digest=digest(data))
            case Items(kind, base, new, whole):
                assert self.read(base) + list(new) == list(whole()) or kind == "map"
                return Ref(kind, segments=self._push(base, new))

    def _push(self, base: tuple[tuple[str, int], ...], new: Sequence[bytes]) -> tuple[tuple[str, int], ...]:
        self.written += sum(map(len, new))
        if not new:
            return base
        if base and len(self.segments[base[-1][0]]) == base[-1][1]:
            name, count = base[-1]
            self.segments[name] += new
            return (*base[:-1], (name, count + len(new)))
        name = f"s{len(self.segments)}"
        self.segments[name] = list(new)
        return (*base, (name, len(new)))

    def read(self, segments: tuple[tuple[str, int], ...]) -> list[bytes]:
        assert all(0 < count <= len(self.segments[name]) for name, count in segments)
        return [item for name, count in segments for item in self.segments[name][:count]]

    def contents(self, refs: Mapping[str, Ref]) -> dict[str, bytes | Sequence[bytes]]:
        return {name: ref.inline if ref.inline is not None else self.read(ref.segments) for name, ref in refs.items()}


class Driver:
    """One run of one state: commits to the shelf, and loads as another process would."""

    def __init__(self, model: type[Any], shelf: Shelf | None = None, refs: Mapping[str, Ref] | None = None) -> None:
        self.model = model
        self.shelf = shelf or Shelf()
        self.refs: Mapping[str, Ref] = refs or {}
        self.channels: StateChannels[Any] = StateChannels(model)

    def commit(self, state: Any) -> Mapping[str, Channel]:
        draft = self.channels.draft(state)
        self.refs = {name: self.shelf.put(channel) for name, channel in draft.channels.items()}
        self.channels.acknowledge(draft, self.refs)
        assert not self.channels.changed(state)
        return draft.channels

    def load(self, model: type[Any] | None = None) -> tuple[Driver, Any]:
        other = Driver(model or self.model, self.shelf, self.refs)
        state = other.channels.load(self.refs, self.shelf.contents(self.refs))
        assert not other.channels.changed(state)
        return other, state


def items(channel: Channel) -> Items:
    assert isinstance(channel, Items)
    return channel


def same(left: Any, right: Any) -> bool:
    """Equal in values, types and order."""
    return repr(left) == repr(right) and left == right


class Message(BaseModel, frozen=True):
    text: str


class Note(BaseModel):
    text: str = ""
    marks: list[int] = []


class State(BaseModel):
    messages: Log[Message] = Log()
    notes: list[Note] = []
    words: list[str] = []
    scores: dict[str, Any] = {}
    title: str = ""


def long(number: int) -> str:
    return f"word {number} " * 8


class Level(enum.Enum):
    LOW = 1


class Keyed(BaseModel):
    table: dict[Any, Any] = {}
    level: Level | None = None
