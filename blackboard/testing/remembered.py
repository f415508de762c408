"""What a path of memory holds, as plain Python: the model that the records in a store are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

__all__ = ["Remembered", "Trace"]


@dataclass(frozen=True, slots=True)
class Trace:
    """One record of the model; `first` is the place of its first write among all writes, `ends` whether it expires some time."""

    id: str
    text: str
    first: int
    subject: str | None = None
    valid_from: int = 0
    valid_until: int | None = None
    superseded_by: str | None = None
    version: int = 1
    importance: float = 0.5
    ends: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands among the records about its subject."""
        return self.valid_from, self.first


@dataclass(slots=True)
class Remembered:
    """The records that are there, by id, and of each source the merged record, or what is left of it."""

    records: dict[str, Trace] = field(default_factory=dict[str, Trace])
    sources: dict[str, str] = field(default_factory=dict[str, str])
    writes: int = 0

    def twin(self, text: str, subject: str | None) -> Trace | None:
        """Return the first of the records that say the same and are not superseded."""
        same = [
            one for one in self.records.values() if (one.text, one.subject, one.superseded_by) == (text, subject, None)
        ]
        return min(same, key=lambda one: one.first, default=None)

    def put(
        self,
        id: str,
        text: str,
        subject: str | None,
        valid_from: int,
        *,
        importance: float = 0.5,
        ttl: int | None = None,
    ) -> Trace:
        """Write a record, new or over the one of this id."""
        self.writes += 1
        old = self.records.get(id)
        if old is None:
            self.clear(id)
        if old is None or (old.subject, old.valid_from) != (subject, valid_from):
            self.sources.pop(id, None)
        new = Trace(id, text, self.writes, subject, valid_from, importance=importance, ends=ttl is not None)
        if old is not None:
            new = replace(new, version=old.version + 1, first=old.first)
        if old is not None and (old.subject, old.valid_from) == (subject, valid_from):
            new = replace(new, valid_until=old.valid_until, superseded_by=old.superseded_by)
            self.records[id] = new
        else:
            self._enter(old, new)
        return self.records[id]

    def merge(self, id: str, text: str, at: int, sources: Sequence[str], *, importance: float, ends: bool) -> Trace:
        """Let a new record stand for others, from a time on."""
        self.writes += 1
        self.records[id] = Trace(id, text, self.writes, None, at, importance=importance, ends=ends)
        for name in sources:
            self.records[name] = replace(self.records[name], valid_until=at, superseded_by=id)
            self.sources[name] = id
        self._raise({*sources})
        return self.records[id]

    def forget(self, id: str) -> Trace | None:
        """Remove a record; what it ended goes on, and what it stood for is current, or stands behind what it stood behind itself."""
        old = self.records.get(id)
        if old is not None:
            self._raise(self._left(old))
            self.clear(id, old)
        return old

    def clear(self, id: str, old: Trace | None = None) -> None:
        """Let what a record has stood for go on without it; there may be no more of it than what is left of one that expired."""
        self.sources.pop(id, None)
        by = None if old is None or old.subject is not None else old.superseded_by
        for name in [name for name, other in self.sources.items() if other == id]:
            del self.sources[name]
            if name in self.records:
                until = None if old is None or by is None else old.valid_until
                self.records[name] = replace(self.records[name], valid_until=until, superseded_by=by)
                self._raise({name})
                if by is not None:
                    self.sources[name] = by

    def undo(self, id: str) -> int:
        """Take a merged record apart, if it is current and anything is left of what it stands for; returns how many are current."""
        stands = self.records.get(id)
        found = [name for name, other in self.sources.items() if other == id and name in self.records]
        if stands is None or stands.superseded_by is not None or not found:
            return 0
        self.forget(id)
        return len(found)

    def expire(self, id: str) -> None:
        """Let a record's time be over; what it ended stays ended."""
        del self.records[id]

    def about(self, subject: str) -> list[Trace]:
        """List the records about a subject, the current one first."""
        found = [record for record in self.records.values() if record.subject == subject]
        return sorted(found, key=lambda record: record.place, reverse=True)

    def _enter(self, old: Trace | None, new: Trace) -> None:
        """Put a record where it belongs among those about its subject, and out of where it stood."""
        ended = self._left(old)
        if new.subject is not None:
            line = [record for record in self.about(new.subject) if record.id != new.id]
            after = [record for record in line if record.place > new.place]
            before = [record for record in line if record.place < new.place]
            if after:
                new = replace(new, valid_until=after[-1].valid_from, superseded_by=after[-1].id)
            if before and (before[0].valid_until is None or before[0].valid_until > new.valid_from):
                self.records[before[0].id] = replace(before[0], valid_until=new.valid_from, superseded_by=new.id)
                ended.add(before[0].id)
        self.records[new.id] = new
        self._raise(ended)

    def _left(self, old: Trace | None) -> set[str]:
        """Take a record out of its line; returns the id of the one before it, if it was what ended that."""
        if old is None:
            return set()
        del self.records[old.id]
        line = [] if old.subject is None else [one for one in self.about(old.subject) if one.place < old.place]
        if not line or line[0].superseded_by != old.id:
            return set()
        self.records[line[0].id] = replace(line[0], valid_until=old.valid_until, superseded_by=old.superseded_by)
        return {line[0].id}

    def _raise(self, ended: set[str]) -> None:
        """Count the move of an end as a write of the record."""
        for name in ended:
            self.records[name] = replace(self.records[name], version=self.records[name].version + 1)
