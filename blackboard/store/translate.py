"""What an error reply or a lost connection means, said in one place."""

from __future__ import annotations

import re
from enum import Enum

from blackboard.errors import BlackboardError, OutcomeUnknown, ServerRefused, ServerUnavailable
from blackboard.store.protocol import ErrorReply
from blackboard.store.request import Request

__all__ = ["Verdict", "code", "gave_up", "refused", "verdict"]


class Verdict(Enum):
    """What is to be done about an error reply. Nothing was written in any of these cases."""

    RELOAD = "send the script's text"
    MOVED = "another node owns the slot"
    ASK = "another node has the key just now"
    LATER = "the same server answers soon"
    ELSEWHERE = "the primary has to be found again"
    REFUSED = "no retry helps"


VERDICTS = {
    "NOSCRIPT": Verdict.RELOAD,
    "MOVED": Verdict.MOVED,
    "ASK": Verdict.ASK,
    "LOADING": Verdict.LATER,
    "BUSY": Verdict.LATER,
    "CLUSTERDOWN": Verdict.LATER,
    "TRYAGAIN": Verdict.LATER,
    "MASTERDOWN": Verdict.LATER,
    "NOREPLICAS": Verdict.LATER,
    "READONLY": Verdict.ELSEWHERE,
    "UNBLOCKED": Verdict.ELSEWHERE,
}

OUTAGES = frozenset({"LOADING", "BUSY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK"})
"""Codes that mean, if they last until the deadline, that the server was not available."""

MENDS = {
    "OOM": "the server is full: raise maxmemory, or let threads expire; it must keep maxmemory-policy noeviction",
    "MISCONF": "the server cannot write to its disk: free space, look into its log, then it goes on by itself",
    "READONLY": "this server is a replica: give the primary's address, or use redis+sentinel:// or redis+cluster://",
    "NOREPLICAS": "too few replicas are in touch (min-replicas-to-write): mend them or lower the setting",
    "NOPERM": "the user lacks a permission: grant the command, and keys bb:*, with ACL SETUSER",
    "NOAUTH": "the server wants a password: write it into the URL, redis://user:password@host",
    "WRONGPASS": "user or password is wrong: check them in the URL (percent-encoded)",
    "WRONGTYPE": "a key holds another type: something else writes below bb:, use a server or database of its own",
    "CROSSSLOT": "keys of one call must share a hash tag in a cluster",
}

_INSIDE = re.compile(r"@user_script: ?\d+: -?([A-Z]{2,}) ")
"""Servers before 7.0 wrap the code of a command that failed inside a script."""


def code(reply: ErrorReply) -> str:
    """The code of an error reply, `OOM` or `ERR` for example."""
    text = str(reply)
    first = text.partition(" ")[0]
    if first == "ERR":
        inside = _INSIDE.search(text)
        if inside is not None:
            return inside[1]
        if "invalid password" in text or "without any password" in text:
            return "WRONGPASS"
        if "max number of clients" in text:
            return "BUSY"
    return first


def verdict(reply: ErrorReply) -> Verdict:
    """What to do about an error reply."""
    return VERDICTS.get(code(reply), Verdict.REFUSED)


def refused(reply: ErrorReply, request: Request, server: str) -> ServerRefused:
    """The server said no, and will say so again."""
    why = code(reply)
    text = f"{server} refused {request.name}: {reply}"
    if why in MENDS:
        text += f"; {MENDS[why]}"
    if why == "CROSSSLOT":
        text += ": " + ", ".join(repr(key) for key in request.keys[:4])
    return ServerRefused(text, code=why, reply=str(reply), server=server)


def gave_up(
    request: Request, server: str, *, ambiguous: bool, reason: str, reply: ErrorReply | None = None
) -> BlackboardError:
    """The deadline passed, or another attempt is not allowed.

    `ambiguous`: an attempt may have been executed although no reply came. `reply`: the server's last answer.
    """
    reason = reason.removeprefix(f"{server} ").removeprefix(f"{server}: ")  # most name the server themselves
    if ambiguous and not request.read_only:
        return OutcomeUnknown(
            f"no reply to {request.name} from {server} ({reason}): it may have been executed; read before going on",
            server=server,
        )
    if reply is not None and code(reply) not in OUTAGES:
        return refused(reply, request, server)
    what = "nothing was changed" if request.read_only else "it was not executed"
    return ServerUnavailable(f"{server} did not answer {request.name} in time ({reason}); {what}", server=server)
