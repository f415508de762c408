"""The crew of a survey as its foreman sees it: processes that are started, watched, replaced, and, on demand, disturbed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from blackboard import Blackboard
from blackboard.store import embedded
from survey_team import Member, Places

__all__ = ["DISTURBANCES", "Crew", "Event", "events"]

TICK = 0.02
STANDSTILL = 90.0
"""Seconds without a new line in any journal after which a survey is given up."""

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scene:
    """A disturbance: the point at which a worker stops itself, which time it gets there, and what becomes of it."""

    name: str
    point: str
    time_reached: int
    fate: Literal["kill", "wake"]
    said: str


SCENES = (
    Scene("effect", "settle.lua:before", 1, "kill", "killed between its line in the ledger and the record of it"),
    Scene("commit", "commit.lua:sent", 2, "kill", "killed in the middle of a commit, with the answer on its way"),
    Scene("zombie", "commit.lua:before", 2, "wake", "stopped before a commit, until its document is another's"),
)
DISTURBANCES = (*(scene.name for scene in SCENES), "restart")


def events(places: Places, offsets: dict[Path, int] | None = None) -> Iterator[Event]:
    """Give what the members of a survey noted, in this run and those before it, after the offsets, which are advanced."""
    offsets = {} if offsets is None else offsets
    for path in sorted(places.journals.glob("*.jsonl")):
        with path.open("rb") as file:
            file.seek(offsets.get(path, 0))
            whole, end, _ = file.read().rpartition(b"\n")
        offsets[path] = offsets.get(path, 0) + len(whole) + len(end)
        yield from map(json.loads, whole.splitlines())


@dataclass(eq=False)
class Hand:
    """A member's process. `entered` is the last run that it entered, `moment` what it noted about itself last."""

    member: Member
    process: subprocess.Popen[bytes]
    scene: Scene | None
    entered: Event = field(default_factory=dict[str, Any])
    moment: Literal["starting", "ready", "working", "stopped", "replaced", "woken"] = "starting"

    @classmethod
    def start(cls, member: Member, scene: Scene | None) -> Hand:
        """Start it in a process group of its own: if we are killed, the system ends what is stopped in there."""
        script = Path(__file__).with_name("survey.py")
        command = [sys.executable, str(script), "member", member.model_dump_json()]
        return cls(member, subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0), scene)

    def go(self) -> None:
        """Let it begin."""
        self.moment = "working"
        assert self.process.stdin is not None
        os.write(self.process.stdin.fileno(), b"go\n")

    def kill(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()


class Crew:
    """Everybody who works on one survey. `played` says which disturbances happened; `watch` is told every event."""

    def __init__(
        self, board: Blackboard, places: Places, say: Callable[[str], None], watch: Callable[[Event], None]
    ) -> None:
        self.played: list[str] = []
        self._board, self._places, self._say, self._watch = board, places, say, watch
        self._offsets: dict[Path, int] = {}
        self._hands: dict[str, Hand] = {}
        self._scenes: list[Scene] = []
        self._hired = 0
        self._afresh = False
        self._acknowledged = 0
        self._moved = time.monotonic()
        for event in events(places, self._offsets):
            watch(event)

    def enlist(self, member: Member) -> None:
        """Start a member's process; it waits until its role is called."""
        self._hands[member.name] = Hand.start(member, None)

    def hire(self, workers: int, *, afresh: bool = False, chaos: bool = False) -> None:
        """Start workers; with chaos, some of these or of those who replace them will be lost."""
        self._afresh = afresh
        self._scenes += SCENES if chaos else ()
        for _ in range(workers):
            self._hire()

    async def call(self, role: str, *, restart_after: int | None = None) -> None:
        """Have all of a role do their work to its end; after so many steps the server is killed.

        Those who are there begin together, those who replace others at once.
        """
        begun, self._moved = False, time.monotonic()
        while called := [hand for hand in self._hands.values() if hand.member.role == role]:
            self._hear()
            begun = begun or all(hand.moment == "ready" for hand in called)
            for hand in called:
                await self._attend(hand, begun=begun)
            if restart_after is not None and self._acknowledged >= restart_after and await self._kill_server():
                restart_after = None
            if time.monotonic() - self._moved > STANDSTILL:
                raise SystemExit(f"nothing has happened for {STANDSTILL:g} s; given up")
            await asyncio.sleep(TICK)
        self._hear()

    def dismiss(self) -> None:
        """End every process that is left."""
        while self._hands:
            self._hands.popitem()[1].kill()

    def _hire(self) -> None:
        scene = self._scenes.pop(0) if self._scenes else None
        stop_at = (scene.point, scene.time_reached) if scene else None
        number = self._hired = self._hired + 1
        name = f"worker {number}"
        member = Member(
            role="worker", name=name, number=number, places=self._places, afresh=self._afresh, stop_at=stop_at
        )
        self._hands[name] = Hand.start(member, scene)

    def _hear(self) -> None:
        for event in events(self._places, self._offsets):
            self._moved = time.monotonic()
            self._acknowledged += event["event"] == "acknowledged"
            hand = self._hands.get(event["member"])
            if hand is not None:
                self._note(hand, event)
            self._watch(event)

    def _note(self, hand: Hand, event: Event) -> None:
        match event["event"]:
            case "ready" | "stopped" as moment:
                hand.moment = moment
            case "entered":
                hand.entered = event
            case "refused" if hand.moment == "woken":
                self._play("zombie", f"{hand.member.name} was woken, and its commit refused: {event['why']}")

    async def _attend(self, hand: Hand, *, begun: bool) -> None:
        if begun and hand.moment == "ready":
            hand.go()
        if hand.moment == "stopped" and hand.scene is not None:
            self._replace(hand, hand.scene)
        elif hand.moment == "replaced":
            await self._wake(hand)
        ended = hand.process.poll()
        if ended is not None and hand.member.name in self._hands:
            self._hands.pop(hand.member.name).kill()
            if ended:
                raise SystemExit(f"the {hand.member.name} ended with {ended}; what it said stands above")

    def _replace(self, hand: Hand, scene: Scene) -> None:
        """Hire another worker for one that stopped, and kill it if that is its fate."""
        said = f"{hand.member.name} was {scene.said}"
        if scene.fate == "kill":
            del self._hands[hand.member.name]
            hand.kill()
            self._play(scene.name, said)
        else:
            hand.moment = "replaced"
            self._say(said)
        self._hire()

    async def _wake(self, hand: Hand) -> None:
        """Wake a worker up if the thread that it drove when it stopped has been granted to another."""
        thread, fence = hand.entered["thread"], hand.entered["fence"]
        if (await self._board.thread(thread).meta()).fence > fence:
            hand.moment = "woken"
            hand.process.send_signal(signal.SIGCONT)

    async def _kill_server(self) -> bool:
        server = await embedded.status(self._places.directory)
        if server.running:
            os.kill(server.pid, signal.SIGKILL)
            self._play("restart", "the server was killed; whoever finds it gone starts it again")
        return server.running

    def _play(self, name: str, said: str) -> None:
        self.played.append(name)
        self._say(said)
