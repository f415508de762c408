"""Artifacts that records mention: each knows of the record before it is stored, and asks for it before it is collected."""

from __future__ import annotations

from blackboard import keys
from blackboard.artifacts.owner import Owner
from blackboard.artifacts.ref import SPELLED, mentions
from blackboard.artifacts.store import ArtifactStore
from blackboard.errors import ArtifactMissing, ConfigError
from blackboard.memory.new import Body
from blackboard.store.client import Store
from blackboard.telemetry import logger

__all__ = ["KIND", "Mentions", "RecordReferrer"]

KIND = "record"
"""Kind of the owners that are records."""

log = logger("memory")


class Mentions:
    """Enters the records of one path as owners of the artifacts that they mention."""

    def __init__(self, artifacts: ArtifactStore, namespace: str, path: str) -> None:
        self._artifacts, self._namespace, self._path = artifacts, namespace, path

    async def enter(self, record: str, body: Body) -> None:
        """Enter a record before it is stored; one that mentions none costs nothing.

        A mention of what is not stored is noted in the log, since any text may quote one. Raises ConfigError if path and id
        are too long to be an owner: nothing was written.
        """
        for digest in _mentioned(body.text.encode(), body.value, body.labels):
            try:
                await self._artifacts.refer(SPELLED + digest, self._owner(record))
            except ArtifactMissing:
                log.warning(
                    "record %r of path %r mentions an artifact that is not stored: %s", record, self._path, digest
                )

    def _owner(self, record: str) -> Owner:
        name = f"{self._path} {record}"  # an encoded path holds no space
        if len(name.encode()) > keys.LONGEST_ID:
            raise ConfigError(
                f"record {record!r} mentions an artifact, and its id and path together have more than {keys.LONGEST_ID} "
                "bytes; shorten one of them, or pin the artifact and remember another name for it",
                value=record,
            )
        return Owner(KIND, self._namespace, name)


class RecordReferrer:
    """Answers for records: one refers to an artifact as long as it stands and mentions it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def refers(self, owner: Owner, digest: str) -> bool:
        """Tell whether the record is there and mentions the artifact, as of one moment."""
        path, _, record = owner.id.partition(" ")
        where = keys.PathKeys.of(owner.namespace, path)
        told = await self._store.command("HMGET", where.record(record), "text", "value", "metadata")
        return digest in _mentioned(*(part or b"" for part in told))


def _mentioned(*parts: bytes) -> set[str]:
    return set[str]().union(*map(mentions, parts))
