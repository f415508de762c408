"""The profiles in namespaces/ load, say when to use them, and stand in the README's tables."""

import tomllib
from pathlib import Path

import pytest

from blackboard.settings import Settings

FOLDER = Path(__file__).parents[2] / "namespaces"
PROFILES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.toml"))


def test_catalogue() -> None:
    backends = {"cluster", "embedded", "managed", "ondisk", "sentinel", "single"}
    policies = {"ephemeral", "every-step", "keep-all", "milestones"}
    memories = {"documents", "episodes", "facts", "tenants"}
    assert {Path(name).stem for name in PROFILES if name.startswith("backend/")} == backends
    assert {Path(name).stem for name in PROFILES if name.startswith("checkpoint/")} == policies
    assert {Path(name).stem for name in PROFILES if name.startswith("memory/")} == memories


@pytest.mark.parametrize("profile", PROFILES)
def test_profile_loads_and_counts(profile: str) -> None:
    """Every value that the file sets is the one that holds, and the file says first when to use it."""
    file = FOLDER / profile
    text = file.read_text("utf-8")
    assert text.startswith("# ")
    written = tomllib.loads(text)
    settings = Settings.load(file)
    again = Settings(**written)
    assert settings == again
    assert settings != Settings() or profile == "backend/embedded.toml"
    assert f"]({profile})" in (FOLDER / "README.md").read_text("utf-8")


@pytest.mark.parametrize("backend", [name for name in PROFILES if name.startswith("backend/")])
@pytest.mark.parametrize("policy", [name for name in PROFILES if name.startswith("checkpoint/")])
def test_profiles_stack(backend: str, policy: str) -> None:
    settings = Settings.load(FOLDER / backend, FOLDER / policy)
    assert settings.backend == Settings.load(FOLDER / backend).backend
    assert settings.namespaces == Settings.load(FOLDER / policy).namespaces


def test_what_the_table_says() -> None:
    def kept(name: str) -> tuple[float | None, float | None, int | None]:
        namespace = Settings.load(FOLDER / "checkpoint" / f"{name}.toml").checkpoint_namespace()
        return namespace.ttl, namespace.failed_ttl, namespace.keep_last

    day = 86400.0
    assert kept("every-step") == (7 * day, 30 * day, None)
    assert kept("milestones") == (7 * day, 30 * day, 20)
    assert kept("keep-all") == (None, None, None)
    assert kept("ephemeral") == (3600.0, day, 1)


def test_what_the_table_says_of_memory() -> None:
    def kept(name: str) -> tuple[float | None, int | None, str | None]:
        namespace = Settings.load(FOLDER / "memory" / f"{name}.toml").memory_namespace()
        return namespace.ttl, namespace.budget, namespace.context_by

    day = 86400.0
    assert kept("facts") == (None, 10_000, None)
    assert kept("episodes") == (180 * day, None, "session")
    assert kept("documents") == (None, None, "document")
    assert kept("tenants") == (365 * day, 5_000, None)
