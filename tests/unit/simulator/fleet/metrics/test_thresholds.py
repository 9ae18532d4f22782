"""Thresholds: what can be said, what an error says, and runs held against them: what was not measured never holds."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.fleet.device.mqtt_device import MqttOperation
from simulator.fleet.metrics.recorder import Recorder, Totals
from simulator.fleet.metrics.thresholds import (
    AUDIT_COUNTS,
    OPERATIONS,
    ThresholdError,
    judge_thresholds,
    parse,
)
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import AuditRecord, RunRecord, Second, Span, StreamAudit, ThresholdResult
from tests.support.fleet_runs import blank_record

OK, LIMITED, TIMEOUT = OutcomeClass.OK, OutcomeClass.LIMITED, OutcomeClass.TIMEOUT
ROOT = Path(__file__).parents[5]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "write WHAT.MEASURE OPERATOR VALUE"),
        ("htp.poll.p99 < 1s", "nothing is measured as 'htp.poll': write one of "),
        ("http.poll.expired.count == 0", "has no outcome 'expired'"),
        ("http.poll.p99 < 250", "250 has not its unit: write one of us"),
        ("http.poll.count == 3%", "write 3 without '%'"),
        ("http.poll.all.rate < 3%", "name an outcome, such as limited or failed"),
        ("gauges.online.p99 < 9", "gauges.online has no measure 'p99': write one of min, max, mean, last"),
        ("audit.lost == 0 over 1m", "the audit is of the whole run"),
        ("http.poll.p99 < 1s over 500ms", "a window is a whole number of seconds"),
        ("http.poll.p99 < 1s in hodl", "no phase is called 'hodl': write one of ramp, hold"),
        ("commands.age[pong].p99 < 1s", "the scenario sends no command 'pong': it sends ping"),
        ("http.poll[ping].p99 < 1s", "commands.age[ping]"),
    ],
)
def test_an_error_is_one_line_that_names_the_fix(text, words):
    with pytest.raises(ThresholdError) as caught:
        parse(text, phases=["ramp", "hold"], commands=["ping"])
    assert str(caught.value).startswith(f'threshold "{text}": ')
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_operation_that_the_fleet_measures_can_stand_in_a_threshold():
    named = {
        name
        for path in (ROOT / "simulator" / "fleet").rglob("*.py")
        for name in re.findall(r'"((?:http|mqtt|readings)\.[a-z_]+)"', path.read_text(encoding="utf-8"))
    }
    not_measured = {*(f"readings.{name}" for name in AUDIT_COUNTS), str(MqttOperation.RECEIVED)}
    assert named - not_measured == {name for name in OPERATIONS if not name.startswith("commands.")}


def test_every_threshold_of_the_documents_can_be_read():
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    section = page.partition("\n## Thresholds\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    assert len(shown) > 10
    for text in shown:
        assert parse(text, phases=["hold"]).expression == text


# --- held against a run ---

CLEAN = StreamAudit(10, 10, 10, 0, 0, 0, 0)


def run(seconds_of_exchanges, **changes) -> tuple[RunRecord, list[Second]]:
    """A run; an exchange is (outcome, seconds), of ``http.poll``."""
    totals, recorder, seconds = Totals(), Recorder(), []
    for number, exchanges in enumerate(seconds_of_exchanges):
        recorder.intended += len(exchanges)
        recorder.sent += len(exchanges)
        for outcome, took_s in exchanges:
            recorder.record("http.poll", outcome, intended_s=0.0, sent_s=took_s / 4, now_s=took_s)
        seconds.append(recorder.cut(number, {"online": 10 * number}).measured())
        totals.add(seconds[-1])
    record = blank_record(duration_s=float(len(seconds)), operations=totals.operations, health=totals.health)
    return replace(record, **changes), seconds


def result_of(expression: str, seconds_of_exchanges, **changes) -> ThresholdResult:
    record, seconds = run(seconds_of_exchanges, **changes)
    (result,) = judge_thresholds([parse(expression)], record, iter(seconds))
    return result


QUICK, SLOW = [(OK, 0.1)] * 20, [(OK, 1.0)] * 20


def test_timeouts_count_as_waiting_and_quick_refusals_do_not_help():
    seconds = [[(OK, 0.1)] * 90 + [(TIMEOUT, 10.0)] * 10 + [(LIMITED, 0.001)] * 900] * 3
    assert result_of("http.poll.p99 < 1s", seconds).observed == pytest.approx(10.0, rel=0.001)
    assert result_of("http.poll.ok.p99 < 1s", seconds).held
    assert result_of("http.poll.limited.rate < 89%", seconds).observed == pytest.approx(90.0)
    assert result_of("http.poll.failed.rate == 1%", seconds).held
    assert result_of("http.poll.failed.count == 30", seconds).held
    assert result_of("http.poll.rate == 5_400/m", seconds).held
    assert result_of("http.all.rate == 1000/s over 2s", seconds).held
    assert result_of("http.p50 > 99_000 us", seconds).held
    assert result_of("http.p50 < 0.0001h", seconds).held


AGES = {
    "commands.age[ping].failed": [2.0] * 3,
    "commands.age[ping].succeeded": [1.0] * 6,
    "commands.age[open].expired": [4.0],
}


@pytest.mark.parametrize(
    ("expression", "observed"),
    [
        ("commands.age.max < 1h", 4.0),
        ("commands.age[ping].max < 1h", 2.0),
        ("commands.age[ping].succeeded.max < 1h", 1.0),
        ("commands.count > 0", 10.0),
        ("commands.age.all.count > 0", 10.0),
        ("commands.expired.count == 0", 1.0),
        ("commands.age.failed.rate < 1%", 30.0),
    ],
)
def test_ages_of_commands_are_chosen_by_name_and_by_end_state(expression, observed):
    recorder = Recorder()
    for operation, ages in AGES.items():
        for age_s in ages:
            recorder.record(operation, OK, intended_s=0.0, sent_s=None, now_s=age_s)
    second = recorder.cut(0).measured()
    record = replace(run([])[0], operations=second.operations)
    (result,) = judge_thresholds([parse(expression, commands=["ping"])], record, [second])
    assert result.observed == pytest.approx(observed, rel=0.001)


def test_what_was_not_measured_never_holds():
    quiet = [QUICK] * 3 + [[]] * 4 + [QUICK] * 3
    window = result_of("http.poll.p99 < 1h over 2s", quiet)
    assert (window.held, window.observed, window.reason) == (False, None, "nothing was measured from 3 s to 5 s")
    for expression, reason in (
        ("http.report.count == 0", "http.report never ran (what did: http.poll)"),
        ("mqtt.p99 < 1h", "mqtt never ran (what did: http.poll)"),
        ("http.poll.timeout.p99 < 1h", "nothing was measured in 10 s"),
        ("http.poll.p99 < 1h over 1m", "no 60 s in one piece, the longest is 10 s"),
        ("http.poll.p99 < 1h in hold", "no whole second of a phase 'hold' (phases: none)"),
        ("gauges.offline.min >= 0", "nothing was measured in 10 s"),
        ("audit.lost == 0", "nothing was audited"),
        ("audit.commands.lost == 0", "nothing was audited"),
    ):
        result = result_of(expression, quiet)
        assert (result.held, result.observed, result.reason) == (False, None, reason)
    assert result_of("http.poll.timeout.count == 0", quiet).held


def test_a_phase_is_judged_by_its_own_whole_seconds():
    seconds = [SLOW] * 3 + [QUICK] * 5 + [SLOW] * 2 + [QUICK] * 5
    phases = (Span("ramp", "ramp", 0.0, 2.5), Span("hold", "hold", 2.5, 8.0), Span("hold", "hold", 10.0, 15.0))
    assert result_of("http.poll.max < 500ms in hold", seconds, phases=phases).held
    assert result_of("http.poll.max < 500ms in hold over 5s", seconds, phases=phases).held
    short = result_of("http.poll.max < 500ms in hold over 6s", seconds, phases=phases)
    assert (short.held, short.reason) == (False, "no 6 s in one piece, the longest is 5 s")
    assert result_of("http.poll.min >= 1s in ramp", seconds, phases=phases).held
    assert result_of("http.poll.rate == 20/s in hold", seconds, phases=phases).held
    gone = result_of("http.poll.max < 1s in hodl", seconds, phases=phases)
    assert gone.reason == "no whole second of a phase 'hodl' (phases: ramp, hold)"


def test_the_audit_counts_readings_and_commands_together_or_apart():
    lossy = replace(CLEAN, lost=3)
    audit = AuditRecord(readings=CLEAN, commands=lossy, complete=True)
    assert not result_of("audit.lost == 0", [QUICK], audit=audit).held
    assert result_of("audit.readings.lost == 0", [QUICK], audit=audit).held
    assert result_of("audit.stored == 20", [QUICK], audit=audit).held
    resent = AuditRecord(replace(CLEAN, resent=5, resent_ambiguous=2), CLEAN, complete=True)
    assert result_of("audit.resent == 5", [QUICK], audit=resent).held
    assert result_of("audit.readings.resent_ambiguous == 2", [QUICK], audit=resent).held
    only = AuditRecord(readings=CLEAN, commands=None, complete=True)
    assert result_of("audit.commands.lost == 0", [QUICK], audit=only).reason == "no commands were read back"


def test_an_audit_that_is_not_complete_proves_loss_and_not_its_absence():
    lossy = AuditRecord(readings=replace(CLEAN, lost=3), commands=None, complete=False)
    clean = AuditRecord(readings=CLEAN, commands=None, complete=False)
    assert result_of("audit.lost == 0", [QUICK], audit=lossy).observed == 3
    unknown = result_of("audit.lost == 0", [QUICK], audit=clean)
    assert (unknown.held, unknown.observed) == (False, None)
    assert "not complete" in unknown.reason
    assert not unknown.judged
    nothing = AuditRecord(readings=None, commands=None, complete=False)
    assert not result_of("audit.lost == 0", [QUICK], audit=nothing).judged
    partly = replace(clean, unjudged_counts=("readings.altered",))
    assert result_of("audit.lost == 0", [QUICK], audit=partly).held
    assert not result_of("audit.altered == 0", [QUICK], audit=partly).judged


def drained(*, stalled_s: float = 6.0) -> tuple[RunRecord, list[Second]]:
    """Four seconds of 20 requests, of which the last ten wait for the drain; in it, 20 more that nobody waits for."""
    totals, recorder, seconds = Totals(), Recorder(), []
    for number in range(4):
        recorder.intended, recorder.sent = (25, 25) if number else (0, 0)
        for at in range(20 if number < 3 else 10):
            due_s = number + at / 20
            recorder.record("http.poll", OK, intended_s=due_s, sent_s=due_s, now_s=due_s + 0.1)
        seconds.append(recorder.cut(number, {"online": 100}).measured())
    recorder.record("http.poll", OK, intended_s=3.99, sent_s=3.99, now_s=4.002)  # ended before the worker heard of it
    recorder.drain(4.0)
    for at in range(9):
        recorder.record("http.poll", TIMEOUT, intended_s=3.5, sent_s=3.5, now_s=3.5 + stalled_s + at / 1000)
    for _ in range(20):
        recorder.record("http.poll", OutcomeClass.REFUSED, intended_s=4.5, sent_s=4.5, now_s=34.5)
    recorder.intended, recorder.sent, recorder.undelivered = 25, 20, 15
    seconds.append(recorder.cut(4, {"online": 0}).measured())
    for second in seconds:
        totals.add(second)
    record, _ = run([])
    return replace(
        record, operations=totals.operations, phases=(Span("hold", "hold", 0.0, 4.0),), drained_from_s=4.0
    ), seconds


@pytest.mark.parametrize(
    ("expression", "observed"),
    [
        ("http.poll.max < 1h", 6.008),  # what fell due in the phases has waited in them, wherever it ended
        ("http.poll.refused.count == 0", 0.0),  # the drain's own requests are the audit's business
        ("http.poll.rate >= 1/s", 70 / 4),  # done while the phases lasted
        ("http.poll.rate >= 1/s over 2s", 15.0),
        ("gauges.online.min > 0", 100.0),
    ],
)
def test_thresholds_judge_the_phases_and_not_the_drain(expression, observed):
    record, seconds = drained()
    (result,) = judge_thresholds([parse(expression)], record, seconds)
    assert result.observed == pytest.approx(observed, rel=0.001)
    assert result.judged


def test_a_run_that_ended_early_is_judged_by_what_it_measured_and_by_no_more():
    wanted = (
        "http.poll.p99 < 500ms",
        "http.poll.p99 < 10ms",
        "http.poll.p99 < 1s over 1m",
        "http.poll.p99 < 1s in hold",
    )
    record, seconds = run([QUICK] * 12, partial="it ended after 12 s of 90 s")
    states = [(result.judged, result.held) for result in judge_thresholds([*map(parse, wanted)], record, seconds)]
    assert states == [(True, True), (True, False), (False, False), (False, False)]
    whole = [
        (result.judged, result.held)
        for result in judge_thresholds([*map(parse, wanted)], replace(record, partial=""), seconds)
    ]
    assert whole == [(True, True), (True, False), (True, False), (True, False)]


@pytest.mark.parametrize(("operator", "worst"), [("<", 6.0), ("<=", 6.0), (">", 1.0), (">=", 1.0), ("==", 6.0)])
def test_the_worst_window_is_the_one_furthest_on_the_wrong_side(operator, worst):
    seconds = [[(OK, 0.1)] * count for count in (3, 1, 6, 2)]
    result = result_of(f"http.poll.count {operator} 3 over 1s", seconds)
    assert result.observed == worst
