"""Native state: a pydantic model's fields as the channels of a checkpoint, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args, get_origin

from pydantic import BaseModel, RootModel, ValidationError

from blackboard.checkpoints.channels import Channel, Keep, Ref
from blackboard.checkpoints.fields import Content, Mark, Stored, capture, capture_log, open_items
from blackboard.checkpoints.log import ItemType, Log, is_log, item_type, restore, tail_of
from blackboard.codec import Types, decode
from blackboard.codec.classes import is_class
from blackboard.errors import ConfigError, EncodeError

__all__ = ["Draft", "StateChannels"]

S = TypeVar("S", bound=BaseModel)

INLINE_LIMIT = 128
"""As many bytes as a manifest holds inline."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A state as it was at one moment, for one commit; nothing that happens to the state later changes it."""

    channels: Mapping[str, Channel]
    contents: Mapping[str, Content]


class StateChannels(Generic[S]):
    """The face of one run's state on the engine: one channel per field, named as the field.

    A `Log` costs its new items. A plain `list` or `dict` is encoded whole and compared item by item with what is
    stored: bytes are what is new, a change in place is always seen. Everything else is a value. Private attributes and
    computed fields are not stored; the extra fields of a model with `extra="allow"` are.

    `model` is a BaseModel subclass, else ConfigError; `types` are the classes that values may be rebuilt as (default:
    those that the model's annotations name), `inline_limit` is the largest list or dict in bytes that stays a value. One instance belongs to one run: it knows what the last
    acknowledged checkpoint holds. Per commit: `draft`, hand `draft.channels` to the engine, then `acknowledge`. A draft
    that is not acknowledged changes nothing, and the next one holds all of it again.
    """

    def __init__(self, model: type[S], *, types: Types | None = None, inline_limit: int = INLINE_LIMIT) -> None:
        _check_model(model)
        self._model = model
        self._types = types or Types.of(model)
        self._inline_limit = inline_limit
        self._items: dict[str, ItemType] = _log_fields(model)
        self._logs: dict[str, Log[Any]] = {}
        self._stored: dict[str, Stored] = {}
        self._foreign: dict[str, Ref] = {}
        self._clean: Mapping[str, Mark] | None = None

    def load(self, refs: Mapping[str, Ref], contents: Mapping[str, bytes | Sequence[bytes]]) -> S:
        """Rebuild the state from a snapshot: bytes for a value, the list of items for a log or map.

        A field that is not stored takes its default. A channel that the model does not know is kept: every later
        draft refers to it unchanged. Raises ConfigError that names the fields if the model refuses what is stored,
        CorruptValue if bytes are not what was written; the store is left as it is.
        """
        self._logs, self._stored = {}, {}
        known = {name for name in refs if self._knows(name)}
        self._foreign = {name: ref for name, ref in refs.items() if name not in known}
        values = {name: self._open(name, refs[name], contents[name]) for name in refs if name in known}
        try:
            state = self._model.model_validate(values, by_name=True, by_alias=False)
        except ValidationError as error:
            raise self._misfit(error) from error
        self._clean = _marks(self._capture(state))
        return state

    def draft(self, state: S) -> Draft:
        """Encode the state for one commit; nothing is sent.

        Raises EncodeError whose path begins with `state.` for a value that cannot be stored exactly, and for a Log
        that was replaced or belongs to another run; ConfigError if the state is not of the run's model.
        """
        contents = self._capture(state)
        channels: dict[str, Channel] = {name: Keep(ref) for name, ref in self._foreign.items()}
        for name, content in contents.items():
            channels[name] = content.channel(self._stored.get(name))
        return Draft(channels, contents)

    def acknowledge(self, draft: Draft, refs: Mapping[str, Ref]) -> None:
        """Note that a draft is committed and where its channels stand now; what changed since stays uncommitted."""
        self._stored = {name: Stored(refs[name], content.acknowledged()) for name, content in draft.contents.items()}
        self._foreign = {name: refs[name] for name in self._foreign}
        self._clean = _marks(draft.contents)

    def changed(self, state: S) -> bool:
        """Tell whether the state differs from the last acknowledged or loaded one, changes in place included.

        True as long as nothing was acknowledged or loaded, and for a state that could not be committed.
        """
        try:
            return self._clean is None or _marks(self._capture(state)) != self._clean
        except EncodeError:
            return True

    def _knows(self, name: str) -> bool:
        return name in self._model.model_fields or self._model.model_config.get("extra") == "allow"

    def _open(self, name: str, ref: Ref, content: bytes | Sequence[bytes]) -> Any:
        if isinstance(content, bytes):
            self._stored[name] = Stored(ref)
            return decode(content, types=self._types)
        value, mark = open_items(ref, content, self._types)
        self._stored[name] = Stored(ref, mark)
        if name not in self._items or ref.kind != "log":
            return value
        try:
            return restore(self._items[name], value, (self, name))
        except ValidationError as error:
            raise self._misfit(error, name) from error

    def _misfit(self, error: ValidationError, *above: str) -> ConfigError:
        found = [(".".join(map(str, (*above, *part["loc"]))) or "the state", part["msg"]) for part in error.errors()]
        return ConfigError(
            f"what is stored does not fit {self._model.__name__}: {'; '.join(f'{name}: {why}' for name, why in found)}. "
            "It was left as it is; give the field a default, or a validator that takes what was stored before",
            fields=tuple(name for name, _ in found),
        )

    def _capture(self, state: S) -> dict[str, Content]:
        if type(state) is not self._model:
            raise ConfigError(
                f"the state of this run is a {self._model.__name__}, not a {type(state).__name__}; a subclass is another "
                "model, too",
                value=state,
            )
        return {name: self._content(name, value) for name, value in _values(state)}

    def _content(self, name: str, value: Any) -> Content:
        path = f"state.{name}"
        if name in self._items or is_log(value):
            return capture_log(self._own(name, value, path))
        return capture(value, path, self._inline_limit)

    def _own(self, name: str, value: Any, path: str) -> Log[Any]:
        """Return the field's Log, which is the same object for the whole run."""
        if name not in self._items:
            raise EncodeError(f"{path} holds a Log and is not declared as one; declare it as Log[...]", path=path)
        if not is_log(value) or self._logs.get(name, value) is not value:
            raise EncodeError(
                f"{path} was replaced, but a Log only grows; append to it, or declare the field as a list", path=path
            )
        if name not in self._logs:
            tail_of(value).adopt(self._items[name], (self, name))
            self._logs[name] = value
        return value


def _values(state: BaseModel) -> Iterator[tuple[str, Any]]:
    """Yield what is stored of a state: its fields, unless model_construct left them out, and its extra fields."""
    held = state.__dict__
    yield from ((name, held[name]) for name in type(state).model_fields if name in held)
    yield from (state.model_extra or {}).items()


def _marks(contents: Mapping[str, Content]) -> dict[str, Mark]:
    return {name: content.mark for name, content in contents.items()}


def _check_model(model: Any) -> None:
    if not (is_class(model) and issubclass(model, BaseModel)) or model is BaseModel or issubclass(model, RootModel):
        raise ConfigError(
            f"a state is declared as a subclass of pydantic.BaseModel with fields, not {model!r}; wrap it: "
            "class State(BaseModel): value: ...",
            value=model,
        )
    if not model.__pydantic_complete__ and not model.model_rebuild(raise_errors=False):
        raise ConfigError(
            f"{model.__name__} refers to types that are not defined yet; call model_rebuild()", value=model
        )


def _log_fields(model: type[BaseModel]) -> dict[str, ItemType]:
    items: dict[str, ItemType] = {}
    for name, info in model.model_fields.items():
        item = item_type(model, name)
        if item is not None:
            items[name] = item
        elif _mentions_log(info.annotation):
            raise ConfigError(
                f"state.{name}: a Log must be the whole type of a field, not a part of {info.annotation}", field=name
            )
    return items


def _mentions_log(annotation: Any) -> bool:
    return annotation is Log or get_origin(annotation) is Log or any(map(_mentions_log, get_args(annotation)))
