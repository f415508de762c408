"""The board: a backend wired to the rooms."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import BaseModel

from blackboard import keys
from blackboard.artifacts.store import ArtifactStore
from blackboard.checkpoints.engine import Engine
from blackboard.checkpoints.manifest import Meta
from blackboard.checkpoints.outside import KIND as THREAD
from blackboard.checkpoints.outside import ThreadReferrer
from blackboard.claims.keeper import Keeper
from blackboard.claims.lease import Lease
from blackboard.claims.shared import SharedEffects
from blackboard.errors import ConfigError, NotDurable, StoreRegressed
from blackboard.memory.mentions import KIND as RECORD
from blackboard.memory.mentions import RecordReferrer
from blackboard.quantities import whole
from blackboard.runs.drive import Entry, drive
from blackboard.runs.hold import hold
from blackboard.runs.inbox import Answer, Inbox
from blackboard.runs.run import Run
from blackboard.runs.thread import Thread
from blackboard.settings import CheckpointNamespace, Settings
from blackboard.store.client import Store
from blackboard.store.durability import Report, prove
from blackboard.store.embedded import Embedded
from blackboard.store.embedded import start as start_embedded
from blackboard.store.members import members
from blackboard.telemetry import logger

if TYPE_CHECKING:
    from blackboard.memory.embedder import Embedder
    from blackboard.memory.memories import Memories
    from blackboard.memory.memory import Memory

__all__ = ["Blackboard", "Listed"]

S = TypeVar("S", bound=BaseModel)

log = logger("board")

LISTED = ("new", "running", "parked", "finished", "failed", "quarantined")
"""The statuses that a listing of threads knows."""

PAGE = 200
"""Threads per page of a listing: one round trip for the ids and one for their meta."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One row of a listing of threads."""

    thread: str
    meta: Meta


class Opening:
    """What `Blackboard.open` returns: await it, or enter it with `async with`, which closes the board at the end."""

    def __init__(self, make: Callable[[], Awaitable[Blackboard]]) -> None:
        self._make = make
        self._board: Blackboard | None = None

    def __await__(self) -> Generator[object, None, Blackboard]:
        return self._make().__await__()

    async def __aenter__(self) -> Blackboard:
        self._board = await self._make()
        return self._board

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._board is not None:
            await self._board.close()


class Blackboard:
    """One durable keyspace on one backend: runs, threads, leases and effects of every namespace in the settings.

    Bound to the event loop that opened it; any number of its tasks may use it at once. Made by `open`.
    """

    def __init__(self, store: Store, settings: Settings, report: Report | None, embedded: Embedded | None) -> None:
        self.store, self.settings, self.report = store, settings, report
        self._embedded = embedded
        self._engines: dict[str, Engine] = {}
        self._memories: Memories | None = None
        self.artifacts = ArtifactStore(store, settings.artifacts)
        self.artifacts.register(THREAD, ThreadReferrer(store))
        self.artifacts.register(RECORD, RecordReferrer(store))

    def __repr__(self) -> str:
        return f"<Blackboard {self.store!r}>"

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        directory: str | Path | None = None,
        proof: bool = True,
    ) -> Opening:
        """Connect, prove that the backend keeps what it acknowledges, and return the board.

        Without a URL (here or in the settings) the embedded server of `directory` (else BLACKBOARD_DIR, else the nearest
        `.blackboard` upwards) is started or joined. `report` holds what was proven. Raises NotDurable if a checkpoint
        namespace requires durability and it is violated, StoreRegressed if the backend has lost what this process knows
        that it had, ServerUnavailable, ConfigError. `proof=False` looks at nothing and is for tools that only read. It can
        be awaited as well as entered, and leaves no task group or cancel scope open in the caller.
        """
        if settings is not None and not isinstance(settings, Settings):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"settings must be made by Settings(...) or Settings.load(path, ...), not {settings!r:.200}",
                value=settings,
            )
        return Opening(lambda: cls._open(url, settings or Settings.load(), directory, proof))

    @classmethod
    async def _open(cls, url: str | None, settings: Settings, directory: str | Path | None, proof: bool) -> Blackboard:
        backend = settings.backend
        url = backend.url if url is None else url
        embedded = None
        if url is None:
            chosen = backend.directory if directory is None else _directory(directory)
            embedded = await start_embedded(chosen)
            url = embedded.url
        elif directory is not None:
            raise ConfigError(
                f"directory {str(directory)!r} belongs to the embedded server; leave out the url, or the directory"
            )
        try:
            return await cls._connect(url, settings, embedded, proof)
        except BaseException:
            if embedded is not None:
                embedded.release()
            raise

    @classmethod
    async def _connect(cls, url: str, settings: Settings, embedded: Embedded | None, proof: bool) -> Blackboard:
        backend = settings.backend
        store = await Store.connect(
            url,
            retry_deadline=backend.retry_deadline,
            connections=backend.connections,
            lease_connections=backend.lease_connections,
            batch_bytes=backend.batch_bytes,
            connect_timeout=backend.connect_timeout,
            response_timeout=backend.response_timeout,
            revive=None if embedded is None else embedded.ensure,
        )
        if not proof:
            return cls(store, settings, None, embedded)
        try:
            report = await _proven(store, settings)
        except BaseException:
            await store.close()
            raise
        store.on_new_server(lambda _: _prove_again(store, settings))
        return cls(store, settings, report, embedded)

    async def close(self) -> None:
        """Close every connection; an embedded server that nobody else uses ends by itself. Closing again does nothing."""
        if self._memories is not None:
            await self._memories.close()
        await self.store.close()
        if self._embedded is not None:
            embedded, self._embedded = self._embedded, None
            embedded.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def run(
        self,
        thread: str,
        model: type[S],
        *,
        start: Callable[[], S | Awaitable[S]] | None = None,
        namespace: str = "checkpoint",
        owner: str | None = None,
        lease_ttl: float | None = None,
        wait: float | None = None,
        classes: tuple[type, ...] = (),
    ) -> AbstractAsyncContextManager[Run[S]]:
        """Drive a thread: take its lease, read where it stands, and give a Run to work with.

        `start` makes the state if nothing is stored yet. Another driver: LeaseHeld at once, or after `wait` seconds.
        While the body runs the lease is renewed; if it is lost the body is cancelled and LeaseLost raised. The body's own
        exceptions and a cancellation from outside leave unchanged, and nothing of what was not committed is stored. A
        clean exit with uncommitted changes raises UncommittedChanges. `classes` are types that effects, cursors and
        results hold beyond those that the model mentions. Entered and left in one task.
        """
        engine = self.engine(namespace)
        ttl = engine.policy.lease_ttl if lease_ttl is None else lease_ttl
        return drive(engine, Entry(keys.check_id(thread, "thread id"), model, start, owner, ttl, wait, classes))

    def lease(
        self,
        thread: str,
        *,
        namespace: str = "checkpoint",
        owner: str | None = None,
        ttl: float | None = None,
        wait: float | None = None,
    ) -> Keeper[Lease]:
        """Hold a thread's lease while the body of `async with` runs, for drivers that bring their own checkpoints."""
        engine = self.engine(namespace)
        return hold(engine, thread, owner=owner, ttl=engine.policy.lease_ttl if ttl is None else ttl, wait=wait)

    def thread(self, thread: str, *, namespace: str = "checkpoint") -> Thread:
        """Return a handle that reads a thread without its lease."""
        return Thread(self.engine(namespace), thread)

    async def signal(
        self, thread: str, name: str, value: Any = None, *, key: str | None = None, namespace: str = "checkpoint"
    ) -> Answer:
        """Answer what a thread waits for under `name`, from anywhere: ACCEPTED, ALREADY or GONE; see `Inbox.signal`."""
        return await Inbox(self.engine(namespace)).signal(thread, name, value, key=key)

    async def note(self, thread: str, value: Any, *, key: str | None = None, namespace: str = "checkpoint") -> Answer:
        """Tell a thread something without driving it; its driver reads it with `run.notes()`; see `Inbox.note`."""
        return await Inbox(self.engine(namespace)).note(thread, value, key=key)

    async def runnable(self, limit: int = 100, *, namespace: str = "checkpoint") -> list[str]:
        """List at most `limit` parked threads that can go on: their signal is there, or their time has come."""
        engine = self.engine(namespace)
        whole(limit, what="limit", least=0)
        now, found = self.store.server_time() // 1000, list[str]()
        for number in range(keys.SHARDS):
            shard, start = keys.threads(namespace, number), 0
            while len(found) < limit:
                due = ("ZRANGEBYSCORE", shard, "(0", now, "LIMIT", start, PAGE)
                rows = [row.decode() for row in await self.store.command(*due)]
                if not rows:
                    break
                start += len(rows)
                parked = [one.thread for one in await _metas(engine, rows) if one.meta.status == "parked"]
                found += parked[: limit - len(found)]
        return found

    def effects(self, *, namespace: str = "checkpoint") -> SharedEffects:
        """Return the effects that are claimed across threads."""
        engine = self.engine(namespace)
        policy, seal = engine.policy, engine.seal
        return SharedEffects(self.store, namespace, keep=policy.effect_ttl, seal=seal, limit=policy.value_limit)

    def memory(
        self, path: str | Sequence[str], *, namespace: str = "memory", embedder: Embedder | None = None
    ) -> Memory:
        """Return what is remembered at a path, such as `acme/users/42`; nothing is sent by that.

        Segments that hold a `/` are given as a sequence. Vectors are made by the namespace's embedder unless one is passed.
        """
        from blackboard.memory.memories import Memories

        if self._memories is None:
            self._memories = Memories(self.store, self.settings, self.artifacts)
        return self._memories.open(keys.path_text(path), namespace, embedder)

    async def threads(self, *, status: str | None = None, namespace: str = "checkpoint") -> AsyncIterator[Listed]:
        """Yield the namespace's threads, all or those of one status; read page by page, never by a scan of the keys.

        In no order. A thread that is there from the first page to the last comes once, whatever is begun, moved or
        deleted meanwhile; one that is begun or ends meanwhile may or may not come.
        """
        engine = self.engine(namespace)
        if status is not None and status not in LISTED:
            raise ConfigError(
                f"a listed thread has one of the statuses {', '.join(LISTED)}, not {status!r}", value=status
            )
        for number in range(keys.SHARDS):
            async for page in members(self.store, keys.threads(namespace, number), PAGE):
                for listed in await _metas(engine, page):
                    if status is None or listed.meta.status == status:
                        yield listed

    async def sweep(self, limit: int = 100, *, namespace: str = "checkpoint") -> int:
        """Remove at most `limit` threads that are overdue; returns how many went. Anybody may do it at any time."""
        return await self.engine(namespace).retention.sweep(limit)

    def engine(self, namespace: str, *, default: CheckpointNamespace | None = None) -> Engine:
        """Return the engine of a checkpoint namespace; ConfigError if the settings have none of that name.

        With a `default` such a namespace has that policy from now on: for adapters, which come with a namespace of their own.
        """
        if namespace not in self._engines:
            known = default is None or namespace in self.settings.namespaces
            policy = self.settings.checkpoint_namespace(namespace) if known else default
            assert policy is not None, "a namespace is known, or there is a default"
            self._engines[namespace] = Engine(self.store, namespace, policy, self.artifacts)
        return self._engines[namespace]


def _directory(given: object) -> Path:
    if not isinstance(given, (str, Path)) or not str(given):
        raise ConfigError(f"directory must be a path, not {given!r}; leave it out for the default", value=given)
    return Path(given)


async def _metas(engine: Engine, threads: list[str]) -> list[Listed]:
    names = [keys.ThreadKeys.of(engine.namespace, thread).meta for thread in threads]
    replies = await engine.store.batch([("HGETALL", name) for name in names])
    now_ms = engine.store.server_time() // 1000
    found = [Listed(thread, Meta.of(reply)) for thread, reply in zip(threads, replies, strict=True) if reply]
    return [
        one for one in found if one.meta.status != "deleted" and (one.meta.expires is None or one.meta.expires > now_ms)
    ]


async def _proven(store: Store, settings: Settings) -> Report | None:
    """Prove durability as far as the namespaces ask for it."""
    asked = {name: policy.durability for name, policy in settings.namespaces.items()}
    if set(asked.values()) <= {"off"}:
        return None
    report = await prove(store)
    if report.regressed:
        raise StoreRegressed(
            f"the backend has lost data that it had acknowledged: {report.told}", lost="epoch", report=report
        )
    if report.violations and "require" in asked.values():
        report.require()
    if report.violations:
        log.warning("the backend does not keep all that it acknowledges: %s", report.told)
    return report


async def _prove_again(store: Store, settings: Settings) -> None:
    try:
        await _proven(store, settings)
    except (NotDurable, StoreRegressed):
        log.exception("after a reconnect the backend is not durable any more")
        raise
