"""An artifact of any size passes put and open in the memory of a few chunks."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from blackboard.testing.servers import Server

ROOT = Path(__file__).parents[2]
MIB = 1 << 20


@pytest.mark.parametrize("count", [32, pytest.param(200, marks=pytest.mark.chaos)])
async def test_memory_is_bounded(solo: Server, tmp_path: Path, count: int) -> None:
    """Eight chunks at most, of which the artifact has 32 or 200: peak memory of a process that does nothing else."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.artifacts.weigh", solo.url, str(tmp_path), str(count),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await child.communicate()
    assert child.returncode == 0
    grown = json.loads(out)
    sys.stdout.write(
        f"\n{count} MiB: peak memory grew by {grown['put'] / MIB:.1f} MiB in put, {grown['open'] / MIB:.1f} in all\n"
    )
    assert grown["size"] == count * MIB
    assert grown["put"] <= 8 * MIB
    assert grown["open"] <= 8 * MIB
