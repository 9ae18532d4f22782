"""Thresholds: what can be said, and what an error says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulator.fleet.metrics.thresholds import AUDIT_COUNTS, OPERATIONS, Source, ThresholdError, Unit, parse
from simulator.fleet.outcomes import FAILED, WAITED, OutcomeClass

OK = OutcomeClass.OK
RATE, SHARE, TIME, COUNT = Unit.RATE, Unit.SHARE, Unit.TIME, Unit.COUNT
ROOT = Path(__file__).parents[5]


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
        ("readings.p50 < 1h", "readings.age", WAITED, ("percentile", 50.0), (3600.0, TIME)),
        ("commands.round_trip.p95 < 2s", "commands.round_trip", WAITED, ("percentile", 95.0), (2.0, TIME)),
        ("commands.sent.max < 1h", "commands.sent", WAITED, ("max", 0.0), (3600.0, TIME)),
        ("generator.send_lag.p99 < 10ms", "send_lag", set(), ("percentile", 99.0), (0.01, TIME)),
        ("generator.cpu.max < 90%", "cpu", set(), ("max", 0.0), (90.0, SHARE)),
        ("generator.sent >= 99.5%", "sent", set(), ("sent", 0.0), (99.5, SHARE)),
        ("gauges.online.min != 3", "online", set(), ("min", 0.0), (3.0, COUNT)),
        ("audit.commands.doubled == 0", "commands", set(), ("doubled", 0.0), (0.0, COUNT)),
    ],
)
def test_a_threshold_says_what_how_and_how_much(text, name, outcomes, measure, limit):
    threshold = parse(text)
    assert threshold.names == {name}
    assert (threshold.outcomes, (threshold.measure, threshold.percent)) == (frozenset(outcomes), measure)
    assert (pytest.approx(threshold.limit), threshold.unit) == limit
    assert (threshold.expression, threshold.over_s, threshold.phase) == (text, None, None)


def test_windows_phases_streams_and_the_ages_of_commands():
    threshold = parse("http.sensor_data.service.p99 < 250 ms in hold over 1m", phases=["ramp", "hold"])
    assert (threshold.service, threshold.phase, threshold.over_s) == (True, "hold", 60)
    assert parse("http.poll.count == 0 in hold").phase == "hold"
    assert parse("audit.lost == 0").names == {"readings", "commands", "registrations"}
    assert parse("audit.lost == 0").source is Source.AUDIT
    age = parse("commands.age[ping].failed.p99 < 1m", commands=["ping"])
    assert (age.names, age.command, age.states) == ({"commands.age"}, "ping", {"failed"})
    assert age.outcomes == frozenset(OutcomeClass)
    assert (parse("commands.expired.count == 0").states, parse("commands.count > 0").states) == ({"expired"}, set())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "write WHAT.MEASURE OPERATOR VALUE"),
        ("htp.poll.p99 < 1s", "nothing is measured as 'htp.poll': write one of "),
        ("readings.age.service.p99 < 1s", "leave out 'service'"),
        ("http.poll.limitd.rate < 1%", "nothing is measured as 'http.poll.limitd'"),
        ("http.poll.expired.count == 0", "has no outcome 'expired'"),
        ("http.poll.p101 < 1s", "write WHAT.MEASURE"),
        ("http.poll.last < 1s", "has no measure 'last'"),
        ("http.poll.p99 = 1s", "OPERATOR"),
        ("http.poll.p99 < 250", "250 has not its unit: write one of us"),
        ("http.poll.p99 < 3%", "3% has not its unit"),
        ("http.poll.rate > 100 over 1m", "write one of /s, /m, /min, /h, %"),
        ("http.poll.count == 3%", "write 3 without '%'"),
        ("http.poll.all.rate < 3%", "name an outcome, such as limited or failed"),
        ("generator.cpu.p99 < 9%", "generator.cpu has no measure 'p99': write one of max, mean"),
        ("gauges.online.p99 >= 3", "write one of min, max, mean, last"),
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


def test_every_operation_that_the_fleet_names_can_stand_in_a_threshold():
    named = {
        name
        for path in (ROOT / "simulator" / "fleet").rglob("*.py")
        for name in re.findall(r'"((?:http|mqtt|readings)\.[a-z_]+)"', path.read_text(encoding="utf-8"))
    }
    counts = {f"readings.{name}" for name in AUDIT_COUNTS}
    assert named - counts == {name for name in OPERATIONS if not name.startswith("commands.")}


def test_every_threshold_of_the_documents_can_be_read():
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    section = page.partition("\n## Thresholds\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    assert len(shown) > 10
    for text in shown:
        assert parse(text, phases=["hold"]).expression == text
