"""The command `blackboard`, also `python -m blackboard`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; it needs the extra `cli`."""
    try:
        from blackboard.cli.app import app
    except ModuleNotFoundError as missing:
        if missing.name not in {"typer", "rich", "click"}:
            raise
        sys.exit(f"{missing.name} is not installed; run: pip install 'agent-blackboard[cli]'")
    app()
