from __future__ import annotations

import asyncio
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.fleet.engine.timers import FIRES_PER_TURN, Call, LoopClock, Timer, Timers
from tests.support.virtual_clock import VirtualClock


class Rig:
    """Timers on virtual time that writes down what fired, and when."""

    def __init__(self, start_s: float = 1000.0) -> None:
        self.clock = VirtualClock(start_s)
        self.timers = Timers(self.clock)
        self.fired: list[tuple[float, str]] = []

    def timer(self, name: str) -> Call:
        return Call(lambda: self.fired.append((self.clock.time(), name)))


def test_an_exception_does_not_stop_the_others():
    rig = Rig()

    def fail() -> None:
        raise ValueError("planned")

    rig.timers.at(1001.0, fail)
    rig.timers.at(1001.0, rig.timer("after it"))
    with pytest.raises(ValueError, match="planned"):
        rig.clock.run_until(1001)
    rig.clock.run_until(1001)
    assert rig.fired == [(1001.0, "after it")]


def test_a_crowd_is_woken_in_turns_so_that_others_get_the_loop_between():
    rig = Rig()
    for _ in range(FIRES_PER_TURN + 1):
        rig.timers.at(1001.0, rig.timer("crowd"))
    seen: list[int] = []
    rig.clock.call_at(1001.0, lambda: seen.append(len(rig.fired)))
    rig.clock.run_until(1001.0)
    assert seen == [FIRES_PER_TURN]
    assert len(rig.fired) == FIRES_PER_TURN + 1


def test_a_timer_that_is_set_to_far_and_near_times_in_turn_has_two_places_and_not_one_more_each_time():
    rig = Rig()
    timer = rig.timer("device")
    for second in range(1, 100):
        rig.timers.at(5000.0, timer)
        rig.timers.at(1000.0 + second, timer)
        rig.clock.run_until(1000.0 + second)
    assert len(rig.timers._heap) <= 2
    rig.timers.at(5000.0, timer)
    rig.clock.run_until(9000.0)
    assert [at_s for at_s, _ in rig.fired] == [*range(1001, 1100), 5000.0]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_any_order_of_making_moving_and_dropping_fires_as_a_sorted_list_would(seed):
    chance = random.Random(seed)
    rig = Rig(start_s := chance.choice([0.0, 12.5, 31.99, 86_400 * 30.0]))
    names = itertools.count()
    due: dict[str, float] = {}
    timers: dict[str, Timer] = {}
    expected: list[tuple[float, str]] = []
    now_s = start_s
    for _ in range(120):
        step = chance.random()
        due_s = now_s + chance.choice([0, 0.01, 0.3, 5, 40, 500, 20_000]) * chance.random()
        if step < 0.5 or not due:
            name = str(next(names))
            timers[name] = rig.timers.at(due_s, rig.timer(name))
            due[name] = due_s
        elif step < 0.85:
            name = chance.choice(sorted(due))
            if chance.random() < 0.5:
                timers[name].stop()
                del due[name]
            else:
                rig.timers.at(due_s, timers[name])
                due[name] = due_s
        else:
            now_s += chance.choice([0.001, 1, 33, 900]) * chance.random()
            rig.clock.run_until(now_s)
            gone = sorted((at_s, name) for name, at_s in due.items() if at_s <= now_s)
            expected += gone
            for _, name in gone:
                del due[name]
            assert sorted(rig.fired) == sorted(expected)
    rig.clock.run_until(now_s + 100_000)
    expected += [(at_s, name) for name, at_s in due.items()]
    assert sorted(rig.fired) == sorted(expected)
    assert [at_s for at_s, _ in rig.fired] == sorted(at_s for at_s, _ in rig.fired)


def test_on_a_loop_it_is_never_early():
    async def story() -> float:
        clock = LoopClock()
        timers, done = Timers(clock), asyncio.Event()
        due_s = clock.time() + 0.0104
        timers.at(due_s, done.set)
        await done.wait()
        return clock.time() - due_s

    assert asyncio.run(story()) >= 0
