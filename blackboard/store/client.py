"""The client: calls of many tasks over few connections, retried by us and never run twice."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from blackboard.errors import ConfigError, ServerUnavailable
from blackboard.store.address import Address, Endpoint
from blackboard.store.cluster import Cluster
from blackboard.store.connection import Lost
from blackboard.store.delivery import Delivery, Pauses, connected
from blackboard.store.dial import Dialer, Greeting
from blackboard.store.identity import Acquaintance, Identity, NewServer, Welcome
from blackboard.store.node import Lane, Locate, Node
from blackboard.store.protocol import Part
from blackboard.store.request import Request, command, invocation
from blackboard.store.script import Script
from blackboard.store.sentinel import Followed, Sentinels
from blackboard.store.topology import Single, Topology

__all__ = ["Identity", "Lane", "NewServer", "Part", "Primary", "Store"]


@dataclass(frozen=True, slots=True)
class Primary:
    """One primary of the backend, to look at it as a server; see `Store.primaries`."""

    name: str
    identity: Identity | None
    _run: Callable[[list[Request], float | None], Awaitable[list[Any]]]
    _key: Callable[[str], str]

    async def command(self, *parts: Part, deadline: float | None = None) -> Any:
        """Run one command on this server, whatever its key. Raises as `Store.command` does."""
        return (await self.batch([parts], deadline=deadline))[0]

    async def batch(self, commands: Sequence[Sequence[Part]], *, deadline: float | None = None) -> list[Any]:
        """Run plain idempotent commands on one connection of this server, in order. Raises as `Store.batch` does."""
        return await self._run([command(tuple(parts)) for parts in commands], deadline)

    def key(self, prefix: str) -> str:
        """A key that begins with `prefix` and lives on this server."""
        return self._key(prefix)


class Store:
    """A backend, connected. Bound to the event loop that connected it; any number of its tasks may use it at once.

    Replies are raw: bytes, int, list or None. A call is sent again with the same bytes, with pauses, until it is
    answered or its deadline has passed; scripts are no-ops when they meet their own op id again, so none runs twice.
    Raised are, by every method that talks to the server: OutcomeUnknown (an attempt may have been executed and none
    was answered), ServerUnavailable (none was executed, or the call only reads), ServerRefused (the server said no,
    with `code`, `reply` and `server`; nothing was written). Cancelling a caller disturbs nobody else.
    """

    def __init__(self, address: Address, topology: Callable[[Store], Topology], *, retry_deadline: float) -> None:
        """Use `connect`."""
        self._address = address
        self.retry_deadline = retry_deadline
        self._loop = asyncio.get_running_loop()
        self._acquaintance = Acquaintance()
        self._greetings: WeakKeyDictionary[Node, Greeting] = WeakKeyDictionary()
        self._clock = 0
        self._topology = topology(self)
        self._delivery = Delivery(self._topology)

    def __repr__(self) -> str:
        return f"<Store {self._address}{', closed' if self._delivery.closed else ''}>"

    @property
    def backend(self) -> str:
        """Which backend this is: its address and database, without user and password."""
        return f"{self._address} db {self._address.login.db}"

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        retry_deadline: float = 10.0,
        connections: int = 4,
        lease_connections: int = 1,
        batch_bytes: int = 1 << 20,
        connect_timeout: float = 2.0,
        response_timeout: float = 5.0,
        revive: Callable[[], Awaitable[None]] | None = None,
    ) -> Store:
        """Connect to every primary of the backend; the URLs are described in `blackboard.store.address`.

        All times are in seconds. `retry_deadline` bounds a call with all its attempts, `response_timeout` one attempt:
        a connection on which nothing was answered for so long is closed. `connections` and `lease_connections` are
        per primary and opened when needed; `batch_bytes` caps what is gathered into one write. `revive` is awaited before
        each connect to a single server: it starts the server if nobody else does.
        """
        _check_positive(
            retry_deadline=retry_deadline, connect_timeout=connect_timeout, response_timeout=response_timeout
        )
        _check_positive(connections=connections, lease_connections=lease_connections, batch_bytes=batch_bytes)
        address = Address.parse(url)
        tls = address.tls.context() if address.tls else None
        dialer = Dialer(address.login, tls, connect_timeout, response_timeout, batch_bytes)
        limits: dict[Lane, int] = {"data": connections, "lease": lease_connections}

        def topology(store: Store) -> Topology:
            return _topology(
                address,
                dialer,
                revive,
                lambda locate: Node(locate, dialer, store._acquaintance, limits, store._greeted),
            )

        store = cls(address, topology, retry_deadline=retry_deadline)
        try:
            await store._reach_all()
        except BaseException:
            await store.close()
            raise
        store._acquaintance.open = False
        return store

    async def call(
        self,
        script: Script,
        keys: Sequence[str],
        args: Sequence[Part],
        *,
        lane: Lane = "data",
        deadline: float | None = None,
    ) -> Any:
        """Run a script: EVALSHA, or EVAL where the server does not have it yet. `deadline` is seconds from now."""
        return await self._delivery.execute(invocation(script, keys, args), lane, self._until(deadline))

    async def calls(
        self,
        script: Script,
        calls: Sequence[tuple[Sequence[str], Sequence[Part]]],
        *,
        deadline: float | None = None,
    ) -> list[Any]:
        """Run a script many times, pipelined as `batch` does: keys and arguments of each; replies in their order."""
        requests = [invocation(script, keys, args) for keys, args in calls]
        return await self._delivery.pipeline(requests, self._until(deadline))

    async def command(
        self, *parts: Part, lane: Lane = "data", idempotent: bool = True, deadline: float | None = None
    ) -> Any:
        """Run one plain command. With `idempotent=False` it is never sent again once it may have been executed.

        The connection is shared: a command that blocks holds up others, and must not block for `response_timeout`.
        """
        return await self._delivery.execute(command(parts, idempotent=idempotent), lane, self._until(deadline))

    async def batch(self, commands: Sequence[Sequence[Part]], *, deadline: float | None = None) -> list[Any]:
        """Run plain idempotent commands, pipelined; replies in their order. Not atomic.

        Commands for one primary run in their order as long as no attempt fails. The first error is raised, after all
        were sent: others may have been executed.
        """
        return await self._delivery.pipeline([command(tuple(parts)) for parts in commands], self._until(deadline))

    def op_id(self) -> str:
        """A new operation id: the server's time in microseconds (16 digits), then 10 random hex digits."""
        return f"{self.server_time():016d}-{secrets.token_hex(5)}"

    def server_time(self) -> int:
        """The server's clock in microseconds since 1970, estimated: measured at each connect, then counted here.

        Of several primaries the one that is furthest ahead counts.
        """
        return time.monotonic_ns() // 1_000 + self._clock

    async def primaries(self) -> list[Primary]:
        """Every primary, connected: to prove what each of them promises. Raises ServerUnavailable."""
        await self._reach_all()
        return [self._primary(node) for node in self._topology.nodes()]

    def on_new_server(self, callback: Welcome) -> None:
        """Call `await callback(NewServer)` whenever a primary is met that was not there at connect.

        That is another run id or replication id: a restart, a failover. Until every callback has returned nothing is
        sent to it, except what the callbacks send; if one raises, the calls that wait get its error, and the next
        call tries again. A server that forbids INFO has no identity and is never new.
        """
        self._acquaintance.callbacks.append(callback)

    async def close(self) -> None:
        """Close every connection. Calls that are on their way raise; closing again does nothing."""
        self._delivery.closed = True
        await self._topology.close()

    def _primary(self, node: Node) -> Primary:
        async def run(requests: list[Request], deadline: float | None) -> list[Any]:
            return await self._delivery.pipeline(requests, self._until(deadline), node)

        return Primary(str(node), self._greetings[node].identity, run, lambda prefix: self._topology.key(node, prefix))

    def _until(self, deadline: float | None) -> float:
        if asyncio.get_running_loop() is not self._loop:
            raise ConfigError("a store belongs to the event loop that connected it; connect another one in this loop")
        if self._delivery.closed:
            raise ConfigError("the store is closed; connect another one")
        if deadline is None:
            return self._loop.time() + self.retry_deadline
        _check_positive(deadline=deadline)
        return self._loop.time() + deadline

    def _greeted(self, node: Node, greeting: Greeting) -> None:
        self._greetings[node] = greeting
        self._clock = max(self._greetings[one].clock for one in self._topology.nodes() if one in self._greetings)

    async def _reach_all(self) -> None:
        until = self._until(None)
        pauses = Pauses(until)
        while True:
            try:
                async with asyncio.timeout_at(until):
                    await self._topology.discover()
                for node in self._topology.nodes():
                    await connected(node, "data", until)
            except (Lost, TimeoutError) as lost:
                if not await pauses.rest():
                    raise ServerUnavailable(_unreached(self._address, str(lost))) from None
            else:
                return


def _topology(
    address: Address,
    dialer: Dialer,
    revive: Callable[[], Awaitable[None]] | None,
    node: Callable[[Locate], Node],
) -> Topology:
    if address.kind == "cluster":
        return Cluster(address.endpoints, dialer, node)
    if address.kind == "sentinel":
        tls = address.sentinel_tls.context() if address.sentinel_tls else None
        asker = replace(dialer, login=address.sentinel_login, tls=tls)
        return Followed(Sentinels(address.endpoints, address.master, asker, dialer), node)

    async def fixed() -> Endpoint:
        if revive is not None:
            try:
                await revive()
            except ServerUnavailable as down:
                raise Lost(str(down), written=False) from None
        return address.endpoints[0]

    return Single(fixed, node)


def _unreached(address: Address, reason: str) -> str:
    """Say why there is no connection, with every address once: a reason names those that it is about."""
    if all(str(endpoint) in reason for endpoint in address.endpoints):
        return reason
    return f"{address} cannot be reached: {reason or 'no answer before the deadline'}"


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ConfigError(f"{name} must be a positive number, got {value!r}", value=value)
