"""What a writer hands to the engine, and how it is spelled for commit.lua."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from blackboard import keys
from blackboard.checkpoints.channels import Channel, Items, Keep, Kind, Moved, Ref, Segments, Value, digest
from blackboard.checkpoints.manifest import head_frame, log_frame, ref_frame, text_frames
from blackboard.checkpoints.sealing import seal_items, seal_texts, value_place
from blackboard.claims.effect import Settlement
from blackboard.claims.lease import Token
from blackboard.codec.cipher import Seal
from blackboard.codec.limit import within
from blackboard.errors import StoreRegressed
from blackboard.settings import CheckpointNamespace

__all__ = ["MOST_SEGMENTS", "Arguments", "Commit", "Committed", "Place", "Status", "shown"]

MOST_SEGMENTS = 8
"""A log that would stand in more segments than this is written anew as one."""

_TEXTS = {
    "cursors": "the text of the cursors",
    "pending": "the text of the pending calls",
    "result": "the result, or the reason of a failure,",
    "extra": "the reason of a rewind, or the metadata,",
}
"""What a checkpoint holds besides its channels, each one text, and how it is called."""

Status = Literal["running", "parked", "finished", "failed"]


@dataclass(slots=True)  # as Committed and Place: made for every step, and frozen ones take three times as long to make
class Commit:
    """One checkpoint to store: its channels and everything that must land together with them.

    `base` says where the channels stood at the last acknowledged checkpoint; `ttl` is in seconds and belongs to a
    status that ends the thread, None keeps it for ever. `letters` are taken out of the inbox: (id, the signal's name or
    nothing). A parked thread says what it `awaits` and until when (`wake`, server time in µs). `parent` is what must be the
    newest checkpoint; `follows` is what the manifest names as parent instead, after a rewind. `artifacts` is what it refers
    to outside, by digest: `moved` or `mentioned`, or empty if the thread refers to it already. One that `waits` keeps its
    thread from expiring for being idle, until the root's next checkpoint.
    """

    step: int
    channels: Mapping[str, Channel]
    base: Mapping[str, Ref] = field(default_factory=dict[str, Ref])
    parent: str | None = None
    next: str | None = None
    cursors: bytes = b""
    pending: bytes = b""
    result: bytes = b""
    extra: bytes = b""
    settlements: Sequence[Settlement] = ()
    status: Status = "running"
    ttl: float | None = None
    letters: Sequence[tuple[str, str]] = ()
    awaits: str = ""
    wake: int | None = None
    drop_unread: bool = False
    follows: str | None = None
    artifacts: Sequence[tuple[str, str]] = ()
    waits: bool = False


@dataclass(slots=True)
class Committed:
    """The answer to a commit: what was stored, and where its channels stand now. `expires` is server time in ms."""

    checkpoint: str
    step: int
    time: int
    incarnation: str
    fence: int
    sequence: int
    expires: int | None
    refs: Mapping[str, Ref]
    repeated: bool = False


@dataclass(slots=True)
class Place:
    """Where a commit goes and on whose word; `sequence` is the thread's own number, None for an id of the caller's."""

    namespace: str
    thread: str
    checkpoint: str
    op: str
    lineage: str = ""
    token: Token | None = None
    sequence: int | None = None


@dataclass(slots=True)
class _Push:
    """A log that grows: where it stands if the items go to its tail, and if they start a segment."""

    name: str
    kind: Kind
    pushed: Segments
    fresh: Segments


class Arguments:
    """One commit spelled for the script; `whole` sends everything, whatever should be stored already.

    With a seal nothing leaves unencrypted but ids, names, `next` and numbers.
    """

    def __init__(self, place: Place, *, whole: bool, seal: Seal | None = None) -> None:
        self.thread = keys.ThreadKeys.of(place.namespace, place.thread)
        self.lineage, self.checkpoint, self.op = place.lineage, place.checkpoint, place.op
        self._place, self._whole, self._seal = place, whole, seal
        self.refs: dict[str, Ref] = {}
        self._pushes: list[_Push] = []
        self._keys: list[str] = []
        self._static: list[bytes] = []
        self._values: list[str | bytes] = []
        self._logs: list[str | bytes | int] = []
        self._checks: list[tuple[str, int]] = []
        self._artifacts: list[tuple[str, str]] = []

    def add(self, commit: Commit, policy: CheckpointNamespace) -> None:
        """Spell every channel; raises EncodeError for anything single that is over the namespace's limit."""
        self._artifacts += commit.artifacts
        for text, what in _TEXTS.items():
            within(policy.value_limit, getattr(commit, text), what, path=text)
        for name, channel in commit.channels.items():
            if isinstance(channel, Value):
                self._value(name, channel.data, commit.base.get(name), policy)
            elif isinstance(channel, Items):
                for item in channel.new:
                    within(policy.value_limit, item, f"an item of channel {name!r}", path=name)
                self._items(name, channel)
            elif isinstance(channel, Moved):
                self._values += [channel.ref.digest or "", channel.pointer]
                self._stand(name, channel.ref)
            else:
                self._keep(name, channel)

    def _value(self, name: str, data: bytes, base: Ref | None, policy: CheckpointNamespace) -> None:
        within(policy.value_limit, data, f"channel {name!r}", path=name)
        seal, thread = self._seal, self._place.thread
        if len(data) <= policy.inline_limit:
            if seal is not None:
                data = seal.seal(data, *value_place(thread, name, None))
            return self._stand(name, base if base is not None and base.inline == data else Ref("value", inline=data))
        named = digest(data) if seal is None else seal.digest(data, thread, name)
        stored = base is not None and base.digest == named and not self._whole
        if seal is not None and not stored:
            data = seal.seal(data, *value_place(thread, name, named))
        self._values += [named, b"" if stored else data]
        return self._stand(name, Ref("value", digest=named))

    def _items(self, name: str, items: Items) -> None:
        base, new = items.base, items.new
        if self._whole or (new and len(base) >= MOST_SEGMENTS):
            base, new = (), items.whole()
        if not new:
            self._refer(name, base)
            return self._stand(name, Ref(items.kind, segments=base))
        if self._seal is not None:
            start = sum(count for _, count in base)
            new = seal_items(self._seal, (self._place.thread, self.lineage, name), start, new)
        fresh: Segments = (*base, (self.op, len(new)))
        pushed, counted = fresh, -1
        tail_key = key = self.thread.log(name, self.op, self.lineage)
        if base:
            tail, counted = base[-1]
            pushed = (*base[:-1], (tail, counted + len(new)))
            tail_key = self.thread.log(name, tail, self.lineage)
            self._refer(name, base[:-1])
        self._keys += [tail_key, key]
        self._pushes.append(_Push(name, items.kind, pushed, fresh))
        part = key[len(self.thread.prefix) + 1 :]
        frames = log_frame(items.kind, name, pushed), log_frame(items.kind, name, fresh)
        self._logs += [counted, *frames, part, len(new), *new]
        return None

    def _keep(self, name: str, keep: Keep) -> None:
        if self._whole:
            raise StoreRegressed(
                f"channel {name!r} refers to content that the store no longer has, and nobody holds it", channel=name
            )
        if keep.ref.digest is not None:
            self._values += [keep.ref.digest, b""]
        if keep.ref.artifact is not None:
            self._artifacts.append((keep.ref.artifact, ""))
        self._refer(name, keep.ref.segments)
        self._stand(name, keep.ref)

    def _refer(self, name: str, segments: Segments) -> None:
        self._checks += [(self.thread.log(name, segment, self.lineage), count) for segment, count in segments]

    def _stand(self, name: str, ref: Ref) -> None:
        self.refs[name] = ref
        self._static.append(ref_frame(name, ref))

    def keys(self, commit: Commit) -> list[str]:
        """Spell KEYS."""
        t, lineage = self.thread, self.lineage
        own = t.checkpoint(self.checkpoint, lineage)
        parent = own if commit.parent is None else t.checkpoint(commit.parent, lineage)
        checked = [key for key, _ in self._checks]
        letters = (t.inbox, t.answers) if _corresponds(commit) else ()
        outside = (t.artifacts,) if self._artifacts else ()
        writes = t.writes(self.checkpoint, lineage)
        return [*_fixed(t, lineage), own, parent, writes, *self._keys, *checked, *outside, *letters]

    def args(self, commit: Commit, keep_ms: int, idle_ms: str) -> list[bytes | str | int]:
        """Spell ARGV; `keep_ms` is how long an op id is remembered, `idle_ms` the idle TTL or nothing."""
        args: list[bytes | str | int] = [*self._head(commit, keep_ms, idle_ms), self._manifest(commit)]
        args.append(len(commit.settlements))
        for settlement in commit.settlements:
            args += [settlement.key, settlement.expect, settlement.within(self.checkpoint)]
        args += self._letters(commit)
        args += [len(self._artifacts), *[part for one in self._artifacts for part in one]]
        args += [len(self._values) // 2, *self._values, len(self._pushes), *self._logs]
        args += [len(self._checks), *[count for _, count in self._checks]]
        return args

    def _letters(self, commit: Commit) -> list[bytes | str | int]:
        if not _corresponds(commit):
            return [0]
        wake = "" if commit.wake is None else str(commit.wake)
        taken = [part for letter in commit.letters for part in letter]
        return [1, len(commit.letters), *taken, commit.awaits, wake, int(commit.drop_unread)]

    def _head(self, commit: Commit, keep_ms: int, idle_ms: str) -> list[bytes | str | int]:
        place = self._place
        fence, incarnation = shown(place.token)
        mode, number = ("adapter", "") if place.sequence is None else ("native", str(place.sequence))
        ttl_ms = "" if commit.ttl is None else str(max(1, int(commit.ttl * 1000)))
        part = f"@{keys.encode(self.lineage, 'lineage')}" if self.lineage else ""
        parent = "" if commit.parent is None else keys.encode(commit.parent, "checkpoint id")
        own, idle = keys.encode(self.checkpoint, "checkpoint id"), "never" if commit.waits else idle_ms
        return [mode, self.op, keep_ms, fence, incarnation, parent, own, number, commit.status, idle, ttl_ms, part]

    def _manifest(self, commit: Commit) -> bytes:
        """Spell the manifest but for its time and the logs that grow, which the script adds."""
        fence = self._place.token.fence if self._place.token else 0
        head = head_frame(commit.step, self.op, fence, parent=commit.follows or commit.parent, following=commit.next)
        texts = text_frames(cursors=commit.cursors, pending=commit.pending, result=commit.result, extra=commit.extra)
        if self._seal is not None:
            place = (self._place.thread, self.lineage, self.checkpoint)
            refs = self.refs | {push.name: Ref(push.kind, segments=push.fresh) for push in self._pushes}
            texts = seal_texts(self._seal, place, head, refs, texts)
        return b"".join((head, texts, *self._static))

    def chosen(self, flags: bytes) -> dict[str, Ref]:
        """Tell where the channels stand, after the script said which logs it pushed to their tail."""
        refs = self.refs.copy()
        for push, flag in zip(self._pushes, flags, strict=True):
            refs[push.name] = Ref(push.kind, segments=push.pushed if flag == 0x31 else push.fresh)
        return refs


def _corresponds(commit: Commit) -> bool:
    """Tell whether a commit has to do with the inbox."""
    return commit.status != "running" or bool(commit.letters)


@functools.lru_cache(maxsize=4096)
def _fixed(thread: keys.ThreadKeys, lineage: str) -> tuple[str, ...]:
    """Spell the keys that every commit of a lineage declares."""
    own = (thread.meta, thread.latest(lineage), thread.lock, thread.ops, thread.history(lineage))
    return (*own, thread.values, thread.parts, thread.effects, thread.effects_open)


def shown(token: Token | None) -> tuple[str, str]:
    """Spell the fence and the incarnation that a writer shows, empty without a lease."""
    if token is None:
        return "", ""
    return str(token.fence), token.incarnation or ""
