"""Receipts: what was forgotten, when and why, without saying what it was; each names the one before."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from hashlib import blake2b
from typing import Any

from blackboard.errors import CorruptValue
from blackboard.memory.writing import Forgotten

__all__ = ["Receipt", "marked"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one path forgot at one time. It names records by salted digests, so that it gives nothing of them away.

    `count` records were removed, `expired` of them had run out before; `scrubbed` rows went from the snapshot of the
    index. `first` and `last` are the seqs of the removals in the path's log, None if nothing was there. `time` is server
    time in µs. `previous` is the digest of the path's receipt before, empty for the first: a receipt that is taken out or
    altered breaks the chain. `below` are the receipts of the paths below, if those were asked for.
    """

    id: str
    namespace: str
    path: tuple[str, ...]
    time: int
    reason: str
    actor: str
    count: int
    expired: int
    scrubbed: int
    incarnation: int
    first: int | None
    last: int | None
    salt: str
    records: tuple[str, ...]
    contents: tuple[str, ...]
    previous: str = ""
    below: tuple[Receipt, ...] = ()

    @property
    def total(self) -> int:
        """How many records were removed, those below included."""
        return self.count + sum(one.total for one in self.below)

    @property
    def digest(self) -> str:
        """What the next receipt names it by: BLAKE2b, 128 bits, of everything but `below`."""
        return blake2b(self.text().encode(), digest_size=16).hexdigest()

    def after(self, previous: str) -> Receipt:
        """Return it as it follows another one."""
        return replace(self, previous=previous)

    def names(self, record: str) -> bool:
        """Tell whether a record of this id is among those that were forgotten."""
        return marked(self.salt, record) in self.records

    def says(self, content: str) -> bool:
        """Tell whether something of this digest of content is among what was forgotten."""
        return marked(self.salt, content) in self.contents

    def __iter__(self) -> Iterator[Receipt]:
        """Yield it, and those below."""
        yield self
        for one in self.below:
            yield from one

    def text(self) -> str:
        """Spell it as it is stored: JSON, in one order."""
        told = {name: value for name, value in asdict(self).items() if name != "below"}
        return json.dumps(told, ensure_ascii=True, sort_keys=True, separators=(",", ":"))

    @classmethod
    def parse(cls, data: bytes | str) -> Receipt:
        """Read what `text` has spelled; CorruptValue for anything else."""
        try:
            told: dict[str, Any] = json.loads(data)
            for name in ("path", "records", "contents"):
                told[name] = tuple(told[name])
            return cls(**told)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptValue(f"not a receipt; its fields are {', '.join(one.name for one in fields(cls))}") from error

    @classmethod
    def of(
        cls, gone: Iterable[Forgotten], *, id: str, namespace: str, path: tuple[str, ...], time: int,
        reason: str, actor: str, scrubbed: int,
    ) -> Receipt:  # fmt: skip
        """Make the receipt for what was removed."""
        taken = [*gone]
        salt = secrets.token_hex(16)
        seqs = [one.token.seq for one in taken]
        return cls(
            id=id, namespace=namespace, path=path, time=time, reason=reason, actor=actor,
            count=len(taken), expired=sum(one.version == 0 for one in taken), scrubbed=scrubbed,
            incarnation=taken[0].token.incarnation if taken else 0,
            first=min(seqs, default=None), last=max(seqs, default=None), salt=salt,
            records=tuple(sorted(marked(salt, one.id) for one in taken)),
            contents=tuple(sorted({marked(salt, one.content) for one in taken if one.content})),
        )  # fmt: skip


def marked(salt: str, name: str) -> str:
    """Return what stands for an id or a digest in a receipt: BLAKE2b, 128 bits, keyed by the receipt's salt."""
    return blake2b(name.encode(), key=bytes.fromhex(salt), digest_size=16).hexdigest()
