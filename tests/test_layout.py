"""What the repository promises about its own shape: names, sizes, imports, and what the wheel holds."""

import ast
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import blackboard

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "blackboard"
MODULES = sorted(path for path in LIBRARY.rglob("*.py"))
FOLDERS = ("blackboard", "tests", "agents", "benchmarks", "docs")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))

LONGEST_FILE = 400
LONGEST_FUNCTION = 60


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def test_import_loads_the_standard_library_alone() -> None:
    """In an isolated process: what `import blackboard` adds is ours or Python's own."""
    script = (
        "import sys; before = set(sys.modules); import blackboard, json;"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    answer = subprocess.run(
        [sys.executable, "-S", "-c", script], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, check=True
    )
    loaded = json.loads(answer.stdout)
    assert "blackboard" in loaded
    foreign = {module.partition(".")[0] for module in loaded} - sys.stdlib_module_names - {"blackboard"}
    assert foreign == set()


def test_public_names() -> None:
    assert len(blackboard.__all__) <= 25
    assert blackboard.__all__ == sorted(blackboard.__all__, key=lambda item: (item == "__version__", item))
    assert set(blackboard.__all__) == {*blackboard._HOMES, "__version__"}
    assert set(blackboard.__all__) <= set(dir(blackboard))


def test_public_names_are_declared_for_type_checkers() -> None:
    tree = ast.parse((LIBRARY / "__init__.py").read_text("utf-8"))
    declared = {
        alias.asname: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert {known: home for known, home in declared.items() if known in blackboard._HOMES} == blackboard._HOMES


@pytest.mark.parametrize("public", blackboard.__all__)
def test_public_name_resolves_to_its_home(public: str) -> None:
    value = getattr(blackboard, public)
    if public != "__version__":
        assert value is getattr(import_module(blackboard._HOMES[public]), public)
        assert value.__doc__


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Blackbord'"):
        blackboard.Blackbord  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("path", [path for path in MODULES if path.name != "__main__.py"], ids=name)
def test_names_of_a_module(path: Path) -> None:
    """A module says what it gives to others, and has it."""
    module = import_module(dotted(path))
    if path.name != "__init__.py":
        assert module.__all__, "say in __all__ what the module gives to others"
    assert set(getattr(module, "__all__", ())) <= {*vars(module), *dir(module)}


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_sizes(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.count("\n") <= LONGEST_FILE
    too_long = {}
    for node in functions(ast.parse(text)):
        docstring = node.body[0] if ast.get_docstring(node) else None
        lines = (node.end_lineno or 0) - node.lineno + 1
        lines -= (docstring.end_lineno or 0) - docstring.lineno + 1 if docstring else 0
        if lines > LONGEST_FUNCTION:
            too_long[node.name] = lines
    assert too_long == {}


@pytest.mark.parametrize("folder", ["agents", "namespaces"])
def test_side_folders_are_no_packages(folder: str) -> None:
    """An `__init__.py` in agents/ would shadow the OpenAI SDK, which is imported by that name."""
    assert list((ROOT / folder).rglob("__init__.py")) == []


def test_scripts_stand_beside_their_wrappers() -> None:
    for path in LIBRARY.rglob("*.lua"):
        assert list(path.parent.glob("*.py")), name(path)
        assert path.read_text("utf-8").startswith("-- "), name(path)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in a freshly built wheel."""
    directory = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = directory.glob("agent_blackboard-*.whl")
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def test_wheel_holds_the_library_alone(wheel: set[str]) -> None:
    tops = {entry.partition("/")[0] for entry in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"blackboard"}


def test_wheel_holds_all_of_the_library(wheel: set[str]) -> None:
    expected = {name(path) for pattern in ("*.py", "*.lua", "py.typed") for path in LIBRARY.rglob(pattern)}
    assert "blackboard/py.typed" in expected
    assert expected <= wheel
