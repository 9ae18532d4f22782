"""Back-off, schedule, polling: everything that decides when something happens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.outbox import (
    LIVE_SCAN_MAX,
    StoredItem,
    choose_next,
)
from agent.core.timekeeping import (
    MIN_GAP_S,
    PollIntervals,
    PollPace,
    ReportRule,
    ReportStrategy,
    Schedule,
    phase_s,
)
from agent.health import RETRY_AFTER_CAP_S, Backoff
from tests.support.factories import make_moment

FRACTIONS = st.floats(0, 1, exclude_max=True)

# --- back-off -----------------------------------------------------------------------------------------------------


@given(FRACTIONS, st.integers(0, 20), st.floats(0.1, 1e12))
def test_retry_after_is_never_undercut_nor_obeyed_for_ever(fraction, failures, asked_s):
    _, wait_s = Backoff(failures=failures).failed(fraction, asked_s)
    assert wait_s >= min(asked_s, RETRY_AFTER_CAP_S)
    assert wait_s <= max(300.0, RETRY_AFTER_CAP_S * 1.1)


def test_a_fleet_that_was_told_the_same_wait_does_not_come_back_in_one_step():
    waits = {Backoff().failed(fraction / 10, 60.0)[1] for fraction in range(10)}
    assert len(waits) == 10


# --- schedule -----------------------------------------------------------------------------------------------------


def test_the_phases_of_a_fleet_spread_over_the_period():
    tenths = [int(phase_s(f"device-{n}", "poll", 10.0)) for n in range(10_000)]
    assert all(800 < tenths.count(tenth) < 1200 for tenth in range(10))


@given(st.text(max_size=20), st.floats(0.1, 1e6), st.floats(0, 1e9))
def test_the_next_instant_is_after_now_and_within_one_period(device, period_s, now_s):
    schedule = Schedule.of(device, "board", period_s)
    assert 0 <= schedule.phase_s < period_s
    due_s = schedule.next_after(now_s)
    assert now_s < due_s <= now_s + period_s * 1.000001 + 1e-6


# --- polling ------------------------------------------------------------------------------------------------------


def polls(count: int, *, pace=None, took_s=0.05, **answer) -> tuple[PollPace, list[float]]:
    pace, waits = pace or PollPace(PollIntervals()), []
    for _ in range(count):
        pace, wait_s = pace.polled(**{"active": False, "held": False, **answer}, took_s=took_s, fraction=0.5)
        waits.append(wait_s)
    return pace, waits


def test_without_news_the_interval_doubles_to_slow_and_after_a_while_to_idle():
    _, waits = polls(60)
    assert waits[:5] == [2, 4, 8, 10, 10]
    assert waits[-1] == 60
    assert waits == sorted(waits)


def test_a_service_that_answers_at_once_what_it_should_have_held_does_not_make_us_spin():
    _, waits = polls(60, held=True, took_s=0.001)
    assert waits[:7] == pytest.approx([MIN_GAP_S - 0.001, 0.4, 0.8, 1.6, 3.2, 6.4, 10])
    assert waits[-1] == 60


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.floats(0, 30), FRACTIONS), max_size=50))
def test_two_polls_never_begin_closer_than_the_gap_nor_further_than_idle(answers):
    pace = PollPace(PollIntervals())
    for active, busy, held, took_s, fraction in answers:
        pace, wait_s = pace.polled(active=active, busy=busy, held=held, took_s=took_s, fraction=fraction)
        assert took_s + wait_s >= MIN_GAP_S - 1e-9
        assert wait_s <= 60 * 1.1


# --- what of a sensor is sent -----------------------------------------------------------------------------------------


def run(rule: ReportRule, *reads: tuple[float, dict[str, float]]) -> list[dict[str, float]]:
    """What is sent at each read; a read is (time, values)."""
    last, sent = {}, []
    for now_s, values in reads:
        chosen, last = rule.select(values, last, now_s)
        sent.append(chosen)
    return sent


def test_a_deadband_compares_with_the_last_value_sent_so_that_a_slow_drift_is_seen():
    rule = ReportRule(ReportStrategy.DEADBAND, 0.5)
    reads = [(n, {"t": 20 + 0.2 * n}) for n in range(7)]
    assert [bool(chosen) for chosen in run(rule, *reads)] == [True, False, False, True, False, False, True]


def test_each_reading_may_have_its_own_deadband_and_one_without_is_sent_on_change():
    rule = ReportRule(ReportStrategy.DEADBAND, {"t": 1.0})
    assert run(rule, (0, {"t": 1, "n": 1}), (1, {"t": 1.5, "n": 1}), (2, {"t": 2, "n": 2})) == [
        {"t": 1, "n": 1},
        {},
        {"t": 2, "n": 2},
    ]


@pytest.mark.parametrize("when", ["change", "deadband"])
def test_silence_has_a_bound_for_each_reading(when):
    rule = ReportRule(ReportStrategy(when), 10.0, at_least_every_s=60)
    reads = [(0, {"a": 1, "b": 1}), (30, {"a": 1, "b": 99}), (60, {"a": 1, "b": 99}), (90, {"a": 1, "b": 99})]
    assert run(rule, *reads) == [{"a": 1, "b": 1}, {"b": 99}, {"a": 1}, {"b": 99}]


# --- what of a backlog is read ----------------------------------------------------------------------------------------

NOW = make_moment(100_000.0)


def test_a_backlog_of_a_million_rows_is_not_read():
    read: list[int] = []

    def endless(step: int):
        key = 500_000
        while True:
            key += step
            read.append(key)
            yield StoredItem(key, 10, make_moment(0.0 if step > 0 else NOW.monotonic_s))

    assert len(choose_next([endless(1)], endless(-1), NOW, 50)) == 50
    assert len(read) <= 50 + LIVE_SCAN_MAX
