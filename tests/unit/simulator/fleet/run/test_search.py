"""Runs that end by what they measure, on virtual time: searches for the limit, and thresholds to abort on."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from agent.errors import ConfigurationError
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.recorder import Cut
from simulator.fleet.record import StepWord, VerdictStatus
from simulator.fleet.report.making import make_reports
from simulator.fleet.report.summary import print_summary
from tests.support.virtual_fleet.scenarios import CONTEXTS, Looker
from tests.support.virtual_fleet.service import Sent

UNAVAILABLE = (503, {"error": "unavailable", "message": "too much"})
STEPS = {"name": "search", "kind": "steps", "settle_s": 5, "hold_s": 10}
RATES = {**STEPS, "from": 10, "to": 40, "by": 10, "until_broken": ["http.sensor_data.failed.rate < 1%"]}
COUNTS = {**STEPS, "from": 2, "to": 6, "by": 2, "until_broken": ["http.sensor_data.failed.rate < 1%"]}
HELD, BROKE, UNJUDGED = StepWord.HELD, StepWord.BROKE, StepWord.UNJUDGED


def requests(**changes):
    arrivals = [{"rate_per_s": 40}]
    return {**CONTEXTS["requests"], "arrivals": arrivals, "phases": [{**RATES, **changes}]}


def devices(context="core-poll", **changes):
    return {**CONTEXTS[context], "phases": [{**COUNTS, **changes}]}


@pytest.fixture
def looker(tmp_path):
    return Looker(tmp_path)


def words(record):
    return [(step.level, step.word) for step in record.search.steps]


def broken_above(limit_per_s):
    """A service that refuses readings while more than so many of them come in a second."""
    times: list[float] = []

    def answers(sent: Sent):
        if sent.operation != "POST /sensor-data":
            return None
        times.append(sent.at_s)
        return UNAVAILABLE if sum(sent.at_s - 1 < at_s for at_s in times[-100:]) > limit_per_s else None

    return answers


def test_the_largest_rate_that_held_and_what_broke_the_next_one_are_found_and_shown_and_the_run_passes(looker):
    look = looker(requests(), broken_above(25))
    record = look.run.record
    assert words(record) == [(10, HELD), (20, HELD), (30, BROKE)]
    assert record.search.largest_held == 20
    assert (record.verdict.word, record.verdict.exit_code) == (VerdictStatus.PASSED, 0)
    assert record.verdict.sentences[0].startswith(
        "search: 20 requests/s held, 30 requests/s did not: http.sensor_data.failed.rate < 1%: it was "
    )
    assert [span.name for span in record.phases][-2:] == ["search-30-ramp", "search-30"], "it stops at what broke"
    assert max(sent.at_s for sent in look.run.batches) < record.phases[-1].end_s + 2
    console = Console(file=StringIO(), width=200)
    print_summary(console, record)
    shown = console.file.getvalue()
    assert "The limit was found.  exit code 0" in shown
    assert "✓ 20 requests/s held" in shown
    assert "✕ 30 requests/s broke  http.sensor_data.failed.rate < 1%: it was " in shown
    folder = look.folder / "run"
    make_reports(folder)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "How many it holds" in page
    assert "search: 20 requests/s held, 30 requests/s did not" in page
    search = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["search"]
    assert (search["unit"], search["largest_held"], search["last"]) == ("requests/s", 20, 40)
    assert [(step["level"], step["word"]) for step in search["steps"]] == [(10, "held"), (20, "held"), (30, "broke")]


@pytest.mark.parametrize(
    "document", [requests(), devices(), devices("core-mqtt", until_broken=["mqtt.receipt.p99 < 1s"])]
)
def test_a_search_whose_last_step_held_says_that_the_limit_is_higher(looker, document):
    record = looker(document).run.record
    assert {word for _, word in words(record)} == {HELD}
    assert record.search.largest_held == record.search.last
    assert record.verdict.word is VerdictStatus.PASSED
    assert "the limit is higher" in record.verdict.sentences[0]


def test_a_search_whose_first_step_broke_fails(looker):
    record = looker(requests(), broken_above(5)).run.record
    assert words(record) == [(10, BROKE)]
    assert record.search.largest_held is None
    assert (record.verdict.word, record.verdict.exit_code) == (VerdictStatus.FAILED, 1)
    assert record.verdict.sentences[0].startswith("search: the first step, 10 requests/s, did not hold: ")


def test_devices_are_switched_on_step_by_step_until_it_breaks(looker):
    def broken(sent: Sent):
        return UNAVAILABLE if sent.operation == "POST /sensor-data" and 22 < sent.at_s < 31 else None

    run = looker({**devices(), "drain_s": 60}, broken).run
    assert words(run.record) == [(2, HELD), (4, BROKE)]
    assert max(run.online) == 4, "nobody else is switched on when it is over"
    assert run.record.verdict.word is VerdictStatus.PASSED
    for span, count in zip((each for each in run.record.phases if each.kind == "hold"), (2, 4), strict=True):
        assert set(run.online[int(span.begin_s) + 1 : int(span.end_s) - 1]) == {count}


def test_a_step_in_which_the_generator_was_the_limit_is_not_judged_and_the_search_is_inconclusive(looker, monkeypatch):
    measured, lag = Cut.measured, Histogram()
    lag.record_many([0.4] * 100)

    def strained(cut, *arguments):
        second = measured(cut, *arguments)
        if cut.number < 20:
            return second
        return replace(second, health=replace(second.health, cpu_percent=100.0, send_lag=lag.encode()))

    monkeypatch.setattr(Cut, "measured", strained)
    record = looker(requests(), broken_above(15)).run.record
    assert words(record) == [(10, HELD), (20, UNJUDGED)]
    assert (record.verdict.word, record.verdict.exit_code) == (VerdictStatus.INCONCLUSIVE, 3)
    assert record.verdict.sentences[0].startswith(
        "search: 10 requests/s held; 20 requests/s cannot be judged: the generator was the limit in "
    )


def test_the_thresholds_of_the_scenario_are_about_the_whole_run_and_have_the_last_word(looker):
    document = {**requests(), "thresholds": ["http.sensor_data.failed.rate < 1%"]}
    record = looker(document, broken_above(25)).run.record
    assert record.search.has_found_limit
    assert record.verdict.word is VerdictStatus.FAILED
    assert any(sentence.startswith("search: 20 requests/s held") for sentence in record.verdict.sentences)
    in_a_step = {**requests(), "thresholds": ["http.sensor_data.failed.rate < 1% in search-20"]}
    assert looker(in_a_step, broken_above(25)).run.record.verdict.word is VerdictStatus.PASSED


@pytest.mark.parametrize("context", ["core-poll", "requests"])
def test_a_threshold_to_abort_on_ends_the_run_when_it_breaks_and_the_run_fails(looker, context):
    def broken(sent: Sent):
        return UNAVAILABLE if sent.operation == "POST /sensor-data" and 12 < sent.at_s < 18 else None

    phases = [{"name": "first", "kind": "hold", "duration_s": 100}, {"name": "next", "kind": "hold", "duration_s": 100}]
    abort_on = ["http.sensor_data.failed.rate < 50% over 3s"]
    document = {**CONTEXTS[context], "phases": phases, "drain_s": 60, "abort_on": abort_on}
    run = looker(document, broken).run
    record = run.record
    assert (record.verdict.word, record.verdict.exit_code) == (VerdictStatus.FAILED, 1)
    assert record.verdict.sentences[0].startswith(f"ended early: {abort_on[0]}: it was ")
    assert 13 < record.drained_from_s < 19
    assert [(span.name, span.end_s) for span in record.phases] == [("first", record.drained_from_s)]
    assert record.audit.complete
    assert record.audit.readings.lost == 0
    assert [each.second for each in run.seconds] == list(range(len(run.seconds)))
    assert not looker(document).run.record.partial, "it goes to its end while the threshold holds"


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        (requests(to=50), "to: is more than 40, which is all rate_per_s of the arrivals together"),
        (devices(to=7), "to: is more than 6, which is fleet.devices: write less, or raise that"),
        (devices(by=0.5), "counts devices: write whole numbers"),
        (requests(to=5), "'to' is less than 'from', 10: steps go up"),
        (requests(by=0.01), "'by' makes more than 200 steps: write a larger one"),
        (requests(until_broken=["audit.lost == 0"]), "put the audit in 'thresholds'"),
        (requests(until_broken=["http.sensor_data.p99 < 1s over 10s"]), "no 10 s fit into hold_s: hold longer"),
        (requests(until_broken=["commands.age.p99 < 1s"]), "the scenario sends no commands"),
        (requests(until_broken=["http.nothing.p99 < 1s"]), "nothing is measured as 'http.nothing'"),
        ({**CONTEXTS["requests"], "abort_on": ["http.failed.rate < 1%"]}, "abort_on"),
        ({**CONTEXTS["requests"], "abort_on": ["http.failed.rate < 1% over 5s in first"]}, "abort_on"),
        (
            {**requests(), "phases": [RATES, {"name": "later", "kind": "hold", "duration_s": 5}]},
            "a search for the limit ends the run: make it the last phase",
        ),
        (
            {**requests(), "phases": [{"name": "search-20", "kind": "hold", "duration_s": 5}, RATES]},
            "several phases are called 'search-20': give each a name of its own",
        ),
    ],
)
def test_a_search_or_an_abort_on_that_cannot_be_is_refused_with_what_to_write_instead(looker, document, fault):
    with pytest.raises(ConfigurationError) as refused:
        looker(document)
    assert fault in str(refused.value)
