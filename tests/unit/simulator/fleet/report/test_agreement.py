"""Whether a folder fits together; what is damaged in it, and how that is found, is in tests/damage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.fleet.record import Verdict, VerdictStatus, WorkerGap
from simulator.fleet.report.agreement import Agreement, doubted
from tests.fleet_runs import Shape, a_run

RECORD, SECONDS = a_run(Shape(duration_s=20, rate_per_s=40, good=True))


def doubts(tmp_path, record=RECORD, seconds=SECONDS):
    agreement = Agreement(replace(record, thresholds=(), scenario_text=""), tmp_path)
    assert list(agreement.passed_on(seconds)) == list(seconds)
    return agreement.doubts()


def test_a_whole_run_leaves_no_doubt(tmp_path):
    assert doubts(tmp_path) == ()


def test_seconds_within_a_gap_are_accounted_for(tmp_path):
    record = replace(RECORD, gaps=(WorkerGap(0, 5.0, 7.0, "killed"),), verdict=Verdict(VerdictStatus.INCONCLUSIVE, 3))
    assert doubts(tmp_path, record, SECONDS[:5] + SECONDS[7:]) == ()
    (said,) = doubts(tmp_path, record, SECONDS[:5] + SECONDS[8:])
    assert "lacks 1 of 20 seconds (7)" in said


def test_a_run_that_ended_early_is_not_blamed_for_seconds_that_nobody_wrote(tmp_path):
    record = replace(RECORD, partial="it ended after 9 s of 20 s", verdict=Verdict(VerdictStatus.INTERRUPTED, 130))
    assert doubts(tmp_path, record, SECONDS[:9]) == ()


def test_a_number_that_no_run_reaches_is_found_without_counting_up_to_it(tmp_path):
    (said,) = doubts(tmp_path, replace(RECORD, duration_s=1e15))
    assert "lacks 999,999,999,999,980 of 1,000,000,000,000,000 seconds (20, 21, 22, 23, 24 and" in said


@pytest.mark.parametrize(
    ("word", "code", "then"),
    [
        (VerdictStatus.PASSED, 0, VerdictStatus.INCONCLUSIVE),
        (VerdictStatus.FAILED, 1, VerdictStatus.FAILED),
        (VerdictStatus.LOST, 4, VerdictStatus.LOST),
    ],
)
def test_a_doubt_takes_a_pass_away_and_no_finding(word, code, then):
    found = doubted(Verdict(word, code, ("because",)), ("a second is missing",))
    assert found.word is then
    assert set(found.sentences) == {"because", "a second is missing"}
    assert doubted(Verdict(word, code, ("because",)), ()) == Verdict(word, code, ("because",))
