"""Where settings come from: files, environment variables and arguments, laid over one another.

A layer remembers where each of its values was written, so that an error can name the file or the variable.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from blackboard.errors import ConfigError

__all__ = ["Layer", "environment", "merge", "place", "read"]

Route = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """One source of settings: nested data, and how the place of a value in it is spelled."""

    name: str
    data: Mapping[str, Any]
    variables: Mapping[Route, str] = field(default_factory=dict[Route, str])

    def place(self, route: Route) -> str | None:
        """Name where the value at a route was written, or None if this layer does not hold it."""
        here: Any = self.data
        for step in route:
            if not isinstance(here, Mapping) or step not in here:
                return None
            here = cast("Mapping[str, Any]", here)[step]
        names = (self.variables.get(route[:end]) for end in range(len(route), 0, -1))
        variable = next((name for name in names if name), None)
        return f"environment variable {variable}" if variable else self.name


def read(path: str | os.PathLike[str]) -> Layer:
    """Read one TOML file; a file that is missing or is not TOML raises ConfigError naming it."""
    given: Any = path  # callers may not be typed
    if not isinstance(given, (str, os.PathLike)) or not str(path):
        raise ConfigError(f"a settings file is named by a path, not {path!r}; give its values as arguments", value=path)
    file = Path(path).expanduser()
    try:
        return Layer(f"file {file}", tomllib.loads(file.read_text("utf-8-sig")))
    except OSError as error:
        raise ConfigError(
            f"settings file {file} cannot be read ({error.strerror}); correct the path or remove it", value=str(path)
        ) from None
    except ValueError as error:
        raise ConfigError(f"settings file {file} is not valid TOML: {error}", value=str(path)) from None


def environment(prefix: str, ignored: Iterable[str], declared: Sequence[str]) -> Layer:
    """Read the environment variables that begin with the prefix; `__` separates the levels, case does not matter.

    `declared` are the namespaces that other layers name: a variable finds one by its name in any case, with `_` where
    the name has a dash. A whole table may be given as JSON.
    """
    skipped = set(ignored)
    data: dict[str, Any] = {}
    variables: dict[Route, str] = {}
    for variable in sorted(os.environ, key=lambda name: name.count("__")):
        if variable.upper().startswith(prefix) and variable.upper() not in skipped:
            route = _route(variable[len(prefix) :], declared)
            variables[route] = variable
            _put(data, route, _value(variable, route), variable)
    return Layer("environment", data, variables)


def merge(layers: Iterable[Layer]) -> dict[str, Any]:
    """Lay the layers over one another, later ones on top; tables are merged key by key, other values are replaced."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = _over(merged, layer.data)
    return merged


def place(layers: Sequence[Layer], route: Route) -> str | None:
    """Name where the value that counts at a route was written, if any layer holds it."""
    places = (layer.place(route) for layer in reversed(layers))
    return next((found for found in places if found), None)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        lower = merged.get(key)
        tables = isinstance(lower, Mapping) and isinstance(value, Mapping)
        merged[key] = _over(cast("Mapping[str, Any]", lower), cast("Mapping[str, Any]", value)) if tables else value
    return merged


def _route(name: str, declared: Sequence[str]) -> Route:
    steps = name.lower().split("__")
    if steps[0] == "namespaces" and len(steps) > 1:
        steps[1] = next((known for known in declared if _plain(known) == _plain(steps[1])), steps[1])
    return tuple(steps)


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _value(variable: str, route: Route) -> Any:
    text = os.environ[variable]
    is_table = len(route) <= (2 if route[0] == "namespaces" else 1)
    if not (is_table and text.lstrip().startswith("{")):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"environment variable {variable} is not valid JSON: {error}", value=text) from None


def _put(data: dict[str, Any], route: Route, value: Any, variable: str) -> None:
    for step in route[:-1]:
        inner: object = data.setdefault(step, {})
        if isinstance(inner, dict):
            data = cast("dict[str, Any]", inner)
        else:
            raise ConfigError(f"environment variable {variable} is part of {step!r}, which is not a table", value=value)
    data[route[-1]] = value
