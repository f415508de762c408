"""Keys in the settings: from the environment and files, checked, and never shown."""

import base64
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from blackboard import Settings
from blackboard.errors import ConfigError
from blackboard.settings import Encryption

KEY = base64.b64encode(b"\x07secret of 32 bytes, all of them!"[:32]).decode()
PREFIX = "BLACKBOARD_NAMESPACES__CHECKPOINT__ENCRYPTION__"


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + "KEYS__2026", KEY)
    monkeypatch.setenv(PREFIX + "KEYS__OLD", KEY)
    monkeypatch.setenv(PREFIX + "CURRENT", "2026")
    found = Settings.load().checkpoint_namespace().encryption
    assert found is not None
    assert (sorted(found.keys), found.current, found.accept_plaintext) == (["2026", "old"], "2026", False)
    assert found.key("2026") == base64.b64decode(KEY)


def test_keys_come_from_a_file_and_ids_have_no_case(tmp_path: Path) -> None:
    path = tmp_path / "secret.toml"
    path.write_text(f'[namespaces.checkpoint.encryption]\ncurrent = "A"\nkeys.A = "{KEY}"\naccept_plaintext = true\n')
    found = Settings.load(path).checkpoint_namespace().encryption
    assert found is not None
    assert (found.current, [*found.keys], found.accept_plaintext) == ("a", ["a"], True)


def test_without_it_nothing_is_encrypted() -> None:
    assert Settings.load().checkpoint_namespace().encryption is None


WRONG: list[tuple[Any, str]] = [
    ({"keys": {"a": KEY}}, "current.*field required"),
    ({"keys": {"a": KEY}, "current": "b"}, "current names a key that is not there; keys has a"),
    ({"keys": {}, "current": "b"}, "keys has none"),
    ({"keys": {"a": base64.b64encode(b"\x07short").decode()}, "current": "a"}, "key 'a' has 6 bytes, not 32"),
    ({"keys": {"a": KEY[:-3] + "!!!"}, "current": "a"}, "key 'a' is not base64"),
    ({"keys": {"a": [KEY]}, "current": "a"}, "keys.a"),
    ({"keys": {"a b": KEY}, "current": "a"}, "1 to 64 letters"),
    ({"keys": {"a" * 65: KEY}, "current": "a"}, "1 to 64 letters"),
    ({"keys": {"": KEY}, "current": "a"}, "1 to 64 letters"),
    ({"keys": KEY, "current": "a"}, "keys"),
    (KEY, "encryption"),
    ([KEY], "encryption"),
    ({"keys": {"a": KEY}, "current": {"a": KEY}}, "current"),
    ({"keys": {"a": KEY}, "current": "a", "accept_plaintext": KEY}, "accept_plaintext"),
    ({"keys": {"a": KEY}, "curent": "a"}, "did you mean current"),
]


@pytest.mark.parametrize(("given", "expected"), WRONG)
def test_what_is_wrong_is_named_and_no_key_is_shown(given: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as raised:
        Settings.load(namespaces={"checkpoint": {"encryption": given}})
    assert KEY[:8] not in f"{raised.value} {raised.value.ids} {raised.value.__cause__!r}"
    if isinstance(given, dict):
        with pytest.raises(ConfigError) as alone:
            Encryption(**given)
        assert KEY[:8] not in f"{alone.value} {alone.value.ids}"


def test_no_key_is_shown_by_settings(caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings.load(namespaces={"checkpoint": {"encryption": {"keys": {"a": KEY}, "current": "a"}}})
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("blackboard.test").info("%r %s", settings, settings)
    shown = caplog.text + repr(settings.model_dump()) + json.dumps(settings.model_dump(mode="json"), default=str)
    assert "'a': SecretStr('**********')" in shown
    assert KEY not in shown
