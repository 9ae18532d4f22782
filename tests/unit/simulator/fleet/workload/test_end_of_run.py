"""What is under way when a run is over, on virtual time: a target that stands still at the end is seen."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from simulator.fleet.record import VerdictStatus
from simulator.fleet.run import fleet_run
from tests.virtual_fleet.scenarios import CONTEXTS, Looker, frozen, merged

LATE = {"target": {"timeout_s": 60}, "thresholds": ["http.poll.p99 < 1s", "http.sensor_data.p99 < 1s"]}
LATE_MQTT = {"target": {"timeout_s": 60}, "thresholds": ["mqtt.sensor_data.p99 < 1s"]}


@pytest.fixture
def looker(tmp_path):
    return Looker(tmp_path)


def test_polls_and_readings_that_hang_at_the_end_count_as_timeouts_and_fail_thresholds(looker):
    run = looker(merged(CONTEXTS["core-poll"], LATE), frozen).run
    assert run.count("http.poll", "timeout") == run.count("http.sensor_data", "timeout") == 6
    assert [result.held for result in run.record.thresholds] == [False, False]
    assert run.record.duration_s > 16, "the drain waits for polls that were due before it"


def test_polls_that_are_answered_are_no_timeouts_and_the_drain_does_not_wait(looker):
    run = looker(merged(CONTEXTS["core-poll"], LATE)).run
    assert run.count("http.poll", "timeout") == run.count("http.sensor_data", "timeout") == 0
    assert [result.held for result in run.record.thresholds] == [True, True]
    assert run.record.duration_s < 13


def test_polls_that_the_service_holds_count_when_their_time_is_over_and_not_before(looker):
    calm = looker(CONTEXTS["core-hold"]).run
    assert calm.count("http.long_poll", "timeout") == 0
    stuck = looker(merged(CONTEXTS["core-hold"], {"target": {"timeout_s": 60}}), frozen).run
    assert stuck.count("http.long_poll", "timeout") == 6


def test_messages_that_a_broker_takes_and_nobody_confirms_at_the_end_are_counted(looker):
    run = looker(merged(CONTEXTS["core-mqtt"], LATE_MQTT), frozen).run
    assert run.count("mqtt.receipt", "timeout") == 6


def test_a_run_in_which_the_conductors_clock_jumps_is_not_judged(looker, monkeypatch):
    monkeypatch.setattr(fleet_run, "WallClock", lambda: SimpleNamespace(new_jump=lambda: "the clock jumped"))
    verdict = looker(CONTEXTS["core-poll"]).run.record.verdict
    assert verdict.word is VerdictStatus.INCONCLUSIVE
    assert verdict.sentences[0] == "the conductor: the clock jumped"
