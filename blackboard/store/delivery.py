"""Getting a command answered: attempts, pauses, redirections, and what is said when the deadline passes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, TypeAlias

from blackboard.errors import BlackboardError
from blackboard.points import reach
from blackboard.store.connection import Connection, Lost, forget
from blackboard.store.node import Lane, Node
from blackboard.store.protocol import ErrorReply, pack
from blackboard.store.request import Request
from blackboard.store.topology import Topology
from blackboard.store.translate import Verdict, gave_up, refused, verdict

__all__ = ["Delivery", "Pauses", "connected"]

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 1.0
"""Pauses between attempts double from the first to the longest, each drawn between half and all of it (seconds)."""

REDIRECTIONS = 5
"""How many redirections are followed without a pause."""

ASKING = pack(("ASKING",))

Sent: TypeAlias = tuple[Connection, "asyncio.Future[Any]"]


class Pauses:
    """The pauses of one call, up to its deadline (a time of the loop)."""

    __slots__ = ("_next", "_until")

    def __init__(self, until: float) -> None:
        self._next = FIRST_PAUSE
        self._until = until

    async def rest(self) -> bool:
        """Pause; False, at once, if the deadline would pass meanwhile."""
        pause = random.uniform(self._next / 2, self._next)
        self._next = min(self._next * 2, LONGEST_PAUSE)
        if asyncio.get_running_loop().time() + pause >= self._until:
            return False
        await asyncio.sleep(pause)
        return True


async def connected(node: Node, lane: Lane, until: float) -> Connection:
    """A connection of the node, waited for until the deadline. Lost if there is none."""
    try:
        async with asyncio.timeout_at(until):
            return await node.connection(lane)
    except TimeoutError:
        raise Lost(node.trouble or f"{node} could not be reached before the deadline", written=False) from None


async def _reply(sent: Sent, until: float) -> Any:
    connection, future = sent
    timer = asyncio.get_running_loop().call_at(until, connection.withdraw, future, "the deadline passed")
    try:
        return await future
    except asyncio.CancelledError:
        forget(future)
        raise
    finally:
        timer.cancel()


class _Call:
    """One request under way: where the next attempt goes, and what is known about the ones before."""

    __slots__ = ("_redirections", "_topology", "ambiguous", "asking", "lane", "last", "packed", "pauses", "pinned",
                 "reason", "request", "target", "until")  # fmt: skip

    def __init__(self, topology: Topology, request: Request, lane: Lane, until: float, node: Node | None) -> None:
        self._topology = topology
        self._redirections = 0
        self.request = request
        self.packed = request.packed
        self.lane: Lane = lane
        self.until = until
        self.pauses = Pauses(until)
        self.pinned = node
        self.target = node
        self.asking = False
        self.ambiguous = False
        self.last: ErrorReply | None = None
        self.reason = ""

    async def send(self) -> Sent:
        if self.target is None:
            self.target = self._topology.node(self.request.key)
        connection = self.target.pick(self.lane) or await connected(self.target, self.lane, self.until)
        if self.asking:
            connection.send(ASKING).add_done_callback(forget)
        return connection, connection.send(self.packed)

    def lost(self, lost: Lost) -> bool:
        """Note that no reply came; whether another attempt is allowed."""
        self.ambiguous = self.ambiguous or lost.written
        self.reason, self.last = str(lost), None
        return self.request.idempotent or self.request.read_only or not lost.written

    @property
    def in_doubt(self) -> bool:
        """Whether an attempt may have been executed, and that matters."""
        return self.ambiguous and not self.request.read_only

    def gave_up(self) -> BlackboardError:
        server = str(self.target or "the backend")
        return gave_up(self.request, server, ambiguous=self.ambiguous, reason=self.reason, reply=self.last)

    def redirect(self, reply: ErrorReply, *, asking: bool) -> bool:
        """Go where the reply says; False if it is time for a pause."""
        self.target = self._topology.moved(reply, asking=asking)
        self.asking = asking
        self._redirections += 1
        return self._redirections <= REDIRECTIONS

    def understand(self, reply: ErrorReply) -> bool:
        """Decide about an error reply: True to send again at once, False after a pause; raises if no retry helps."""
        self.reason, self.last = str(reply), reply
        match verdict(reply):
            case Verdict.RELOAD if self.request.with_source is not None:
                self.packed = self.request.with_source()
                return True
            case Verdict.MOVED if self.pinned is None:
                return self.redirect(reply, asking=False)
            case Verdict.ASK if self.pinned is None:
                return self.redirect(reply, asking=True)
            case Verdict.LATER | Verdict.ELSEWHERE:
                return False
            case _:
                raise refused(reply, self.request, str(self.target or "the server"))

    async def rest(self) -> None:
        """Pause, look where the primary is if that is in doubt, and start from there; raises when it is too late."""
        if not await self.pauses.rest():
            raise self.gave_up()
        if self.last is None or verdict(self.last) is not Verdict.LATER:
            demoted = self.last is not None and verdict(self.last) is Verdict.ELSEWHERE
            try:
                async with asyncio.timeout_at(self.until):
                    await self._topology.refresh(demoted=demoted)
            except Lost as lost:
                self.reason = str(lost)
            except TimeoutError:
                raise self.gave_up() from None
        self.target = self.pinned
        self.asking = False


class Delivery:
    """Sends requests over a topology until they are answered or their deadline (a time of the loop) has passed."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.closed = False

    async def execute(
        self, request: Request, lane: Lane, until: float, *, node: Node | None = None, sent: Sent | None = None
    ) -> Any:
        """The reply. `node` pins the server; `sent` is a first attempt that is already on its way to it."""
        call = _Call(self._topology, request, lane, until, node)
        if sent is None:
            reach(request.name, "before")
        while True:
            try:
                attempt = sent or await call.send()
                reach(request.name, "sent")
                reply = await _reply(attempt, until)
                if type(reply) is not ErrorReply:
                    reach(request.name, "after")
                    return reply
                again = call.understand(reply)
            except Lost as lost:
                if not call.lost(lost) or self.closed:
                    raise call.gave_up() from None
                again = False
            except BlackboardError as failed:
                if call.in_doubt:
                    raise call.gave_up() from failed
                raise
            sent = None
            if not again:
                await call.rest()

    async def pipeline(self, requests: Sequence[Request], until: float, node: Node | None = None) -> list[Any]:
        """The replies of many requests, those for one node written together."""
        sent: list[Sent | None] = []
        links: dict[Node, Connection | None] = {}
        for request in requests:
            reach(request.name, "before")
            link = await self._link(request, until, node, links)
            sent.append(None if link is None else (link, link.send(request.packed)))
        try:
            return [
                await self.execute(request, "data", until, node=node, sent=first)
                for request, first in zip(requests, sent, strict=True)
            ]
        finally:
            for first in sent:
                if first is not None:
                    forget(first[1])

    async def _link(
        self, request: Request, until: float, node: Node | None, links: dict[Node, Connection | None]
    ) -> Connection | None:
        """The connection on which a batch goes to one node; None if it has none now."""
        try:
            target = node or self._topology.node(request.key)
            if target not in links:
                links[target] = None
                links[target] = target.pick("data") or await connected(target, "data", until)
            return links[target]
        except Lost:
            return None
