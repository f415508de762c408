"""The type that a caller declares for what is recorded: the result of an effect, the answer to a signal."""

from __future__ import annotations

from typing import Any

from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError

from blackboard.errors import ConfigError

__all__ = ["Declared", "Misfit"]


class Misfit(Exception):
    """A value is not of the declared type; says what it is, and why it is none. The caller knows the mend."""


class Declared:
    """One declared type, None for any; a type that nobody can check is refused before anything happens.

    `what` names the value in messages. Raises ConfigError.
    """

    __slots__ = ("_adapter", "_name", "_what")

    def __init__(self, declared: Any, what: str) -> None:
        self._name = declared.__name__ if isinstance(declared, type) else str(declared)
        self._what = what
        try:
            self._adapter: TypeAdapter[Any] | None = None if declared is None else TypeAdapter(declared)
            if self._adapter is not None and not self._adapter.pydantic_complete:
                self._adapter.rebuild()
        except (PydanticUserError, PydanticUndefinedAnnotation) as error:
            raise self._unchecked() from error

    def checked(self, value: Any) -> Any:
        """Return the value as the declared type, converted where pydantic converts without being strict.

        Raises Misfit, and ConfigError for a type whose annotations cannot be resolved.
        """
        if self._adapter is None:
            return value
        try:
            return self._adapter.validate_python(value)
        except ValidationError as error:
            first = error.errors()[0]
            place = "".join(f" at {'.'.join(map(str, first['loc']))}" for _ in first["loc"][:1])
            raise Misfit(
                f"{self._what} is not of type {self._name} but of type {type(value).__name__} ({first['msg']}{place})"
            ) from error
        except PydanticUserError as error:
            raise self._unchecked() from error

    def _unchecked(self) -> ConfigError:
        return ConfigError(
            f"{self._what} cannot be checked against {self._name}: declare a pydantic model, a dataclass or a plain "
            "type, or none",
            value=self._name,
        )
