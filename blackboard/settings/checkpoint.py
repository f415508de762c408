"""The policy of a hot namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from blackboard.quantities import Duration, Expiry, Size
from blackboard.settings.encryption import Encryption
from blackboard.settings.table import LONGEST_VALUE, Count, Durability, Table, count, default

__all__ = ["CheckpointNamespace"]


class CheckpointNamespace(Table):
    """A hot namespace: the policy of the threads that are kept in it."""

    if TYPE_CHECKING:  # text is welcome for durations and sizes, so the annotations are not the parameters

        def __init__(self, **values: Any) -> None: ...

    kind: Literal["checkpoint"] = "checkpoint"
    """What the namespace holds: threads and their checkpoints."""
    ttl: Expiry = default("7d")
    """How long a thread is kept after it finished; none keeps it."""
    failed_ttl: Expiry = None
    """How long a thread is kept after it failed; none keeps it."""
    idle_ttl: Expiry = None
    """How long an unfinished thread is kept after its last write; none keeps it."""
    lease_ttl: Duration = default("30s", ge=0.1)
    """How long a lease lives without renewal: the longest pause before another driver takes over."""
    keep_last: Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(count)] = None
    """How many of the newest checkpoints are kept, besides pinned ones: pruned every max(keep_last, 16) commits; none keeps all."""
    durability: Durability = "require"
    """What a backend that loses acknowledged writes means: `require` refuses it, `prefer` warns, `off` does not ask."""
    inline_limit: Size = default(128, le=1 << 20)
    """Longest value, in bytes, that is written into the checkpoint itself instead of beside it."""
    value_limit: Size = default("64MiB", ge=1, le=LONGEST_VALUE)
    """Longest single value, in bytes, that is accepted (of the state, an item of a log, the result of an effect, a letter, the cursors, the pending calls, a pending write, a reason, a reference); a longer one is refused before it is sent, or, if it is of the state, moved out if `oversize` says so."""
    oversize: Literal["refuse", "artifact"] = "refuse"
    """What becomes of a value that is too long for its thread: `refuse` raises, `artifact` moves it out and refers to it."""
    artifact_limit: Size = default("1MiB", ge=1, le=LONGEST_VALUE)
    """Longest value, in bytes, that stays in its thread where `oversize` is `artifact` (never more than `value_limit`)."""
    effect_ttl: Duration = default("7d")
    """How long the result of an effect that was claimed across threads is kept."""
    takeover_cap: Count = 8
    """How many takeovers without a commit between them put a thread into quarantine."""
    encryption: Encryption | None = None
    """Keys to encrypt with, `keys` by id and `current`, and `accept_plaintext`; none stores what is given."""
