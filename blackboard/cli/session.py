"""What every command shares: which backend it means, how it opens it, and how it says what went wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from blackboard.board import Blackboard
from blackboard.errors import BlackboardError, ConfigError
from blackboard.runs.thread import Thread
from blackboard.settings import Settings
from blackboard.store.directory import locate

__all__ = ["AsJson", "Session", "ThreadId", "complain", "run"]

T = TypeVar("T")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
ThreadId = Annotated[str, typer.Argument(help="Id of the thread.", show_default=False)]


@dataclass(frozen=True, slots=True)
class Session:
    """The options that stand before the command."""

    url: str | None
    directory: Path | None
    profiles: tuple[Path, ...]
    namespace: str

    @classmethod
    def of(cls, context: typer.Context) -> Session:
        """Return the options of a command's context."""
        found = context.find_object(cls)
        assert found is not None, "the callback has set it"
        return found

    @property
    def settings(self) -> Settings:
        """The settings that the profiles and the environment make."""
        return Settings.load(*self.profiles)

    def with_board(self, work: Callable[[Blackboard], Awaitable[T]]) -> T:
        """Open the board without proving anything, do the work, and close it."""

        async def opened() -> T:
            settings = self.settings
            if self.url is None and settings.backend.url is None:
                self._check_directory(settings)
            async with Blackboard.open(self.url, settings=settings, directory=self.directory, proof=False) as board:
                return await work(board)

        return run(opened())

    def with_thread(self, thread: str, work: Callable[[Thread], Awaitable[T]]) -> T:
        """Open the board and do the work on one thread of the namespace."""
        return self.with_board(lambda board: work(board.thread(thread, namespace=self.namespace)))

    def _check_directory(self, settings: Settings) -> None:
        """Looking must not make a data directory where there is none."""
        data = locate(self.directory or settings.backend.directory)
        if not data.is_dir():
            raise ConfigError(
                f"there is no data directory {data}: run `blackboard up`, or name one with --directory or a server with --url",
                value=str(data),
            )


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine."""
    return asyncio.run(work)


def complain(error: BlackboardError) -> None:
    """Say what went wrong on stderr, and whether trying again can help."""
    hint = " (trying again can help)" if error.retryable else ""
    typer.echo(f"{type(error).__name__}: {error}{hint}", err=True)
