"""What verifying a path comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from blackboard.memory.record import Token

__all__ = ["Finding", "Report", "Where"]

Where = Literal[
    "record",
    "head",
    "order",
    "expiring",
    "subjects",
    "pending",
    "content",
    "same",
    "contents",
    "subject",
    "superseded",
    "sources",
    "log",
    "index",
    "vectors",
    "snapshot",
]
What = Literal["missing", "orphaned", "mismatched", "duplicate"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not fit the records: where it is, what it is, and which record, seq or chunk it is about.

    `missing`: a record without it; `orphaned`: it without a record; `mismatched`: both, and they differ; `duplicate`: twice.
    `repaired` says that it was derived anew. What cannot be: a record that is not readable, and a write that no log names.
    """

    where: Where
    what: What
    name: str
    detail: str = ""
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What was compared, how many of each, and what did not fit. `changed` records were written meanwhile and not judged.

    `token` is how far the path had come; None if nothing was ever remembered there.
    """

    token: Token | None
    compared: Mapping[str, int]
    findings: tuple[Finding, ...] = ()
    changed: int = 0

    @property
    def ok(self) -> bool:
        """Whether everything fits, or was repaired."""
        return all(finding.repaired for finding in self.findings)
