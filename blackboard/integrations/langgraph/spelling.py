"""How a LangGraph checkpoint is spelled for the engine, and read again.

A channel goes through the serializer as a whole. A list is then cut into its items and stored as a log, a dict as a map:
what stands in the store already is recognised by its bytes, so that the bytes written are those of what is new, and a change
in place is always seen. A list of messages is looked at item by item: those that are proved to be unchanged are not encoded
again. Everything else is a value.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast

import ormsgpack
from langgraph.checkpoint.base import WRITES_IDX_MAP, Checkpoint, CheckpointMetadata, PendingWrite, writes_sort_key
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from blackboard import keys
from blackboard.checkpoints.channels import Channel, Items, Keep, Ref, Segments, Value
from blackboard.checkpoints.engine import Write
from blackboard.checkpoints.manifest import Manifest
from blackboard.checkpoints.reading import Content, Snapshot
from blackboard.errors import ConfigError, CorruptValue, EncodeError
from blackboard.integrations.langgraph import marked, msgpack
from blackboard.integrations.langgraph.imprint import Imprint, are_messages
from blackboard.integrations.langgraph.kept import Kept, short
from blackboard.integrations.langgraph.serializer import BlackboardSerializer
from blackboard.integrations.langgraph.tagged import tagged, untagged
from blackboard.integrations.langgraph.versions import named, numbered

__all__ = ["Mark", "Spelling", "Stored", "check_whole", "step_of"]

USUAL = ("v", "ts", "channel_versions", "versions_seen", "updated_channels")
"""What every checkpoint has beside its id and its values."""

SHORT = 128
"""Shorter lists and dicts, in bytes, are values: a log costs a key of its own."""

SLACK = 16
"""How many entries a map may hold beyond twice those that count, before it is written anew."""


class Form(Protocol):
    """How a serializer writes lists and dicts, so that they can be cut without decoding them; a module each."""

    @property
    def KIND(self) -> str: ...  # noqa: N802 - a constant of the modules

    def head(self, data: bytes, /) -> tuple[Literal["log", "map"], int, int] | None: ...

    def split(self, data: bytes, at: int, count: int, /) -> Sequence[bytes]: ...

    def pairs(self, data: bytes, at: int, count: int, /) -> Sequence[tuple[bytes, bytes]]: ...

    def key(self, entry: bytes, /) -> bytes: ...

    def whole(self, kind: str, items: Sequence[bytes], /) -> bytes: ...


FORMS: Mapping[str, Form] = {marked.KIND: marked, msgpack.KIND: msgpack}


@dataclass(slots=True)
class Mark:
    """What of a channel is known to be stored: for a log how many of the kept items, for a map each key's digest."""

    count: int
    kept: Kept | None = None
    entries: Mapping[bytes, bytes] = field(default_factory=dict[bytes, bytes])


@dataclass(slots=True)
class Stored:
    """Where the channels of a checkpoint stand, by which a child refers to what did not change."""

    refs: Mapping[str, Ref]
    versions: Mapping[str, Any]
    marks: Mapping[str, Mark]


Known = tuple[Segments, Mark | None]


class Spelling:
    """Spells checkpoints and writes with one serializer; what was spelled reads with the same."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde

    def channels(
        self, checkpoint: Checkpoint, new_versions: Mapping[str, Any], parent: Stored | None
    ) -> tuple[dict[str, Channel], dict[str, Mark]]:
        """Spell every channel that has a value; one that did not change since `parent` is not encoded again."""
        channels: dict[str, Channel] = {}
        marks: dict[str, Mark] = {}
        for name, value in checkpoint["channel_values"].items():
            ref = parent.refs.get(name) if parent else None
            mark = parent.marks.get(name) if parent else None
            version = checkpoint["channel_versions"].get(name)
            if parent and ref and name not in new_versions and parent.versions.get(name) == version:
                channels[name] = Keep(ref)
            else:
                channels[name], mark = self._channel(name, value, ref, mark)
            if mark is not None:
                marks[name] = mark
        return channels, marks

    def _channel(self, name: str, value: Any, ref: Ref | None, mark: Mark | None) -> tuple[Channel, Mark | None]:
        if mark is not None and ref is not None and (spelled := self._messages(name, value, (ref.segments, mark))):
            return spelled
        kind, data = self._typed(value, f"channel {name!r}")
        form = FORMS.get(kind) if len(data) > SHORT else None
        made = None if form is None else form.head(data)
        # A dict that was not there before may not be there again.
        if form is None or made is None or (made[0] == "map" and ref is None) or not self._is_cut(form, data, made):
            return Value(tagged(kind, data)), None
        base = ref.segments if ref is not None and ref.kind == made[0] else ()
        spell = _log if made[0] == "log" else _map
        return spell(form, data, made[1:], (base, mark))

    def _is_cut(self, form: Form, data: bytes, made: tuple[Literal["log", "map"], int, int]) -> bool:
        """Tell whether a list or dict may be stored in parts: whether what the parts make is what the serializer wrote.

        Of the two serializers that are known this is so. Another one may give its bytes the name of theirs; what it reads of a
        dict with a key that stands twice nobody knows.
        """
        if type(self.serde) in (BlackboardSerializer, JsonPlusSerializer):
            return True
        try:
            return made[0] == "log" and form.whole("log", form.split(data, made[2], made[1])) == data
        except (ValueError, IndexError):
            return False

    def _messages(self, name: str, value: Any, stored: Known) -> tuple[Channel, Mark] | None:
        """Spell a list of messages that stands as a log, item by item; None if it is no such list, or no longer one."""
        base, mark = stored
        kept = mark.kept if mark is not None else None
        if mark is None or kept is None or kept.pressed or not _is_itemwise(self.serde):
            return None
        if not are_messages(value):
            return None
        known = value[: mark.count]
        shared = len(known) if kept.imprints.stand(known) else 0
        for item in known[shared:]:
            seen = kept.imprints[shared]
            if seen is None or not seen.stands(item):
                imprint, data = self._item(name, shared, item)
                if data is None:
                    return None
                if not kept.matches(shared, data):
                    break
                kept.imprints[shared] = imprint
            shared += 1
        spelled, imprints = list[bytes](), list[Imprint | None]()
        for at, item in enumerate(value[shared:], shared):
            imprint, data = self._item(name, at, item)
            if data is None:
                return None
            spelled.append(data)
            imprints.append(imprint)
        grown, count = kept.grown(shared, spelled, imprints), len(value)
        items = grown.items
        return Items("log", _prefix(base, shared), spelled, lambda: items[:count]), Mark(count, grown)

    def _item(self, name: str, at: int, item: Any) -> tuple[Imprint | None, bytes | None]:
        """Spell one item as it is spelled within a list; no bytes if the serializer has no form for it that can be cut."""
        imprint = Imprint.of(item)  # before it is spelled: what another thread changes meanwhile is seen the next time
        kind, data = self._typed([item], f"channel {name!r}, item {at}")
        form = FORMS.get(kind)
        made = None if form is None else form.head(data)
        return imprint, None if form is None or made is None else form.split(data, made[2], 1)[0]

    def _typed(self, value: Any, place: str) -> tuple[str, bytes]:
        try:
            kind, data = self.serde.dumps_typed(value)
        except EncodeError as refused:
            raise EncodeError(f"{place}: {refused}", **refused.ids) from refused
        except TypeError as refused:  # as LangGraph's serializer says of a class that it does not know
            raise EncodeError(f"{place}: the serializer cannot write {type(value).__name__}: {refused}") from refused
        return kind, bytes(data)

    def value(self, ref: Ref, content: Content) -> Any:
        """Read the value of a channel."""
        if isinstance(content, bytes):
            return self._loads(content)
        form = _form(content)
        return self._read(form.KIND, form.whole(ref.kind, content))

    def about(self, checkpoint: Checkpoint, metadata: CheckpointMetadata) -> bytes:
        """Spell what of a checkpoint is no channel value, and its metadata; what every checkpoint has needs no names."""
        c = checkpoint
        usual = [
            c.get("v"),
            c.get("ts"),
            numbered(c["channel_versions"], c.get("versions_seen", {}), c.get("updated_channels")),
        ]
        if lacking := [name for name in USUAL if name not in c]:
            usual.append(lacking)
        more = {name: value for name, value in checkpoint.items() if name not in {"id", "channel_values", *USUAL}}
        return tagged(*self._typed([usual, more, metadata], "metadata"))

    def rest(self, manifest: Manifest) -> tuple[Checkpoint, CheckpointMetadata]:
        """Read what `about` spelled; the checkpoint has no values yet."""
        usual, more, metadata = self._loads(manifest.extra)
        v, ts, versions, *lacking = usual
        checkpoint = dict(zip(USUAL, (v, ts, *named(versions)), strict=True)) | more
        for name in lacking[0] if lacking else ():
            del checkpoint[name]
        checkpoint |= {"id": manifest.checkpoint, "channel_values": {}}
        return cast("Checkpoint", checkpoint), metadata

    def stored(self, snapshot: Snapshot, versions: Mapping[str, Any], known: Stored | None) -> Stored:
        """Note where a checkpoint that was read stands; the lists that are known of it stay, if they are as they were read."""
        refs, marks = snapshot.manifest.refs, dict[str, Mark]()
        for name, content in snapshot.contents.items():
            if isinstance(content, bytes):
                continue
            if refs[name].kind == "log":
                mark = None if known is None else known.marks.get(name)
                marks[name] = Mark(len(content), _kept(mark, content))
            else:
                marks[name] = Mark(len(content), entries=_entries(content))
        return Stored(refs, versions, marks)

    def pending(self, writes: Sequence[tuple[str, Any]], task: str, path: str) -> list[Write]:
        """Spell what a task wrote; ConfigError, before anything is sent, for what would not be readable afterwards."""
        if not isinstance(path, str):  # pyright: ignore[reportUnnecessaryIsInstance] - one that is none could not be sorted
            raise ConfigError(f"task_path must be a str, got {path!r}", value=path)
        try:
            pairs = [(name, value) for name, value in writes]
        except (TypeError, ValueError):
            raise ConfigError(f"writes are pairs of a channel and a value, got {writes!r}", value=writes) from None
        return [self._write(task, path, at, pair) for at, pair in enumerate(pairs)]

    def _write(self, task: str, path: str, at: int, pair: tuple[str, Any]) -> Write:
        """Spell one pending write; those of LangGraph's own channels go over what is there."""
        channel, value = pair
        if not isinstance(channel, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"a write names its channel by a str, got {channel!r}", value=channel)
        kind, data = self._typed(value, f"write to {channel!r}")
        place = WRITES_IDX_MAP.get(channel, at)
        try:
            return Write(task, place, ormsgpack.packb([channel, path, kind, data]), overwrite=place < 0)
        except TypeError:
            raise ConfigError(
                f"channel {channel!r} or task_path {path!r} holds a lone surrogate; use valid text"
            ) from None

    def writes(self, stored: Mapping[str, bytes], only: Collection[str] | None = None) -> list[PendingWrite]:
        """Read pending writes in the order in which LangGraph applies them; of the channels `only`, if given."""
        found: list[tuple[Any, PendingWrite]] = []
        for spelled, data in stored.items():
            task, _, index = spelled.rpartition(":")
            try:
                channel, path, kind, body = ormsgpack.unpackb(data)
            except ValueError as error:
                raise CorruptValue(f"the pending write {spelled!r} is not readable: {error}") from error
            if only is None or channel in only:
                task = keys.decode(task)
                order = writes_sort_key(path, task, int(index))
                found.append((order, (task, channel, self._read(kind, body))))
        return [write for _, write in sorted(found, key=lambda each: each[0])]

    def _loads(self, data: bytes) -> Any:
        return self._read(*untagged(data))

    def _read(self, kind: str, body: bytes) -> Any:
        try:
            return self.serde.loads_typed((kind, body))
        except NotImplementedError as unknown:
            raise CorruptValue(
                f"a value was written by another serializer, as {kind!r}: give the saver the one that wrote it",
                key=kind,
            ) from unknown


def check_whole(checkpoint: Any, metadata: Any) -> None:
    """Refuse, with ConfigError, what is no checkpoint: one that lacks its id, values or versions could not be read again."""
    if not isinstance(checkpoint, Mapping):
        raise ConfigError(f"a checkpoint is a dict, got {checkpoint!r}", value=checkpoint)
    held = cast("Mapping[str, Any]", checkpoint)
    for name, kind in (("id", str), ("channel_values", Mapping), ("channel_versions", Mapping)):
        if not isinstance(held.get(name), kind):
            raise ConfigError(
                f"a checkpoint's {name} must be a {kind.__name__}, got {held.get(name)!r}", value=held.get(name)
            )
    if not isinstance(metadata, Mapping):
        raise ConfigError(f"metadata is a dict, got {metadata!r}", value=metadata)


def step_of(metadata: CheckpointMetadata) -> int:
    """Return the step of a checkpoint; 0 where the metadata, to which a config may add anything, has none that is a number."""
    step: object = metadata.get("step")
    return int(step) if isinstance(step, (int, float)) and math.isfinite(step) else 0


def _form(content: Sequence[bytes]) -> Form:
    """Tell by which serializer the items of a log or map were written."""
    return marked if content and content[0].startswith(marked.MARK) else msgpack


def _is_itemwise(serde: SerializerProtocol) -> bool:
    """Tell whether a serializer is known to spell a list as its items one after the other."""
    return type(serde) is BlackboardSerializer or (type(serde) is JsonPlusSerializer and not serde.pickle_fallback)


def _log(form: Form, data: bytes, made: tuple[int, int], known: Known) -> tuple[Channel, Mark]:
    """Spell a list: what follows those of its items that stand already goes behind them."""
    (count, start), (base, mark) = made, known
    kept, number = (mark.kept, mark.count) if base and mark is not None and mark.kept is not None else (Kept(), 0)
    shared, new = kept.shared(form.split, (data, start, count), number)
    items = Items("log", _prefix(base, shared), new, lambda: form.split(data, start, count))
    return items, Mark(count, kept.grown(shared, new))


def _kept(mark: Mark | None, content: Sequence[bytes]) -> Kept:
    """Give the list that holds these items already, else a new one."""
    kept = None if mark is None else mark.kept
    if kept is not None and not kept.pressed and kept.items[: len(content)] == content:
        return kept
    return Kept(content)


def _prefix(base: Segments, count: int) -> Segments:
    """Refer to the first items of a log."""
    found: list[tuple[str, int]] = []
    for segment, number in base:
        if count > 0:
            found.append((segment, min(number, count)))
            count -= number
    return tuple(found)


def _map(form: Form, data: bytes, made: tuple[int, int], known: Known) -> tuple[Channel, Mark]:
    """Spell a dict: what changed goes behind what stands, for of two entries with one key the last counts."""
    (count, start), (base, mark) = made, known
    pairs = form.pairs(data, start, count)
    entries = {key: short(pair) for key, pair in pairs}
    whole = [pair for _, pair in pairs]
    old: Mapping[bytes, bytes] = mark.entries if base and mark is not None else {}
    grows = bool(old) and list(old) == list(entries)[: len(old)]
    new = [pair for key, pair in pairs if old.get(key) != entries[key]]
    standing = sum(number for _, number in base)
    if not grows or standing + len(new) > 2 * count + SLACK:
        base, new = (), whole
    return Items("map", base, new, lambda: whole), Mark(count, entries=entries)


def _entries(content: Sequence[bytes]) -> dict[bytes, bytes]:
    """Read the keys of a map's entries and a digest of each; the last of one key counts, in the place of the first."""
    form = _form(content)
    return {form.key(entry): short(entry) for entry in content}
