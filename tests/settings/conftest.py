"""Settings are read in an environment without variables of ours."""

import os

import pytest


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.upper().startswith("BLACKBOARD_")]:
        monkeypatch.delenv(variable)
