from __future__ import annotations

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.run.cluster.nodes import Node, place_workers


def nodes(*cores: int) -> list[Node]:
    return [Node(f"id-{at}", f"10.0.0.{at}", each) for at, each in enumerate(cores)]


@pytest.mark.parametrize(
    ("workers", "cores", "expected"),
    [
        (1, (2, 2), [1]),
        (2, (2, 2), [1, 1]),
        (4, (2, 2), [2, 2]),
        (3, (4, 2, 2), [1, 1, 1]),
        (6, (8, 2, 2), [4, 1, 1]),
        (12, (8, 2, 2), [8, 2, 2]),
    ],
)
def test_workers_are_spread_over_the_machines_with_neighbouring_numbers(workers, cores, expected):
    placements = place_workers(workers, nodes(*cores))
    assert [len(placement.workers) for placement in placements] == expected
    assert [number for placement in placements for number in placement.workers] == list(range(workers))
    assert len({placement.node.node_id for placement in placements}) == len(placements)


def test_more_workers_than_cores_are_refused_with_the_numbers():
    with pytest.raises(ConfigurationError, match=r"5 workers .* there are 4 \(10.0.0.0: 2, 10.0.0.1: 2\).*workers: 4"):
        place_workers(5, nodes(2, 2))
