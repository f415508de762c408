"""Copying an encrypted thread: what belongs to one thread is opened there and sealed anew for the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from blackboard import keys
from blackboard.checkpoints.channels import Moved, Ref
from blackboard.checkpoints.manifest import Manifest, parse, spell
from blackboard.checkpoints.outside import Outside
from blackboard.checkpoints.sealing import Place, open_items, open_manifest, seal_items, seal_manifest, value_place
from blackboard.checkpoints.seeding import Seeding
from blackboard.claims.record import SettledEffect, body_kind
from blackboard.codec.cipher import Seal
from blackboard.errors import StoreRegressed

__all__ = ["Resealing"]


@dataclass(frozen=True, slots=True)
class Resealing:
    """Re-encrypts one copy with the current key; a manifest's values are written before it is returned.

    Only what a manifest refers to is known well enough to be opened, so debris does not come along. It remembers the
    names of the thread's values and segments while it lasts.
    """

    seal: Seal
    thread: str
    target: Seeding
    outside: Outside
    _values: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    _segments: dict[str, tuple[Place, str, int]] = field(default_factory=dict[str, tuple[Place, str, int]])

    @property
    def source(self) -> keys.ThreadKeys:
        """The keys of the thread that is copied."""
        return keys.ThreadKeys.of(self.target.namespace, self.thread)

    async def checkpoint(self, checkpoint: str, lineage: str, data: bytes) -> bytes:
        """Return a stored manifest as it stands in the same lineage of the copy."""
        manifest = parse(checkpoint, data)
        return spell(await self.manifest(manifest, lineage, lineage, parent=manifest.parent))

    async def manifest(self, manifest: Manifest, lineage: str, to: str, *, parent: str | None) -> Manifest:
        """Return a manifest for the copy's lineage `to`; its values are there then, its logs are not."""
        found = open_manifest(self.seal, self.thread, lineage, manifest)
        refs = {name: await self._ref(name, ref) for name, ref in found.refs.items()}
        for name, ref in refs.items():
            start = 0
            for segment, count in ref.segments:
                self._segments[self.source.log(name, segment, lineage)] = (self.thread, lineage, name), to, start
                start += count
        return seal_manifest(self.seal, self.target.thread, to, replace(found, refs=refs, parent=parent))

    def knows(self, segment: str) -> bool:
        """Tell whether a manifest refers to a segment of the thread, given by its key."""
        return segment in self._segments

    def items(self, segment: str, offset: int, items: Sequence[bytes]) -> list[bytes]:
        """Return items of a segment, from `offset` in it, for the copy."""
        place, to, start = self._segments[segment]
        plain = open_items(self.seal, place, start + offset, items)
        return seal_items(self.seal, (self.target.thread, to, place[2]), start + offset, plain)

    def effects(self, pairs: Sequence[bytes]) -> list[bytes]:
        """Return keys and records of settled effects for the copy."""
        return [one for at in range(0, len(pairs), 2) for one in self._effect(pairs[at], pairs[at + 1])]

    def writes(self, lineage: str, checkpoint: str, pairs: Sequence[bytes]) -> list[bytes]:
        """Return fields and bodies of pending writes for the copy."""
        sealed: list[bytes] = []
        for at in range(0, len(pairs), 2):
            place = (lineage, checkpoint, pairs[at].decode())
            body = self.seal.open(pairs[at + 1], "write", self.thread, *place)
            sealed += [pairs[at], self.seal.seal(body, "write", self.target.thread, *place)]
        return sealed

    async def _ref(self, name: str, ref: Ref) -> Ref:
        if ref.inline is not None:
            plain = self.seal.open(ref.inline, *value_place(self.thread, name, None))
            return replace(ref, inline=self.seal.seal(plain, *value_place(self.target.thread, name, None)))
        if ref.digest is None:
            return ref
        if (name, ref.digest) not in self._values:
            self._values[name, ref.digest] = await (
                self._moved(name, ref) if ref.artifact else self._value(name, ref.digest)
            )
        return replace(ref, digest=self._values[name, ref.digest])

    async def _value(self, name: str, digest: str) -> str:
        body = await self.target.store.command("HGET", self.source.values, digest)
        if body is None:
            raise StoreRegressed("a value of the thread that is copied is not there", lost="value")
        plain = self.seal.open(body, *value_place(self.thread, name, digest))
        named = self.seal.digest(plain, self.target.thread, name)
        sealed = self.seal.seal(plain, *value_place(self.target.thread, name, named))
        await self.target.items("hash", self.target.where.values, [named, sealed])
        return named

    async def _moved(self, name: str, ref: Ref) -> str:
        """Put a value that was moved out anew; returns where it stands for the copy."""
        found = await self.outside.fetch(self.thread, [ref])
        plain = self.seal.open(found[ref.artifact or ""], *value_place(self.thread, name, ref.named))
        to = self.target.thread
        named = self.seal.digest(plain, to, name)
        moved = Moved.to(named, await self.outside.put(to, self.seal.seal(plain, *value_place(to, name, named))))
        digest, artifact = moved.ref.digest or "", moved.ref.artifact or ""
        await self.target.items("hash", self.target.where.artifacts, [artifact, "moved"])
        await self.target.items("hash", self.target.where.values, [digest, moved.pointer])
        return digest

    def _effect(self, key: bytes, record: bytes) -> tuple[bytes, bytes]:
        effect = SettledEffect.parse(key, record)
        if effect.state != "done" and not effect.result:
            return key, record
        kind = body_kind(effect.state)
        plain = self.seal.open(effect.result, kind, self.thread, effect.key)
        return key, replace(effect, result=self.seal.seal(plain, kind, self.target.thread, effect.key)).spell()
