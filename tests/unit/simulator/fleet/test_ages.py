"""The ages of readings and commands in a run that meets an outage, against what the service was sent and when."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from agent.wire.encoding import parse_time
from simulator.fleet.metrics.ages import COMMAND_AGE, READING_AGE, shown_ages
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.outcomes import OutcomeClass
from tests.support.virtual_fleet.engines import TAKES_S
from tests.support.virtual_fleet.scenarios import CONTEXTS, Looker, merged
from tests.support.virtual_fleet.service import CUT, FINAL, NEVER, UNREACHABLE, Sent
from tests.support.virtual_fleet.virtual_time import EPOCH_S, START_S

AWAY_S, SILENT_S = (2.0, 6.0), (10.0, 13.0)
PING, SING = 1.0, 0.5
LOAD = {
    "target": {"timeout_s": 2},
    "phases": [{"name": "first", "kind": "hold", "duration_s": 30}],
    "drain_s": 90,
    "thresholds": ["readings.age.p99 < 1s", "readings.rate > 1/s"],
}
DEVICES = {
    "commands": [
        {"payload": {"command": "ping"}, "rate_per_s": PING},
        {"payload": {"command": "sing"}, "rate_per_s": SING, "expect": "rejected"},
    ],
    # Devices lose their power now and then: an age goes on over a restart.
    "faults": [{"kind": "reboot_loop", "at_s": 0, "duration_s": 30, "up_s": 9, "down_s": 1}],
    "thresholds": ["readings.age.p99 < 1s", "readings.rate > 1/s", "commands.age.p90 < 1s", "commands.rate > 0.1/s"],
}


def outage(sent: Sent):
    """Nobody is there for a while; later what comes gets no answer."""
    if AWAY_S[0] <= sent.at_s < AWAY_S[1]:
        return UNREACHABLE if sent.target.startswith("/") else CUT
    return NEVER if SILENT_S[0] <= sent.at_s < SILENT_S[1] else None


def agree(tally, ages_s: Sequence[float]) -> None:
    """The percentiles of a histogram are those of the ages."""
    found, ages_s = Histogram.decode(tally.response), sorted(ages_s)
    assert tally.count == len(ages_s) > 20
    for percent in (10.0, 50.0, 90.0, 99.0, 99.9):
        age_s = ages_s[math.ceil(len(ages_s) * percent / 100) - 1]
        assert found.percentile(percent) == pytest.approx(age_s, rel=0.005, abs=0.002), percent


@pytest.mark.parametrize("context", ["core-poll", "core-hold", "core-mqtt", "requests"])
def test_ages_are_what_the_service_says_from_the_reading_or_the_plan_to_the_answer(tmp_path, context):
    document = merged(CONTEXTS[context], LOAD if context == "requests" else {**LOAD, **DEVICES})
    run = Looker(tmp_path)(document, outage).run
    answered_s = 2 * TAKES_S if context == "core-mqtt" else TAKES_S
    began_s = EPOCH_S + run.service.began_s - START_S
    readings_s = {
        (sent.device, reading["recorded_at"]): began_s + sent.at_s + answered_s - parse_time(reading["recorded_at"])
        for sent in reversed(run.batches)
        if outage(sent) is None
        for reading in sent.readings
    }
    agree(run.record.operations[READING_AGE][OutcomeClass.OK], list(readings_s.values()))
    assert run.record.audit.readings.lost == 0
    assert [result.held for result in run.record.thresholds][:2] == [False, True], "an outage is seen in the ages"
    if context == "requests":
        return
    ids = iter(run.service.commands)
    due_s = {}
    for order in run.orders:
        if outage(order) is None:
            stream, serial = map(int, order.headers["idempotency-key"].split("-")[-2:])
            due_s[next(ids)] = (serial + 0.5) / (PING, SING)[stream]
    ended_s = {}
    for sent in reversed(run.of("POST /devices/*/commands/*/result", "result")):
        if outage(sent) is None and sent.json()["status"] in FINAL:
            ended_s[sent.target.split("/")[-2]] = sent.at_s + answered_s
    agree(shown_ages(run.record.operations)[COMMAND_AGE][OutcomeClass.OK], [ended_s[one] - due_s[one] for one in due_s])
    assert len(due_s) == round(30 * (PING + SING))
    assert [result.held for result in run.record.thresholds][2:] == [False, True]
