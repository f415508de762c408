"""The one place where a key is spelled and parsed.

Every id is percent-encoded before it becomes part of a key, so that two ids never share a key, no id is ever a
pattern, and the braces stay what they are: the cluster hash tag that keeps all of a thread in one slot.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from blackboard.errors import ConfigError

__all__ = [
    "EPOCH", "LONGEST_ID", "PATH_SEPARATOR", "SHARDS", "ArtifactKeys", "CacheKeys", "PathKeys", "ThreadKeys",
    "artifacts", "caches", "check_id", "children", "decode", "effect", "encode", "path_segments", "path_text",
    "sequence_id", "shard", "threads", "tops",
]  # fmt: skip

LONGEST_ID = 1024
"""Longest id in bytes of UTF-8."""

SHARDS = 16
"""Number of keys over which a namespace spreads its list of threads."""

PATH_SEPARATOR = "/"
"""What stands between the segments of a path; inside a segment it is percent-encoded."""

EPOCH = "bb:epoch"
"""The sentinel by which a server that lost its data is recognised; on the permanent list."""


def check_id(value: str, what: str = "id") -> str:
    """Return the id unchanged, or raise ConfigError (a ValueError) naming what is wrong with it.

    An id is a non-empty str of at most 1,024 bytes of UTF-8; any character is allowed, lone surrogates are not.
    """
    if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not be typed
        raise ConfigError(f"{what} must be a str, not {type(value).__name__}: {value!r}", value=value)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ConfigError(f"{what} {value!r} holds a lone surrogate; use valid text", value=value) from None
    if not 0 < size <= LONGEST_ID:
        raise ConfigError(f"{what} must have 1 to {LONGEST_ID} bytes, got {size}: {value[:40]!r}", value=value)
    return value


@functools.lru_cache(maxsize=4096)
def encode(value: str, what: str = "id") -> str:
    """Percent-encode an id: injective, and nothing but unreserved characters and % remains."""
    if type(value) is str and value.isalnum() and value.isascii() and len(value) <= LONGEST_ID:
        return value  # as every checkpoint id of ours is; quoting takes three times as long
    return quote(check_id(value, what), safe="")


def decode(value: str) -> str:
    """Undo `encode`."""
    return unquote(value, errors="strict")


def sequence_id(sequence: int) -> str:
    """Spell a sequence number as a checkpoint id: zero-padded, so that ids order as they were given."""
    return f"{sequence:012d}"


def shard(thread: str) -> int:
    """Tell in which of the namespace's thread lists an id stands; stable for ever (CRC-32)."""
    return zlib.crc32(check_id(thread, "thread id").encode()) % SHARDS


def threads(namespace: str, number: int) -> str:
    """Spell the key of one shard of the namespace's list of threads."""
    return f"bb:{encode(namespace, 'namespace')}:threads:{number}"


def artifacts(number: int) -> str:
    """Spell the key of one shard of the list of artifacts: those whose digest begins with this hex digit."""
    return f"bb:artifacts:{number}"


def effect(namespace: str, key: str) -> str:
    """Spell the key of an effect that is claimed across threads."""
    return f"bb:{encode(namespace, 'namespace')}:effect:{{{encode(key, 'effect key')}}}"


@dataclass(frozen=True, slots=True)
class ThreadKeys:
    """The keys of one thread; all carry the thread's hash tag. `prefix` ends before the first colon after it."""

    prefix: str

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def of(cls, namespace: str, thread: str) -> ThreadKeys:
        """Spell the keys of a thread; raises ConfigError for an id that cannot be one."""
        return cls(f"bb:{encode(namespace, 'namespace')}:thread:{{{encode(thread, 'thread id')}}}")

    @property
    def meta(self) -> str:
        """Hash: status, fence, sequence, incarnation, expiry and the rest that is true of the whole thread."""
        return f"{self.prefix}:meta"

    @property
    def lock(self) -> str:
        """String with PX: the lease, owner and fence."""
        return f"{self.prefix}:lock"

    @property
    def ops(self) -> str:
        """Sorted set with PX: recent op ids and dead owners, by time."""
        return f"{self.prefix}:ops"

    @property
    def parts(self) -> str:
        """Set: what else belongs to the thread (lineages, log segments, writes before their checkpoint)."""
        return f"{self.prefix}:parts"

    @property
    def values(self) -> str:
        """Hash: channel values by digest."""
        return f"{self.prefix}:values"

    @property
    def effects(self) -> str:
        """Hash: the settled effects of the thread."""
        return f"{self.prefix}:effects"

    @property
    def effects_open(self) -> str:
        """Hash: the effects that are running or unknown."""
        return f"{self.prefix}:effects:open"

    @property
    def inbox(self) -> str:
        """Stream: signals from outside."""
        return f"{self.prefix}:inbox"

    @property
    def answers(self) -> str:
        """Hash: which signals were answered and which keys of signals were seen."""
        return f"{self.prefix}:answers"

    @property
    def artifacts(self) -> str:
        """Hash: the artifacts that the thread refers to, by digest, each `moved` or `mentioned`."""
        return f"{self.prefix}:artifacts"

    def latest(self, lineage: str = "") -> str:
        """String: the id of the newest checkpoint, the commit point."""
        return f"{self.prefix}:latest{_at(lineage)}"

    def history(self, lineage: str = "") -> str:
        """Sorted set with equal scores: checkpoint ids in byte order."""
        return f"{self.prefix}:history{_at(lineage)}"

    def pins(self, lineage: str = "") -> str:
        """Set: ids of checkpoints that pruning leaves alone."""
        return f"{self.prefix}:pins{_at(lineage)}"

    def checkpoints(self, lineage: str = "") -> str:
        """Return what stands before the id in a checkpoint's key."""
        return f"{self.prefix}:checkpoint{_at(lineage)}:"

    def checkpoint(self, checkpoint: str, lineage: str = "") -> str:
        """String: the manifest of one step."""
        return self.checkpoints(lineage) + encode(checkpoint, "checkpoint id")

    def logs(self, lineage: str = "") -> str:
        """Return what stands before channel and segment in a log's key."""
        return f"{self.prefix}:log{_at(lineage)}:"

    def log(self, channel: str, segment: str, lineage: str = "") -> str:
        """List: the items of one segment of an append-only channel."""
        return f"{self.logs(lineage)}{encode(channel, 'channel')}:{segment}"

    def writes(self, checkpoint: str, lineage: str = "") -> str:
        """Hash: the pending writes against a checkpoint, by task and index."""
        return f"{self.prefix}:writes{_at(lineage)}:{encode(checkpoint, 'checkpoint id')}"


@dataclass(frozen=True, slots=True)
class ArtifactKeys:
    """The keys of one artifact; all carry its digest (SHA-256 in hex) as their hash tag."""

    digest: str

    @property
    def prefix(self) -> str:
        """What every key of the artifact begins with, up to a colon."""
        return f"bb:artifact:{{{self.digest}}}"

    @property
    def shard(self) -> str:
        """Sorted set: the shard of the list that the artifact stands in."""
        return artifacts(int(self.digest[0], 16))

    @property
    def head(self) -> str:
        """Hash: size, digests of the chunks, where they stand, times; written last: with it the artifact is stored."""
        return f"{self.prefix}:head"

    @property
    def refs(self) -> str:
        """Hash: who refers to the artifact, and since when in µs."""
        return f"{self.prefix}:refs"

    def chunk(self, upload: str, number: int) -> str:
        """String: one chunk, as the upload of that id has written it; with PX until the upload is complete."""
        return f"{self.prefix}:chunk:{upload}:{number}"


def path_text(path: str | Sequence[str]) -> str:
    """Spell a path of a memory namespace: its segments percent-encoded, joined by `/`.

    `"acme/users/42"` and `("acme", "users", "42")` are the same path; a segment that holds a `/` is given in the second
    form. Segments are compared byte by byte. Raises ConfigError for an empty path, an empty segment or more than 1,024 bytes.
    """
    if not isinstance(path, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not be typed
        raise ConfigError(f"a path is a text or a sequence of texts, got {path!r}", value=path)
    segments = path.split(PATH_SEPARATOR) if isinstance(path, str) else list(path)
    if not segments or not all(segments):
        raise ConfigError(f"a path is one or more non-empty segments joined by /, got {path!r}", value=path)
    return check_id(PATH_SEPARATOR.join(encode(segment, "path segment") for segment in segments), "path")


def path_segments(text: str) -> tuple[str, ...]:
    """Undo `path_text`."""
    return tuple(decode(segment) for segment in text.split(PATH_SEPARATOR))


def tops(namespace: str) -> str:
    """Spell the key of the sorted set of first segments in use, encoded, with equal scores."""
    return f"bb:{encode(namespace, 'namespace')}:memory:tops"


def children(namespace: str, top: str) -> str:
    """Spell the key of the sorted set of all paths in use below a first segment (encoded), itself included."""
    return f"bb:{encode(namespace, 'namespace')}:memory:{{{top}}}:children"


def caches(namespace: str) -> str:
    """Spell the key of the namespace's list of cache namespaces, spelled as `CacheKeys.spell` does, by when they are empty."""
    return f"bb:{encode(namespace, 'namespace')}:caches"


@dataclass(frozen=True, slots=True)
class CacheKeys:
    """The keys of one namespace of a cache, which is a tuple of texts; all carry its hash tag."""

    prefix: str

    @classmethod
    def of(cls, namespace: str, cache: str) -> CacheKeys:
        """Spell the keys of a cache namespace that `spell` has spelled."""
        return cls(f"bb:{encode(namespace, 'namespace')}:cache:{{{cache}}}")

    @staticmethod
    def spell(cache: Sequence[str]) -> str:
        """Spell a cache namespace: each part percent-encoded and followed by a slash, after a first one; `/` is the empty one."""
        return PATH_SEPARATOR + "".join(encode(part, "part of a cache namespace") + PATH_SEPARATOR for part in cache)

    @property
    def entries(self) -> str:
        """Sorted set: the keys of the cached values, encoded, by the time in ms at which they end."""
        return f"{self.prefix}:entries"

    def entry(self, key: str) -> str:
        """String with PX: one cached value, by its encoded key."""
        return f"{self.prefix}:entry:{key}"


@dataclass(frozen=True, slots=True)
class PathKeys:
    """The keys of one path of a memory namespace; all carry the path's hash tag, so that a tenant is a key prefix."""

    prefix: str

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def of(cls, namespace: str, path: str) -> PathKeys:
        """Spell the keys of a path that `path_text` has spelled."""
        return cls(f"bb:{encode(namespace, 'namespace')}:memory:{{{path}}}")

    @property
    def head(self) -> str:
        """Hash: incarnation, seq, count, embedding space, fence and what else is true of the whole path."""
        return f"{self.prefix}:head"

    @property
    def log(self) -> str:
        """Stream with ids `<seq>-0`: which record changed, and how; never what it says."""
        return f"{self.prefix}:log"

    @property
    def order(self) -> str:
        """Sorted set: record ids by the seq of their first write."""
        return f"{self.prefix}:order"

    @property
    def expiring(self) -> str:
        """Sorted set: ids of records with an expiry, by its time in ms."""
        return f"{self.prefix}:expiring"

    @property
    def subjects(self) -> str:
        """Hash: the subject of each record with an expiry, by id, so that its row is found when its time is over."""
        return f"{self.prefix}:subjects"

    @property
    def sources(self) -> str:
        """Sorted set: ids of what merged records stand for, by the seq of the first write of the one that superseded them."""
        return f"{self.prefix}:sources"

    @property
    def pending(self) -> str:
        """Set: ids of records whose vector is still to be made."""
        return f"{self.prefix}:pending"

    @property
    def vectors(self) -> str:
        """Vector set: record ids by their vectors, where the server searches them."""
        return f"{self.prefix}:vectors"

    @property
    def ops(self) -> str:
        """Sorted set with PX: recent op ids by time, so that no write is applied twice."""
        return f"{self.prefix}:ops"

    @property
    def lock(self) -> str:
        """String with PX: who tends the path (snapshot, consolidation, migration), and the fence."""
        return f"{self.prefix}:lock"

    @property
    def index(self) -> str:
        """String: the pointer to the newest snapshot of the index."""
        return f"{self.prefix}:index"

    @property
    def migration(self) -> str:
        """Hash: how far a change of the embedding space has come."""
        return f"{self.prefix}:migration"

    @property
    def forgetting(self) -> str:
        """Hash: what a forgetting that has begun is about to take away, until its receipt is written."""
        return f"{self.prefix}:forgetting"

    @property
    def receipts(self) -> str:
        """Stream: what was forgotten, by digest; each receipt names the one before."""
        return f"{self.prefix}:receipts"

    def record(self, record: str) -> str:
        """Hash: one record."""
        return f"{self.prefix}:record:{encode(record, 'record id')}"

    def content(self, digest: str) -> str:
        """String: the id of the one record without a subject that has this content; expires with it."""
        return f"{self.prefix}:content:{digest}"

    def same(self, digest: str) -> str:
        """Sorted set: ids of several records without a subject that have this content, by the seq of their first write."""
        return f"{self.prefix}:same:{digest}"

    @property
    def contents(self) -> str:
        """Hash: by id what a record with an expiry says, where others say the same, so that its row is found when its time is over."""
        return f"{self.prefix}:contents"

    def subject(self, subject: str) -> str:
        """Sorted set: ids of the records about a subject, by valid_from in µs; it goes with the last row."""
        return f"{self.prefix}:subject:{encode(subject, 'subject')}"

    @property
    def chunks(self) -> str:
        """Set: every chunk that may stand, `<generation>:<number>`; what the pointer does not name is debris."""
        return f"{self.prefix}:chunks"

    def chunk(self, name: str) -> str:
        """String: one chunk of a snapshot, named as in the set."""
        return f"{self.prefix}:chunk:{name}"


def _at(lineage: str) -> str:
    return f"@{encode(lineage, 'lineage')}" if lineage else ""
