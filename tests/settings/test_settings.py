"""Settings: precedence, names that nobody knows, and errors that say where the value stands."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from blackboard.errors import ConfigError
from blackboard.settings import Backend, CheckpointNamespace, MemoryNamespace, Settings
from blackboard.settings import backend as module
from blackboard.store import address


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_defaults() -> None:
    settings = Settings()
    assert settings == Settings.load()
    assert settings.backend == Backend()
    assert settings.backend.url is None
    assert settings.namespaces == {"checkpoint": CheckpointNamespace(), "memory": MemoryNamespace()}
    hot = settings.checkpoint_namespace()
    assert (hot.ttl, hot.failed_ttl, hot.idle_ttl, hot.lease_ttl) == (604800.0, None, None, 30.0)
    assert (hot.keep_last, hot.durability, hot.inline_limit, hot.takeover_cap) == (None, "require", 128, 8)


def test_later_sources_win_field_by_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write(
        tmp_path / "first.toml",
        '[backend]\nretry_deadline = "1s"\nconnections = 2\n[namespaces.checkpoint]\nttl = "1h"\nlease_ttl = "1s"\nkeep_last = 5\n'
        "takeover_cap = 3",
    )
    second = write(tmp_path / "second.toml", '[namespaces.checkpoint]\nttl = "2h"\nlease_ttl = "2s"\nkeep_last = 6')
    monkeypatch.setenv("BLACKBOARD_NAMESPACES__CHECKPOINT__LEASE_TTL", "3s")
    monkeypatch.setenv("BLACKBOARD_NAMESPACES__CHECKPOINT__KEEP_LAST", "7")
    settings = Settings.load(first, str(second), namespaces={"checkpoint": {"keep_last": 8}})
    hot = settings.checkpoint_namespace()
    assert (hot.takeover_cap, hot.ttl, hot.lease_ttl, hot.keep_last) == (3, 7200.0, 3.0, 8)
    assert (settings.backend.retry_deadline, settings.backend.connections) == (1.0, 2)
    assert set(settings.namespaces) == {"checkpoint", "memory"}


def test_plain_construction_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLACKBOARD_BACKEND__CONNECTIONS", "9")
    assert Settings().backend.connections == 9
    assert Settings(backend={"connections": 3}).backend.connections == 3


@pytest.mark.parametrize("variable", ["BLACKBOARD_NAMESPACES__LONG_RUNS__TTL", "blackboard_namespaces__long_runs__ttl"])
def test_environment_finds_a_namespace_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    file = write(tmp_path / "a.toml", '[namespaces.Long-Runs]\nkind = "checkpoint"\nttl = "1d"\nkeep_last = 3')
    monkeypatch.setenv(variable, "PT5M")
    hot = Settings.load(file).checkpoint_namespace("Long-Runs")
    assert (hot.ttl, hot.keep_last) == (300.0, 3)


def test_environment_can_declare_a_namespace_and_hold_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLACKBOARD_NAMESPACES__AUDITS", '{"kind": "checkpoint", "ttl": "none"}')
    monkeypatch.setenv("BLACKBOARD_NAMESPACES__AUDITS__KEEP_LAST", "4")
    audits = Settings().checkpoint_namespace("audits")
    assert (audits.ttl, audits.keep_last) == (None, 4)


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("BLACKBOARD_URLL", "backend.url or artifacts.url"),
        ("BLACKBOARD_BACKEN", "backend"),
        ("BLACKBOARD_BACKEND__URLL", "url"),
        ("BLACKBOARD_NAMESPACES__CHECKPOINT__TLL", "ttl"),
        ("BLACKBOARD_NAMESPACES__MEMORY__DURABLITY", "durability"),
    ],
)
def test_unknown_variable(monkeypatch: pytest.MonkeyPatch, variable: str, meant: str) -> None:
    monkeypatch.setenv(variable, "5s")
    with pytest.raises(ConfigError) as caught:
        Settings.load()
    assert f"(environment variable {variable}): unknown name; did you mean {meant}" in str(caught.value)


def test_unknown_name_without_a_close_match_lists_the_known() -> None:
    with pytest.raises(ConfigError, match="unknown name; known: .*takeover_cap, ttl, value_limit"):
        CheckpointNamespace(xyzzy=1)


def test_operational_variables_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in Settings.operational:
        monkeypatch.setenv(variable, "anything")
    assert Settings.load() == Settings()


def test_every_problem_is_named_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "bad.toml", 'bakend = 1\n[namespaces.checkpoint]\nttl = -5\n[namespaces.new]\nttl = "1h"')
    monkeypatch.setenv("BLACKBOARD_BACKEND__CONNECTIONS", "many")
    with pytest.raises(ConfigError) as caught:
        Settings.load(file, namespaces={"memory": {"ttl": "soon"}})
    lines = str(caught.value)
    assert f"bakend (file {file}): unknown name; did you mean backend?" in lines
    assert f"namespaces.checkpoint.ttl (file {file}): a duration must be longer than 0" in lines
    assert "got -5" in lines
    assert f'namespaces.new.kind (file {file}): set kind = "checkpoint" or kind = "memory"' in lines
    assert "backend.connections (environment variable BLACKBOARD_BACKEND__CONNECTIONS): " in lines
    assert "'many'" in lines
    assert "namespaces.memory.ttl (argument): a duration is not readable: 'soon'" in lines
    assert len(caught.value.problems) == 5


def test_place_is_that_of_the_value_that_counts(tmp_path: Path) -> None:
    good = write(tmp_path / "good.toml", '[backend]\nretry_deadline = "5s"')
    bad = write(tmp_path / "bad.toml", "[backend]\nretry_deadline = 0")
    with pytest.raises(ConfigError, match="bad.toml"):
        Settings.load(good, bad)
    assert Settings.load(bad, good).backend.retry_deadline == 5.0


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml cannot be read"):
        Settings.load(tmp_path / "nowhere.toml")
    with pytest.raises(ConfigError, match=r"broken\.toml is not valid TOML.*line 1"):
        Settings.load(write(tmp_path / "broken.toml", "[backend\n"))
    (tmp_path / "latin.toml").write_bytes(b'a = "\xff"')
    with pytest.raises(ConfigError, match=r"latin\.toml is not valid TOML"):
        Settings.load(tmp_path / "latin.toml")


def test_environment_that_contradicts_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLACKBOARD_BACKEND", "fast")
    monkeypatch.setenv("BLACKBOARD_BACKEND__CONNECTIONS", "3")
    with pytest.raises(
        ConfigError, match=r"BLACKBOARD_BACKEND__CONNECTIONS is part of 'backend', which is not a table"
    ):
        Settings.load()
    monkeypatch.setenv("BLACKBOARD_BACKEND", "{fast}")
    with pytest.raises(ConfigError, match=r"BLACKBOARD_BACKEND is not valid JSON"):
        Settings.load()


@pytest.mark.parametrize("ttl", [0, -5, float("nan"), float("inf"), 1e15, True, "0s"])
@pytest.mark.parametrize("name", ["ttl", "failed_ttl", "idle_ttl", "lease_ttl", "effect_ttl"])
def test_c69_ttl_is_refused_at_configuration(name: str, ttl: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} \(argument\): a duration "):
        CheckpointNamespace(**{name: ttl})


def test_c69_half_a_second_and_none_are_honoured() -> None:
    namespace = CheckpointNamespace(ttl=0.5, failed_ttl=None, idle_ttl="none")
    assert (namespace.ttl, namespace.failed_ttl, namespace.idle_ttl) == (0.5, None, None)


@pytest.mark.parametrize("name", ["lease_ttl", "effect_ttl"])
def test_what_must_end_takes_no_none(name: str) -> None:
    for written in (None, "none"):
        with pytest.raises(ConfigError, match=rf"^{name} "):
            CheckpointNamespace(**{name: written})


@pytest.mark.parametrize(
    ("table", "name", "value", "told"),
    [
        (CheckpointNamespace, "lease_ttl", "50ms", "greater than or equal to 0.1, got 0.05"),
        (CheckpointNamespace, "keep_last", 0, "greater than or equal to 1, got 0"),
        (CheckpointNamespace, "keep_last", True, "a count must be a number, got True"),
        (CheckpointNamespace, "takeover_cap", "none", "valid integer, got None"),
        (CheckpointNamespace, "durability", "maybe", "'require', 'prefer' or 'off', got 'maybe'"),
        (CheckpointNamespace, "value_limit", "1GiB", "less than or equal to 536870912, got 1073741824"),
        (CheckpointNamespace, "kind", "memory", "'checkpoint', got 'memory'"),
        (Backend, "connections", 0, "greater than or equal to 1, got 0"),
        (Backend, "connections", 1.5, "valid integer, .*got 1.5"),
        (Backend, "batch_bytes", 10, "greater than or equal to 1024, got 10"),
        (Backend, "url", "", "unknown kind of URL ''; begin it with one of redis, "),
        (Backend, "url", "localhost:6379", "unknown kind of URL 'localhost:6379'"),
        (Backend, "url", "http://localhost", "unknown kind of URL 'http://localhost'"),
    ],
)
def test_values_out_of_range(table: type[Backend | CheckpointNamespace], name: str, value: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} \(argument\): .*{told}"):
        table(**{name: value})


@pytest.mark.parametrize("name", ["", "x" * 1025])
def test_namespace_names_are_ids(name: str) -> None:
    with pytest.raises(ConfigError, match="a namespace name must have 1 to 1024 bytes"):
        Settings.load(namespaces={name: {"kind": "memory"}})


def test_asking_for_a_namespace() -> None:
    settings = Settings.load(namespaces={"facts": {"kind": "memory", "ttl": "1w"}})
    assert settings.memory_namespace("facts").ttl == 604800.0
    with pytest.raises(
        ConfigError, match="there is no checkpoint namespace 'facts'; the settings name checkpoint: use one"
    ):
        settings.checkpoint_namespace("facts")
    with pytest.raises(
        ConfigError, match="there is no memory namespace 'fact'; the settings name memory, facts: use one of these"
    ):
        settings.memory_namespace("fact")


def test_models_are_welcome_as_arguments() -> None:
    settings = Settings.load(backend=Backend(connections=7), namespaces={"checkpoint": CheckpointNamespace(ttl="1h")})
    assert settings.backend.connections == 7
    assert settings.checkpoint_namespace().ttl == 3600.0
    assert "memory" in settings.namespaces


@pytest.mark.parametrize(
    "url",
    [
        "redis://anna:s3cret@localhost:6379/0",
        "redis://:s3cret@localhost",
        "redis://:s3c@ret/s3cret@localhost",
        "unix:///run/redis.sock?username=anna&password=s3cret&db=1",
        "redis+sentinel://localhost:1/main?sentinel_password=s3cret",
    ],
)
def test_no_password_is_shown(url: str) -> None:
    settings = Settings.load(backend={"url": url})
    assert settings.backend.url == url
    assert "s3cret" not in repr(settings)
    assert "s3cret" not in str(settings)
    with pytest.raises(ConfigError) as caught:
        Settings.load(backend={"url": f"x{url}"})
    assert "s3cret" not in str(caught.value)
    assert "***" in str(caught.value)


def test_schemes_are_those_of_the_store() -> None:
    assert set(module.SCHEMES) == set(address.SCHEMES)


def test_frozen() -> None:
    settings = Settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.backend = Backend()
    with pytest.raises(ValidationError, match="frozen"):
        settings.backend.connections = 5


def test_round_trip() -> None:
    settings = Settings.load(namespaces={"audits": CheckpointNamespace(ttl=None, keep_last=3)})
    assert Settings(**settings.model_dump()) == settings
    assert Settings.model_validate_json(settings.model_dump_json()) == settings
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_a_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "marked.toml"
    file.write_text('[backend]\nretry_deadline = "3s"\n', "utf-8-sig")
    assert Settings.load(file).backend.retry_deadline == 3.0


@pytest.mark.parametrize("path", [5, None, "", {"backend": {}}])
def test_what_is_no_file(path: Any) -> None:
    with pytest.raises(ConfigError, match="a settings file is named by a path"):
        Settings.load(path)


@pytest.mark.parametrize("overrides", [{"namespaces": None}, {"backend": {"directory": ""}}])
def test_nothing_where_something_is_needed(overrides: Any) -> None:
    with pytest.raises(ConfigError, match=next(iter(overrides))):
        Settings.load(**overrides)
