"""Which classes are found, and what an unknown one becomes."""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import abc
import dataclasses
import enum
import subprocess
import sys
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, NewType, TypeVar

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from blackboard import Log
from blackboard.codec import Opaque, Types, decode, encode
from blackboard.errors import ConfigError, CorruptValue, EncodeError
from tests.codec.same import same


def leaf(name: str, base: type = BaseModel) -> Any:
    return type(name, (base,), {"__module__": __name__, "__qualname__": name, "__annotations__": {"n": int}, "n": 0})


A, B, C, D, E, F, G, H, M, J, K, L = (leaf(name) for name in "ABCDEFGHMJKL")
Bound = TypeVar("Bound", bound=M)


class Row(TypedDict):
    g: G


class Cell(NamedTuple):
    h: H


@dataclasses.dataclass
class Part:
    d: list[D]
    row: Row


class Kind(enum.Enum):
    X = 1


class Holder(BaseModel, Generic[Bound]):
    held: Bound


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self) -> float: ...


@dataclasses.dataclass
class Square(Shape):
    side: float

    def area(self) -> float:
        return self.side**2


class State(BaseModel):
    model_config = {"arbitrary_types_allowed": True}
    a: A
    b: B | None = None
    c: dict[str, tuple[C, ...]] = {}
    part: Part | None = None
    cell: Sequence[Mapping[str, Cell]] = ()
    e: typing.Annotated[typing.Optional[E], "note"] = None  # noqa: UP045
    f: typing.Callable[[F], None] | None = None
    kind: typing.Literal[Kind.X] = Kind.X
    held: Holder[M] | None = None
    j: type[J] | None = None
    shape: Shape | None = None
    me: State | None = None
    _k: K | None = None


def test_everything_that_annotations_name_is_found() -> None:
    types = Types.of(State)
    for cls in (State, A, B, C, D, E, F, G, H, M, J, K, Part, Cell, Kind, Square, Holder):
        assert types.find(f"{__name__}:{cls.__qualname__}") is cls, cls
    assert types.find(f"{__name__}:L") is None
    assert types.find("builtins:object") is None
    assert types.find(f"{__name__}:Row") is None
    assert type(decode(encode(State(a=A(), shape=Square(2))), types=types).shape) is Square


def test_new_types_and_bare_annotations() -> None:
    assert Types.of(NewType("Id", L)).find(f"{__name__}:L") is L
    assert Types.of(list[dict[str, L | None]]).find(f"{__name__}:L") is L


def test_subclasses_are_found_when_they_are_looked_up() -> None:
    types = Types.of(State)
    late = leaf("Late", A)
    later = leaf("Later", late)
    value = State(a=later(n=3))
    back = decode(encode(value), types=types)
    assert type(back.a) is later
    assert same(value, back)


def test_a_subclass_brings_its_annotations() -> None:
    types = Types.of(A)
    inner = leaf("Inner")
    outer = type("Outer", (A,), {"__module__": __name__, "__qualname__": "Outer", "__annotations__": {"inner": inner}})
    value = outer(inner=inner(n=4))
    assert same(decode(encode(value), types=types), value)


def test_local_classes_are_found_through_the_registry() -> None:
    class Local(BaseModel):
        n: int

    data = encode(Local(n=1))
    assert isinstance(decode(data), Opaque)
    assert type(decode(data, types=Types([Local]))) is Local


def test_register_is_a_decorator() -> None:
    types = Types()

    @types.register
    class Local(BaseModel):
        n: int = 1

    assert decode(encode(Local()), types=types) == Local()


def test_two_declared_classes_of_one_name_are_refused() -> None:
    first, second = leaf("Twin"), leaf("Twin")
    types = Types([first])
    with pytest.raises(ConfigError, match="two classes are called"):
        types.register(second)
    assert types.find(f"{__name__}:Twin") is first
    types.register(first)


def test_of_two_subclasses_the_one_defined_last_stands_and_a_declared_one_before_all() -> None:
    base = leaf("Event")
    first = leaf("Again", base)
    second = leaf("Again", base)
    assert Types([base]).find(f"{__name__}:Again") is second
    assert Types([base, first]).find(f"{__name__}:Again") is first


def test_arguments_of_generics_are_told_apart() -> None:
    one = leaf("Item", M)
    two = type("Item", (M,), {"__module__": "elsewhere", "__qualname__": "Item"})
    values = [Holder[one](held=one()), Holder[two](held=two())]
    assert len({encode(value) for value in values}) == 2
    for value in values:
        assert same(decode(encode(value), types=Types([type(value)])), value)


def test_an_unknown_class_keeps_its_bytes() -> None:
    value = {"x": [L(n=1)], "y": 1.50, "z": "\ud800", "k": {Kind.X: L()}}
    data = encode(value)
    back = decode(data)
    assert isinstance(back["x"][0], Opaque)
    assert back["x"][0].name == f"{__name__}:L"
    assert (back["y"], back["z"]) == (1.5, "\ud800")
    assert encode(back) == data
    assert encode(back["x"][0]) == encode(L(n=1)) == back["x"][0].data
    assert same(decode(encode(back), types=Types([L, Kind])), value)
    assert repr(back["x"][0]) == f"<Opaque {__name__}:L ({len(back['x'][0].data)} bytes): class not declared>"


def test_opaque_values_compare_by_bytes_and_nest_in_typed_fields() -> None:
    data = encode(State(a=A(n=3), me=State(a=A())))
    back = decode(data, types=Types([State]))
    assert back == decode(data, types=Types([State]))
    known = Types()
    known._declared = {f"{__name__}:State": State}
    back = decode(data, types=known)
    assert isinstance(back.a, Opaque)
    assert back.a == decode(encode(A(n=3)))
    assert back.a != decode(encode(A(n=4)))
    assert len({back.a, decode(encode(A(n=3)))}) == 1
    assert encode(back) == data
    assert same(decode(encode(back), types=Types([State])), State(a=A(n=3), me=State(a=A())))


def test_nothing_is_imported_by_name() -> None:
    data = encode(L()).replace(f"{__name__}:L".encode(), b"antigravity:Model")
    code = f"import sys; from blackboard.codec import *; v = decode({data!r}, types=Types()); assert 'antigravity' not in sys.modules; assert v.name == 'antigravity:Model'"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_opaque_survives_being_hostile() -> None:
    for data in (
        b"{}",
        b'{"!model":[]}',
        b'{"a":1}',
        b'"x"',
        b"",
        b'{"!model":["x","y",{}],"b":1}',
        b'{ "!model":["x","y",{}]}',
    ):
        with pytest.raises(EncodeError):
            encode(Opaque("x", data))
    with pytest.raises(CorruptValue):
        decode(b'{"!model":["x"]}')


class Family(BaseModel):
    pass


class Broken(Family):
    items: Log[Wrapper] = Log()


class Whole(Family):
    a: int


class Wrapper(BaseModel, frozen=True):
    inner: Loose


class Loose(BaseModel):
    text: str


def test_a_broken_class_concerns_its_own_name_alone() -> None:
    """A base may lead to a class that is found wrong when its forward references are resolved, and to others."""
    types = Types.of(Family)
    assert decode(encode(Whole(a=1)), types=types) == Whole(a=1)
    with pytest.raises(CorruptValue, match="Loose"):
        decode(f'{{"!model":["{__name__}:Broken","00000000",{{}}]}}'.encode(), types=types)


def test_the_class_of_all_models_declares_its_subclasses() -> None:
    """As the declared type of what an effect returns, for one."""

    class Note(BaseModel):
        a: int

    assert decode(encode(Note(a=1)), types=Types.of(BaseModel)) == Note(a=1)
