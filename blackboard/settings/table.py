"""A table of settings: frozen, with unknown names refused, and errors that say where a value was written."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from blackboard.errors import ConfigError
from blackboard.layers import Layer, place

__all__ = ["LONGEST_VALUE", "Count", "Durability", "Table", "config_error", "count", "default", "masked"]

LONGEST_VALUE = 512 << 20
"""Longest string, in bytes, that a Redis-protocol server takes by default (proto-max-bulk-len)."""

Durability = Literal["require", "prefer", "off"]
"""What to do about a backend that is proven not to keep what it acknowledges: refuse, warn, do not ask."""


def count(value: object) -> object:
    """Refuse booleans as counts and read `none`, for a validator that runs before the number is parsed."""
    if isinstance(value, bool):
        raise ConfigError(f"a count must be a number, got {value!r}")
    return None if isinstance(value, str) and value.strip().lower() == "none" else value


def masked(url: str) -> str:
    """Return a URL without its passwords."""
    return re.sub(r"(?<=password=)[^&]*", "***", re.sub(r"(://[^:@/]*):.*@", r"\1:***@", url))


Count = Annotated[int, BeforeValidator(count), Field(ge=1)]


def default(default: Any, **limits: Any) -> Any:
    """Declare a default as people write it; it is validated like any other value."""
    return Field(default, **limits)


class Table(BaseModel):
    """A frozen table of settings in which unknown names are errors."""

    secret: ClassVar[bool] = False
    """Whether no value of the table may be shown in an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise config_error(type(self), error, (Layer("argument", values),)) from None


def config_error(model: type[BaseModel], error: ValidationError, layers: Sequence[Layer]) -> ConfigError:
    """Turn what pydantic found into an error that names each value, where it was written and how to mend it."""
    problems = [
        (route, what) for found in error.errors(include_url=False) for route, what in _problems(model, dict(found))
    ]
    lines: list[str] = []
    for route, what in problems:
        where = place(layers, route) or place(layers, route[:-1])
        written = f" ({where})" if where else ""
        lines.append(f"{'.'.join(route)}{written}: {what}")
    return ConfigError("; ".join(lines), problems=problems)


def _problems(model: type[BaseModel], found: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    route = tuple(str(step) for step in found["loc"])
    if route[:1] == ("namespaces",) and len(route) > 2:
        route = route[:2] + route[3:]  # pydantic puts the kind after the name
    cause = found.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        inner = cause.ids.get("problems", [((), str(cause))])
        yield from (((*route, *steps), what) for steps, what in inner)
    elif found["type"] == "extra_forbidden":
        yield route, _unknown(str(found["loc"][-1]), model)
    elif found["type"].startswith("union_tag"):
        yield (*route, "kind"), 'set kind = "checkpoint" or kind = "memory"'
    else:
        told = f"{found['msg'][:1].lower()}{found['msg'][1:]}"
        shown = masked(found["input"]) if isinstance(found["input"], str) else found["input"]
        secret = getattr(model, "secret", False) or "encryption" in route
        yield route, told if secret else f"{told}, got {shown!r:.200}"


def _unknown(name: str, model: type[BaseModel]) -> str:
    known = {field: [field] for field in sorted(model.model_fields)}
    nested: dict[str, list[str]] = {}
    for table, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Table):
            for inner in field.annotation.model_fields:
                nested.setdefault(inner, []).append(f"{table}.{inner}")
    matches = difflib.get_close_matches(name.lower(), nested | known)
    close = [place for match in matches for place in (nested | known)[match]]
    return f"unknown name; did you mean {' or '.join(close)}?" if close else f"unknown name; known: {', '.join(known)}"
