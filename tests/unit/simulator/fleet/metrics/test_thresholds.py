"""Thresholds: what can be said, and what an error says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.fleet.metrics.subjects import AUDIT_COUNTS, FAILED, OPERATIONS, WAITED, Source, Unit
from simulator.fleet.metrics.thresholds import ThresholdError, parse
from simulator.fleet.outcomes import OutcomeClass

OK = OutcomeClass.OK
RATE, SHARE, TIME, COUNT = Unit.RATE, Unit.SHARE, Unit.TIME, Unit.COUNT


@pytest.mark.parametrize(
    ("text", "name", "outcomes", "measure", "limit"),
    [
        ("http.sensor_data.p99 < 250ms", "http.sensor_data", WAITED, ("percentile", 99.0), (0.25, TIME)),
        ("http.sensor_data.p99.9<2 s", "http.sensor_data", WAITED, ("percentile", 99.9), (2.0, TIME)),
        ("http.poll.ok.p100 <= 1.5m", "http.poll", {OK}, ("percentile", 100.0), (90.0, TIME)),
        ("http.poll.limited.rate < 1%", "http.poll", {OutcomeClass.LIMITED}, ("rate", 0.0), (1.0, SHARE)),
        ("http.poll.failed.count == 0", "http.poll", FAILED, ("count", 0.0), (0.0, COUNT)),
        ("http.sensor_data.rate >= 2_000/s", "http.sensor_data", {OK}, ("rate", 0.0), (2000.0, RATE)),
        ("http.sensor_data.all.rate >= 60/min", "http.sensor_data", set(OutcomeClass), ("rate", 0.0), (1.0, RATE)),
        ("http.p50 < 100us", "http.*", WAITED, ("percentile", 50.0), (0.0001, TIME)),
        ("commands.round_trip.p95 < 2s", "commands.round_trip", WAITED, ("percentile", 95.0), (2.0, TIME)),
        ("commands.delivered.max < 1h", "commands.delivered", WAITED, ("max", 0.0), (3600.0, TIME)),
        ("generator.send_lag.p99 < 10ms", "send_lag", set(), ("percentile", 99.0), (0.01, TIME)),
        ("generator.cpu.max < 90%", "cpu", set(), ("max", 0.0), (90.0, SHARE)),
        ("generator.sent >= 99.5%", "sent", set(), ("rate", 0.0), (99.5, SHARE)),
        ("gauges.online.min != 3", "online", set(), ("min", 0.0), (3.0, COUNT)),
    ],
)
def test_a_threshold_says_what_how_and_how_much(text, name, outcomes, measure, limit):
    threshold = parse(text)
    subject = threshold.subject
    assert subject.names == {name}
    assert (subject.outcomes, (subject.measure, subject.percent)) == (frozenset(outcomes), measure)
    assert (pytest.approx(threshold.limit), threshold.unit) == limit
    assert (threshold.expression, threshold.over_s, threshold.phase) == (text, None, None)


def test_the_audit_is_of_readings_and_commands_or_of_one_of_them():
    assert parse("audit.lost == 0").subject.names == {"readings", "commands", "registrations"}
    subject = parse("audit.commands.doubled == 0").subject
    assert (subject.source, subject.names, subject.measure) == (Source.AUDIT, {"commands"}, "doubled")


def test_windows_phases_and_the_time_since_sending():
    threshold = parse("http.sensor_data.service.p99 < 250 ms in hold over 1m", phases=["ramp", "hold"])
    assert (threshold.subject.service, threshold.phase, threshold.over_s) == (True, "hold", 60)
    assert parse("http.sensor_data.response.ok.p99 < 1s".replace("response.ok", "ok.response")).subject.service is False
    assert parse("http.poll.p99 < 1s over 10s").over_s == 10


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("", 1, ["expected what is measured", "it ends here"]),
        (
            "htp.poll.p99 < 1s",
            1,
            ["expected one of commands, http, mqtt, readings, audit", "found 'htp'; did you mean 'http'?"],
        ),
        ("http.sensor_dat.p99 < 1s", 6, ["found 'sensor_dat'; did you mean 'sensor_data'?"]),
        ("readings.age.service.p99 < 1s", 14, ["found 'service'"]),
        ("http.poll.limitd.rate < 1%", 11, ["found 'limitd'; did you mean 'limited'?"]),
        ("http.poll.p101 < 1s", 11, ["expected one of", "p99", "found 'p101'"]),
        ("http.poll.p99.max < 1s", 15, ["expected nothing after the measure", "found 'max'"]),
        ("http.poll < 1s", 10, ["expected one of p99", "the name ends here"]),
        ("http.poll.p99", 14, ["expected one of <= >= == != < >", "it ends here"]),
        ("http.poll.p99 = 1s", 15, ["found '='; did you mean '=='?"]),
        ("http.poll.p99 => 1s", 15, ["found '=>'; did you mean '>='?"]),
        ("http.poll.p99 < fast", 17, ["expected a number", "found 'fast'"]),
        ("http.poll.p99 < 250", 20, ["expected the unit of http.poll.p99", "write 250s or 250ms"]),
        ("http.poll.p99 < 250mss", 20, ["one of us µs ms s m min h", "did you mean 'ms'?"]),
        ("http.poll.p99 < 3%", 18, ["one of us µs ms s m min h", "found '%'"]),
        ("http.poll.rate > 100 over 1m", 22, ["one of /s /m /min /h %", "found 'over'"]),
        ("http.poll.count == 3%", 21, ["counted in pieces: expected no unit"]),
        ("http.poll.all.rate < 3%", 1, ["name an outcome, such as limited or failed"]),
        ("generator.sent >= 9", 20, ["expected the unit of generator.sent, %"]),
        ("generator.cpu.p99 < 9%", 15, ["expected one of max, mean", "found 'p99'"]),
        ("gauges < 3", 7, ["expected the name of a gauge"]),
        ("gauges.online >= 3", 14, ["expected one of min, max, mean, last"]),
        ("audit.losst == 0", 7, ["did you mean 'lost'?"]),
        ("audit.lost == 0 over 1m", 17, ["expected the end: the audit is of the whole run"]),
        ("http.poll.p99 < 1s ovr 1m", 20, ["expected in PHASE, over TIME, or the end", "found 'ovr'"]),
        ("http.poll.p99 < 1s over 1m please", 28, ["expected the end", "found 'please'"]),
        ("http.poll.p99 < 1s over 3", 26, ["expected a unit of time", "it ends here"]),
        ("http.poll.p99 < 1s over 500ms", 25, ["whole number of seconds, 1s at least"]),
        ("http.poll.p99 < 1s in hodl over 1m", 23, ["no phase is called 'hodl'", "ramp", "did you mean 'hold'?"]),
        ("http.poll.p99 < 1s in", 22, ["expected the name of a phase"]),
    ],
)
def test_an_error_names_the_column_what_was_expected_and_what_was_meant(text, column, words):
    with pytest.raises(ThresholdError) as caught:
        parse(text, phases=["ramp", "hold"])
    assert caught.value.column == column
    assert str(caught.value).startswith(f'threshold "{text}", column {column}: ')
    for word in words:
        assert word in caught.value.expected
    assert "\n" not in str(caught.value)


def test_a_scenario_with_operations_of_its_own_can_name_them():
    assert parse("http.confirm.p99 < 1s", operations={"http.confirm"}).subject.names == {"http.confirm"}
    with pytest.raises(ThresholdError, match="no phases"):
        parse("http.poll.p99 < 1s in hold", phases=[])


def test_every_operation_that_the_fleet_names_can_stand_in_a_threshold():
    fleet = Path(__file__).parents[5] / "simulator" / "fleet"
    named = {
        name
        for path in fleet.rglob("*.py")
        for name in re.findall(r'"((?:http|mqtt|readings)\.[a-z_]+)"', path.read_text(encoding="utf-8"))
    }
    counts = {f"readings.{name}" for name in AUDIT_COUNTS}
    assert named - counts == {name for name in OPERATIONS if not name.startswith("commands.")}


def test_every_threshold_of_the_documents_can_be_read():
    page = (Path(__file__).parents[5] / "docs" / "results.md").read_text(encoding="utf-8")
    section = page.partition("\n## Thresholds\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    assert len(shown) > 10
    for text in shown:
        assert parse(text, phases=["hold"]).expression == text


@given(st.text(st.sampled_from("http.polsnadit_9% <>=/msin over"), max_size=40))
def test_whatever_is_written_is_read_or_refused_with_a_column(text):
    column = 1
    try:
        assert parse(text).expression == text
    except ThresholdError as error:
        column = error.column
    assert 1 <= column <= len(text) + 1
