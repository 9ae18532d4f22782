from __future__ import annotations

import pytest

from simulator.fleet.run.workers import WALL_CLOCK_S, WallClock


@pytest.mark.parametrize(
    ("jump_s", "text"),
    [
        (130.0, "jumped ahead by 130 s in the middle of the run: it was set, or the machine slept"),
        (-130.0, "jumped back by 130 s in the middle of the run: it was set"),
    ],
)
def test_a_wall_clock_that_jumps_is_reported_once(jump_s, text):
    now = {"wall": 1_767_225_600.0, "monotonic": 50.0}
    clock = WallClock(lambda: now["wall"], lambda: now["monotonic"])
    now = {"wall": now["wall"] + 600, "monotonic": 650.0}
    assert clock.new_jump() is None
    now["wall"] += jump_s
    assert clock.new_jump() == f"the clock of its machine {text}"
    now["wall"] += jump_s
    assert clock.new_jump() is None


def test_what_a_time_server_corrects_in_small_steps_is_no_jump():
    readings = iter([0.0, -WALL_CLOCK_S, WALL_CLOCK_S])
    clock = WallClock(lambda: next(readings), lambda: 0.0)
    assert clock.new_jump() is None
    assert clock.new_jump() is None
