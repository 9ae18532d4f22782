"""Which readings the demo excuses after it has killed the agent."""

from __future__ import annotations

import pytest

from simulator.demo.agent import last_uncommitted

TIMES = {number: 100.0 + number for number in range(1, 11)}
"""A reading each second: number 6 at 106.0."""


@pytest.mark.parametrize(
    ("killed_s", "stored", "excused"),
    [
        pytest.param(106.5, {1, 2, 3, 4, 5, 6}, set(), id="all are stored"),
        pytest.param(106.1, {1, 2, 3, 4, 5}, {6}, id="made shortly before the kill"),
        pytest.param(105.9, {1, 2, 3, 4, 5}, {6}, id="made by a program that outlived the agent"),
        pytest.param(106.1, {1, 2, 3, 5}, {6}, id="one that is missing before a stored one is lost"),
        pytest.param(106.1, {1, 2}, {5, 6}, id="none that was made long before"),
        pytest.param(106.1, set(), {5, 6}, id="nothing is stored"),
    ],
)
def test_a_kill_takes_the_last_ones_before_the_agent_is_back(killed_s, stored, excused):
    # From number 7 on the agent is back: they are stored or lost.
    assert last_uncommitted(TIMES, killed_s, 106.9, stored | {8, 9, 10}) == excused
