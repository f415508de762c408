"""The header of a script, and whether a call sends what it names."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LIBRARY = Path(__file__).parents[1] / "blackboard"
SCRIPTS = sorted(path for path in LIBRARY.rglob("*.lua") if "\n-- KEYS:" in path.read_text("utf-8"))
PRELUDES = sorted(path for path in LIBRARY.rglob("*.lua") if path not in SCRIPTS)


@dataclass(frozen=True)
class Count:
    """How many a header names: exactly so many, or as many and more after a name that ends with dots."""

    least: int
    more: bool

    @classmethod
    def of(cls, names: str) -> Count:
        fixed, dots, _ = names.partition("...")
        found = [name for name in fixed.split(",") if name.strip()]
        return cls(len(found) - bool(dots), more=bool(dots))

    def fits(self, sent: Sequence[object]) -> bool:
        return len(sent) >= self.least if self.more else len(sent) == self.least


@dataclass(frozen=True)
class Header:
    """What a script says that it is called with."""

    keys: Count
    args: Count

    @classmethod
    @functools.cache
    def of(cls, path: Path) -> Header:
        text = path.read_text("utf-8")
        keys = re.findall(r"^-- KEYS:(.*)$", text, re.MULTILINE)
        args = re.findall(r"^-- ARGV:(.*)$", text, re.MULTILINE)
        assert len(keys) == len(args) == 1, f"{path.name} has {len(keys)} lines KEYS and {len(args)} lines ARGV"
        return cls(Count.of(keys[0]), Count.of(args[0].replace("none", "")))

    def check(self, name: str, keys: Sequence[object], args: Sequence[object]) -> None:
        """Fail unless a call fits."""
        assert self.keys.fits(keys), f"{name} names {self.keys}, but got {len(keys)} keys"
        assert self.args.fits(args), f"{name} names {self.args}, but got {len(args)} arguments"
