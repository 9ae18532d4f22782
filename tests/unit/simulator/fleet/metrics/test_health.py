"""The generator's error bars, on clocks that the test turns; and whether it was the limit, told by sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.fleet.metrics.health import Assessment, HealthProbe, Saturation
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.recorder import Totals
from simulator.fleet.record import GeneratorHealth, Second


class HandLoop:
    """A loop that wakes when the test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.due: list[tuple[float, object]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when, callback):
        self.due.append((when, callback))

    def wake(self, now_s: float) -> None:
        self.now_s = now_s
        for entry in [each for each in self.due if each[0] <= now_s]:
            self.due.remove(entry)
            entry[1]()


def test_a_machine_that_slept_stood_still_although_its_monotonic_clock_did_not_go_on():
    loop = HandLoop()
    slept_s = 0.0
    probe = HealthProbe(loop, lambda: loop.now_s + slept_s)
    loop.wake(100.9)
    assert probe.take().stood_still_s == 0.0, "a busy machine is no standstill"
    slept_s = 30.0
    loop.wake(101.0)
    assert probe.take().stood_still_s == pytest.approx(30.05)
    assert probe.take().stood_still_s == 0.0


def test_what_a_loop_was_late_before_the_load_began_is_no_standstill():
    loop = HandLoop()
    probe = HealthProbe(loop, loop.time)
    loop.now_s += 7.0  # it makes devices
    probe.begin(loop.now_s + 0.25)
    loop.wake(loop.now_s + 0.01)
    health = probe.take()
    assert (health.loop_lag_max_s, health.stood_still_s) == (0.0, 0.0)


# --- was it the limit? ---


def second(number: int, lag_s: float = 0.001, *, intended: int = 1000, sent: int = 1000, **health: float) -> Second:
    lag = Histogram()
    lag.record_many([lag_s] * 100)
    own = GeneratorHealth(lag_s, lag_s, intended=intended, sent=sent, send_lag=lag.encode(), **health)
    return Second(number, {}, {}, own)


def assess(seconds: list[Second], *, is_open: bool, is_pooled: bool = True) -> Assessment:
    saturation = Saturation()
    for each in seconds:
        saturation.add(each)
    return saturation.assess(Totals(seconds), is_open=is_open, is_pooled=is_pooled)


def test_a_core_that_is_used_up_makes_the_run_inconclusive():
    late = [second(number, 0.34, sent=900, cpu_percent=99.4, loop_lag_max_s=0.25) for number in range(43)]
    found = assess([*late, *(second(number) for number in range(43, 60))], is_open=True)
    assert " | ".join(found.saturated) == (
        "the generator was the limit in 43 of 60 s: a worker used 99 % of its core, a loop woke up 250 ms late; 1 % of "
        "all requests left 340 ms late or later: use more workers or machines, or a lower rate | "
        "the rate was not kept: 55,700 of 60,000 intended requests went out (92.8 %)"
    )
    assert found.failures == ()


def test_open_arrivals_that_a_slow_target_held_up_fail_the_run():
    seconds = [second(number, 3.0, sent=500, cpu_percent=20.0) for number in range(10)]
    found = assess(seconds, is_open=True)
    assert found.saturated == ()
    assert " | ".join(found.failures) == (
        "the target held the connections in 10 of 10 s: 1 % of all requests left 3.0 s late or later while the "
        "generator had time: a larger target.connections, or none, would keep the rate | "
        "the rate was not kept: 5,000 of 10,000 intended requests went out (50.0 %)"
    )
    alone = assess(seconds, is_open=True, is_pooled=False)
    assert alone.failures[0].endswith("while the generator had time"), "more connections are no help"
    closed = assess(seconds, is_open=False)
    assert closed.failures == closed.saturated == ()
    assert closed.notes == found.failures


def undelivered(number: int, count: int) -> Second:
    made = second(number)
    return replace(made, health=replace(made.health, undelivered=count))


def test_what_fell_due_and_never_ended_fails_the_run_whatever_was_sent():
    seconds = [*(second(number) for number in range(9)), undelivered(9, 51)]
    found = assess(seconds, is_open=True)
    told = "51 of 10,000 intended requests never ended: when the run was over they were not sent, or had no answer"
    assert found.failures == (told,)
    assert assess(seconds, is_open=False).failures == (told,)  # commands come at their time as well
    assert assess([*seconds[:9], undelivered(9, 50)], is_open=True) == Assessment()
    late = [second(number, 0.34, cpu_percent=99.4) for number in range(9)]
    assert assess([*late, undelivered(9, 51)], is_open=True).saturated[-1] == told


def test_a_standstill_makes_a_short_run_inconclusive_and_is_a_note_of_a_long_one():
    seconds = [second(0, stood_still_s=2.0), *(second(number) for number in range(1, 399))]
    (sentence,) = assess(seconds, is_open=False).saturated
    assert sentence.startswith("the generator stood still for 2.0 s ")
    longer = assess([*seconds, *(second(number) for number in range(399, 402))], is_open=False)
    assert (longer.saturated, longer.notes, longer.stood_still) == ((), (sentence,), (sentence,))
    assert assess(seconds[1:], is_open=False) == Assessment()
