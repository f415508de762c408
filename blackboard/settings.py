"""Settings: frozen values from defaults, TOML files, environment variables and arguments.

Nothing is global and nothing is read at import. A name that nobody knows is an error wherever it stands, and every
error names the value, where it was written and how to mend it.
"""

from __future__ import annotations

import base64
import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from blackboard.errors import ConfigError
from blackboard.keys import check_id
from blackboard.layers import Layer, environment, merge, place, read
from blackboard.quantities import Duration, Expiry, Size

__all__ = ["Backend", "CheckpointNamespace", "Durability", "Encryption", "MemoryNamespace", "Namespace", "Settings"]

PREFIX = "BLACKBOARD_"

OPERATIONAL = {"BLACKBOARD_DIR": "where the embedded server keeps its data"}
"""Environment variables with our prefix that are not settings."""

SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel")
"""Schemes of a backend's URL."""

LONGEST_VALUE = 512 << 20
"""Longest string, in bytes, that a Redis-protocol server takes by default (proto-max-bulk-len)."""

Durability = Literal["require", "prefer", "off"]
"""What to do about a backend that is proven not to keep what it acknowledges: refuse, warn, do not ask."""

_N = TypeVar("_N", bound="_Table")


def _count(value: object) -> object:
    if isinstance(value, bool):
        raise ConfigError(f"a count must be a number, got {value!r}")
    return None if isinstance(value, str) and value.strip().lower() == "none" else value


def _masked(url: str) -> str:
    return re.sub(r"(?<=password=)[^&]*", "***", re.sub(r"(://[^:@/]*):.*@", r"\1:***@", url))


Count = Annotated[int, BeforeValidator(_count), Field(ge=1)]


def _field(default: Any, **limits: Any) -> Any:
    """Declare a default as people write it; it is validated like any other value."""
    return Field(default, **limits)


class _Table(BaseModel):
    """A frozen table of settings in which unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _config_error(type(self), error, (Layer("argument", values),)) from None


class Backend(_Table):
    """How to reach the server. Without a URL a private durable server is started on this machine."""

    if TYPE_CHECKING:  # text is welcome for durations and sizes, so the annotations are not the parameters

        def __init__(self, **values: Any) -> None: ...

    url: str | None = None
    """Where the server is: `redis://`, `rediss://`, `unix://`, `redis+cluster://` or `redis+sentinel://`; without one, the embedded server."""
    directory: Path | None = None
    """Where the embedded server keeps its data; by default `BLACKBOARD_DIR`, else the nearest `.blackboard` upwards. Unused with a URL."""
    retry_deadline: Duration = _field("10s")
    """How long a call is tried again over lost connections before it raises."""
    connect_timeout: Duration = _field("2s")
    """How long opening one connection may take."""
    response_timeout: Duration = _field("5s")
    """How long one reply may take before its connection is given up."""
    connections: Annotated[Count, Field(le=1024)] = 4
    """Connections per server node for data; all tasks of a process share them."""
    lease_connections: Annotated[Count, Field(le=64)] = 1
    """Connections per server node kept for leases, so that no large commit delays a renewal."""
    batch_bytes: Size = _field("1MiB", ge=1024, le=LONGEST_VALUE)
    """Most bytes that are sent in one shared pipeline."""

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str | None) -> str | None:
        if url is None or (url.partition("://")[0].lower() in SCHEMES and url.partition("://")[2]):
            return url
        raise ConfigError(f"unknown kind of URL {_masked(url)!r}; begin it with one of {', '.join(SCHEMES)} and ://")

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, _masked(value) if name == "url" and isinstance(value, str) else value


class Encryption(_Table):
    """How what a namespace holds is encrypted: needs the extra `crypto`. No key is ever shown or logged."""

    if TYPE_CHECKING:  # keys are given as text, so the annotations are not the parameters

        def __init__(self, **values: Any) -> None: ...

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


class CheckpointNamespace(_Table):
    """A hot namespace: the policy of the threads that are kept in it."""

    if TYPE_CHECKING:  # text is welcome for durations and sizes, so the annotations are not the parameters

        def __init__(self, **values: Any) -> None: ...

    kind: Literal["checkpoint"] = "checkpoint"
    """What the namespace holds: threads and their checkpoints."""
    ttl: Expiry = _field("7d")
    """How long a thread is kept after it finished; none keeps it."""
    failed_ttl: Expiry = None
    """How long a thread is kept after it failed; none keeps it."""
    idle_ttl: Expiry = None
    """How long an unfinished thread is kept after its last write; none keeps it."""
    lease_ttl: Duration = _field("30s", ge=0.1)
    """How long a lease lives without renewal: the longest pause before another driver takes over."""
    keep_last: Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(_count)] = None
    """How many of the newest checkpoints are kept, besides pinned ones: pruned every max(keep_last, 16) commits; none keeps all."""
    durability: Durability = "require"
    """What a backend that loses acknowledged writes means: `require` refuses it, `prefer` warns, `off` does not ask."""
    inline_limit: Size = _field(128, le=1 << 20)
    """Longest value, in bytes, that is written into the checkpoint itself instead of beside it."""
    value_limit: Size = _field("64MiB", ge=1, le=LONGEST_VALUE)
    """Longest single value, in bytes, that is accepted; a longer one is refused before anything is sent."""
    effect_ttl: Duration = _field("7d")
    """How long the result of an effect that was claimed across threads is kept."""
    takeover_cap: Count = 8
    """How many takeovers without a commit between them put a thread into quarantine."""
    encryption: Encryption | None = None
    """Keys to encrypt with, `keys` by id and `current`, and `accept_plaintext`; none stores what is given."""


class MemoryNamespace(_Table):
    """A cold namespace: the policy of the records that are kept in it."""

    if TYPE_CHECKING:  # text is welcome for durations and sizes, so the annotations are not the parameters

        def __init__(self, **values: Any) -> None: ...

    kind: Literal["memory"] = "memory"
    """What the namespace holds: records that outlive the runs."""
    ttl: Expiry = None
    """How long a record is kept after its last write; none keeps it until somebody forgets it."""
    durability: Durability = "require"
    """What a backend that loses acknowledged writes means: `require` refuses it, `prefer` warns, `off` does not ask."""


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
    namespaces: dict[str, Namespace]
    """The namespaces by name; a name is part of every key of what it holds."""

    def __init__(self, *, _files: Sequence[Layer] = (), **overrides: Any) -> None:
        below = (_DEFAULTS, *_files)
        above = Layer("argument", overrides)
        declared = [*merge((*below, above)).get("namespaces", ())]
        layers = (*below, environment(PREFIX, OPERATIONAL, declared), above)
        try:
            super().__init__(**merge(layers))
        except ValidationError as error:
            raise _config_error(type(self), error, layers) from None

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
            f"there is no {wanted} namespace {name!r}; the settings name {', '.join(names) or 'none'}", value=name
        )


def _config_error(model: type[BaseModel], error: ValidationError, layers: Sequence[Layer]) -> ConfigError:
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
        shown = _masked(found["input"]) if isinstance(found["input"], str) else found["input"]
        secret = model is Encryption or "encryption" in route
        yield route, told if secret else f"{told}, got {shown!r:.200}"


def _unknown(name: str, model: type[BaseModel]) -> str:
    known = {field: field for field in sorted(model.model_fields)}
    nested = {field: f"backend.{field}" for field in Backend.model_fields} if "backend" in known else {}
    close = [(nested | known)[match] for match in difflib.get_close_matches(name.lower(), nested | known)]
    return f"unknown name; did you mean {' or '.join(close)}?" if close else f"unknown name; known: {', '.join(known)}"
