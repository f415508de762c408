"""Open a connection and say hello: login, database, the server's clock, and who it is."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any

from blackboard.store.address import Endpoint, Login
from blackboard.store.connection import Connection, Lost
from blackboard.store.identity import Identity, info
from blackboard.store.protocol import ErrorReply, Part
from blackboard.store.request import command
from blackboard.store.translate import Verdict, refused, verdict

__all__ = ["Dialer", "Greeting"]


INTRODUCTION: tuple[tuple[Part, ...], ...] = (("TIME",), ("INFO", "server"), ("INFO", "replication"))


@dataclass(frozen=True, slots=True)
class Greeting:
    """What the handshake learned: the clock is server time minus our monotonic clock, in microseconds."""

    clock: int
    identity: Identity | None
    role: str | None


@dataclass(frozen=True, slots=True)
class Dialer:
    """How connections are made. Every wait is bounded by `connect_timeout` (seconds)."""

    login: Login
    tls: ssl.SSLContext | None
    connect_timeout: float
    response_timeout: float
    batch_bytes: int

    async def dial(self, endpoint: Endpoint) -> tuple[Connection, Greeting]:
        """Connect and greet. Lost if it cannot be reached or is not ready, ServerRefused if it does not let us in."""
        connection = await self.reach(endpoint)
        try:
            async with asyncio.timeout(self.connect_timeout):
                return connection, await self._greet(connection, str(endpoint))
        except TimeoutError:
            connection.close()
            raise Lost(f"{endpoint} did not greet within {self.connect_timeout:g} s", written=False) from None
        except BaseException as failed:
            connection.close()
            if isinstance(failed, Lost):
                raise Lost(f"{endpoint}: {failed}", written=False) from None
            raise

    async def reach(self, endpoint: Endpoint) -> Connection:
        """Connect, without a word."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.connect_timeout):
                if endpoint.path:
                    _, connection = await loop.create_unix_connection(self._connection, endpoint.path)
                else:
                    transport, connection = await loop.create_connection(
                        self._connection, endpoint.host, endpoint.port, ssl=self.tls
                    )
                    # An idle connection that the network has forgotten is found out before it is needed.
                    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except TimeoutError:
            raise Lost(f"{endpoint} did not accept within {self.connect_timeout:g} s", written=False) from None
        except OSError as failed:
            raise Lost(f"{endpoint} cannot be reached: {_cause(failed)}", written=False) from None
        return connection

    async def ask(self, endpoint: Endpoint, packed: bytes) -> Any:
        """One command on a connection of its own. Lost if there is no answer in time."""
        connection = await self.reach(endpoint)
        try:
            async with asyncio.timeout(self.connect_timeout):
                await self._enter(connection, str(endpoint))
                return await connection.send(packed)
        except TimeoutError:
            raise Lost(f"{endpoint} did not answer within {self.connect_timeout:g} s", written=False) from None
        finally:
            connection.close()

    def _connection(self) -> Connection:
        return Connection(response_timeout=self.response_timeout, batch_bytes=self.batch_bytes)

    async def _greet(self, connection: Connection, name: str) -> Greeting:
        await self._enter(connection, name)
        before = time.monotonic_ns()
        moment, *told = await connection.exchange(*(command(step).packed for step in INTRODUCTION))
        middle = (before + time.monotonic_ns()) // 2_000
        seconds, micros = _granted(moment, INTRODUCTION[0], name)
        facts: dict[str, str] = {}
        for reply in told:
            if isinstance(reply, bytes):
                facts |= info(reply)
            elif verdict(reply) is not Verdict.REFUSED:
                raise Lost(str(reply), written=False)
        identity = Identity(facts["run_id"], facts.get("master_replid", "")) if "run_id" in facts else None
        return Greeting(int(seconds) * 1_000_000 + int(micros) - middle, identity, facts.get("role"))

    async def _enter(self, connection: Connection, name: str) -> None:
        steps: list[tuple[Part, ...]] = []
        if self.login.password is not None:
            user = () if self.login.username is None else (self.login.username,)
            steps.append(("AUTH", *user, self.login.password))
        if self.login.db:
            steps.append(("SELECT", self.login.db))
        for step in steps:
            _granted(await connection.send(command(step).packed), step, name)


def _cause(failed: OSError) -> str:
    """Say what the system said; asyncio puts the address into it once more."""
    if isinstance(failed, ssl.SSLError) or failed.errno is None:
        return str(failed)
    return os.strerror(failed.errno) if failed.errno > 0 else failed.strerror or str(failed)


def _granted(reply: Any, step: tuple[Part, ...], name: str) -> Any:
    if isinstance(reply, ErrorReply):
        if verdict(reply) is not Verdict.REFUSED:
            raise Lost(str(reply), written=False)
        raise refused(reply, command(step), name)
    return reply
