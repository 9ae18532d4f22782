"""The age of readings in everything that people and programs read of a run: first, and apart from exchanges."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from simulator.fleet.metrics.ages import READING_AGE, ReadingAges, ages_of, command_operation
from simulator.fleet.metrics.merging import merge_operations
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import CommandEnds, Second, Span
from simulator.fleet.report.figures import run_figures
from simulator.fleet.report.folder import RunFolder
from simulator.fleet.report.live import run_line
from simulator.fleet.report.live_screen import ScreenState, frame
from simulator.fleet.report.making import finish_run, make_reports
from simulator.fleet.report.page.content import content_of
from simulator.fleet.report.run_status import RunHead, RunStatus
from simulator.fleet.report.summary import print_summary
from simulator.fleet.report.timeline import ALL_OPERATIONS, slices_of
from simulator.fleet.report.window import Window
from tests.fleet_runs import Shape, a_run

BEFORE, PLAIN_SECONDS = a_run(Shape(duration_s=20, rate_per_s=40, good=True))


def measured(second: int):
    """Nine of ten readings of each second were accepted after 20 ms, one after 4 s; in the last one some never were."""
    recorder = Recorder()
    ages = ReadingAges(recorder)
    ages.accepted([99.98] * 90, 100.0)
    ages.accepted([96.0] * 10, 100.0)
    if second == PLAIN_SECONDS[-1].second:
        ages.given_up([95.0], OutcomeClass.REFUSED, 100.0)
    return recorder.cut(second).delta().operations


SECONDS = [replace(each, operations={**each.operations, **measured(each.second)}) for each in PLAIN_SECONDS]
RECORD = replace(BEFORE, ages=ages_of(merge_operations([each.operations for each in SECONDS])))


def test_the_files_of_a_run_have_ages_beside_the_exchanges_and_in_none_of_their_sums(tmp_path):
    with RunFolder(tmp_path) as folder:
        folder.keep(RECORD)
        for second in SECONDS:
            folder.append(second)
        finish_run(folder, RECORD)
    document = json.loads((tmp_path / "summary.json").read_text())
    age = document["ages"][READING_AGE]
    assert age["ok"]["count"] == 2000
    assert age["ok"]["response_s"]["p50"] == pytest.approx(0.02, rel=0.001)
    assert age["ok"]["response_s"]["p99"] == pytest.approx(4.0, rel=0.001)
    assert age["refused"]["count"] == 1
    assert READING_AGE not in document["operations"]
    rows = {
        (row["operation"], row["outcome"]): row
        for row in csv.DictReader(io.StringIO((tmp_path / "summary.csv").read_text()))
    }
    assert float(rows[READING_AGE, "ok"]["response_p99_s"]) == pytest.approx(4.0, rel=0.001)
    seconds = list(csv.DictReader(io.StringIO((tmp_path / "seconds.csv").read_text())))
    assert sum(row["operation"] == READING_AGE for row in seconds) == len(SECONDS) + 1
    page = (tmp_path / "report.html").read_text()
    assert "age of readings, p99" in page
    assert page.index("age of readings, p99") < page.index("response time, p99")
    [one] = list(slices_of(SECONDS, 60))
    assert one.counts[READING_AGE][OutcomeClass.OK] == 2000
    [plain] = list(slices_of(PLAIN_SECONDS, 60))
    assert (one.counts[ALL_OPERATIONS], one.response[ALL_OPERATIONS]) == (
        plain.counts[ALL_OPERATIONS],
        plain.response[ALL_OPERATIONS],
    )


def test_a_run_that_was_killed_has_ages_out_of_its_seconds(tmp_path):
    with RunFolder(tmp_path) as folder:
        folder.keep(replace(BEFORE, ended_at="", operations={}, thresholds=(), audit=None))
        for second in SECONDS:
            folder.append(second)
    found = make_reports(tmp_path).record
    assert found.ages == RECORD.ages
    assert READING_AGE not in found.operations


def test_the_first_figure_of_the_page_is_the_age_and_a_run_without_readings_has_none():
    content = content_of(RECORD, run_figures(RECORD), (), 1)
    assert (content.figures[0].label, content.figures[0].value) == ("age of readings, p99", "4.00 s")
    assert "2,000 accepted, 1 not accepted" in content.figures[0].note
    assert content.rows[0].label == "age"
    assert content_of(BEFORE, run_figures(BEFORE), (), 1).figures == content.figures[1:]


def test_the_terminal_tells_ages_before_the_operations():
    console = Console(file=io.StringIO(), width=160)
    print_summary(console, RECORD)
    text = console.file.getvalue()
    [line] = [line for line in text.splitlines() if line.startswith("readings.age")]
    assert "p50 20.0 ms, p95 4.00 s, p99 4.00 s" in line
    assert "2,000 accepted, 100 per s, 1 not accepted" in line
    assert text.index("readings.age") < text.index("http.poll")


def test_the_live_view_has_the_age_of_what_was_accepted_in_the_last_seconds():
    window, without = Window(), Window()
    picture = ScreenState(RunHead("r", "core", "http_poll", "http://t", 10, 1), window)
    for second, plain in zip(SECONDS, PLAIN_SECONDS, strict=True):
        window.take(second)
        without.take(plain)
    assert "age of readings p99 4.00 s" in run_line(window, picture.head, RunStatus())
    assert "age of readings" not in run_line(without, picture.head, RunStatus())
    assert window.counts == without.counts
    lines = frame(picture, 120, 40).plain.splitlines()
    [line] = [line for line in lines if line.startswith("age of readings")]
    assert "p50 20.0 ms · p95 4.00 s · p99 4.00 s" in line
    assert "100 accepted per s" in line


def test_each_phase_has_percentiles_of_its_own_and_those_of_a_drain_come_last(tmp_path):
    """In the middle phase, and in no other, all readings took 4 s; a second between two phases belongs to none."""

    def second(number: int) -> Second:
        recorder = Recorder()
        ReadingAges(recorder).accepted([96.0 if 5 <= number < 10 else 99.98] * 10, 100.0)
        return replace(PLAIN_SECONDS[number], operations=recorder.cut(number).delta().operations)

    spans = [("ramp", 0.0, 5.0), ("hold", 5.0, 10.5), ("after", 10.5, 15.0)]
    phases = tuple(Span(name, "hold", begin_s, end_s) for name, begin_s, end_s in spans)
    seconds = [second(number) for number in range(20)]
    record = replace(BEFORE, phases=phases, drained_from_s=15.0, duration_s=20.0)
    with RunFolder(tmp_path) as folder:
        folder.keep(record)
        for each in seconds:
            folder.append(each)
        finish_run(folder, record)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "phases.csv").read_text())))
    assert [(row["phase"], row["operation"], row["count"]) for row in rows] == [
        ("ramp", READING_AGE, "50"),
        ("hold", READING_AGE, "50"),
        ("after", READING_AGE, "40"),
        ("drain", READING_AGE, "50"),
    ]
    assert [float(row["response_p50_s"]) for row in rows] == pytest.approx([0.02, 4.0, 0.02, 0.02], rel=0.001)
    page = (tmp_path / "report.html").read_text()
    assert page.count('<td data-label="Phase" class="device">') == 4


def with_commands(second: Second) -> Second:
    """Eight pings a second that succeed after 50 ms, a valve that is rejected after 3 s; in the end one is open."""
    recorder = Recorder()

    def ended(name: str, state: str, outcome: OutcomeClass, age_s: float, count: int) -> None:
        for _ in range(count):
            recorder.record(command_operation(name, state), outcome, intended_s=0.0, sent_s=None, now_s=age_s)

    ended("ping", "succeeded", OutcomeClass.OK, 0.05, 8)
    ended("open_valve", "rejected", OutcomeClass.OK, 3.0, 1)
    if second.second == SECONDS[-1].second:
        ended("ping", "open", OutcomeClass.TIMEOUT, 30.0, 1)
    return replace(second, operations={**second.operations, **recorder.cut(second.second).delta().operations})


COMMANDED = [with_commands(each) for each in SECONDS]
ENDS = (CommandEnds("ping", "any", 162, 0, 1, {}), CommandEnds("open_valve", "any", 20, 0, 0, {}))
COMMANDS = replace(
    BEFORE, ages=ages_of(merge_operations([each.operations for each in COMMANDED])), commands=ENDS, duration_s=20.0
)


def test_commands_stand_beside_the_readings_by_end_state_and_by_name(tmp_path):
    with RunFolder(tmp_path) as folder:
        folder.keep(COMMANDS)
        for second in COMMANDED:
            folder.append(second)
        finish_run(folder, COMMANDS)
    assert make_reports(tmp_path).record.ages == COMMANDS.ages
    ages = json.loads((tmp_path / "summary.json").read_text())["ages"]
    assert {name: sum(each["count"] for each in ages[name].values()) for name in ages} == {
        READING_AGE: 2001,
        "commands.age": 181,
        "commands.age.open": 1,
        "commands.age.rejected": 20,
        "commands.age.succeeded": 160,
        "commands.age[open_valve]": 20,
        "commands.age[ping]": 161,
    }
    assert ages["commands.age"]["ok"]["response_s"]["p99"] == pytest.approx(3.0, rel=0.001)
    for name in ("summary.csv", "phases.csv", "seconds.csv"):
        shown = {row["operation"] for row in csv.DictReader(io.StringIO((tmp_path / name).read_text()))}
        assert {"commands.age", "commands.age.rejected", "commands.age[ping]"} < shown, name
        assert not any("]." in operation for operation in shown)
    page = (tmp_path / "report.html").read_text()
    assert page.index("age of readings, p99") < page.index("age of commands, p99") < page.index("response time, p99")
    assert "commands.age[open_valve]" in page
    [one], [plain] = list(slices_of(COMMANDED, 60)), list(slices_of(PLAIN_SECONDS, 60))
    assert one.counts["commands.age"][OutcomeClass.OK] == 180
    assert (one.counts[ALL_OPERATIONS], one.response[ALL_OPERATIONS]) == (
        plain.counts[ALL_OPERATIONS],
        plain.response[ALL_OPERATIONS],
    )


def test_the_terminal_and_the_live_view_tell_the_age_of_commands_and_how_many_have_no_known_end():
    console, window = Console(file=io.StringIO(), width=200), Window()
    print_summary(console, COMMANDS)
    lines = console.file.getvalue().splitlines()
    [whole] = [line for line in lines if line.startswith("commands.age")]
    # One order was answered without its id: beside the open one it is the second whose end nobody knows.
    assert "p50 50.0 ms, p95 3.00 s" in whole
    assert "180 ended, 9 per s, 2 without a known end" in whole
    assert [line.split()[0] for line in lines if line.startswith("  commands.age")] == [
        "commands.age.open",
        "commands.age.rejected",
        "commands.age.succeeded",
        "commands.age[open_valve]",
        "commands.age[ping]",
    ]
    assert any("response p50" in line for line in lines)
    for second in COMMANDED:
        window.take(second)
    picture = ScreenState(RunHead("r", "core", "http_poll", "http://t", 10, 1), window)
    line = run_line(window, picture.head, RunStatus())
    assert "age of readings p99 4.00 s | age of commands p99 30.0 s | response p50 " in line
    [line] = [line for line in frame(picture, 120, 40).plain.splitlines() if line.startswith("age of commands")]
    assert "9 ended per s" in line
