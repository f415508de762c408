"""A rival distribution of the same import name is found by its metadata alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from blackboard.distribution import rivals


def install(site: Path, name: str, package: str) -> None:
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"{package}/__init__.py,,\n")


def test_only_those_that_install_the_name_are_rivals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = rivals()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name, package in (
        ("blackboardx", "blackboard"),
        ("Blackboard_Core", "blackboard"),
        ("agent-blackboard", "blackboard"),
        ("blackboard-theme", "theme"),
    ):
        install(tmp_path, name, package)
    assert rivals() == sorted({*before, "blackboard-core", "blackboardx"})
