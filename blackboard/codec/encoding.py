"""Values to bytes.

The text is JSON. What JSON has no word for is an object with exactly one key, a tag: `{"!decimal": "0.10"}`. A dict of
the user's that has exactly one key and that begins with `!`, or a key that is not a str, is written as pairs:
`{"!dict": [[key, value], ...]}`. So no data of the user is ever read as a tag.
"""

from __future__ import annotations

import collections
import enum
import json
import math
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from blackboard.codec import arrays
from blackboard.codec.classes import Shape, class_of, name_of, private_of, shape_of, state_of
from blackboard.codec.opaque import Opaque
from blackboard.codec.scalars import BY_CLASS, float_bits, text_bytes
from blackboard.errors import EncodeError

__all__ = ["DEEPEST", "FACTORIES", "LARGEST", "NAMED", "TAG", "Admit", "dumps", "encode", "join", "key_place"]

TAG = "!"
"""What a tag begins with."""

DEEPEST = 100
"""Most containers inside one another: each takes up to four frames to write and to read, and the stack has 1,000."""

LARGEST = 1 << 1024
"""Integers from here on are written in hex: decimal digits in bulk are slow, and the interpreter refuses them."""

FACTORIES: dict[str, type] = {
    cls.__name__: cls for cls in (bool, bytes, dict, float, frozenset, int, list, set, str, tuple)
}
"""The factories that a defaultdict may have; they are stored by name."""

NAMED = frozenset({"!model", "!dataclass", "!namedtuple", "!enum", "!flag"})
"""The tags whose payload begins with the name of a class."""

Admit = Callable[[Any], Any]
"""Says what is stored of a value: the value itself, another one, or ValueError with the reason why it is refused."""

_ATOMS = frozenset({str, bool, type(None)})
_admit: ContextVar[Admit | None] = ContextVar("admit", default=None)
_Step = tuple[Any, str]
_ABSENT = object()

dumps: Callable[[Any], str] = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
).encode
"""A tree of plain JSON values to the one text that this codec writes for it."""


def encode(value: Any, *, path: str = "value", admit: Admit | None = None) -> bytes:
    """Encode a value as UTF-8 JSON text that `decode` turns into the same value of the same types.

    Equal values of the same types give equal bytes: sets are sorted, the order of a dict is part of the value. Objects
    that are referred to twice come back as two. At most 100 containers inside one another. `admit` is asked about every
    value of a class that is neither a builtin nor of the standard library's scalars.

    Raises EncodeError, with the place as `path` (`state.items[3].price`), for what would not come back the same.
    """
    asked = _admit.set(admit)
    try:
        tree = _encode(value, 0)
        text = dumps(tree)
    except _Refused as refused:
        where, reason = refused.place()
        raise EncodeError(f"cannot store {path}{where}: {reason}", path=path + where) from None
    except RecursionError:
        raise EncodeError(f"cannot store {path}: nested too deeply for the stack that is left", path=path) from None
    finally:
        _admit.reset(asked)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return dumps(_shield(tree)).encode()


def join(items: Sequence[bytes]) -> bytes:
    """Join encoded items into the encoding of the list of them."""
    return b"[" + b",".join(items) + b"]"


class _Refused(Exception):
    """A value that cannot be stored; gathers the way to it while the walk unwinds, so that success costs nothing."""

    def __init__(self, value: Any, reason: str) -> None:
        self.value = value
        self.reason = reason
        self.steps: list[_Step] = []

    def under(self, owner: Any, parts: Iterable[tuple[Any, str]]) -> None:
        """Note by which label `owner` holds the value; from here on it is the owner that is looked for."""
        label = next((label for part, label in parts if part is self.value), "")
        self.steps.append((owner, label))
        self.value = owner

    def place(self) -> tuple[str, str]:
        """The path below the root and the reason; a cycle ends where it comes back."""
        seen: set[int] = set()
        where = ""
        for owner, label in reversed(self.steps):
            if id(owner) in seen:
                return where, "it refers back to a value that contains it"
            seen.add(id(owner))
            where += label
        return where, self.reason


def _encode(value: object, depth: int) -> Any:
    cls = type(value)
    if cls in _ATOMS:
        return value
    handler = _HANDLERS.get(cls)
    if handler is not None:
        return handler(value, depth)
    if cls in BY_CLASS:
        return _scalar(value, depth)
    return _by_kind(value, depth)


def _int(value: int, _depth: int) -> Any:
    return value if -LARGEST < value < LARGEST else {"!int": hex(value)}


def _float(value: float, _depth: int) -> Any:
    return value if math.isfinite(value) else {"!float": float_bits(value)}


def _list(value: list[Any], depth: int) -> list[Any]:
    return _items(value, value, depth)


def _items(owner: Any, items: Iterable[Any], depth: int, label: Callable[[int, Any], str] | None = None) -> list[Any]:
    """Encode items that `owner` holds; `label` spells the place of one in a path."""
    if depth >= DEEPEST:
        raise _Refused(owner, f"nested more than {DEEPEST} deep")
    out: list[Any] = []
    try:
        for item in items:
            out.append(item if type(item) in _ATOMS else _encode(item, depth + 1))  # noqa: PERF401 - a comprehension is a frame per level
    except _Refused as refused:
        spell = label or _index
        refused.under(owner, ((item, spell(place, item)) for place, item in enumerate(items)))
        raise
    return out


def _index(place: int, _item: Any) -> str:
    return f"[{place}]"


def _member(_place: int, item: Any) -> str:
    return f"{{{reprlib.repr(item)}}}"


def _dict(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    return _mapping(value, value, depth, key_place)


def key_place(key: Any) -> str:
    """Spell a dict's key as a part of a path: `.price`, or `['unit price']` for what is not a name."""
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{reprlib.repr(key)}]"


def _attribute(name: str) -> str:
    return f".{name}"


def _mapping(owner: Any, value: dict[Any, Any], depth: int, label: Callable[[Any], str]) -> dict[str, Any]:
    """Encode a dict that is, or is held by, `owner`."""
    if depth >= DEEPEST:
        raise _Refused(owner, f"nested more than {DEEPEST} deep")
    out: dict[str, Any] = {}
    try:
        for key, item in value.items():
            if type(key) is not str:
                return _pairs(value, depth)
            out[key] = item if type(item) in _ATOMS else _encode(item, depth + 1)
    except _Refused as refused:
        refused.under(owner, _parts(value, label))
        raise
    if len(out) == 1 and next(iter(out)).startswith(TAG):
        return {"!dict": [list(pair) for pair in out.items()]}
    return out


def _pairs(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    return {"!dict": [[_encode(key, depth + 1), _encode(item, depth + 1)] for key, item in value.items()]}


def _parts(value: dict[Any, Any], label: Callable[[Any], str]) -> Iterator[tuple[Any, str]]:
    for key, item in value.items():
        yield item, label(key)
        yield key, f"{{key {reprlib.repr(key)}}}"


def _tuple(value: tuple[Any, ...], depth: int) -> Any:
    return {"!tuple": _items(value, value, depth)}


def _set(value: set[Any] | frozenset[Any], depth: int) -> Any:
    return {f"!{type(value).__name__}": sorted(_items(value, value, depth, _member), key=dumps)}


def _deque(value: collections.deque[Any], depth: int) -> Any:
    return {"!deque": [_items(value, value, depth), value.maxlen]}


def _ordered(value: collections.OrderedDict[Any, Any], depth: int) -> Any:
    return {"!ordereddict": _mapping(value, value, depth, key_place)}


def _counter(value: collections.Counter[Any], depth: int) -> Any:
    return {"!counter": _mapping(value, value, depth, key_place)}


def _defaultdict(value: collections.defaultdict[Any, Any], depth: int) -> Any:
    factory = value.default_factory
    if factory is not None and factory not in FACTORIES.values():
        raise _Refused(value, f"a defaultdict whose factory is {factory!r}; only builtins like list are kept")
    name = None if factory is None else getattr(factory, "__name__", "")
    return {"!defaultdict": [name, _mapping(value, value, depth, key_place)]}


def _opaque(value: Opaque, _depth: int) -> Any:
    tree: Any = None
    try:
        tree = json.loads(value.data)
        (payload,) = tree.values()
        ours = payload[0] == value.name and next(iter(tree)) in NAMED and dumps(tree).encode() == value.data
    except (ValueError, AttributeError, LookupError, TypeError):
        ours = False
    if not ours:
        raise _Refused(value, f"the data of this Opaque is not an encoded {value.name}")
    return tree


def _scalar(value: Any, depth: int) -> Any:
    scalar = BY_CLASS[type(value)]
    try:
        plain = scalar.dump(value)
    except ValueError as error:
        raise _Refused(value, str(error)) from None
    return {TAG + scalar.tag: plain if type(plain) is str else _encode(plain, depth)}


def _by_kind(value: object, depth: int) -> Any:
    admit = _admit.get()
    if admit is None:
        return _of_a_class(value, depth)
    try:
        stored = admit(value)
    except ValueError as error:
        raise _Refused(value, str(error)) from None
    if stored is value:
        return _of_a_class(value, depth)
    try:
        return _encode(stored, depth)
    except _Refused as refused:
        refused.value = value
        raise


def _of_a_class(value: object, depth: int) -> Any:
    cls = type(value)
    if isinstance(value, enum.Enum):
        return _enum(value)
    shape = shape_of(cls)
    if shape is not None:
        return _record(value, shape, depth)
    if arrays.is_array(value):
        return _array(value, depth)
    if arrays.is_scalar(value):
        return {"!npscalar": _numpy(value, arrays.dump_scalar, depth)}
    raise _Refused(value, _complaint(cls))


def _enum(value: enum.Enum) -> Any:
    name = name_of(type(value))
    if isinstance(value, enum.Flag):
        return {"!flag": [name, _int(value.value, 0)]}
    stored = value.value if type(value.value) in (str, int) else None
    return {"!enum": [name, value.name, _encode(stored, 0)]}


def _record(value: Any, shape: Shape, depth: int) -> Any:
    state = state_of(value, shape)
    if shape.kind == "namedtuple" and getattr(value, "__dict__", None):
        raise _Refused(value, "a namedtuple with attributes beside its fields")
    payload = [shape.name, shape.print, _mapping(value, state, depth, _attribute)]
    notes: dict[str, Any] = {}
    absent = [name for name in shape.fields if name not in state]
    if absent:
        notes["absent"] = absent
    if shape.kind == "model":
        unset = [name for name in state if name not in value.__pydantic_fields_set__]
        if unset:
            notes["unset"] = unset
        if private := private_of(value, shape):
            notes["private"] = _mapping(value, private, depth, _attribute)
    return {f"!{shape.kind}": [*payload, notes] if notes else payload}


def _array(value: Any, depth: int) -> Any:
    if not arrays.holds_objects(value):
        return {"!ndarray": _numpy(value, arrays.dump_array, depth)}
    items = _items(value, list(value.flat), depth, lambda place, _item: f".flat[{place}]")
    return {"!ndarray": [arrays.OBJECT, *arrays.shape_and_order(value), items]}


def _numpy(value: Any, dump: Callable[[Any], list[Any]], depth: int) -> list[Any]:
    try:
        return _items(value, dump(value), depth)
    except ValueError as error:
        raise _Refused(value, str(error)) from None


def _complaint(cls: type) -> str:
    """Why values of this class are refused, and what to do instead."""
    name = f"{cls.__module__}.{cls.__qualname__}"
    for base in (str, int, float, bytes, tuple, list, dict, set, frozenset, collections.deque):
        if issubclass(cls, base):
            return f"{name} is a subclass of {base.__name__} and would come back as one; convert it, or use a model"
    return f"a value of class {name} cannot be stored; use a pydantic model, a dataclass or plain values"


def _shield(tree: Any) -> Any:
    """The same tree with every str that UTF-8 cannot carry (surrogates) in an envelope."""
    kind = class_of(tree)
    if kind is str:
        return tree if _clean(tree) else {"!str": text_bytes(tree)}
    if kind is list:
        return [_shield(item) for item in tree]
    if kind is dict:
        if all(map(_clean, tree)):
            return {key: _shield(item) for key, item in tree.items()}
        return {"!dict": [[_shield(key), _shield(item)] for key, item in tree.items()]}
    return tree


def _clean(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_HANDLERS: dict[type, Callable[[Any, int], Any]] = {
    int: _int,
    float: _float,
    list: _list,
    dict: _dict,
    tuple: _tuple,
    set: _set,
    frozenset: _set,
    collections.deque: _deque,
    collections.OrderedDict: _ordered,
    collections.Counter: _counter,
    collections.defaultdict: _defaultdict,
    Opaque: _opaque,
}
