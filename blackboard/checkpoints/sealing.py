"""Checkpoints of an encrypted namespace: what is sealed on the way out, and opened on the way in.

The texts of a manifest are sealed together, bound to its head and to what it refers to: so neither its next step nor a
channel can be exchanged for that of another checkpoint. An item of a log or map is bound to its position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from blackboard import keys
from blackboard.checkpoints.channels import Ref
from blackboard.checkpoints.manifest import (
    Manifest,
    frame,
    head_frame,
    read_texts,
    ref_frame,
    sealed_frame,
    text_frames,
)
from blackboard.codec.cipher import Seal, opened
from blackboard.errors import CorruptValue

__all__ = [
    "Place",
    "open_content",
    "open_items",
    "open_manifest",
    "open_writes",
    "seal_items",
    "seal_manifest",
    "seal_texts",
    "value_place",
]

Place = tuple[str, str, str]
"""Thread, lineage, and a channel or a checkpoint."""


def seal_texts(seal: Seal, place: Place, head: bytes, refs: Mapping[str, Ref], texts: bytes) -> bytes:
    """Seal the frames that a face wrote; `place` is thread, lineage and checkpoint."""
    return sealed_frame(seal.seal(texts, "checkpoint", *place, bound=head + _summary(refs)))


def seal_items(seal: Seal, place: Place, start: int, items: Sequence[bytes]) -> list[bytes]:
    """Seal items of a log or map; `start` is how many stand before them."""
    return [seal.seal(one, "item", *place, str(at)) for at, one in enumerate(items, start)]


def open_items(seal: Seal, place: Place, start: int, items: Sequence[bytes]) -> list[bytes]:
    """Open items of a log or map."""
    return [seal.open(one, "item", *place, str(at)) for at, one in enumerate(items, start)]


def seal_manifest(seal: Seal, thread: str, lineage: str, manifest: Manifest) -> Manifest:
    """Seal the texts of an opened manifest anew, for where it stands now."""
    texts = text_frames(
        cursors=manifest.cursors, pending=manifest.pending, result=manifest.result, extra=manifest.extra
    )  # fmt: skip
    place, bound = (thread, lineage, manifest.checkpoint), _head(manifest) + _summary(manifest.refs)
    body = seal.seal(texts, "checkpoint", *place, bound=bound)
    return replace(manifest, cursors=b"", pending=b"", result=b"", extra=b"", sealed=body)


def open_manifest(seal: Seal | None, thread: str, lineage: str, manifest: Manifest) -> Manifest:
    """Open the texts of a stored manifest; raises as `Seal.open`, and KeyMissing where the namespace has no keys."""
    if not manifest.sealed:
        if seal is not None:
            seal.check_plaintext("checkpoint", thread, lineage, manifest.checkpoint)
        return manifest
    if seal is None:
        opened(None, manifest.sealed, "checkpoint", thread, lineage, manifest.checkpoint)
        raise CorruptValue(
            f"checkpoint {manifest.checkpoint!r} is sealed in no known form", checkpoint=manifest.checkpoint
        )
    bound = _head(manifest) + _summary(manifest.refs)
    texts = seal.open(manifest.sealed, "checkpoint", thread, lineage, manifest.checkpoint, bound=bound)
    found = read_texts(manifest.checkpoint, texts)
    return replace(
        manifest, cursors=found[b"c"], pending=found[b"p"], result=found[b"r"], extra=found[b"x"], sealed=b""
    )


def open_content(seal: Seal, place: Place, ref: Ref, content: bytes | Sequence[bytes]) -> bytes | Sequence[bytes]:
    """Open what a reference led to."""
    thread, _, channel = place
    if isinstance(content, bytes):
        return seal.open(content, *value_place(thread, channel, ref.named))
    return open_items(seal, place, 0, content)


def value_place(thread: str, channel: str, digest: str | None) -> tuple[str, str, str, str]:
    """Spell where a value belongs; without a digest it stands in the manifest."""
    return ("inline value", thread, channel, "") if digest is None else ("value", thread, channel, digest)


def open_writes(
    seal: Seal | None, thread: str, lineage: str, checkpoint: str, writes: Mapping[str, bytes]
) -> Mapping[str, bytes]:
    """Open the writes that are pending on a checkpoint."""
    return {field: opened(seal, data, "write", thread, lineage, checkpoint, field) for field, data in writes.items()}


def _head(manifest: Manifest) -> bytes:
    return head_frame(
        manifest.step, manifest.op, manifest.fence, parent=manifest.parent, following=manifest.next
    )  # fmt: skip


def _summary(refs: Mapping[str, Ref]) -> bytes:
    """Spell what a manifest refers to, as far as it is known before the script has chosen the segments of logs."""
    return b"".join([_one(name, refs[name]) for name in sorted(refs)])


def _one(name: str, ref: Ref) -> bytes:
    if ref.kind == "value":
        return ref_frame(name, ref)
    return frame(b"n", f"{keys.encode(name, 'channel')} {ref.kind} {ref.count}".encode())
