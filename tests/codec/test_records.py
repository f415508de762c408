"""Models, dataclasses and namedtuples, with the classes as they were and as they have become."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import typing
from collections.abc import Callable
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import pydantic
import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    RootModel,
    Tag,
    field_validator,
    model_validator,
)

from blackboard.codec import Opaque, Types, decode, encode
from blackboard.errors import StateInvalid
from tests.codec.same import same

T = TypeVar("T")


class Base(BaseModel):
    k: str


class Car(Base):
    model: str


class Lorry(Car):
    axles: int = 2


class Garage(BaseModel):
    item: Base
    items: list[Base] = []


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    n: int = 0


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    n: int = 0


class Home(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    other: Cat | Dog | None = None
    third: Annotated[Annotated[Cat, Tag("c")] | Annotated[Dog, Tag("d")], Discriminator(lambda _: "c")] | None = None


class Page(BaseModel, Generic[T]):
    rows: list[T]
    next: T | None = None


class Shelf(BaseModel):
    cars: Page[Car]
    numbers: Page[int]


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 0


class Aliased(BaseModel):
    inner: int = Field(alias="outer")


class Hashed(BaseModel):
    secret: str

    @field_validator("secret")
    @classmethod
    def double(cls, value: str) -> str:
        return value * 2


class Held(BaseModel):
    model_config = ConfigDict(frozen=True)
    a: int = 1
    _seen: set[int] = PrivateAttr(default_factory=set)

    @functools.cached_property
    def twice(self) -> int:
        return self.a * 2


class Names(RootModel[list[Base]]):
    pass


@dataclasses.dataclass
class Made:
    a: int
    b: list[Base] = dataclasses.field(default_factory=list)
    total: int = dataclasses.field(init=False)
    skipped: dataclasses.InitVar[int] = 5

    def __post_init__(self, skipped: int) -> None:
        self.total = self.a + skipped


@dataclasses.dataclass(frozen=True, slots=True)
class Tight:
    a: int
    b: Any = None


@dataclasses.dataclass
class Generic2(Generic[T]):
    content: T


@pydantic.dataclasses.dataclass
class Checked:
    a: int
    at: dt.date | None = None


class Where(NamedTuple):
    x: int
    y: int = 0


KNOWN = Types([Garage, Home, Shelf, Loose, Aliased, Hashed, Held, Names, Made, Tight, Generic2, Checked, Where])


def seen() -> Held:
    value = Held(a=2)
    value._seen.add(3)
    assert value.twice == 4
    return value


def noted() -> Made:
    value = Made(1)
    value.note = {"x"}  # type: ignore[attr-defined]
    return value


@pytest.mark.parametrize(
    "value",
    [
        Garage(item=Car(k="1", model="VW")),
        Garage(item=Base(k="0"), items=[Lorry(k="1", model="VW"), Base(k="2")]),
        Home(pet=Dog(n=1), other=Cat(), third=Cat()),
        Shelf(cars=Page[Car](rows=[Lorry(k="1", model="x")]), numbers=Page[int](rows=[1])),
        Loose.model_validate({"a": 1, "b": {"!dict": 1}, "c": Car(k="1", model="x")}),
        Loose.model_validate({"!decimal": "1"}),
        Aliased(outer=3),
        Hashed(secret="s"),
        Names([Car(k="1", model="VW")]),
        Base.model_construct(),
        Base.model_construct(k=17, unknown=3),
        Made(1, [Car(k="1", model="VW")]),
        noted(),
        Tight(1, {Tight(2): (Tight(3),)}),
        Generic2(content=Car(k="1", model="x")),
        Checked(a=1, at=dt.date(2026, 1, 1)),
        [Where(1), {Where(1, 2): Where(3)}],
    ],
    ids=repr,
)
def test_exact(value: Any) -> None:
    data = encode(value)
    back = decode(data, types=KNOWN)
    assert same(value, back), back
    assert encode(back) == data
    assert back == value


def test_private_attributes_are_kept_and_cached_ones_are_computed_again() -> None:
    back = decode(encode(seen()), types=KNOWN)
    assert back == Held(a=2).model_copy(update={}) or back._seen == {3}
    assert back._seen == {3}
    assert "twice" not in back.__dict__
    assert back.twice == 4


def test_what_was_set_stays_set() -> None:
    value = Garage(item=Base(k="1"))
    assert decode(encode(value), types=KNOWN).model_fields_set == {"item"}
    full = Garage(item=Base(k="1"), items=[])
    assert decode(encode(full), types=KNOWN).model_fields_set == {"item", "items"}
    assert decode(encode(value), types=KNOWN).model_dump(exclude_unset=True) == {"item": {"k": "1"}}


def test_no_validator_and_no_post_init_runs_on_the_same_class() -> None:
    calls: list[str] = []

    class Watched(BaseModel):
        a: int

        @model_validator(mode="after")
        def note(self) -> Watched:
            calls.append("validated")
            return self

        def model_post_init(self, context: Any, /) -> None:
            calls.append("post")

    value = Watched(a=1)
    assert len(calls) == 2
    assert same(decode(encode(value), types=Types([Watched])), value)
    assert len(calls) == 2


def before_and_after(first: Callable[[], type], second: Callable[[], type]) -> tuple[type, Types]:
    """Two classes of one name, as before and after a deploy."""
    old, new = first(), second()
    for cls in (old, new):
        cls.__qualname__, cls.__module__ = "State", "app"
    return old, Types([new])


def model(**fields: Any) -> Callable[[], type]:
    config = fields.pop("config", None)
    validators = fields.pop("validators", None)
    return lambda: pydantic.create_model("State", __config__=config, __validators__=validators, **fields)


def test_a_missing_field_takes_its_default_and_keeps_the_rest() -> None:
    old, types = before_and_after(
        model(a=(int, ...)), model(a=(int, ...), b=(list[int], Field(default_factory=lambda: [7])))
    )
    back = decode(encode(old(a=1)), types=types)
    assert (back.a, back.b) == (1, [7])
    assert back.model_fields_set == {"a"}


def test_a_missing_required_field_is_named() -> None:
    old, types = before_and_after(model(a=(int, ...)), model(a=(int, ...), fresh=(int, ...)))
    with pytest.raises(StateInvalid, match=r"app:State\.fresh") as caught:
        decode(encode(old(a=1)), types=types)
    assert (caught.value.model, caught.value.field, caught.value.retryable) == ("app:State", "fresh", False)


@pytest.mark.parametrize("extra", ["ignore", "forbid", "allow"])
def test_an_unknown_field_is_kept_and_stored_again(extra: Any) -> None:
    old, types = before_and_after(model(a=(int, 1), gone=(Any, None)), model(a=(int, 1), config={"extra": extra}))
    back = decode(encode(old(a=2, gone={3})), types=types)
    assert (back.a, back.gone) == (2, {3})
    again = decode(encode(back), types=types)
    assert (again.a, again.gone) == (2, {3})
    old_again = decode(encode(again), types=Types([old]))
    assert same(old_again, old(a=2, gone={3}))


@pytest.mark.parametrize("kind", [str, Annotated[int, Field(gt=5)], list[int], Car])
def test_a_value_that_the_class_takes_no_more_is_named(kind: Any) -> None:
    old, types = before_and_after(model(ok=(int, 0), a=(int, 0)), model(ok=(int, 0), a=(kind, ...)))
    with pytest.raises(StateInvalid, match=r"app:State\.a") as caught:
        decode(encode([old(a=1)]), types=types)
    assert caught.value.field == "a"


def test_a_new_validator_checks_but_changes_nothing() -> None:
    doubled = {"double": field_validator("a")(lambda value: value * 2)}
    old, types = before_and_after(model(a=(int, 0)), model(a=(int, 0), validators=doubled))
    assert decode(encode(old(a=4)), types=types).a == 4

    def refuse(value: int) -> int:
        raise ValueError("never")

    old, types = before_and_after(model(a=(int, 0)), model(a=(int, 0), validators={"r": field_validator("a")(refuse)}))
    with pytest.raises(StateInvalid, match="never"):
        decode(encode(old(a=4)), types=types)


def test_a_field_of_another_type_is_converted_and_an_old_name_migrated() -> None:
    def rename(data: Any) -> Any:
        return {**data, "new": data["old"]} if "old" in data else data

    fields = {"where": (Base, ...), "new": (int, ...), "validators": {"m": model_validator(mode="before")(rename)}}
    old, types = before_and_after(model(where=(dict[str, str], ...), old=(int, ...)), model(**fields))
    back = decode(encode(old(where={"k": "1"}, old=3)), types=types)
    assert type(back.where) is Base
    assert (back.where.k, back.new, back.old) == ("1", 3, 3)


def test_an_unknown_class_inside_a_changed_one_leaves_the_other_fields_readable() -> None:
    old, types = before_and_after(model(a=(Base, ...), n=(int, 1)), model(a=(Car, ...), n=(int, 1), b=(int, 9)))
    back = decode(encode(old(a=Lorry(k="1", model="x"))), types=Types([*types._declared.values()]))
    assert type(back.a) is Lorry
    hidden = dataclasses.make_dataclass("Hidden", ["a"], namespace={"__module__": "gone"})
    old, types = before_and_after(model(a=(Any, ...)), model(a=(Base, ...), b=(int, 9)))
    back = decode(encode(old(a=hidden(1))), types=types)
    assert isinstance(back.a, Opaque)
    assert (back.a.name, back.b) == ("gone:Hidden", 9)


def test_changed_dataclasses() -> None:
    def make(*fields: Any, **options: Any) -> Callable[[], type]:
        return lambda: dataclasses.make_dataclass("State", fields, **options)

    one: Any = ("a", int)
    two: Any = ("b", list[int], dataclasses.field(default_factory=list))
    old, types = before_and_after(make(one), make(one, two))
    back = decode(encode(old(1)), types=types)
    assert (type(back), back.a, back.b) == (types.find("app:State"), 1, [])
    old, types = before_and_after(make(one, two), make(one))
    back = decode(encode(old(1, [2])), types=types)
    assert (back.a, back.b) == (1, [2])
    assert decode(encode(back), types=Types([old])) == old(1, [2])
    for second, field in (
        (make(one, ("c", int)), "c"),
        (make(("a", dict[str, int])), "a"),
        (make(one, slots=True), "b"),
    ):
        old, types = before_and_after(make(one, two), second)
        with pytest.raises(StateInvalid) as caught:
            decode(encode(old(1, [2])), types=types)
        assert caught.value.field == field


def test_changed_namedtuples() -> None:
    def make(names: str, *defaults: Any) -> Callable[[], type]:
        import collections

        return lambda: collections.namedtuple("State", names, defaults=defaults)  # noqa: PYI024

    old, types = before_and_after(make("x y"), make("y x z", 5))
    assert decode(encode(old(1, 2)), types=types) == (2, 1, 5)
    for names, field in (("x", "y"), ("x y z", "z")):
        old, types = before_and_after(make("x y"), make(names))
        with pytest.raises(StateInvalid) as caught:
            decode(encode(old(1, 2)), types=types)
        assert caught.value.field == field


def test_a_class_that_became_something_else() -> None:
    old, types = before_and_after(model(a=(int, 0)), lambda: dataclasses.make_dataclass("State", ["a"]))
    with pytest.raises(StateInvalid, match="was a model"):
        decode(encode(old(a=1)), types=types)


def test_typed_dicts_are_dicts() -> None:
    class Row(typing.TypedDict):
        car: Base

    row = Row(car=Car(k="1", model="x"))
    assert same(decode(encode(row), types=Types.of(Row)), row)
