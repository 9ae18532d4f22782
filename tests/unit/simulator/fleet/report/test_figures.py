"""Figures are derived once: by hand they come out the same, and each output shows the same numbers."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import RunRecord, Second, Tally
from simulator.fleet.report.figures import (
    OPERATION_COLUMNS,
    OUTCOME_COUNTS,
    OperationFigures,
    figures_by_operation,
    run_figures,
)
from simulator.fleet.report.folder import RunFolder
from simulator.fleet.report.making import make_reports
from simulator.fleet.report.summary import operations_table
from tests.fleet_runs import Shape, a_run

OK, LIMITED, TIMEOUT, REFUSED = OutcomeClass.OK, OutcomeClass.LIMITED, OutcomeClass.TIMEOUT, OutcomeClass.REFUSED


def tally(count: int, value_s: float, *, again: int = 0, ambiguous: int = 0) -> Tally:
    times = Histogram()
    times.record_many([value_s] * count)
    return Tally(count, count - again, times.encode(), times.encode(), ambiguous)


POLL = {OK: tally(90, 0.1), TIMEOUT: tally(10, 5.0), LIMITED: tally(7, 0.001), REFUSED: tally(3, 0.001)}
SENT = {OK: tally(40, 0.2, again=4, ambiguous=1)}
HELD = {OK: tally(5, 20.0)}


def test_an_operation_by_hand():
    found = OperationFigures.from_parts("http.poll", (POLL, {OK: tally(10, 0.3)}), 20.0)
    assert (found.good, found.limited, found.errors, found.total) == (100, 7, 13, 120)
    assert found.per_s(found.good) == 5.0
    assert found.response.count == 110  # good answers, and those that never came
    assert found.response.percentile(95) == pytest.approx(5.0, rel=0.001)


def test_a_rate_over_no_time_is_no_number():
    assert math.isnan(OperationFigures.from_parts("http.poll", (POLL,), 0.0).per_s(1))


def test_together_all_count_and_what_is_held_on_purpose_is_in_no_time():
    each = figures_by_operation({"http.poll": POLL, "http.long_poll": HELD, "http.sensor_data": SENT}, 10.0)
    whole = OperationFigures.combined("all", each.values(), 10.0)
    assert (whole.good, whole.total) == (135, 155)
    assert (whole.resends.after_refusal, whole.resends.ambiguous) == (3, 1)
    assert whole.response.max_s == pytest.approx(5.0, rel=0.001)
    assert each["http.long_poll"].response.max_s == pytest.approx(20.0, rel=0.001)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[RunRecord, Path]:
    record, _ = a_run(Shape(duration_s=10, good=True))
    operations = {"http.poll": POLL, "http.sensor_data": SENT}
    record = replace(record, operations=operations, thresholds=(), scenario_text="", command_stages={}, ages={})
    folder = tmp_path_factory.mktemp("run")
    with RunFolder(folder) as run:
        none_sent = replace(record.health, sent=0, intended=0)
        for second in range(10):
            run.append(Second(second, operations if second == 0 else {}, {}, none_sent))
        run.finish(record)
    return make_reports(folder).record, folder


def test_terminal_and_page_show_the_same_columns(made):
    record, folder = made
    page = (folder / "report.html").read_text()
    console = Console(file=io.StringIO(), width=200)
    console.print(operations_table(record.operations, record.duration_s, (50.0,)))
    head, *rows = [line.split() for line in console.file.getvalue().splitlines() if line.strip()]
    for figures, row in zip(run_figures(record).operations.values(), rows, strict=True):
        assert row[0] == figures.name
        # A heading such as "per s" is two words.
        assert row[1 : 1 + len(OPERATION_COLUMNS)] == [column.text(figures) for column in OPERATION_COLUMNS]
        for column in OPERATION_COLUMNS:
            assert not column.page or f'data-label="{column.page}" class="n">{column.text(figures)}</td>' in page
    assert " ".join(head).startswith("operation " + " ".join(column.terminal for column in OPERATION_COLUMNS))


def test_tables_and_json_show_the_same_counts(made):
    _, folder = made
    written = json.loads((folder / "summary.json").read_text())["operations"]
    with (folder / "summary.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5
    for row in rows:
        counts = written[row["operation"]][row["outcome"]]
        assert [int(row[name]) for name in OUTCOME_COUNTS] == [counts[name] for name in OUTCOME_COUNTS]
    assert written["http.sensor_data"]["ok"]["resends_after_refusal"] == 3
