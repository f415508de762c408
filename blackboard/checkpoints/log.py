"""Log: the append-only field of a state, whose items are checked and encoded when they are appended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeGuard, TypeVar, cast, final, get_args, get_origin, overload

from pydantic import GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema

from blackboard.checkpoints.immutable import Unresolved, mutable_type, mutable_value
from blackboard.codec import encode
from blackboard.codec.classes import is_class
from blackboard.errors import EncodeError

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["ItemType", "Log", "Tail", "is_log", "item_type", "restore", "tail_of"]

T = TypeVar("T")


class ItemType:
    """What the items of one Log field are: the annotation, its validator, and the path that errors name."""

    def __init__(self, annotation: Any, path: str) -> None:
        self.annotation = annotation
        self.path = path
        self._adapter: TypeAdapter[Any] | None = None

    def check(self) -> None:
        """Raise TypeError if an item could change after it was appended; Unresolved if that cannot be told yet."""
        part = mutable_type(self.annotation)
        if part is not None:
            raise TypeError(
                f"{self.path}: the items of a Log must be immutable all the way down, and {part} is not; use a frozen "
                f"model, a tuple or a frozenset, or declare the field as list[{_name(self.annotation)}]"
            )

    @property
    def adapter(self) -> TypeAdapter[Any]:
        """Return the validator; built at first use, when every forward reference can be resolved."""
        if self._adapter is None:
            self.check()
            self._adapter = TypeAdapter(self.annotation)
        return self._adapter

    @property
    def adapter_of_all(self) -> TypeAdapter[list[Any]]:
        """Return the validator of a list of items."""
        self.check()
        return TypeAdapter(_list_of(self.annotation))

    def admit(self, item: Any, index: int) -> tuple[Any, bytes]:
        """Validate one item strictly and encode it.

        It is looked at before it is validated: pydantic, strict or not, would make a model of a dict.
        """
        path = f"{self.path}[{index}]"
        if (part := mutable_value(item)) is not None:
            raise EncodeError(
                f"{path} holds a {part}, which can change after it was appended; give a {_name(self.annotation)}",
                path=path,
            )
        item = self.adapter.validate_python(item, strict=True)
        return item, encode(item, path=path)


class Tail:
    """What stands behind a Log: its items, and how far they are checked, encoded and stored.

    `encoded` are the items that no acknowledged commit has stored, the last of `items`; `stored` counts those before.
    As long as `item` is None nobody knows what the Log may hold, and nothing is encoded; `declared` may find out.
    """

    __slots__ = ("declared", "encoded", "item", "items", "owner", "stored")

    def __init__(self, items: Iterable[Any], declared: Callable[[], ItemType | None] | None = None) -> None:
        self.items = list(items)
        self.encoded: list[bytes] = []
        self.stored = 0
        self.item: ItemType | None = None
        self.owner: object = None
        self.declared = declared

    def extend(self, added: list[Any]) -> None:
        """Check, encode and add items, all or none of them."""
        if self.item is None and self.declared is not None and (item := self.declared()) is not None:
            self.bind(item)
        if self.item is not None:
            admitted = [self.item.admit(value, index) for index, value in enumerate(added, len(self.items))]
            self.encoded += [data for _, data in admitted]
            added = [value for value, _ in admitted]
        self.items += added

    def bind(self, item: ItemType) -> None:
        """Check and encode what the Log holds as items of this type, unless that has been done."""
        if self.item is not None and self.item.annotation == item.annotation:
            self.item = item
            return
        if self.item is not None and self.owner is not None:
            raise ValueError(f"it is the Log of another run, which holds {_name(self.item.annotation)}; pass list(log)")
        admitted = [item.admit(value, index) for index, value in enumerate(self.items)]
        self.items = [value for value, _ in admitted]
        self.encoded = [data for _, data in admitted]
        self.item = item

    def adopt(self, item: ItemType, owner: object) -> None:
        """Make the Log the field of a run; EncodeError if it belongs to another one."""
        if self.owner not in (None, owner):
            raise EncodeError(
                f"{item.path} is a Log that belongs to another run or field; give each its own: Log(list(other))",
                path=item.path,
            )
        self.bind(item)
        self.owner = owner

    def encode(self, count: int) -> list[bytes]:
        """Encode the first `count` items again, for a store that lost them or wants them compacted."""
        path = self.item.path if self.item else "log"
        return [encode(item, path=f"{path}[{index}]") for index, item in enumerate(self.items[:count])]

    def acknowledge(self, count: int) -> None:
        """Note that the first `count` items are stored; what was appended meanwhile stays to be stored."""
        del self.encoded[: count - self.stored]
        self.stored = count


@final
class Log(Sequence[T]):
    """An append-only field of a state: `messages: Log[Message] = Log()`.

    A Sequence, not a list: `append` and `extend` are all that changes it. An item is validated strictly and encoded
    when it is appended, so a commit costs the new items, whatever stands before them; T must therefore be immutable all
    the way down, else defining the class raises TypeError (declare `list[T]` instead). A Log that is not a field's yet
    (`Log([...])`) checks its items when it becomes one. A default is copied for every instance. A Log belongs to the
    run that committed it first: replacing it, or handing it to another run, is refused at the commit.
    """

    __slots__ = ("_tail",)

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._tail = Tail(items)

    def __init_subclass__(cls, **options: Any) -> NoReturn:
        raise TypeError("Log is final: its items are stored as they are appended")

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._tail.declared = partial(item_type, owner, name)

    def _made_as(self, alias: Any) -> None:
        self._tail.declared = partial(_item_type, alias, "log")

    __orig_class__ = property(fset=_made_as)  # typing sets it on what `Log[Message]()` makes

    def append(self, item: T) -> None:
        """Add one item; raises pydantic's ValidationError or EncodeError, and then nothing was added."""
        self.extend((item,))

    def extend(self, items: Iterable[T]) -> None:
        """Add items, all or none of them; raises as `append` does."""
        self._tail.extend(list(items))

    def __len__(self) -> int:
        return len(self._tail.items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self._tail.items[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._tail.items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Log | list | tuple):
            return self._tail.items == list(cast("Iterable[Any]", other))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Log of {len(self._tail.items)} items>"

    def __copy__(self) -> Self:
        twin = type(self)(self)
        tail_of(twin).declared = self._tail.declared
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return Log, (self._tail.items,)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if not get_args(source):
            return _bare(handler.field_name)
        item = ItemType(get_args(source)[0], f"state.{handler.field_name or 'log'}")
        with suppress(Unresolved):  # the item type asks again at its first use
            item.check()
        items = handler.generate_schema(_list_of(item.annotation))
        return core_schema.no_info_wrap_validator_function(
            lambda value, validate: _become(value, validate, item),
            items,
            serialization=core_schema.plain_serializer_function_ser_schema(list, return_schema=items),
        )


def is_log(value: object) -> TypeGuard[Log[Any]]:
    """Tell whether a value is a Log."""
    return isinstance(value, Log)


def tail_of(log: Log[Any]) -> Tail:
    """Return what stands behind a Log, for the run that commits it."""
    return log._tail  # noqa: SLF001


def restore(item: ItemType, items: list[Any], owner: object) -> Log[Any]:
    """Make a Log of items that are stored already: validated at once and not encoded again."""
    log: Log[Any] = Log(item.adapter_of_all.validate_python(items))
    tail = tail_of(log)
    tail.item, tail.owner, tail.stored = item, owner, len(items)
    return log


def item_type(model: type[BaseModel], field: str) -> ItemType | None:
    """Return what a field's Log holds; None if the field is declared as anything else than a Log."""
    info = model.model_fields.get(field)
    annotation = None if info is None else info.annotation
    return _item_type(annotation, f"state.{field}") if get_origin(annotation) is Log else None


def _become(value: Any, validate: Callable[[Any], Any], item: ItemType) -> Log[Any]:
    log = value if is_log(value) else Log[Any](validate(value))
    tail_of(log).bind(item)
    return log


def _bare(field: str | None) -> CoreSchema:
    """Refuse a field that does not say what it holds; outside of one pydantic spells a default in a JSON schema."""
    if field is not None:
        raise TypeError(f"state.{field}: a Log needs the type of its items: Log[Message]")
    return core_schema.is_instance_schema(Log, serialization=core_schema.plain_serializer_function_ser_schema(list))


def _item_type(annotation: Any, path: str) -> ItemType:
    try:
        return _shared(annotation, path)
    except TypeError:  # Annotated with metadata that has no hash
        return ItemType(get_args(annotation)[0], path)


@lru_cache(maxsize=1024)
def _shared(annotation: Any, path: str) -> ItemType:
    return ItemType(get_args(annotation)[0], path)


def _list_of(annotation: Any) -> Any:
    return list.__class_getitem__(annotation)


def _name(annotation: Any) -> str:
    return annotation.__name__ if is_class(annotation) else str(annotation).replace("typing.", "")
