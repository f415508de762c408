"""How what a namespace holds is encrypted."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import SecretStr, field_validator, model_validator

from blackboard.errors import ConfigError
from blackboard.settings.table import Table

__all__ = ["Encryption"]


class Encryption(Table):
    """How what a namespace holds is encrypted: needs the extra `crypto`. No key is ever shown or logged."""

    if TYPE_CHECKING:  # keys are given as text, so the annotations are not the parameters

        def __init__(self, **values: Any) -> None: ...

    secret: ClassVar[bool] = True

    keys: dict[str, SecretStr]
    """The keys by id, each 32 random bytes in base64; an id is 1 to 64 letters, digits, `.`, `_` or `-` in any case."""
    current: str
    """Id of the key that everything new is encrypted with; the others only read."""
    accept_plaintext: bool = False
    """Whether what was stored before the namespace was encrypted may be read; what is written is encrypted all the same."""

    @field_validator("keys")
    @classmethod
    def _keys(cls, keys: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for key_id, secret in keys.items():
            if not _KEY_ID.fullmatch(key_id):
                raise ConfigError("an id of a key is 1 to 64 letters, digits, dots, underscores or dashes")
            _key_bytes(key_id, secret)
        return {key_id.lower(): secret for key_id, secret in keys.items()}

    @field_validator("current")
    @classmethod
    def _current(cls, current: str) -> str:
        return current.lower()

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.current not in self.keys:
            raise ConfigError(
                f"current names a key that is not there; keys has {', '.join(sorted(self.keys)) or 'none'}"
            )
        return self

    def key(self, key_id: str) -> bytes:
        """Return a key's 32 bytes."""
        return _key_bytes(key_id, self.keys[key_id])


_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

KEY_BYTES = 32
"""Bytes of a key of AES-256."""


def _key_bytes(key_id: str, secret: SecretStr) -> bytes:
    try:
        key = base64.b64decode(secret.get_secret_value(), validate=True)
    except ValueError:
        raise ConfigError(f"key {key_id!r} is not base64; make one with: openssl rand -base64 {KEY_BYTES}") from None
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"key {key_id!r} has {len(key)} bytes, not {KEY_BYTES}; make one with: openssl rand -base64 {KEY_BYTES}"
        )
    return key
