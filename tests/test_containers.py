"""The official images of Redis and Valkey, where there is Docker: `pytest -m docker`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from blackboard.store.client import Store
from blackboard.testing.contracts.adapter import AdapterContract
from blackboard.testing.contracts.endings import EndingsContract
from blackboard.testing.contracts.engine import EngineContract
from blackboard.testing.contracts.leases import LeaseContract

IMAGES = ["redis:6.2-alpine", "redis:8-alpine", "valkey/valkey:8-alpine"]
DURABLE = "--appendonly yes --appendfsync always --maxmemory-policy noeviction"


def docker_missing() -> str | None:
    """Say why no container can be started here, or None."""
    if shutil.which("docker") is None:
        return "the command docker is not on PATH"
    asked = subprocess.run(["docker", "info"], capture_output=True, text=True, timeout=10, check=False)
    return (
        None
        if asked.returncode == 0
        else f"no Docker daemon answers: {asked.stderr.strip() or asked.stdout.strip()[-200:]}"
    )


MISSING = docker_missing()
if MISSING is not None:
    pytest.skip(MISSING, allow_module_level=True)


@pytest.fixture(scope="module", params=IMAGES)
def image(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a container of each image."""
    core = pytest.importorskip("testcontainers.core.container", reason="install agent-blackboard[testing]")
    waiting = pytest.importorskip("testcontainers.core.waiting_utils")
    server = "valkey-server" if "valkey" in request.param else "redis-server"
    with core.DockerContainer(request.param).with_command(f"{server} {DURABLE}").with_exposed_ports(6379) as container:
        waiting.wait_for_logs(container, "Ready to accept connections", timeout=60)
        yield f"redis://{container.get_container_host_ip()}:{container.get_exposed_port(6379)}"


@pytest_asyncio.fixture
async def store(image: str) -> AsyncIterator[Store]:
    connected = await Store.connect(image)
    yield connected
    await connected.close()


@pytest.mark.docker
class TestEngine(EngineContract):
    pass


@pytest.mark.docker
class TestAdapter(AdapterContract):
    pass


@pytest.mark.docker
class TestEndings(EndingsContract):
    pass


@pytest.mark.docker
class TestLeases(LeaseContract):
    pass
