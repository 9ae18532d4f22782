from __future__ import annotations

import asyncio
import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.fleet.engine.wheel import FIRES_PER_TURN, Call, LoopClock, Timer, Wheel
from tests.virtual_clock import VirtualClock


class Rig:
    """A wheel on virtual time that writes down what fired, and when."""

    def __init__(self, start_s: float = 1000.0) -> None:
        self.clock = VirtualClock(start_s)
        self.wheel = Wheel(self.clock)
        self.fired: list[tuple[float, str]] = []

    def timer(self, name: str) -> Call:
        return Call(lambda: self.fired.append((self.clock.time(), name)))


def test_each_fires_at_its_own_time_whatever_bucket_it_was_filed_in():
    rig = Rig()
    for wait_s in (0.0, 0.001, 0.2, 7.99, 8.0, 119.9, 120.0, 127.99, 128.0, 3_600.5, 90_000.25):
        rig.wheel.at(1000 + wait_s, rig.timer(str(wait_s)))
    rig.clock.run_until(100_000)
    assert [(at_s - 1000, float(name)) for at_s, name in rig.fired] == [
        (pytest.approx(float(name), abs=1e-9), float(name)) for _, name in rig.fired
    ]
    assert len(rig.fired) == 11
    assert rig.clock.next_s() == math.inf  # an empty wheel wakes nobody


def test_what_is_past_fires_next_and_equal_times_in_the_order_they_were_filed():
    rig = Rig()
    for name in "abc":
        rig.wheel.at(1000.5, rig.timer(name))
    rig.wheel.at(3.0, rig.timer("past"))
    rig.clock.run_until(1001)
    assert [name for _, name in rig.fired] == ["past", "a", "b", "c"]
    assert rig.fired[0][0] == 1000.0


@pytest.mark.parametrize("ahead_s", [1.0, 9.0, 119.0, 121.0, 127.0, 129.0, 1_000.0])
def test_equal_times_keep_their_order_however_far_ahead_each_was_filed(ahead_s):
    rig = Rig()
    due_s = 2_000.0
    rig.wheel.at(due_s, rig.timer("first"))
    rig.wheel.at(due_s - ahead_s, lambda: rig.wheel.at(due_s, rig.timer("second")))
    rig.clock.run_until(3_000)
    assert rig.fired == [(due_s, "first"), (due_s, "second")]


def test_a_timer_can_be_moved_both_ways_cancelled_and_put_off():
    rig = Rig()
    later, earlier, never, off = (rig.timer(name) for name in ("later", "earlier", "never", "off"))
    for timer in (later, earlier, never, off):
        rig.wheel.at(1010.0, timer)
    rig.wheel.at(1500.0, later)
    rig.wheel.at(1000.01, earlier)
    rig.wheel.cancel(never)
    rig.wheel.put_off(off)
    rig.clock.run_until(1400)
    assert rig.fired == [(1000.01, "earlier")]
    rig.wheel.at(1600.0, off)
    rig.clock.run_until(2000)
    assert rig.fired[1:] == [(1500.0, "later"), (1600.0, "off")]
    assert len(rig.wheel) == 0


def test_what_fires_may_make_the_next_appointment():
    rig = Rig()

    class Beat(Timer):
        def fire(self) -> None:
            rig.fired.append((rig.clock.time(), "beat"))
            rig.wheel.at(rig.clock.time() + 0.25, self)

    rig.wheel.at(1000.25, Beat())
    rig.clock.run_until(1002)
    assert [at_s for at_s, _ in rig.fired] == [1000.25 + 0.25 * n for n in range(8)]


def test_a_timer_that_has_fired_has_no_appointment():
    rig = Rig()
    timer = rig.wheel.at(1001.0, rig.timer("once"))
    assert timer.due_s == 1001.0
    rig.clock.run_until(1002)
    assert timer.due_s == math.inf


def test_infinity_is_never():
    rig = Rig()
    rig.wheel.at(math.inf, rig.timer("never"))
    rig.wheel.at(1001.0, timer := rig.timer("moved to never"))
    rig.wheel.at(math.inf, timer)
    rig.clock.run_until(1_000_000)
    assert rig.fired == []


def test_an_exception_does_not_stop_the_others():
    rig = Rig()

    def fail() -> None:
        raise ValueError("planned")

    rig.wheel.at(1001.0, fail)
    rig.wheel.at(1001.0, rig.timer("after it"))
    with pytest.raises(ValueError, match="planned"):
        rig.clock.run_until(1001)
    rig.clock.run_until(1001)
    assert rig.fired == [(1001.0, "after it")]


def test_a_crowd_is_woken_in_turns_so_that_others_get_the_loop_between():
    rig = Rig()
    for _ in range(FIRES_PER_TURN + 1):
        rig.wheel.at(1001.0, rig.timer("crowd"))
    seen: list[int] = []
    rig.clock.call_at(1001.0, lambda: seen.append(len(rig.fired)))
    rig.clock.run_until(1001.0)
    assert seen == [FIRES_PER_TURN]
    assert len(rig.fired) == FIRES_PER_TURN + 1


def test_a_time_limit_that_is_set_anew_for_each_request_costs_one_place():
    rig = Rig()
    timer = rig.timer("limit")
    for n in range(10_000):
        rig.wheel.at(1010.0 + n / 1000, timer)
        rig.wheel.put_off(timer)
    assert len(rig.wheel) == 1
    rig.clock.run_until(1100)
    assert (rig.fired, len(rig.wheel)) == ([], 0)


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
            timers[name] = rig.wheel.at(due_s, rig.timer(name))
            due[name] = due_s
        elif step < 0.85:
            name = chance.choice(sorted(due))
            {0: rig.wheel.cancel, 1: rig.wheel.put_off}.get(chance.randrange(3), lambda _: None)(timers[name])
            if timers[name].due_s == math.inf:
                del due[name]
            else:
                rig.wheel.at(due_s, timers[name])
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
        wheel, done = Wheel(clock), asyncio.Event()
        due_s = clock.time() + 0.0104
        wheel.at(due_s, done.set)
        await done.wait()
        return clock.time() - due_s

    assert asyncio.run(story()) >= 0


def test_a_timer_that_says_nothing_is_a_fault_of_the_programmer():
    rig = Rig()
    rig.wheel.at(1001.0, Timer())
    with pytest.raises(TypeError, match="does not say"):
        rig.clock.run_until(1001)
