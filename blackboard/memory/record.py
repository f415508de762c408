"""What memory keeps: records, the tokens that say how far a reader has seen, and what one is told about a write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from blackboard.errors import ConfigError, StateInvalid

if TYPE_CHECKING:
    from pydantic import BaseModel

    M = TypeVar("M", bound=BaseModel)

__all__ = ["Metadata", "Record", "Scalar", "Token", "checked"]

Scalar = str | int | float | bool | None
"""What a single value of metadata can be."""

Metadata = Mapping[str, Scalar | tuple[Scalar, ...]]
"""What a record is filtered by: names to single values or to several."""


@dataclass(frozen=True, slots=True, order=True)
class Token:
    """How far a path has come: its incarnation (server time in µs) and the seq of a write. Later tokens compare greater."""

    incarnation: int
    seq: int

    def __str__(self) -> str:
        return f"{self.incarnation}.{self.seq}"

    @classmethod
    def parse(cls, text: str) -> Token:
        """Read what `str` has written; ConfigError if it is anything else."""
        incarnation, dot, seq = text.partition(".") if type(text) is str else ("", "", "")
        if not (dot and incarnation.isascii() and incarnation.isdigit() and seq.isascii() and seq.isdigit()):
            raise ConfigError(f"a token is <incarnation>.<seq>, as it was returned; got {text!r}", value=text)
        return cls(int(incarnation), int(seq))


def checked(token: Any, what: str) -> Token | None:
    """Return a token, or None, unchanged; ConfigError for anything else, its text included."""
    if token is None:
        return None
    if isinstance(token, Token) and all(type(part) is int and part >= 0 for part in (token.incarnation, token.seq)):
        return token
    raise ConfigError(f"{what} is a token, got {token!r}; make one of its text by Token.parse", value=token)


@dataclass(frozen=True, slots=True)
class Record:
    """One thing remembered, as it is stored now. Times are server time in µs.

    `version` counts the writes of this record from 1; `valid_until` and `superseded_by` are set when a newer record about
    the same subject, or a merged one, took its place. `embedded` says whether its vector is made. `duplicate` is set on the answer to a
    `remember` that found the same content there already, and stored nothing.
    """

    path: tuple[str, ...]
    id: str
    text: str
    token: Token
    version: int = 1
    value: Any = None
    subject: str | None = None
    metadata: Metadata = field(default_factory=dict[str, Scalar | tuple[Scalar, ...]])
    importance: float = 0.5
    created: int = 0
    updated: int = 0
    valid_from: int = 0
    valid_until: int | None = None
    expires: int | None = None
    superseded_by: str | None = None
    pinned: bool = False
    embedded: bool = False
    duplicate: bool = False

    def parsed(self, model: type[M]) -> M:
        """Return the model that was remembered, validated anew; StateInvalid if its fields do not fit the model."""
        if self.value is None:
            raise StateInvalid(
                f"record {self.id!r} holds a text, not a {model.__name__}", record=self.id, model=model.__name__
            )
        try:
            return model.model_validate(self.value)
        except ValueError as wrong:
            raise StateInvalid(
                f"record {self.id!r} is no {model.__name__}: {wrong}", record=self.id, model=model.__name__
            ) from wrong
