"""The one tree of errors: every one says whether a retry can help and carries its ids as attributes."""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "AlreadyFinished",
    "ArtifactMissing",
    "BlackboardError",
    "CheckpointConflict",
    "CheckpointMissing",
    "ConfigError",
    "CorruptValue",
    "EffectBusy",
    "EffectFailed",
    "EffectMismatch",
    "EffectUnknown",
    "EmbedderFailed",
    "EmbedderMismatch",
    "EmbeddingInvalid",
    "EncodeError",
    "InboxFull",
    "KeyMissing",
    "LeaseHeld",
    "LeaseLost",
    "NotDurable",
    "NotEncrypted",
    "OutcomeUnknown",
    "Parked",
    "RecordConflict",
    "RecordMissing",
    "ServerRefused",
    "ServerUnavailable",
    "StateInvalid",
    "StoreRegressed",
    "ThreadExists",
    "ThreadGone",
    "ThreadQuarantined",
    "UncommittedChanges",
    "UnreadSignals",
    "UnresolvedEffects",
]


class BlackboardError(Exception):
    """Base of every error that this library raises on purpose.

    `retryable` says whether the same call can succeed later without anybody changing anything. The ids that the
    error is about are attributes (`thread`, `namespace`, `fence`, ...), never only text.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **ids: Any) -> None:
        super().__init__(message)
        self.ids = ids

    def __getattr__(self, name: str) -> Any:
        ids = self.__dict__.get("ids", {})
        if name in ids:
            return ids[name]
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (type(self), self.args, self.ids)


def _revive(kind: type[BlackboardError], args: tuple[Any, ...], ids: dict[str, Any]) -> BlackboardError:
    return kind(*args, **ids)


class ConfigError(BlackboardError, ValueError):
    """A setting, a name or an argument is wrong; the message names the value and the mend."""


class NotDurable(BlackboardError):
    """The backend does not keep what it acknowledges; `report` holds what was proven and what was not."""


class EncodeError(BlackboardError, TypeError):
    """A value cannot be stored exactly, is too long, or is no result of its effect's type; `path` names it. It was not sent."""


class CorruptValue(BlackboardError):
    """What is stored is not what was written (`key` names it), or not of the type that it is read as. Nothing was changed."""


class KeyMissing(CorruptValue):
    """What is stored is encrypted with a key that the settings do not have; `key_id` names it. Nothing was shown."""


class NotEncrypted(CorruptValue):
    """Plaintext stands where the namespace is encrypted: it was stored before, or put there. Nothing was shown."""


class StateInvalid(BlackboardError, ValueError):
    """A stored value does not fit its class as it is now; `model` and `field` name it. The bytes stay as they are."""


class ServerUnavailable(BlackboardError, ConnectionError):
    """The server could not be reached before the deadline and the call has not been executed, or only read."""

    retryable = True


class ServerRefused(BlackboardError):
    """The server answered with an error (out of memory, read only, no permission ...); nothing was written."""


class OutcomeUnknown(BlackboardError):
    """A write may or may not have happened: its reply was lost and the deadline passed. Read before going on."""


class StoreRegressed(BlackboardError):
    """The store has lost history that it had acknowledged; `thread` and what is missing are attributes."""


class LeaseHeld(BlackboardError):
    """Another owner drives the thread; `holder` and `remaining` (seconds) say who and for how long."""

    retryable = True


class LeaseLost(BlackboardError):
    """The lease is not ours any more: a write was refused, or its deadline passed. Nothing was written."""


class CheckpointConflict(BlackboardError):
    """The newest checkpoint is not the expected parent; `expected` and `found` are ids. Nothing was written."""


class CheckpointMissing(BlackboardError, LookupError):
    """A checkpoint that was asked for by id is not stored; `checkpoint` names it."""


class ArtifactMissing(BlackboardError, LookupError):
    """No artifact of this digest is stored: it never was, or nobody referred to it for longer than the grace."""


class ThreadExists(BlackboardError):
    """A thread cannot be copied to an id that is in use; nothing of it was changed."""


class ThreadGone(BlackboardError):
    """The thread was deleted or has expired (or its id was used anew); the write was refused."""


class AlreadyFinished(BlackboardError):
    """The thread is finished and takes no more writes."""


class ThreadQuarantined(BlackboardError):
    """The thread was taken over too often without progress and waits for a person; `reason` says why."""


class UnresolvedEffects(BlackboardError):
    """finish or delete were refused: effects are running or unknown; `effects` names them. Resolve or abandon them."""


class EffectBusy(BlackboardError):
    """Another owner is running the effect; `holder` and `retry_after` (seconds) say who and for how long."""

    retryable = True


class EffectUnknown(BlackboardError):
    """The effect started and its outcome is unknown; probe, complete or abandon it. It was not run again."""


class EffectMismatch(BlackboardError):
    """The effect's key was used before with other arguments; nothing was run."""


class EffectFailed(BlackboardError):
    """The effect is recorded as failed for good; `error` holds what was recorded."""


class InboxFull(BlackboardError):
    """A thread that nobody drives has too many unread letters; the letter was not stored."""

    retryable = True


class Parked(BlackboardError):
    """The run waits for a signal or a time and holds nothing meanwhile; enter it again when `name` or `wake` came.

    It is how a wait leaves the body, not a failure: `name` is the signal, `wake` the time in µs or None.
    """

    retryable = True


class UnreadSignals(BlackboardError):
    """finish or delete were refused: the inbox holds letters that nobody read; read them, or say to drop them."""


class UncommittedChanges(BlackboardError):
    """A run was left cleanly with changes that no commit has stored."""


class RecordMissing(BlackboardError):
    """The record is not there: never remembered, forgotten or expired; `record` and `path` name it. Nothing was written."""


class RecordConflict(BlackboardError):
    """The record has another version than was expected; `version` is the stored one. Read it and decide anew."""


class EmbedderMismatch(BlackboardError):
    """The path's vectors come from another embedding space; `stored` and `offered` name both. Use that embedder, or migrate."""


class EmbeddingInvalid(BlackboardError, ValueError):
    """A vector has the wrong dimension, is not finite, or is zero where directions are compared; nothing was written."""


class EmbedderFailed(BlackboardError):
    """The embedder did not answer where only it can: nothing else is wrong, and the same call may succeed later."""

    retryable = True
