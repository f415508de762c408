"""What is recorded is of the type that was declared, from the first time on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from blackboard import EffectUnknown, Parked
from blackboard.board import Blackboard
from blackboard.codec import Opaque
from blackboard.errors import ConfigError, CorruptValue, EncodeError
from blackboard.runs.call import Semantics
from blackboard.runs.declared import Declared, Misfit

from .conftest import Review


class Page(BaseModel):
    text: str
    number: int = 1


class Plain:
    """No type that a stored value could be compared with."""


@dataclass
class Charge:
    amount: int


async def ask(board: Blackboard, thread: str, declared: Any, given: Any, semantics: Semantics = "at-least-once") -> Any:
    async with board.run(thread, Review, start=Review) as run:
        return await run.effect("e", declared, semantics=semantics).call(lambda: given)


@pytest.mark.parametrize(
    ("declared", "given", "seen"),
    [
        (int, "5", 5),
        (Page, {"text": "t"}, Page(text="t")),
        (list[int], (1, 2), [1, 2]),
        (list[Page], [Page(text="t")], [Page(text="t")]),
        (Page | None, None, None),
        (Charge, Charge(3), Charge(3)),
        (None, (1, {2}), (1, {2})),
        (Any, b"x", b"x"),
    ],
)
async def test_the_first_call_sees_what_a_resume_sees(
    board: Blackboard, thread: str, declared: Any, given: Any, seen: Any
) -> None:
    for _ in range(2):
        found = await ask(board, thread, declared, given)
        assert (found, type(found)) == (seen, type(seen))
    assert len(await board.thread(thread).effects()) == 1


async def test_a_class_that_nobody_declared_is_opaque_at_once(board: Blackboard, thread: str) -> None:
    first, again = [await ask(board, thread, None, Page(text="t")) for _ in range(2)]
    assert isinstance(first, Opaque)
    assert (first, first.name) == (again, f"{__name__}:Page")
    assert await ask(board, thread, Page, None) == Page(text="t")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ((int, "text"), r"the result of effect '0/e' is not of type int but of type str \(Input should be a valid in"),
        ((Page, {"number": 2}), r"'0/e' is not of type Page but of type dict \(Field required at text\)"),
        ((list[int], [1, "b"]), r"of type list\[int\] but of type list \(.* at 1\)"),
    ],
)
@pytest.mark.parametrize("semantics", ["at-least-once", "at-most-once"])
async def test_a_result_of_another_type_is_not_recorded(
    board: Blackboard, thread: str, semantics: Semantics, wrong: tuple[Any, Any], told: str
) -> None:
    """The attempt ends as one whose function failed; what is mended is asked for again, or decided."""
    declared, given = wrong
    with pytest.raises(EncodeError, match=told) as caught:
        await ask(board, thread, declared, given, semantics)
    assert caught.value.path == "result of effect '0/e'"
    assert "Declare the type that the effect returns" in str(caught.value)
    if semantics == "at-least-once":
        assert [one.state for one in await board.thread(thread).effects()] == ["retry"]
        assert await ask(board, thread, Any, given, semantics) == given
        assert await ask(board, thread, Any, "not run", semantics) == given
        return
    assert [one.state for one in await board.thread(thread).effects()] == ["unknown"]
    with pytest.raises(EffectUnknown):
        await ask(board, thread, Any, "not run", semantics)
    async with board.run(thread, Review) as run:
        async with run.effect("e", declared, semantics=semantics, fingerprint=[[], {}]) as effect:
            with pytest.raises(EncodeError, match="is not of type"):
                await effect.complete(given)
            assert effect.standing == "unknown"
            await effect.abandon("it returns something else")
        await run.finish()


async def test_what_a_probe_completes_is_checked_too(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        async with run.effect("e", Page, semantics="at-most-once") as effect:
            with pytest.raises(EncodeError, match="is not of type Page but of type str"):
                await effect.complete("text")  # type: ignore[arg-type]
            await effect.complete(Page(text="t"))
        assert effect.result == Page(text="t")
    assert [one.state for one in await board.thread(thread).effects()] == ["done"]


async def test_a_result_that_goes_with_the_commit_is_checked_before(board: Blackboard, thread: str) -> None:
    wrong: Any = str
    async with board.run(thread, Review, start=Review) as run:
        with pytest.raises(EncodeError, match="is not of type int"):
            await run.effect("e", int, semantics="at-least-once", record="commit").call(wrong)
        await run.commit(next="on")
    assert [one.state for one in await board.thread(thread).effects()] == ["retry"]


async def test_what_a_person_recorded_names_the_mend(board: Blackboard, thread: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with board.run(thread, Review, start=Review) as run:
            await run.effect("e", int, semantics="at-most-once").call(lambda: 1 // 0)
    await board.thread(thread).resolve("0/e", "by hand")
    with pytest.raises(
        CorruptValue, match=r"not of type int but of type str .* declare the type that it has"
    ) as caught:
        await ask(board, thread, int, 0, "at-most-once")
    assert caught.value.effect == "0/e"
    assert await ask(board, thread, int | str, 0, "at-most-once") == "by hand"


async def test_a_type_that_nobody_can_check_is_refused_before_anything_happens(board: Blackboard, thread: str) -> None:
    async with board.run(thread, Review, start=Review) as run:
        with pytest.raises(ConfigError, match=r"the result of effect '0/e' cannot be checked against Plain"):
            run.effect("e", Plain, semantics="at-most-once")
        with pytest.raises(ConfigError, match="the answer to signal 'n' cannot be checked against Plain"):
            await run.wait("n", Plain)
        assert await run.effect("e", int, semantics="at-most-once").call(lambda: 1) == 1
    assert await board.thread(thread).status() == "running"


async def test_a_name_of_a_type_that_is_nowhere_is_refused_before_the_effect_runs(
    board: Blackboard, thread: str
) -> None:
    """An at-most-once effect would be unknown for a mistake in spelling its type."""
    async with board.run(thread, Review, start=Review) as run:
        for declared in ("Verdict", list["Verdict"]):  # type: ignore[name-defined]  # noqa: F821
            with pytest.raises(ConfigError, match=r"the result of effect '0/e' cannot be checked against .*Verdict"):
                run.effect("e", declared, semantics="at-most-once")
        assert await run.effect("e", "int", semantics="at-most-once").call(lambda: 1) == 1


def test_where_it_is_none_of_the_type() -> None:
    with pytest.raises(
        Misfit, match=r"it is not of type dict\[str, .*Page\] but of type dict \(.*valid string at a\.text\)"
    ):
        Declared(dict[str, Page], "it").checked({"a": {"text": 5}})
    assert Declared(None, "it").checked(Plain) is Plain


async def test_an_answer_of_another_type_is_taken_without_one(board: Blackboard, thread: str) -> None:
    """Who signals cannot know the model; who waits takes what came, and asks again."""

    async def drive() -> Page:
        async with board.run(thread, Review, start=Review) as run:
            try:
                return await run.wait("page", Page)
            except CorruptValue:
                run.state.notes.append(repr(await run.wait("page")))
                await run.commit(next=run.next)
                return await run.wait("page", Page)

    with pytest.raises(Parked):
        await drive()
    assert await board.signal(thread, "page", {"number": 2}) == "ACCEPTED"
    with pytest.raises(Parked):
        await drive()
    latest = await board.thread(thread).latest(Review)
    assert latest is not None
    assert latest.state.notes == ["{'number': 2}"]
    assert await board.thread(thread).unread() == []
    assert await board.signal(thread, "page", {"text": "t"}) == "ACCEPTED"
    assert await drive() == Page(text="t")


async def test_an_answer_that_was_refused_stands(board: Blackboard, thread: str) -> None:
    """Nothing takes it but a wait that returned it: it is found again, and no second answer is accepted."""
    async with board.run(thread, Review, start=Review) as run:
        await board.signal(thread, "page", 5)
        with pytest.raises(CorruptValue, match=r"'page' is not of type Page but of type int .*run.wait\('") as caught:
            await run.wait("page", Page)
        assert (caught.value.signal, caught.value.thread) == ("page", thread)
        await run.commit(next="on")
        assert await board.signal(thread, "page", {"text": "t"}) == "ALREADY"
        assert [letter.name for letter in await board.thread(thread).unread()] == ["page"]
        assert await run.wait("page", int) == 5
        await run.finish()
