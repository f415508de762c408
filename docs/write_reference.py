"""Write docs/reference/api.md and the table of docs/reference/errors.md from the code; a test compares them."""

from __future__ import annotations

import inspect
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from blackboard import errors

REFERENCE = Path(__file__).parent / "reference"
API = REFERENCE / "api.md"
ERRORS = REFERENCE / "errors.md"

NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "Driving threads": {
        "blackboard": ("Blackboard", "Run", "Log", "Call"),
        "blackboard.runs.effect": ("RunEffect",),
        "blackboard.runs.call": ("PendingCall",),
        "blackboard.claims.lease": ("Lease",),
    },
    "Looking at threads": {
        "blackboard.runs.thread": ("Thread",),
        "blackboard.runs.view": ("Checkpoint",),
        "blackboard.checkpoints.manifest": ("Meta", "Manifest"),
        "blackboard.claims.record": ("OpenEffect", "SettledEffect"),
        "blackboard.claims.lease": ("Holder",),
        "blackboard.board": ("Listed",),
        "blackboard.runs.compare": ("Change",),
        "blackboard.checkpoints.prune": ("Pruned",),
    },
    "Talking to threads": {"blackboard.runs.inbox": ("Inbox", "Letter")},
    "Threads as files": {"blackboard.runs.portable": ("export_thread", "import_thread")},
    "Effects across threads": {
        "blackboard.claims.shared": ("SharedEffects", "Claim", "SharedEffect"),
        "blackboard.claims.outcome": ("Done", "Failed", "Busy", "Unknown", "Mismatch"),
    },
    "Artifacts": {
        "blackboard.artifacts.store": ("ArtifactStore", "Stored"),
        "blackboard.artifacts.ref": ("ArtifactRef",),
        "blackboard.artifacts.reader": ("ArtifactReader",),
        "blackboard.artifacts.owner": ("Owner", "Referrer"),
        "blackboard.artifacts.collection": ("Collected",),
    },
    "Remembering": {
        "blackboard.memory.memory": ("Memory",),
        "blackboard.memory.record": ("Record", "Token"),
        "blackboard.memory.new": ("New",),
        "blackboard.memory.recall": ("Recall", "Hit"),
        "blackboard.memory.ranking": ("Parts",),
        "blackboard.memory.receipt": ("Receipt",),
        "blackboard.memory.survivors": ("Survivors",),
        "blackboard.memory.upkeep": ("Tended",),
        "blackboard.memory.consolidation": ("Plan", "Group", "Applied", "Merged"),
        "blackboard.memory.migration": ("Migrated", "Standing"),
        "blackboard.memory.portable": ("Imported",),
        "blackboard.memory.embedder": ("Embedder", "Space"),
        "blackboard.memory.listing": ("Page", "Changes"),
        "blackboard.memory.finding": ("Report", "Finding"),
    },
    "Settings": {"blackboard": ("Settings", "CheckpointNamespace", "MemoryNamespace")},
    "Durability": {"blackboard.store.durability": ("Report", "Check", "prove")},
    "The engine, for adapters": {
        "blackboard.checkpoints.engine": ("Engine", "Write"),
        "blackboard.checkpoints.commit": ("Commit", "Committed"),
        "blackboard.checkpoints.channels": ("Value", "Items", "Keep", "Ref"),
        "blackboard.checkpoints.reading": ("Reading", "Snapshot"),
        "blackboard.claims.lease": ("Token",),
    },
}
"""What is public, by heading and module; methods follow from the classes."""

UNSHOWN = {
    "Inbox": {"parked"},
    "Lease": {"opened", "overdue"},
    "Claim": {"overdue"},
    "Meta": {"of"},
    "OpenEffect": {"parse"},
    "Run": {"settle", "begin", "resume", "leave"},
    "SettledEffect": {"parse", "spell"},
    "Owner": {"parse"},
    "Receipt": {"after", "names", "of", "parse", "says", "text"},
    "Space": {"of", "parse", "text"},
    "Standing": {"target"},
    "Settings": {"settings_customise_sources"},
}
"""Methods that only the library itself calls."""

HEAD = """\
# API

The public names, written from the code (`make docs`); a test compares them. Names without a module below are imported from
`blackboard`. Everything that talks to the server is `async`; besides what is said here it raises `ServerUnavailable`,
`ServerRefused` and, if it writes, `OutcomeUnknown`. [All errors](errors.md).
"""


def api() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for heading, modules in NAMES.items():
        parts.append(f"## {heading}\n")
        for module, names in modules.items():
            parts += [entry(module, name) for name in names]
    return "\n".join(parts)


def entry(module: str, name: str) -> str:
    """Return the section of one class or function."""
    value = getattr(import_module(module), name)
    title = f"### `{name}`" if module == "blackboard" else f"### `{module}.{name}`"
    lines = [title, "", text(value)]
    if not inspect.isclass(value) or is_dataclass(value):
        lines[1:1] = ["", f"`{name}{signature(value).removesuffix(' -> None')}`"]
    if not inspect.isclass(value):
        return "\n".join([*lines, ""])
    members = [row for row in (member(value, known) for known in vars(value)) if row]
    return "\n".join([*lines, "", *members, ""] if members else [*lines, ""])


def member(owner: type, name: str) -> str:
    """Return the line of one public method or property; nothing for what is inherited, private or the library's own."""
    if name.startswith("_") or name in UNSHOWN.get(owner.__name__, ()):
        return ""
    value = inspect.getattr_static(owner, name)
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if isinstance(value, property):
        return f"- `{name}`: {text(value)}"
    if not inspect.isfunction(function):
        return ""
    prefix = "await " if inspect.iscoroutinefunction(function) else ""
    prefix = "async for … in " if inspect.isasyncgenfunction(function) else prefix
    return f"- `{prefix}{name}{signature(function)}`: {text(function)}"


def signature(function: Any) -> str:
    """Spell parameters and result as they are annotated."""
    found = inspect.signature(function)
    kept = [
        known.replace(annotation=_plain(known.annotation), default=_plain_default(known))
        for name, known in found.parameters.items()
        if name not in ("self", "cls")
    ]
    made = found.return_annotation
    return str(found.replace(parameters=kept, return_annotation=made if made is found.empty else _plain(made)))


class _Spelled:
    """What is shown as it is written in the code."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __repr__(self) -> str:
        return self._words


def _plain(annotation: Any) -> Any:
    """Take the quotes off an annotation, which is text here."""
    return _Spelled(annotation) if isinstance(annotation, str) else annotation


def _plain_default(known: inspect.Parameter) -> Any:
    default = known.default
    if isinstance(default, str):
        return _Spelled(f'"{default}"')
    return _Spelled("...") if default is not known.empty and " object at " in repr(default) else default


def text(value: Any) -> str:
    """Return a docstring as one paragraph of running text per paragraph of it, its lists left as they are."""
    paragraphs = (inspect.getdoc(value) or "").split("\n\n")
    return " ".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def table(before: str) -> str:
    """Return the rows of the errors; what to do is kept from the table before."""
    advice = {row[0]: row[-1] for row in rows(before)}
    lines = ["| error | retry | is also | when | what to do |", "|---|---|---|---|---|"]
    for name in errors.__all__:
        kind: type[errors.BlackboardError] = getattr(errors, name)
        also = [
            f"`{base.__name__}`" for base in kind.__bases__ if base.__module__ == "builtins" and base is not Exception
        ]
        retry = "yes" if kind.retryable else "no"
        cells = [f"`{name}`", retry, ", ".join(also), text(kind), advice.get(f"`{name}`", "")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def rows(page: str) -> list[list[str]]:
    """Read the rows of the table of errors."""
    body = between(page)
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in body.splitlines() if line.startswith("| `")
    ]


def between(page: str) -> str:
    """Return what stands between the marks of the table."""
    return page.partition("<!-- table errors -->")[2].partition("<!-- end errors -->")[0]


def error_page(page: str) -> str:
    """Return the page of errors with its table as the code has it."""
    return page.replace(f"<!-- table errors -->{between(page)}", f"<!-- table errors -->\n\n{table(page)}\n\n")


if __name__ == "__main__":
    API.write_text(api(), "utf-8")
    ERRORS.write_text(error_page(ERRORS.read_text("utf-8")), "utf-8")
