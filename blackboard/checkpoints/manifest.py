"""The stored form of one checkpoint: `bb1` and tagged, length-prefixed frames that Lua can walk as well."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from blackboard import keys
from blackboard.checkpoints.channels import Ref, Segments
from blackboard.errors import CorruptValue

__all__ = [
    "Manifest", "Meta", "frame", "head_frame", "log_frame", "parse", "read_texts", "ref_frame", "sealed_frame", "spell",
    "text_frames",
]  # fmt: skip

MAGIC = b"bb1"
_LOGS = {"log": b"l", "map": b"m"}
_KINDS: Mapping[bytes, Any] = {b"l": "log", b"m": "map"}


@dataclass(frozen=True, slots=True)
class Manifest:
    """One checkpoint without its contents: what to do next and where every channel stands.

    `time` is server time in µs; `cursors`, `pending`, `result` and `extra` are bytes of the face that wrote them, and
    stand in `sealed` together as long as they are encrypted.
    """

    checkpoint: str
    time: int
    step: int
    parent: str | None
    next: str | None
    op: str
    fence: int
    cursors: bytes = b""
    pending: bytes = b""
    result: bytes = b""
    extra: bytes = b""
    refs: Mapping[str, Ref] = field(default_factory=dict[str, Ref])
    sealed: bytes = b""


@dataclass(frozen=True, slots=True)
class Meta:
    """What is true of a whole thread; times in µs of the server, `expires` in ms, None = never."""

    status: str
    fence: int = 0
    holder: str | None = None
    sequence: int = 0
    incarnation: str | None = None
    expires: int | None = None
    created: int = 0
    updated: int = 0
    takeovers: int = 0
    failures: int = 0
    pruned: str = ""
    removing: str | None = None
    reason: str | None = None
    awaits: str | None = None
    wake: int | None = None
    parent: str | None = None

    @classmethod
    def of(cls, flat: list[bytes]) -> Meta:
        """Read the reply of HGETALL; an empty one is the status `none`."""
        pairs = {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}
        numbers = {
            k: int(pairs[k])
            for k in ("fence", "sequence", "expires", "created", "updated", "takeovers", "failures", "wake")
            if k in pairs
        }
        texts = {
            k: pairs[k]
            for k in ("holder", "incarnation", "pruned", "removing", "reason", "awaits", "parent")
            if k in pairs
        }
        return cls(status=pairs.get("status", "none"), **numbers, **texts)  # type: ignore[arg-type]


def frame(tag: bytes, payload: bytes) -> bytes:
    """Spell one frame: length, colon, tag, space, payload."""
    return b"%d:%b %b" % (len(tag) + 1 + len(payload), tag, payload)


def head_frame(step: int, op: str, fence: int, *, parent: str | None, following: str | None) -> bytes:
    """Spell the head, a JSON object; put together by hand, for an encoder takes longer than the rest of a manifest."""
    text = f'{{"step":{step},"op":"{op}","fence":{fence}'
    if parent is not None:
        text += f',"parent":{json.dumps(parent)}'
    if following is not None:
        text += f',"next":{json.dumps(following)}'
    return frame(b"h", f"{text}}}".encode())


def text_frames(*, cursors: bytes, pending: bytes, result: bytes, extra: bytes) -> bytes:
    """Spell what the face wrote; nothing for what it left empty."""
    tagged = ((b"c", cursors), (b"p", pending), (b"r", result), (b"x", extra))
    return b"".join([frame(tag, payload) for tag, payload in tagged if payload])


def sealed_frame(data: bytes) -> bytes:
    """Spell the frames of the face, encrypted."""
    return frame(b"s", data)


def ref_frame(name: str, ref: Ref) -> bytes:
    """Spell where one channel stands."""
    if ref.kind != "value":
        return log_frame(ref.kind, name, ref.segments)
    if ref.inline is not None:
        return frame(b"i", keys.encode(name, "channel").encode() + b" " + ref.inline)
    return frame(b"d", f"{keys.encode(name, 'channel')} {ref.digest}".encode())


def log_frame(kind: str, name: str, segments: Segments) -> bytes:
    """Spell where a log or map stands."""
    spelled = " ".join([f"{segment},{count}" for segment, count in segments])
    return frame(_LOGS[kind], f"{keys.encode(name, 'channel')} {spelled}".encode())


def spell(manifest: Manifest) -> bytes:
    """Spell a whole manifest, as commit.lua puts it together."""
    time = str(manifest.time).encode()
    head = head_frame(
        manifest.step, manifest.op, manifest.fence, parent=manifest.parent, following=manifest.next
    )  # fmt: skip
    texts = sealed_frame(manifest.sealed) if manifest.sealed else text_frames(
        cursors=manifest.cursors, pending=manifest.pending, result=manifest.result, extra=manifest.extra
    )  # fmt: skip
    refs = b"".join(ref_frame(name, ref) for name, ref in manifest.refs.items())
    return b"%b%d:%b%b%b%b" % (MAGIC, len(time), time, head, texts, refs)


def parse(checkpoint: str, data: bytes) -> Manifest:
    """Read a stored manifest; raises CorruptValue for bytes that are not one."""
    try:
        return _parse(checkpoint, data)
    except (ValueError, KeyError, IndexError, TypeError, StopIteration) as error:
        raise CorruptValue(f"checkpoint {checkpoint!r} is not readable: {error}", checkpoint=checkpoint) from error


def read_texts(checkpoint: str, data: bytes) -> dict[bytes, bytes]:
    """Read what `text_frames` spelled, by tag; raises CorruptValue for anything else."""
    texts = {b"c": b"", b"p": b"", b"r": b"", b"x": b""}
    try:
        for payload in _frames(data, 0):
            tag, _, rest = payload.partition(b" ")
            texts[tag] = rest
    except ValueError as error:
        raise CorruptValue(f"checkpoint {checkpoint!r} is not readable: {error}", checkpoint=checkpoint) from error
    return texts


def _parse(checkpoint: str, data: bytes) -> Manifest:
    if not data.startswith(MAGIC):
        raise ValueError("it does not begin with bb1")
    frames = _frames(data, len(MAGIC))
    time = int(next(frames))
    head: dict[str, Any] | None = None
    texts = {b"c": b"", b"p": b"", b"r": b"", b"x": b"", b"s": b""}
    refs: dict[str, Ref] = {}
    for payload in frames:
        tag, _, rest = payload.partition(b" ")
        if tag == b"h":
            head = json.loads(rest)
        elif tag in texts:
            texts[tag] = rest
        else:
            name, _, where = rest.partition(b" ")
            refs[keys.decode(name.decode())] = _ref(tag, where)
    if head is None:
        raise ValueError("it has no head")
    return Manifest(
        checkpoint, time, head["step"], head.get("parent"), head.get("next"), head["op"], head["fence"],
        texts[b"c"], texts[b"p"], texts[b"r"], texts[b"x"], refs, texts[b"s"],
    )  # fmt: skip


def _ref(tag: bytes, where: bytes) -> Ref:
    if tag == b"i":
        return Ref("value", inline=where)
    if tag == b"d":
        return Ref("value", digest=where.decode())
    pairs = (text.rpartition(",") for text in where.decode().split())
    return Ref(_KINDS[tag], segments=tuple((segment, int(count)) for segment, _, count in pairs))


def _frames(data: bytes, position: int) -> Iterator[bytes]:
    while position < len(data):
        colon = data.index(b":", position)
        start, size = colon + 1, int(data[position:colon])
        if start + size > len(data):
            raise ValueError("it is cut short")
        yield data[start : start + size]
        position = start + size
