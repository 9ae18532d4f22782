from __future__ import annotations

import pytest

from agent.core.schedule import Reported, ReportRule, ReportStrategy


def run(rule: ReportRule, *reads: tuple[float, dict[str, float]]) -> list[dict[str, float]]:
    """What is sent at each read; a read is (time, values)."""
    last, sent = Reported(), []
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
