"""Write the tables of docs/reference/settings.md from the code; a test compares the page with them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from blackboard.settings import Artifacts, Backend, CheckpointNamespace, Embedding, Encryption, MemoryNamespace

PAGE = Path(__file__).parent / "reference" / "settings.md"
TABLES: dict[str, type[BaseModel]] = {
    "backend": Backend,
    "artifacts": Artifacts,
    "checkpoint": CheckpointNamespace,
    "encryption": Encryption,
    "memory": MemoryNamespace,
    "embedding": Embedding,
}
NAMES = {str: "text", bool: "true or false", float: "number"}
KINDS = {"seconds": "duration", "_expiry": "duration or none", "size": "size", "count": "count"}


def table(model: type[BaseModel]) -> str:
    """Return the Markdown table of a model's fields."""
    rows = ["| name | default | takes | meaning |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        default = (
            ""
            if field.is_required() or field.default_factory
            else f"`{'none' if field.default is None else field.default}`"
        )
        rows.append(f"| `{name}` | {default} | {_takes(field)} | {_one_line(field.description)} |")
    return "\n".join(rows)


def page(text: str) -> str:
    """Return the page's text with every table between its marks as the code has it."""
    for name, model in TABLES.items():
        marks = f"<!-- table {name} -->", f"<!-- end {name} -->"
        found = re.search(f"(?s){marks[0]}.*?{marks[1]}", text)
        if found is None:
            raise LookupError(f"{PAGE.name} has no marks for the table {name}")
        start, end = found.span()
        text = f"{text[:start]}{marks[0]}\n\n{table(model)}\n\n{marks[1]}{text[end:]}"
    return text


def _takes(field: FieldInfo) -> str:
    metadata = [*_metadata(field.annotation), *field.metadata]
    kinds = [KINDS[item.func.__name__] for item in metadata if isinstance(item, BeforeValidator)]
    kind = kinds[0] if kinds else _plain(field)
    if kind == "count" and type(None) in get_args(field.annotation):
        kind = "count or none"
    unit = " s" if kind.startswith("duration") else ""
    limits = [f"≥ {item.ge}{unit}" for item in metadata if isinstance(item, Ge)]
    limits += [f"≤ {item.le:,}{unit}" for item in metadata if isinstance(item, Le)]
    return ", ".join([kind, *limits])


def _metadata(annotation: Any) -> list[Any]:
    inner = [item for part in get_args(annotation) for item in _metadata(part)]
    return [*getattr(annotation, "__metadata__", ()), *inner]


def _plain(field: FieldInfo) -> str:
    choices = [choice for choice in get_args(field.annotation) if isinstance(choice, str)]
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    if field.annotation in NAMES:
        return NAMES[field.annotation]
    if get_origin(field.annotation) is dict or field.annotation is Embedding:
        return "table"
    if Encryption in get_args(field.annotation):
        return "table or none"
    return "path or none" if Path in get_args(field.annotation) else "text or none"


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
