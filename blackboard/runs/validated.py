"""What was recorded, as the type that the caller declares."""

from __future__ import annotations

from typing import Any

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from blackboard.errors import ConfigError, CorruptValue

__all__ = ["validated"]


def validated(value: Any, declared: Any, what: str) -> Any:
    """Return the value as the declared type; CorruptValue if it is none, ConfigError for a type that nobody can check."""
    name = declared.__name__ if isinstance(declared, type) else declared
    try:
        return TypeAdapter(declared).validate_python(value)
    except ValidationError as error:
        raise CorruptValue(f"{what} is not of type {name}: {error.errors()[0]['msg']}", value=value) from error
    except PydanticUserError as error:
        raise ConfigError(
            f"{what} cannot be checked against {name}: declare a pydantic model, a dataclass or a plain type",
            value=name,
        ) from error
