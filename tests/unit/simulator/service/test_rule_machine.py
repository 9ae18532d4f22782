"""The rules' state machine on virtual time: no service, no storage."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.service.core.rule_machine import LATE_MS, Condition, Phase, State, Step, due_ms, elapse, observe

HOT = Condition("t", ">", 60, 30_000)
AT_ONCE = Condition("t", ">", 60, 0)


@dataclass
class Run:
    """A rule with one device; the times at which it fired."""

    condition: Condition
    state: State | None = None
    fired: list[int] = field(default_factory=list)

    def take(self, step: Step, at_ms: int) -> None:
        self.state = step.state
        if step.fires:
            self.fired.append(at_ms)

    def reading(self, value: float, at_ms: int, *, now_ms: int | None = None) -> None:
        now_ms = at_ms if now_ms is None else now_ms
        self.take(observe(self.condition, self.state, value, at_ms, now_ms), now_ms)

    def timer(self, until_ms: int) -> None:
        """As the service's clock does it: at the instant at which it falls due."""
        at = None if self.state is None else due_ms(self.condition, self.state)
        if at is not None and at <= until_ms:
            self.take(elapse(self.condition, self.state, at), at)


@pytest.mark.parametrize(
    ("op", "meets", "misses"),
    [(">", 61, 60), (">=", 60, 59.9), ("<", 59, 60), ("<=", 60, 60.1), ("==", 60.0, 61), ("!=", 61, 60)],
)
def test_every_comparison_is_what_it_says(op, meets, misses):
    condition = Condition("t", op, 60, 0)
    assert condition.holds(meets)
    assert not condition.holds(misses)


def test_without_a_duration_it_fires_with_the_first_reading_that_meets_it_and_once_only():
    run = Run(AT_ONCE)
    for at, value in enumerate([50, 61, 70, 61, 60, 62, 63, 10, 61]):
        run.reading(value, at)
    assert run.fired == [1, 5, 8]


def test_it_fires_when_the_time_has_passed_without_any_further_reading():
    run = Run(HOT)
    run.reading(61, 1_000)
    run.timer(30_999)
    assert run.fired == []
    run.timer(31_000)
    assert run.fired == [31_000]
    run.timer(99_000)
    assert run.fired == [31_000]


def test_a_break_begins_the_time_anew():
    run = Run(HOT)
    for value, at in ((61, 0), (60, 29_999), (61, 30_000)):
        run.timer(at)
        run.reading(value, at)
    run.timer(59_999)
    assert run.fired == []
    run.timer(60_000)
    assert run.fired == [60_000]


def test_a_reading_that_is_older_than_one_that_was_seen_changes_nothing():
    run = Run(HOT)
    run.reading(61, 20_000)
    before = run.state
    run.reading(10, 19_999, now_ms=25_000)
    assert run.state == before
    run.timer(50_000)
    assert run.fired == [50_000]


def test_a_device_whose_clock_is_ahead_is_taken_at_the_time_of_its_arrival():
    run = Run(HOT)
    run.reading(61, 9_000_000, now_ms=1_000)
    assert run.state == State(Phase.HOLDING, 1_000, 1_000)
    run.reading(10, 9_000_001, now_ms=2_000)
    assert run.state == State(Phase.ARMED, None, 2_000)


def test_a_clock_that_was_set_back_does_not_deafen_a_rule():
    run = Run(HOT)
    run.reading(61, 1_000_000)
    run.reading(61, 5_000)
    assert run.state == State(Phase.HOLDING, 5_000, 5_000)
    run.timer(35_000)
    assert run.fired == [35_000]


def test_what_was_hot_yesterday_fires_nothing_and_does_not_keep_what_is_hot_now_from_firing():
    yesterday, now = 0, 86_400_000
    for condition, fires_at in ((AT_ONCE, now), (HOT, now + 30_000)):
        run = Run(condition)
        for second in range(0, 600, 10):
            run.reading(61, yesterday + second * 1000, now_ms=now)
        run.timer(now)
        assert run.fired == []
        run.reading(61, now)
        run.timer(now + 30_000)
        assert run.fired == [fires_at]


def test_a_reading_fires_up_to_the_bound_and_not_beyond():
    now = 86_400_000
    for age, fired in ((LATE_MS, [now]), (LATE_MS + 1, [])):
        run = Run(AT_ONCE)
        run.reading(61, now - age, now_ms=now)
        assert run.fired == fired


@pytest.mark.parametrize("phase", [Phase.HOLDING, Phase.FIRED])
def test_a_late_reading_ends_a_condition_only_when_it_is_newer_than_the_last_one(phase):
    now = 86_400_000
    begun = State(phase, 1_000_000, 1_000_000)
    condition = Condition("t", ">", 60, 80_000_000)
    assert observe(condition, begun, 10, 999_999, now).state == begun
    assert observe(condition, begun, 10, 2_000_000, now) == Step(State(Phase.ARMED, None, 2_000_000))
    assert observe(condition, begun, 61, 2_000_000, now) == Step(State(phase, 1_000_000, 2_000_000))


readings = st.lists(st.tuples(st.integers(0, 40_000), st.integers(55, 65)), max_size=40)


def in_order(steps):
    at = 0
    for gap, value in steps:
        at += gap
        yield at, value


def expected(condition, steps, end):
    """By the definition: stretches of readings that meet it, each fires when it lasted until something ended it."""
    fired, began, done = [], None, False
    for at, value in [*in_order(steps), (end, None)]:
        if began is not None and not done and at - began >= condition.for_ms:
            fired.append(began + condition.for_ms)
            done = True
        if value is None:
            break
        if condition.holds(value):
            if began is None:
                began, done = at, condition.for_ms == 0
                fired += [at] if done else []
        else:
            began, done = None, False
    return fired


@given(readings, st.sampled_from([0, 1, 10_000, 30_000]), st.integers(0, 50_000))
def test_it_fires_once_for_each_stretch_that_lasts_long_enough(steps, for_ms, rest):
    run = Run(Condition("t", ">", 60, for_ms))
    at = 0
    for at, value in in_order(steps):
        run.timer(at)
        run.reading(value, at)
    run.timer(at + rest)
    assert run.fired == expected(run.condition, steps, at + rest)


a_few_minutes = st.lists(st.tuples(st.integers(0, 20_000), st.integers(55, 65)), max_size=40)


@given(a_few_minutes, st.sampled_from([0, 1, 10_000, 30_000]), st.integers(0, 50_000))
def test_a_timer_that_never_runs_and_a_backlog_of_minutes_lead_to_as_many_firings(steps, for_ms, rest):
    condition = Condition("t", ">", 60, for_ms)
    run = Run(condition)
    end = sum(gap for gap, _ in steps)
    for at, value in in_order(steps):
        run.reading(value, at, now_ms=end)
    run.timer(end + rest)
    assert len(run.fired) == len(expected(condition, steps, end + rest))


@given(st.lists(st.tuples(st.integers(0, 90_000), st.integers(0, 90_000), st.integers(55, 65)), max_size=40))
def test_whatever_comes_it_never_fires_twice_without_a_reading_that_ended_the_condition(steps):
    run = Run(Condition("t", ">", 60, 5_000))
    ended = True
    for recorded, now, value in steps:
        before = len(run.fired)
        run.timer(now)
        run.reading(value, recorded, now_ms=now)
        assert len(run.fired) <= before + 1
        if len(run.fired) > before:
            assert ended
            ended = False
        if run.state.phase is Phase.ARMED:
            ended = True
        assert run.state.observed_ms <= now


moments = st.integers(0, 4 * LATE_MS)


@given(st.lists(st.tuples(moments, moments, st.integers(55, 65)), max_size=40), st.sampled_from([0, 1, 600_000]))
def test_whatever_came_before_it_a_late_reading_fires_nothing_and_begins_nothing(steps, for_ms):
    run = Run(Condition("t", ">", 60, for_ms))
    for recorded, now, value in steps:
        run.timer(now)
        before, fired = run.state, len(run.fired)
        run.reading(value, recorded, now_ms=now)
        if recorded < now - LATE_MS and (before is None or before.observed_ms <= now):
            assert len(run.fired) == fired
            assert run.state.since_ms in {None, before.since_ms if before else None}
