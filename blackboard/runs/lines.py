"""The lines of an exported thread: one JSON object each, told apart by `line`."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, TypeAdapter

from blackboard import keys
from blackboard.checkpoints.channels import Ref
from blackboard.checkpoints.manifest import Manifest
from blackboard.claims.record import SettledEffect, SettledState

__all__ = [
    "FORMAT",
    "VERSION",
    "AnswerLine",
    "CheckpointLine",
    "EffectLine",
    "End",
    "Header",
    "LetterLine",
    "Line",
    "LineageLine",
    "PinLine",
    "SegmentLine",
    "ValueLine",
    "WriteLine",
    "read",
]

FORMAT, VERSION = "blackboard-thread", 1
"""What a header says first; a change that older code would misread gets the next number."""


def _body(data: bytes) -> str | dict[str, str]:
    """Spell stored bytes: as text if they are UTF-8, as JSON of the codec is, else in base64."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _bytes(body: Any) -> bytes:
    match body:
        case bytes():
            return body
        case str():
            return body.encode()
        case {"base64": str(spelled), **rest} if not rest:
            return base64.b64decode(spelled, validate=True)
        case _:
            raise ValueError('contents are text, or {"base64": text}')


Body = Annotated[bytes, BeforeValidator(_bytes), PlainSerializer(_body)]
Digest = Annotated[str, Field(pattern=r"^[A-Za-z0-9_=-]+$")]
Segment = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.~-]+$")]
Operation = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:~-]*$")]
Moment = Annotated[int, Field(ge=0)]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    def spell(self) -> bytes:
        """Return the line with its end."""
        return self.model_dump_json(exclude_none=True).encode() + b"\n"


class Header(_Line):
    """The first line: what is exported, and what is true of the whole thread. `time` is server time in µs."""

    line: Literal["header"] = "header"
    format: Literal["blackboard-thread"] = "blackboard-thread"
    version: Literal[1] = 1
    namespace: str
    thread: str
    incarnation: str
    time: Moment
    status: Literal["running", "parked", "finished", "failed", "quarantined"]
    sequence: Moment
    reason: str | None = None
    awaits: str | None = None
    wake: Moment | None = None
    parent: str | None = None


class LineageLine(_Line):
    """One lineage, before all that belongs to it, and its newest checkpoint; the empty name is the thread's own."""

    line: Literal["lineage"] = "lineage"
    lineage: str
    latest: str


class Channel(_Line):
    """Where the content of a channel stands, as in a manifest."""

    kind: Literal["value", "log", "map"]
    inline: Body | None = None
    digest: Digest | None = None
    segments: tuple[tuple[Segment, Annotated[int, Field(ge=1)]], ...] | None = None

    @classmethod
    def of(cls, ref: Ref) -> Channel:
        """Spell a reference."""
        segments = None if ref.kind == "value" else ref.segments
        return cls(kind=ref.kind, inline=ref.inline, digest=ref.digest, segments=segments)

    def ref(self) -> Ref:
        """Read the reference; ValueError unless it says exactly one place."""
        given = [self.inline is not None, self.digest is not None, self.segments is not None]
        if sum(given) != 1 or (self.kind == "value") == given[2]:
            raise ValueError(f"a {self.kind} has inline or digest if it is a value, else segments")
        return Ref(self.kind, self.inline, self.digest, self.segments or ())


class CheckpointLine(_Line):
    """One checkpoint with its manifest, the oldest of a lineage first."""

    line: Literal["checkpoint"] = "checkpoint"
    lineage: str
    checkpoint: str
    time: Moment
    step: int
    parent: str | None = None
    next: str | None = None
    op: Operation
    fence: Moment
    cursors: Body
    pending: Body
    result: Body
    extra: Body
    channels: dict[str, Channel]

    @classmethod
    def of(cls, lineage: str, m: Manifest) -> CheckpointLine:
        """Spell a manifest."""
        return cls(
            lineage=lineage, checkpoint=m.checkpoint, time=m.time, step=m.step, parent=m.parent, next=m.next, op=m.op,
            fence=m.fence, cursors=m.cursors, pending=m.pending, result=m.result, extra=m.extra,
            channels={name: Channel.of(ref) for name, ref in m.refs.items()},
        )  # fmt: skip

    def manifest(self) -> Manifest:
        """Read the manifest."""
        refs = {keys.check_id(name, "channel"): channel.ref() for name, channel in self.channels.items()}
        return Manifest(
            self.checkpoint, self.time, self.step, self.parent, self.next, self.op, self.fence,
            self.cursors, self.pending, self.result, self.extra, refs,
        )  # fmt: skip


class PinLine(_Line):
    """A checkpoint that pruning leaves alone."""

    line: Literal["pin"] = "pin"
    lineage: str
    checkpoint: str


class WriteLine(_Line):
    """One pending write; `early` says that its checkpoint is not stored."""

    line: Literal["write"] = "write"
    lineage: str
    checkpoint: str
    task: str
    index: int
    data: Body
    early: bool = False


class SegmentLine(_Line):
    """Items of a log or map, from `offset` on."""

    line: Literal["segment"] = "segment"
    lineage: str
    channel: str
    segment: Segment
    offset: Moment
    items: tuple[Body, ...]


class ValueLine(_Line):
    """The content of channels that are values, under its digest."""

    line: Literal["value"] = "value"
    digest: Digest
    data: Body


class EffectLine(_Line):
    """One settled effect."""

    line: Literal["effect"] = "effect"
    key: str
    checkpoint: str | None = None
    settled_at: Moment
    state: SettledState
    attempt: Moment
    fingerprint: str
    op: str
    fence: Moment
    owner: str
    begun: str
    result: Body

    @classmethod
    def of(cls, effect: SettledEffect) -> EffectLine:
        """Spell a record."""
        return cls(
            key=effect.key, checkpoint=effect.checkpoint, settled_at=effect.settled_at, state=effect.state,
            attempt=effect.attempt, fingerprint=effect.fingerprint, op=effect.op, fence=effect.fence, owner=effect.owner,
            begun=effect.begun, result=effect.result,
        )  # fmt: skip

    def record(self) -> SettledEffect:
        """Read the record."""
        return SettledEffect(
            self.key, self.checkpoint, self.settled_at, self.state, self.attempt, self.fingerprint, self.op, self.fence,
            self.owner, self.begun, self.result,
        )  # fmt: skip


class LetterLine(_Line):
    """One letter of the inbox that nobody has taken, in order."""

    line: Literal["letter"] = "letter"
    id: Annotated[str, Field(pattern=r"^[0-9]{1,20}-[0-9]{1,20}$")]
    kind: Literal["signal", "note"]
    name: str
    value: Body


class AnswerLine(_Line):
    """A name of a signal (`n:`) or a key of a caller (`k:`) that the letter `id` has used."""

    line: Literal["answer"] = "answer"
    field: Annotated[str, Field(pattern=r"^[nk]:")]
    id: str


class End(_Line):
    """The last line: how many lines of each kind came before it, and the SHA-256 of their bytes."""

    line: Literal["end"] = "end"
    counts: dict[str, int]
    sha256: str


Line = (
    Header | LineageLine | CheckpointLine | PinLine | WriteLine | SegmentLine | ValueLine | EffectLine | LetterLine
    | AnswerLine | End
)  # fmt: skip

_LINES: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="line")])


def read(line: bytes) -> Line:
    """Read one line; ValueError says what is wrong with it."""
    return _LINES.validate_json(line)
