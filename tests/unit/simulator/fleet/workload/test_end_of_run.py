"""What is under way when a run is over, on virtual time: a target that stands still at the end is seen."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from agent.wire.server import NO_EXTENSIONS
from simulator.fleet.record import VerdictStatus
from simulator.fleet.report.progress import RunView
from simulator.fleet.run import lifecycle
from simulator.fleet.scenario.reading import read_scenario_file
from tests.support.virtual_fleet import stage
from tests.support.virtual_fleet.scenarios import CONTEXTS, Looker, frozen, merged
from tests.support.virtual_fleet.service import NEVER, Sent
from tests.support.virtual_fleet.stage import OFFERS, play

LATE = {
    "target": {"timeout_s": 60},
    "thresholds": ["http.poll.p99 < 1s", "http.sensor_data.p99 < 1s", "readings.age.max < 1s"],
}
LATE_MQTT = {"target": {"timeout_s": 60}, "thresholds": ["mqtt.sensor_data.p99 < 1s"]}


@pytest.fixture
def looker(tmp_path):
    return Looker(tmp_path)


def test_polls_and_readings_that_hang_at_the_end_count_as_timeouts_and_fail_thresholds(looker):
    run = looker(merged(CONTEXTS["core-poll"], LATE), frozen).run
    assert run.count("http.poll", "timeout") == run.count("http.sensor_data", "timeout") == 6
    assert [result.held for result in run.record.thresholds] == [False] * 3
    assert run.record.duration_s > 16, "the drain waits for polls that were due before it"


def test_a_device_whose_poll_alone_hangs_holds_nothing(looker):
    def hanging(sent: Sent):
        return NEVER if sent.at_s >= 6 and sent.operation == "GET /devices/*/commands" else None

    run = looker(merged(CONTEXTS["core-poll"], {"target": {"timeout_s": 60}}), hanging).run
    assert run.count("http.poll", "timeout") == 6
    assert not any("still held something" in sentence for sentence in run.record.verdict.sentences)


def test_polls_that_are_answered_are_no_timeouts_and_the_drain_does_not_wait(looker):
    run = looker(merged(CONTEXTS["core-poll"], LATE)).run
    assert run.count("http.poll", "timeout") == run.count("http.sensor_data", "timeout") == 0
    assert [result.held for result in run.record.thresholds] == [True] * 3
    assert run.record.duration_s < 13


def test_polls_that_the_service_holds_count_when_their_time_is_over_and_not_before(looker):
    calm = looker(CONTEXTS["core-hold"]).run
    assert calm.count("http.long_poll", "timeout") == 0
    stuck = looker(merged(CONTEXTS["core-hold"], {"target": {"timeout_s": 60}}), frozen).run
    assert stuck.count("http.long_poll", "timeout") == 6


def test_messages_that_a_broker_takes_and_nobody_confirms_at_the_end_are_counted(looker):
    run = looker(merged(CONTEXTS["core-mqtt"], LATE_MQTT), frozen).run
    assert run.count("mqtt.receipt", "timeout") == 6


ORDERS = {"commands": [{"payload": {"command": "ping"}, "rate_per_s": 1}]}


@pytest.mark.parametrize(
    ("context", "load", "intended", "never"), [("requests", {}, 24, 12), ("core-poll", ORDERS, 52, 6)]
)
def test_what_fell_due_and_never_ended_is_undelivered_and_fails_the_run(looker, context, load, intended, never):
    run = looker(merged(CONTEXTS[context], {**load, "target": {"timeout_s": 60}}), frozen).run
    assert (run.record.health.intended, run.record.health.undelivered) == (intended, never)
    assert run.record.verdict.word is VerdictStatus.FAILED
    said = f"{never} of {intended} intended requests never ended"
    assert any(sentence.startswith(said) for sentence in run.record.verdict.sentences)


class Interrupting(RunView):
    """Presses Ctrl-C in the middle of the run."""

    def show(self, event, source=None) -> None:
        del source
        if event.get("second") == 5:
            raise KeyboardInterrupt


@pytest.mark.parametrize("context", ["requests", "core-poll", "core-mqtt"])
def test_what_was_not_due_yet_when_somebody_ended_the_run_is_not_missing(looker, context):
    look = looker(CONTEXTS[context])
    record = play(read_scenario_file(look.path), look.folder, view=Interrupting()).record
    assert (record.verdict.word, record.verdict.exit_code) == (VerdictStatus.INTERRUPTED, 130)
    assert record.verdict.sentences[1].startswith("partial: it ended after ")
    assert record.phases[-1].end_s == record.drained_from_s == pytest.approx(6, abs=1)
    assert record.health.undelivered == 0
    assert record.audit.complete
    assert record.audit.readings.lost == 0


@pytest.mark.parametrize("is_behind", [True, False])
def test_devices_use_what_they_talk_to_and_the_operator_what_the_service_has(looker, monkeypatch, is_behind):
    service, gateway = (NO_EXTENSIONS, OFFERS) if is_behind else (OFFERS, NO_EXTENSIONS)
    monkeypatch.setattr(stage, "OFFERS", gateway)
    dialect = {"extensions": sorted(service)}
    through = {"target": {"through": "gateway", "dialect": dialect}}
    run = looker(merged(CONTEXTS["core-poll"], {**ORDERS, **through})).run
    polls = run.of("GET /devices/*/commands")
    assert {"status=open" in each.target for each in polls} == {is_behind}
    assert {"recorded_at" in each for _, _, each in run.readings} == {is_behind}
    assert {"idempotency-key" in each.headers for each in run.orders} == {not is_behind}


def test_a_run_in_which_the_coordinators_clock_jumps_is_not_judged(looker, monkeypatch):
    monkeypatch.setattr(lifecycle, "WallClock", lambda: SimpleNamespace(new_jump=lambda: "the clock jumped"))
    verdict = looker(CONTEXTS["core-poll"]).run.record.verdict
    assert verdict.word is VerdictStatus.INCONCLUSIVE
    assert verdict.sentences[0] == "the coordinator: the clock jumped"
