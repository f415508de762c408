"""All settings, merged from defaults, TOML files, environment variables and arguments."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import Discriminator, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from blackboard.errors import ConfigError
from blackboard.keys import check_id
from blackboard.layers import Layer, environment, merge, read
from blackboard.settings.artifacts import Artifacts
from blackboard.settings.backend import Backend
from blackboard.settings.checkpoint import CheckpointNamespace
from blackboard.settings.memory import MemoryNamespace
from blackboard.settings.table import Table, config_error

__all__ = ["Namespace", "Settings"]

PREFIX = "BLACKBOARD_"

OPERATIONAL = {"BLACKBOARD_DIR": "where the embedded server keeps its data"}
"""Environment variables with our prefix that are not settings."""

_N = TypeVar("_N", bound="Table")

Namespace = Annotated[CheckpointNamespace | MemoryNamespace, Discriminator("kind")]

_DEFAULTS = Layer("default", {"namespaces": {"checkpoint": {"kind": "checkpoint"}, "memory": {"kind": "memory"}}})


class Settings(BaseSettings):
    """Everything that can be set: one backend and any number of named namespaces.

    Later sources win, field by field: defaults, files in the order given, environment variables `BLACKBOARD_…` (levels
    joined by `__`), arguments. The namespaces `checkpoint` and `memory` always exist. Anything wrong raises ConfigError.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        validate_default=True,
        use_attribute_docstrings=True,
    )
    operational: ClassVar[Mapping[str, str]] = OPERATIONAL

    backend: Backend = Field(default_factory=Backend)
    """The server that holds everything."""
    artifacts: Artifacts = Field(default_factory=Artifacts)
    """Where artifacts are kept."""
    namespaces: dict[str, Namespace]
    """The namespaces by name; a name is part of every key of what it holds."""

    def __init__(self, *, _files: Sequence[Layer] = (), **overrides: Any) -> None:
        below = (_DEFAULTS, *_files)
        above = Layer("argument", overrides)
        declared = [*(merge((*below, above)).get("namespaces") or ())]
        layers = (*below, environment(PREFIX, OPERATIONAL, declared), above)
        try:
            super().__init__(**merge(layers))
        except ValidationError as error:
            raise config_error(type(self), error, layers) from None

    @classmethod
    def load(cls, *paths: str | os.PathLike[str], **overrides: Any) -> Self:
        """Read TOML files, later ones over earlier ones, then the environment, then the arguments.

        A file that is missing, an unknown name or a wrong value raises ConfigError (a ValueError).
        """
        return cls(_files=[read(path) for path in paths], **overrides)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the name is pydantic's
        init_settings: PydanticBaseSettingsSource,
        *_: Any,
        **__: Any,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Leave the merging to `layers`: the usual sources drop unknown variables and forget where a value stood."""
        return (init_settings,)

    def checkpoint_namespace(self, name: str = "checkpoint") -> CheckpointNamespace:
        """Return the policy of a checkpoint namespace; an unknown name or another kind raises ConfigError."""
        return self._namespace(name, CheckpointNamespace)

    def memory_namespace(self, name: str = "memory") -> MemoryNamespace:
        """Return the policy of a memory namespace; an unknown name or another kind raises ConfigError."""
        return self._namespace(name, MemoryNamespace)

    @field_validator("namespaces")
    @classmethod
    def _names(cls, namespaces: dict[str, Namespace]) -> dict[str, Namespace]:
        for name in namespaces:
            check_id(name, "a namespace name")
        return namespaces

    def _namespace(self, name: str, kind: type[_N]) -> _N:
        found: object = self.namespaces.get(name)
        if isinstance(found, kind):
            return found
        wanted = kind.model_fields["kind"].default
        names = [known for known, namespace in self.namespaces.items() if isinstance(namespace, kind)]
        raise ConfigError(
            f"there is no {wanted} namespace {name!r}; the settings name {', '.join(names) or 'none'}: use one of these, or "
            f'give them [namespaces.{name}] with kind = "{wanted}"',
            value=name,
        )
