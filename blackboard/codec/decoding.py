"""Bytes to values: tags are followed from the outside in, so that an unknown class keeps all that is below it."""

from __future__ import annotations

import collections
import enum
import json
from collections.abc import Callable
from typing import Any, cast

from blackboard.codec import arrays
from blackboard.codec.encoding import FACTORIES, NAMED, TAG, dumps
from blackboard.codec.opaque import Opaque
from blackboard.codec.records import rebuild
from blackboard.codec.scalars import BY_TAG, float_from_bits, text_from_bytes
from blackboard.codec.types import Types
from blackboard.errors import CorruptValue, StateInvalid

__all__ = ["decode"]


_NODES = frozenset({dict, list})


def decode(data: bytes, *, types: Types | None = None) -> Any:
    """Decode what `encode` wrote: the same value, of the same types.

    Classes are rebuilt only if `types` knows them, without calling them: stored fields are set as they were, no
    validator runs. If a class has other fields or validators than when the value was written, a missing field takes
    its default, an unknown one stays on the value (a model's extra, a dataclass's `__dict__`) and is stored again,
    and the rest is validated. A class that `types` does not know gives an `Opaque`.

    Raises CorruptValue for bytes that `encode` did not write, StateInvalid for a value that its class no longer takes.
    """
    try:
        tree = _JSON.decode(data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise CorruptValue(f"not an encoded value: {error}") from error
    try:
        return _Decoder(types).revive(tree)
    except RecursionError as error:
        raise CorruptValue("nested too deeply for the stack that is left") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_no_constant)


class _Decoder:
    """One decoding: the registry, and the names already looked up in it."""

    __slots__ = ("_classes", "_types")

    def __init__(self, types: Types | None) -> None:
        self._types = types
        self._classes: dict[str, type | None] = {}

    def revive(self, value: object) -> Any:
        """The value of a tree; plain lists and dicts are filled in place."""
        kind, tree = type(value), cast("Any", value)
        if kind is dict:
            if len(tree) == 1:
                ((tag, payload),) = tree.items()
                if tag.startswith(TAG):
                    return self._tagged(tag, payload)
            for key, item in tree.items():
                if type(item) in _NODES:
                    tree[key] = self.revive(item)
        elif kind is list:
            for index, item in enumerate(tree):
                if type(item) in _NODES:
                    tree[index] = self.revive(item)
        return tree

    def _tagged(self, tag: str, payload: Any) -> Any:
        try:
            if tag in NAMED:
                return self._named(tag, payload)
            if tag[1:] in BY_TAG:
                return BY_TAG[tag[1:]].load(self.revive(payload))
            return _BUILTINS[tag](self.revive(payload))
        except (CorruptValue, StateInvalid, RecursionError):
            raise
        except Exception as error:
            known = tag in _BUILTINS or tag in NAMED or tag[1:] in BY_TAG
            reason = f"{type(error).__name__}: {error}" if known else "no such tag; a newer version may have written it"
            raise CorruptValue(f"cannot rebuild {tag[1:]!r} from its stored form ({reason})", tag=tag[1:]) from error

    def _named(self, tag: str, payload: Any) -> Any:
        if not _well_made(tag, payload):
            raise ValueError(f"{payload!r:.80}")
        name: str = payload[0]
        cls = self._find(name)
        if cls is None:
            return Opaque(name, dumps({tag: payload}).encode())
        if tag in ("!enum", "!flag"):
            return _member(cls, tag, name, *map(self.revive, payload[1:]))
        return rebuild(cls, tag[1:], [name, payload[1], *map(self.revive, payload[2:])])

    def _find(self, name: str) -> type | None:
        if self._types is None:
            return None
        if name not in self._classes:
            self._classes[name] = self._types.find(name)
        return self._classes[name]


def _well_made(tag: str, payload: Any) -> bool:
    """Whether the payload of a named value, which begins with the name, is made as `encode` makes it."""
    match tag, payload:
        case "!enum", [str(), str(), None | str() | int() | dict()]:
            return True
        case "!flag", [str(), int() | dict()]:
            return True
        case "!model" | "!dataclass" | "!namedtuple", [str(), str(), dict()] | [str(), str(), dict(), dict()]:
            return True
        case _:
            return False


def _member(cls: type, tag: str, name: str, stored: Any, value: Any = None) -> enum.Enum:
    """The member of this name; if it was renamed, the one of this value."""
    if not issubclass(cls, enum.Enum):
        raise StateInvalid(f"{name} was an enum when it was stored", model=name, field=None)
    if tag == "!enum" and stored in cls.__members__:
        return cls.__members__[stored]
    try:
        return cls(stored if tag == "!flag" else value)
    except (ValueError, TypeError) as error:
        raise StateInvalid(f"{name} has no member {stored!r} any more", model=name, field=stored) from error


def _defaultdict(stored: Any) -> collections.defaultdict[Any, Any]:
    name, items = stored
    return collections.defaultdict(None if name is None else FACTORIES[name], items)


def _deque(stored: Any) -> collections.deque[Any]:
    items, longest = stored
    return collections.deque(items, longest)


def _array(stored: Any) -> Any:
    dtype, shape, order, content = stored
    if dtype == arrays.OBJECT:
        return arrays.load_objects(shape, order, content)
    return arrays.load_array(dtype, shape, order, content)


_BUILTINS: dict[str, Callable[[Any], Any]] = {
    "!dict": dict,
    "!tuple": tuple,
    "!set": set,
    "!frozenset": frozenset,
    "!deque": _deque,
    "!ordereddict": collections.OrderedDict,
    "!counter": collections.Counter,
    "!defaultdict": _defaultdict,
    "!int": lambda stored: int(stored, 16),
    "!float": float_from_bits,
    "!str": text_from_bytes,
    "!ndarray": _array,
    "!npscalar": lambda stored: arrays.load_scalar(*stored),
}
