"""The generator's error bars, on clocks that the test turns."""

from __future__ import annotations

import pytest

from simulator.fleet.metrics.health import LoopLag, Share, steal_ticks


class HandLoop:
    """A loop that wakes when the test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.due: list[tuple[float, object]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when, callback):
        entry = (when, callback)
        self.due.append(entry)
        loop = self

        class Cancelable:
            def cancel(self) -> None:
                loop.due.remove(entry)

        return Cancelable()

    def wake(self, now_s: float) -> None:
        self.now_s = now_s
        for entry in [each for each in self.due if each[0] <= now_s]:
            self.due.remove(entry)
            entry[1]()


def test_a_loop_that_hangs_now_is_told_of_before_it_wakes():
    loop = HandLoop()
    lag = LoopLag(loop, 0.05, loop.time)
    lag.start()
    loop.now_s += 3.05
    assert lag.take() == pytest.approx(3.0)


def test_a_machine_that_slept_stood_still_although_its_monotonic_clock_did_not_go_on():
    loop = HandLoop()
    slept_s = 0.0
    lag = LoopLag(loop, 0.05, lambda: loop.now_s + slept_s)
    lag.start()
    loop.wake(100.9)
    assert lag.take_stood_still() == 0.0, "a busy machine is no standstill"
    slept_s = 30.0
    loop.wake(101.0)
    assert lag.take_stood_still() == pytest.approx(30.05)
    assert lag.take_stood_still() == 0.0


def test_what_a_loop_was_late_before_the_load_began_is_no_standstill():
    loop = HandLoop()
    lag = LoopLag(loop, 0.05, loop.time)
    lag.start()
    loop.now_s += 7.0  # it makes devices
    lag.begin(loop.now_s + 0.25)
    loop.wake(loop.now_s + 0.01)
    assert (lag.take(), lag.take_stood_still()) == (0.0, 0.0)


def test_steal_is_the_share_of_all_cpu_time():
    texts = iter(
        (
            "cpu 100 0 100 700 0 0 0 100 0 0\ncpu0 1",
            "cpu 150 0 120 800 0 0 0 130 9 0\n",
            "cpu 152 0 120 800 0 0 0 130 9 0\n",
            "cpu 200 0 120 852 0 0 0 130 9 0\n",
            "cpu 1 2\n",
            "cpu x",
        )
    )
    steal = Share(lambda: steal_ticks(lambda: next(texts)), 10)
    assert steal.take() == pytest.approx(15.0)
    assert steal.take() == pytest.approx(15.0)
    assert [steal.take() for _ in range(3)] == [0.0, 0.0, 0.0]
