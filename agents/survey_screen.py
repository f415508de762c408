"""What a person sees of a survey: a progress bar on a terminal, a few lines elsewhere, and a table at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

__all__ = ["Screen", "screen", "table"]


class Screen:
    """Plain lines on stderr: what happens to the team, and every quarter of the work."""

    def __init__(self, documents: int) -> None:
        self.documents = documents
        self._steps: dict[str, int] = {}
        self._done: set[str] = set()
        self._shown = 0

    def say(self, text: str) -> None:
        """Tell one thing that happened."""
        print(text, file=sys.stderr, flush=True)

    def step(self, thread: str, steps: int, *, done: bool) -> None:
        """Note how many steps a thread has, and whether it is finished."""
        self._steps[thread] = max(steps, self._steps.get(thread, 0))
        if done:
            self._done.add(thread)
        self.show(len(self._done), sum(self._steps.values()))

    def show(self, done: int, steps: int) -> None:
        """Show how far it is."""
        quarter = done * 4 // self.documents
        if quarter > self._shown:
            self._shown = quarter
            self.say(f"{done} of {self.documents} documents, {steps} steps")


class Bar(Screen):
    """A progress bar of rich, with what happens above it."""

    def __init__(self, documents: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        super().__init__(documents)
        columns = (
            TextColumn("documents"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[steps]} steps"),
            TimeElapsedColumn(),
        )  # fmt: skip
        self.progress = Progress(*columns, console=Console(stderr=True, highlight=False))
        self._task = self.progress.add_task("documents", total=documents, steps=0)

    def say(self, text: str) -> None:
        self.progress.console.print(text, markup=False)

    def show(self, done: int, steps: int) -> None:
        self.progress.update(self._task, completed=done, steps=steps)


@contextmanager
def screen(documents: int, *, plain: bool) -> Iterator[Screen]:
    """Give a bar if there is a terminal and rich to draw it, else plain lines."""
    if plain or not sys.stderr.isatty() or find_spec("rich") is None:
        yield Screen(documents)
        return
    bar = Bar(documents)
    with bar.progress:
        yield bar


def table(rows: Sequence[tuple[str, str]]) -> str:
    """Lay out names and values in two columns, numbers to the right."""
    left = max(len(name) for name, _ in rows)
    right = max((len(value) for _, value in rows if _number(value)), default=0)
    return "\n".join(f"{name:<{left}}  {value.rjust(right) if _number(value) else value}" for name, value in rows)


def _number(value: str) -> bool:
    return value.replace(".", "", 1).isdigit()
