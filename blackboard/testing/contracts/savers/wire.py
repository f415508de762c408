"""The wire between a saver and its server, as a contract breaks it: at an exact command, before or after it is executed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from blackboard.testing.proxy import Command, Fault, FaultProxy, drop_reply, drop_request, hold_request

__all__ = ["Cut", "ProxyWire", "Wire"]


@dataclass(slots=True, eq=False)
class Cut:
    """What became of a fault: `reached` when its command was sent, `noticed` when the client sent something after it."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    noticed: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)


class Wire(Protocol):
    """Counts the commands that savers send, and loses or holds one of them; of every saver that a factory makes."""

    def cut(self, at: int, *, executed: bool, once: bool) -> Cut:
        """Lose the at-th command from now on (from 0), or if it is `executed` its reply; without `once` all after it too."""
        ...

    def hold(self, at: int) -> Cut:
        """Keep the at-th command from now on back until the `gate` of what is returned is set."""
        ...

    def mend(self) -> None:
        """Let everything pass again."""
        ...


class ProxyWire:
    """The wire of savers whose address is a `FaultProxy`."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy

    def cut(self, at: int, *, executed: bool, once: bool) -> Cut:
        """Lose a command or its reply; see `Wire.cut`."""
        cut = Cut()
        self._begin(at, drop_reply() if executed else drop_request(), cut)
        later = partial(_after, at=at, cut=cut, lost=not once)
        self._proxy.fault(drop_request(), when=later, times=1 << 60)
        return cut

    def hold(self, at: int) -> Cut:
        """Keep a command back; see `Wire.hold`."""
        cut = Cut()
        self._begin(at, hold_request(cut.gate), cut)
        return cut

    def mend(self) -> None:
        """Let everything pass again."""
        self._proxy.reset()

    def _begin(self, at: int, fault: Fault, cut: Cut) -> None:
        self._proxy.reset()
        self._proxy.fault(fault, when=partial(_at, at=at, cut=cut))


def _at(command: Command, *, at: int, cut: Cut) -> bool:
    if command.index == at:
        cut.reached.set()
    return command.index == at


def _after(command: Command, *, at: int, cut: Cut, lost: bool) -> bool:
    if command.index > at:
        cut.noticed.set()
    return lost and command.index > at
