"""What a benchmark reports: figures, some with a target, as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

__all__ = ["Figure", "show", "spelled"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value; `target` is the bound that the design sets, on the side that `better` names."""

    name: str
    value: float
    unit: str
    target: float | None = None
    better: Literal["lower", "higher"] | None = None

    @property
    def verdict(self) -> str:
        """`met` or `MISSED`, nothing without a target."""
        if self.target is None:
            return ""
        met = self.value >= self.target if self.better == "higher" else self.value <= self.target
        return "met" if met else "MISSED"

    @property
    def bound(self) -> str:
        """The target as people write it."""
        if self.target is None:
            return ""
        return f"{'≥' if self.better == 'higher' else '≤'} {self.target:g}"


def spelled(figures: Sequence[Figure]) -> str:
    """Spell figures as a JSON list of rows; what a row does not have is left out."""
    rows = [{name: value for name, value in asdict(figure).items() if value is not None} for figure in figures]
    return json.dumps(rows, indent=1)


def show(title: str, machine: str, figures: Sequence[Figure]) -> None:
    """Print a table, with rich if it is installed."""
    print(f"{title}\n{machine}")
    rows = [(figure.name, f"{figure.value:,.4g}", figure.unit, figure.bound, figure.verdict) for figure in figures]
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        _show_plainly(rows)
        return
    table = Table()
    for heading in ("figure", "value", "unit", "target", "verdict"):
        table.add_column(heading, justify="right" if heading == "value" else "left")
    for name, value, unit, bound, verdict in rows:
        style = "bold red" if verdict == "MISSED" else "green" if verdict else ""
        table.add_row(name, value, unit, bound, verdict, style=style)
    Console().print(table)


def _show_plainly(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for name, value, *rest in rows:
        cells = (text.ljust(width) for text, width in zip(rest, widths[2:], strict=True))
        print(name.ljust(widths[0]), value.rjust(widths[1]), *cells)
