"""What was recorded, as the type that the caller declares."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from blackboard.errors import CorruptValue

__all__ = ["validated"]


def validated(value: Any, declared: Any, what: str) -> Any:
    """Return the value as the declared type; CorruptValue if it is none."""
    try:
        return TypeAdapter(declared).validate_python(value)
    except ValidationError as error:
        raise CorruptValue(f"{what} is not a {declared}: {error.errors()[0]['msg']}", value=value) from error
