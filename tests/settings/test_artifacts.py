"""The table of artifacts, and what a namespace does with values that are too long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from blackboard.errors import ConfigError
from blackboard.settings import Artifacts, CheckpointNamespace, Settings


def test_defaults() -> None:
    made, hot = Settings().artifacts, Settings().checkpoint_namespace()
    assert (made.url, made.chunk_size, made.read_limit) == (None, 1 << 20, 64 << 20)
    assert (made.grace, made.upload_ttl, made.spool) == (86400.0, 3600.0, None)
    assert (hot.oversize, hot.artifact_limit) == ("refuse", 1 << 20)


def test_a_file_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.toml"
    file.write_text('[artifacts]\nurl = "file:///srv/artifacts"\ngrace = "7d"\n')
    monkeypatch.setenv("BLACKBOARD_ARTIFACTS__CHUNK_SIZE", "64KiB")
    monkeypatch.setenv("BLACKBOARD_ARTIFACTS__GRACE", "2h")
    made = Settings.load(file).artifacts
    assert (made.url, made.grace, made.chunk_size) == ("file:///srv/artifacts", 7200.0, 65536)


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        (Artifacts, {"chunk_size": 0}),
        (Artifacts, {"chunk_size": "1GiB"}),
        (Artifacts, {"upload_ttl": 0.5}),
        (Artifacts, {"grace": "none"}),
        (Artifacts, {"bucket": "b"}),
        (CheckpointNamespace, {"oversize": "drop"}),
        (CheckpointNamespace, {"artifact_limit": 0}),
    ],
)
def test_what_makes_no_sense_is_named(table: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        table(**wrong)
