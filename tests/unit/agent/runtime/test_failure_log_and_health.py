from __future__ import annotations

import logging

from agent.runtime.failure_log import FailureLog, LineRate
from agent.runtime.health import Health
from tests.fakes import FakeClock


def make(clock: FakeClock) -> FailureLog:
    return FailureLog(logging.getLogger("failures"), lambda: clock.now().monotonic_s, 300.0)


def test_the_same_failure_is_reported_once_and_then_with_its_count(caplog):
    clock = FakeClock()
    failure_log = make(clock)
    assert failure_log.report("network", "it is down")
    for _ in range(5):
        clock.advance(10)
        assert not failure_log.report("network", "it is down")
    clock.advance(300)
    assert failure_log.report("network", "it is down")
    assert [record.message for record in caplog.records] == [
        "it is down",
        "it is down (and 5 times more since the last line)",
    ]


def test_different_failures_do_not_hide_each_other(caplog):
    failure_log = make(FakeClock())
    failure_log.report("a", "one")
    failure_log.report("b", "two")
    assert [record.message for record in caplog.records] == ["one", "two"]


def test_an_hourly_failure_is_reported_hourly(caplog):
    clock = FakeClock()
    failure_log = make(clock)
    for _ in range(24 * 60):
        failure_log.report("keys", "wrong keys", every_s=3600)
        clock.advance(60)
    assert len(caplog.records) == 24


def test_the_end_is_reported_only_of_what_was_reported(caplog):
    caplog.set_level(logging.INFO)
    failure_log = make(FakeClock())
    assert not failure_log.recovered("network", "it is up")
    failure_log.report("network", "it is down")
    assert failure_log.recovered("network", "it is up")
    assert not failure_log.recovered("network", "it is up")
    assert [record.message for record in caplog.records] == ["it is down", "it is up"]


def test_ten_thousand_different_failures_take_bounded_memory():
    failure_log = make(FakeClock())
    for number in range(10_000):
        failure_log.report(f"topic {number}", "text")
    assert len(failure_log._reported) <= 256


def test_health_tells_a_change_of_state_and_keeps_since_when():
    clock = FakeClock()
    changes: list[int] = []
    health = Health(clock, lambda: changes.append(1))
    health.put("readings", "ok")
    since = health.parts()["readings"].since_wall_s
    clock.advance(60)
    health.put("readings", "ok", "still")
    assert len(changes) == 1
    assert health.parts()["readings"].since_wall_s == since
    health.put("readings", "unreachable", "no network")
    assert len(changes) == 2
    assert health.parts()["readings"].since_wall_s == since + 60
    assert health.summary() == "readings unreachable"


def test_lines_without_end_are_some_a_minute_and_one_with_the_count_of_the_others(caplog):
    clock = FakeClock()
    lines = LineRate(logging.getLogger("lines"), lambda: clock.now().monotonic_s, logging.WARNING, most=5)
    for _ in range(10 * 60):
        for number in range(100):
            lines.write("command=%d", number)
        lines.sum_up("%d more")
        clock.advance(1.0)
    messages = [record.message for record in caplog.records]
    assert len([each for each in messages if each.startswith("command=")]) == 50
    counted = [int(each.split()[0]) for each in messages if each.endswith("more")]
    assert len(counted) == 10
    # None is missing in the counts but those of the running minute.
    assert 60_000 - 6_000 <= sum(counted) + 50 <= 60_000
