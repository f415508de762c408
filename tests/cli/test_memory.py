"""The commands about memory: look, compare, forget, move."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from typer.testing import CliRunner

from blackboard import Blackboard
from blackboard.cli.app import app
from blackboard.keys import PathKeys
from blackboard.memory.new import New

from .conftest import Command

T = TypeVar("T")
HOME = "acme/users/42"
ROOT = Path(__file__).parents[2]


def on_board(command: Command, work: Callable[[Blackboard], Awaitable[T]]) -> T:
    async def opened() -> T:
        async with Blackboard.open(directory=command.directory) as board:
            return await work(board)

    return asyncio.run(opened())


@pytest.fixture(autouse=True)
def remembered(command: Command) -> None:
    """A path with a taste and a fact that changed, and a neighbour with a name that has to be spelled apart."""

    async def work(board: Blackboard) -> None:
        await board.memory(("acme", "a/b")).forget(everything=True)
        memory = board.memory(HOME)
        await memory.forget(everything=True)
        await memory.remember_all(
            [
                New("Likes green tea in the morning", id="tea", metadata={"kind": "taste", "cups": 2}),
                New("Lives in Oslo", id="oslo", subject="home", valid_from=1),
                New("Lives in Bergen", id="bergen", subject="home", valid_from=2),
            ]
        )
        await board.memory(("acme", "a/b")).remember("an odd place", id="odd")

    on_board(command, work)


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["id"] for row in rows]


def test_ls(command: Command) -> None:
    assert command.json("memory", "ls") == [{"path": "acme", "paths": 2}]
    assert command.json("memory", "ls", "acme") == [
        {"path": '["acme", "a/b"]', "records": 1},
        {"path": HOME, "records": 3},
    ]
    assert command.json("memory", "ls", "acme", "--limit", "1") == [{"path": '["acme", "a/b"]', "records": 1}]
    assert command.json("memory", "ls", HOME) == [{"path": HOME, "records": 3}]
    assert HOME in command("memory", "ls", "acme")
    assert command("memory", "ls", "acme/user") == "nothing is remembered\n"


def test_ls_of_records(command: Command) -> None:
    rows = command.json("memory", "ls", HOME, "--records")
    assert names(rows) == ["tea", "oslo", "bergen"]
    assert (rows[0]["text"], rows[0]["metadata"]) == ("Likes green tea in the morning", {"kind": "taste", "cups": 2})
    assert names(command.json("memory", "ls", HOME, "--where", '{"cups": {"gte": 2}}')) == ["tea"]
    assert names(command.json("memory", "ls", HOME, "--records", "--limit", "2")) == ["tea", "oslo"]
    assert names(command.json("memory", "ls", '["acme", "a/b"]', "--records")) == ["odd"]
    assert command("memory", "ls", HOME, "--where", '{"cups": 3}') == "no records\n"


def test_search(command: Command) -> None:
    rows = command.json("memory", "search", HOME, "who likes tea?", "--k", "2", "--explain")
    assert names(rows) == ["tea", "bergen"], "what was superseded is not found"
    assert rows[0]["score"] == pytest.approx(sum(rows[0]["parts"].values()), abs=1e-3)
    assert "parts" not in command.json("memory", "search", HOME, "tea", "--words")[0]
    assert names(command.json("memory", "search", HOME, "lives", "--where", '{"kind": "taste"}')) == ["tea"]
    assert names(command.json("memory", "search", HOME, "tea", "--subject", "home")) == ["bergen"]
    assert {row["path"] for row in command.json("memory", "search", "acme", "odd", "--below")} == {
        '["acme", "a/b"]',
        HOME,
    }
    assert "Likes green tea" in command("memory", "search", HOME, "tea")
    assert command("memory", "search", "nobody", "tea") == "nothing is found\n"


def test_show(command: Command) -> None:
    told = command.json("memory", "show", HOME, "oslo")
    assert (told["text"], told["superseded_by"], told["valid_until"]) == ("Lives in Oslo", "bergen", 2)
    assert names(told["history"]) == ["bergen", "oslo"]
    shown = command("memory", "show", HOME, "oslo")
    assert shown.index("Lives in Oslo") < shown.index("Lives in Bergen")
    assert "RecordMissing: there is no record 'rome'" in command("memory", "show", HOME, "rome", expect=1)


def test_forget_with_a_receipt(command: Command, tmp_path: Path) -> None:
    receipt = command.json(
        "memory", "forget", HOME, "--where", '{"kind": "taste"}', "--reason", "asked", "--actor", "ann", "--yes"
    )
    assert (receipt["count"], receipt["reason"], receipt["actor"]) == (1, "asked", "ann")
    assert "tea" not in json.dumps(receipt["records"])
    file = tmp_path / "receipt.json"
    file.write_text(json.dumps(receipt), "utf-8")
    assert command.json("memory", "verify", "--receipt", str(file))["gone"] is True
    assert names(command.json("memory", "ls", HOME, "--records")) == ["oslo", "bergen"]


def test_a_survivor_is_named(command: Command, tmp_path: Path) -> None:
    receipt = command.json("memory", "forget", HOME, "tea", "--yes")
    file = tmp_path / "receipt.json"
    file.write_text(json.dumps(receipt), "utf-8")
    on_board(command, lambda board: board.memory(HOME).remember("Likes tea again", id="tea"))
    told = command.json("memory", "verify", "--receipt", str(file))
    assert (told["gone"], told["found"], told["again"]) == (True, [], ["tea"])
    where = PathKeys.of("memory", HOME).record("tea")
    on_board(command, lambda board: board.store.command("HSET", where, "seq", 1))  # of a write before it was forgotten
    done = CliRunner().invoke(app, ["--directory", str(command.directory), "memory", "verify", "--receipt", str(file)])
    assert (done.exit_code, "record:tea" in done.stdout) == (1, True)


def test_forget_looks_for_survivors_at_once(command: Command) -> None:
    told = command.json("memory", "forget", HOME, "--everything", "--below", "--yes", "--verify")
    assert (told["count"], told["survivors"]["gone"], told["survivors"]["found"]) == (3, True, [])
    shown = command("memory", "forget", "acme", "--everything", "--below", "--yes", "--verify")
    assert "limits: " in shown
    assert command("memory", "ls", HOME, "--records") == "no records\n"
    assert command("memory", "ls", '["acme", "a/b"]', "--records") == "no records\n"


def test_forget_asks_first(command: Command) -> None:
    words = ["--directory", str(command.directory), "memory", "forget", HOME, "tea"]
    assert CliRunner().invoke(app, words, input="n\n").exit_code == 1
    assert CliRunner().invoke(app, words).exit_code == 1, "nobody is there to answer"
    assert len(command.json("memory", "ls", HOME, "--records")) == 3
    assert CliRunner().invoke(app, words, input="y\n").exit_code == 0
    assert len(command.json("memory", "ls", HOME, "--records")) == 2


@pytest.mark.parametrize(
    "words",
    [(), ("tea", "--everything"), ("tea", "--subject", "home"), ("--where", "{}", "--everything")],
)
def test_forget_needs_one_selection(command: Command, words: tuple[str, ...]) -> None:
    assert "say what is to be forgotten" in command("memory", "forget", HOME, *words, "--yes", expect=2)
    assert len(command.json("memory", "ls", HOME, "--records")) == 3


def test_verify(command: Command) -> None:
    told = command.json("memory", "verify", HOME)
    assert (told["ok"], told["compared"]["records"], told["findings"]) == (True, 3, [])
    assert "everything fits" in command("memory", "verify", HOME)
    key = f"bb:memory:memory:{{{HOME}}}:head"
    on_board(command, lambda board: board.store.command("HSET", key, "count", 99))
    done = CliRunner().invoke(app, ["--directory", str(command.directory), "memory", "verify", HOME, "--json"])
    assert done.exit_code == 1
    assert [(row["where"], row["what"]) for row in json.loads(done.stdout)["findings"]] == [("head", "mismatched")]
    assert command.json("memory", "verify", HOME, "--repair")["findings"][0]["repaired"] is True
    assert command.json("memory", "verify", HOME)["findings"] == []


def test_tend(command: Command) -> None:
    assert command.json("memory", "tend", HOME) == {
        "finished": 0, "expired": 0, "embedded": 0, "pending": 0, "evicted": 0, "snapshot": False,
        "settled": False, "held_by": None, "indexed": 0,
    }  # fmt: skip


def test_export_and_import(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    assert command("memory", "export", HOME, "--out", str(file)) == ""
    assert [json.loads(line)["line"] for line in file.read_text("utf-8").splitlines()] == [
        "header", "record", "record", "record", "end",
    ]  # fmt: skip
    assert command.json("memory", "import", HOME, str(file), "--existing", "keep") == {"stored": 0, "kept": 3}
    assert "is in path" in command("memory", "import", HOME, str(file), expect=2)
    assert command.json("memory", "import", "acme/copy", str(file), "--existing", "replace")["stored"] == 3
    assert names(command.json("memory", "ls", "acme/copy", "--records")) == ["tea", "oslo", "bergen"]
    command("memory", "forget", "acme/copy", "--everything", "--yes")
    cut = tmp_path / "cut.jsonl"
    cut.write_text("".join(file.read_text("utf-8").splitlines(keepends=True)[:-1]), "utf-8")
    command("memory", "import", "acme/copy", str(cut), expect=2)
    assert command("memory", "ls", "acme/copy", "--records") == "no records\n"
    assert '"vector"' not in command("memory", "export", HOME, "--no-vectors")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.jsonl", "records.jsonl"]


def test_migrate(command: Command, tmp_path: Path) -> None:
    """To the embedder of a profile, back, and then for good."""
    on_board(command, lambda board: board.memory("acme/moved").forget(everything=True))
    on_board(command, lambda board: board.memory("acme/moved").remember_all(["green tea", "black coffee", "a cup"]))
    small = tmp_path / "small.toml"
    small.write_text('[namespaces.memory]\nkind = "memory"\n[namespaces.memory.embedding]\ndimension = 64\n', "utf-8")
    told = command.json("memory", "migrate", "acme/moved", "--to", str(small), "--query", "tea")
    assert (told["staged"], told["left"], told["flipped"]) == (3, 0, True)
    assert "EmbedderMismatch" in command("memory", "search", "acme/moved", "tea", expect=1)
    assert len(command.json("memory", "search", "acme/moved", "tea", "--words")) == 1
    back = command.json("memory", "migrate", "acme/moved", "--rollback")
    assert (back["status"], json.loads(back["space"])["dimension"]) == ("returned", 512)
    assert len(command.json("memory", "search", "acme/moved", "tea")) == 3
    assert command.json("memory", "migrate", "acme/moved", "--settle") == {"settled": 3}
    assert "either --rollback or --settle" in command(
        "memory", "migrate", "acme/moved", "--rollback", "--settle", expect=2
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ls", "--records"), "name a path"),
        (("verify",), "or a file with --receipt"),
        (("ls", HOME, "--where", "{"), "--where is not JSON"),
        (("ls", HOME, "--where", '{"who": "ann", "who": "bob"}'), "--where names 'who' twice"),
        (
            ("forget", HOME, "--where", '{"all": [{"n": {"gt": 1, "lt": 2, "gt": 0}}]}', "--yes"),
            "--where names 'gt' twice",
        ),
        (("search", HOME, "tea", "--where", '{"n": {"above": 1}}'), "above"),
        (("ls", "acme//42"), "non-empty segments"),
        (("ls", '["acme"'), "JSON list of segments"),
        (("import", HOME, "missing.jsonl"), "cannot be opened"),
        (("import", HOME, "missing.jsonl", "--existing", "merge"), "refuse, keep or replace"),
        (("verify", "--receipt", "missing.json"), "cannot be opened"),
    ],
)
def test_what_is_asked_wrongly_is_said(command: Command, words: tuple[str, ...], said: str) -> None:
    assert said in command("memory", *words, expect=2)


def test_a_file_that_is_no_receipt(command: Command, tmp_path: Path) -> None:
    for number, text in enumerate(("[]", "{}", "nothing")):
        file = tmp_path / f"{number}.json"
        file.write_text(text, "utf-8")
        assert "holds no receipt" in command("memory", "verify", "--receipt", str(file), expect=2)


def test_another_namespace(command: Command, tmp_path: Path) -> None:
    assert "no memory namespace 'facts'" in command("memory", "--namespace", "facts", "ls", expect=2)
    profile = tmp_path / "facts.toml"
    profile.write_text('[namespaces.facts]\nkind = "memory"\n', "utf-8")
    done = CliRunner().invoke(
        app,
        ["--directory", str(command.directory), "--profile", str(profile), "memory", "--namespace", "facts", "ls"],
    )
    assert (done.exit_code, done.stdout) == (0, "nothing is remembered\n")


def test_a_missing_extra_is_named(command: Command) -> None:
    """As on a machine without the extra: the package cannot be imported."""
    script = "import sys; sys.modules['faiss'] = None; from blackboard.cli import main; main()"
    words = ["--directory", str(command.directory), "memory", "search", HOME, "tea"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "faiss is not installed; run: pip install 'agent-blackboard[memory]'" in done.stderr
    assert "Traceback" not in done.stderr
