"""The saver with the strict serializer: lists grow by what is new, threads change over, nothing readable where encrypted."""

import dataclasses
import sys
from typing import Any

import pytest

from blackboard import Blackboard, Settings, keys
from blackboard.errors import CorruptValue, EncodeError
from blackboard.store.client import Store
from blackboard.testing.servers import Server
from tests.codec.same import same
from tests.integrations.test_langgraph_graphs import SCENARIOS, Scenario

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langchain_core import messages as lc
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver

from blackboard.integrations.langgraph import BlackboardSaver, BlackboardSerializer


@dataclasses.dataclass
class Point:
    x: int


def config(thread: str, checkpoint: str | None = None) -> Any:
    named = {} if checkpoint is None else {"checkpoint_id": checkpoint}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **named}}


async def put(saver: BlackboardSaver, where: Any, number: int, **values: Any) -> Any:
    versions: Any = dict.fromkeys(values, number)
    made: Any = {
        **empty_checkpoint(),
        "v": 4,
        "id": f"{number:04}",
        "channel_values": values,
        "channel_versions": versions,
    }
    return await saver.aput(where, made, {"source": "loop", "step": number}, versions)


async def values_at(saver: BlackboardSaver, thread: str, number: int | None = None) -> Any:
    found = await saver.aget_tuple(config(thread, None if number is None else f"{number:04}"))
    assert found is not None
    return found.checkpoint["channel_values"]


def same_channels(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Channels come in no order."""
    return found.keys() == expected.keys() and all(same(found[name], value) for name, value in expected.items())


async def test_lists_and_dicts_grow_by_what_is_new(
    board: Blackboard, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in the bytes of each put's arguments: those of step 200 are those of step 20."""
    saver = BlackboardSaver(board, serde=BlackboardSerializer())
    sent: list[int] = []
    call = Store.call

    def counted(self: Store, script: Any, names: Any, args: Any, **more: Any) -> Any:
        sent.append(sum(len(arg) for arg in args if isinstance(arg, bytes | str)))
        return call(self, script, names, args, **more)

    monkeypatch.setattr(Store, "call", counted)
    where, said, notes = config(thread), list[Any](), dict[str, str]()
    sizes: list[int] = []
    for number in range(1, 201):
        said.append(lc.AIMessage(f"{number:04}" * 250, id=f"m-{number}"))
        notes[f"note-{number}"] = "n" * 200
        sent.clear()
        where = await put(saver, where, number, messages=list(said), notes=dict(notes))
        sizes.append(sum(sent))
    assert sizes[199] <= 1.05 * sizes[19]
    assert sizes[199] <= 3 * 1250
    assert same_channels(await values_at(saver, thread), {"messages": said, "notes": notes})
    assert same_channels(
        await values_at(saver, thread, 100), {"messages": said[:100], "notes": dict([*notes.items()][:100])}
    )
    said[3].content = "changed in place"
    await put(saver, where, 201, messages=said, notes={"only": "this"})
    assert same_channels(await values_at(saver, thread), {"messages": said, "notes": {"only": "this"}})


async def test_a_thread_changes_over(board: Blackboard, thread: str) -> None:
    """Checkpoints of both serializers stand in one thread, logs and maps and writes too."""
    old = BlackboardSaver(board)
    said: list[Any] = [lc.HumanMessage("x" * 100, id=str(number)) for number in range(5)]
    where = await put(old, config(thread), 1, messages=said, notes={"a": "y" * 200})
    where = await put(old, where, 2, messages=said, notes={"a": "y" * 200, "b": "z" * 200})
    await old.aput_writes(where, [("messages", said[0])], "task")
    new = BlackboardSaver(board, serde=BlackboardSerializer(read=["msgpack"]))
    found = await new.aget_tuple(config(thread))
    assert found is not None
    assert found.pending_writes == [("task", "messages", said[0])]
    more = [*said, lc.AIMessage("new")]
    where = await put(new, where, 3, messages=more, notes={"a": "y" * 200, "b": "z" * 200, "c": (1,)})
    where = await put(new, where, 4, messages=[*more, lc.AIMessage("newer")], notes={"a": "y" * 200, "c": (1,)})
    assert await values_at(new, thread, 2) == {"messages": said, "notes": {"a": "y" * 200, "b": "z" * 200}}
    assert same(
        await values_at(new, thread, 3), {"messages": more, "notes": {"a": "y" * 200, "b": "z" * 200, "c": (1,)}}
    )
    assert same((await values_at(new, thread))["notes"], {"a": "y" * 200, "c": (1,)})
    with pytest.raises(CorruptValue, match="another serializer"):
        await BlackboardSaver(board, serde=BlackboardSerializer()).aget_tuple(config(thread, "0002"))


async def test_a_refusal_names_the_channel_and_nothing_is_written(board: Blackboard, thread: str) -> None:
    saver = BlackboardSaver(board, serde=BlackboardSerializer())
    with pytest.raises(EncodeError, match=r"channel 'points': cannot store value\[0\]: class .*Point is not declared"):
        await put(saver, config(thread), 1, points=[Point(1)])
    assert await saver.aget_tuple(config(thread)) is None
    where = await put(saver, config(thread), 1)
    with pytest.raises(EncodeError, match="write to 'points'"):
        await saver.aput_writes(where, [("points", Point(1))], "task")


async def test_strict_compilation_declares_the_states_classes(board: Blackboard, thread: str) -> None:
    """LangGraph hands over names; they are looked up among what is loaded."""
    saver = BlackboardSaver(board, serde=BlackboardSerializer())
    wider = saver.with_allowlist(
        {(__name__, "Point"), (__name__, "Missing"), ("no_such_module", "X"), ("os", "system")}
    )
    assert wider.board is saver.board
    await put(wider, config(thread), 1, points=[Point(1)])
    assert await values_at(wider, thread) == {"points": [Point(1)]}
    assert "no_such_module" not in sys.modules
    with pytest.raises(EncodeError):
        await put(saver, config(thread), 2, points=[Point(1)])
    assert wider.with_allowlist({(__name__, "Point")}).serde is wider.serde


async def test_an_encrypted_namespace_shows_no_plaintext(solo: Server, thread: str) -> None:
    pytest.importorskip("cryptography", reason="install agent-blackboard[crypto]")
    key = "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="
    policy = {"kind": "checkpoint", "encryption": {"keys": {"k": key}, "current": "k"}}
    async with Blackboard.open(solo.url, settings=Settings(namespaces={"langgraph": policy}), proof=False) as board:
        saver = BlackboardSaver(board, serde=BlackboardSerializer())
        said: list[Any] = [lc.HumanMessage("SECRET " * 20, id=str(number)) for number in range(3)]
        where = await put(saver, config(thread), 1, messages=said[:2], notes={"k": "SECRET" * 40}, text="SECRET")
        where = await put(saver, where, 2, messages=said, notes={"k": "SECRET" * 40, "l": "SECRET"}, raw=b"SECRET")
        await saver.aput_writes(where, [("messages", said[0])], "task")
        assert same((await values_at(saver, thread))["messages"], said)
        assert b"SECRET" not in await everything(board.store, keys.ThreadKeys.of("langgraph", thread).prefix)


async def everything(store: Store, prefix: str) -> bytes:
    """Dump all keys of a thread."""
    found = b""
    for primary in await store.primaries():
        for key in await primary.command("KEYS", "*"):
            if key.decode().startswith(prefix):
                found += key + await primary.command("DUMP", key)
    assert len(found) > 1000
    return found


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
@pytest.mark.filterwarnings("ignore")
async def test_graphs_behave_as_in_memory(board: Blackboard, thread: str, scenario: Scenario) -> None:
    ours = await scenario(BlackboardSaver(board, namespace=thread, serde=BlackboardSerializer()), thread)
    assert ours == await scenario(InMemorySaver(serde=BlackboardSerializer()), thread)
